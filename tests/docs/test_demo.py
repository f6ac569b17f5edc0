"""`make demo`."""

from __future__ import annotations

import os
import pty
import select
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
        "channel add TYPE",
    ):
        assert said in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / ".jackfield").exists()


def test_it_fails_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    demo = script("demo")
    monkeypatch.setattr(demo, "MENU", "Soup, mock: say surprise")
    assert demo.play() == 1
    assert "The demonstration failed: " in capsys.readouterr().err


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
