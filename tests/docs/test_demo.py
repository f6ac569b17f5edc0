"""`make demo`."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, script

DEMO = ROOT / "scripts" / "demo.py"


def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")},
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        "TERM": "xterm",
    }


def test_without_a_terminal_it_plays_the_conversation_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir(mode=0o711)
    done = subprocess.run(
        [sys.executable, str(DEMO)], env=environment(tmp_path), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, encoding="utf-8", timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (
        "You said: Hello! Is anybody there?",
        "There. The tool said: Message sent to",
        "[file menu.txt, 19 bytes]",
        "It arrived, and reads: Soup, bread, plums.",
        "1. tea",
        "you   [coffee]",
        "(changes 'Bread: in the oven') Bread: ready",
        "all completed;",
        "Next, in a home of your own:",
        "group set andy provider NAME",
        "channel setup TYPE",
    ):
        assert said in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / ".jackfield").exists()


def test_it_fails_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    demo = script("demo")
    monkeypatch.setattr(demo, "MENU", "Soup, mock: say surprise")
    assert demo.play() == 1
    assert "The demonstration failed: " in capsys.readouterr().err


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("moment", ["The host, a process of its own", "It runs as process"])
def test_its_host_and_folder_are_gone_soon_after_it_was_killed(
    tmp_path: Path, how: signal.Signals, moment: str
) -> None:
    (tmp_path / "tmp").mkdir(mode=0o711)
    with subprocess.Popen(
        [sys.executable, str(DEMO)], env=environment(tmp_path), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, encoding="utf-8",
    ) as demo:  # fmt: skip
        assert demo.stdout is not None
        assert demo.stderr is not None
        assert any(line.strip().startswith(moment) for line in demo.stdout)
        (root,) = (tmp_path / "tmp").glob("jackfield-demo-*")
        demo.send_signal(how)
        said = demo.stderr.read()
        assert demo.wait(timeout=120) == (130 if how is signal.SIGINT else -how)
    assert said.strip() == ("stopped" if how is signal.SIGINT else "")
    until = time.monotonic() + 120
    while root.exists() or named(root):
        assert time.monotonic() < until, named(root)
        time.sleep(0.1)


def named(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    shown = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if str(folder) in line]


def test_a_chat_ends_when_the_demonstration_is_killed(tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, str(DEMO)], env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown, until = b"", time.monotonic() + 120
    try:
        while b"Talking to Andy" not in shown:
            assert time.monotonic() < until, shown.decode(errors="replace")
            if select.select([terminal], [], [], 1.0)[0]:
                shown += os.read(terminal, 65536)
        os.kill(demo.pid, signal.SIGKILL)
        home = tmp_path / "cache" / "jackfield-demo"
        with (home / "host.lock").open("r+b") as lock:
            while True:
                assert time.monotonic() < until, "its host still runs"
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.1)
    finally:
        demo.kill()
        demo.wait()
        os.close(terminal)


def test_with_a_terminal_it_opens_a_chat_in_a_home_of_its_own(tmp_path: Path) -> None:
    terminal, theirs = pty.openpty()
    demo = subprocess.Popen(
        [sys.executable, str(DEMO)], env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""

    def read_until(words: bytes) -> None:
        nonlocal shown
        until = time.monotonic() + 60
        while words not in shown:
            assert time.monotonic() < until, shown.decode(errors="replace")
            if select.select([terminal], [], [], 1.0)[0]:
                shown += os.read(terminal, 65536)

    try:
        read_until(b"Talking to Andy")
        os.write(terminal, b"hello\r")
        read_until(b"You said: hello")
        os.write(terminal, b"\x04")
        read_until(b"To forget this demonstration")
        assert demo.wait(timeout=60) == 0
    finally:
        demo.kill()
        demo.wait()
        os.close(terminal)
    text = shown.decode(errors="replace")
    assert text.startswith("Welcome to Jackfield.")
    assert "your own ~/.jackfield is not touched" in text
    assert "Next, in a home of your own:" in text
    assert (tmp_path / "cache" / "jackfield-demo" / "jackfield.toml").is_file()
    assert not (tmp_path / ".jackfield").exists()
