"""`jackfield chat` as a program: with pipes, and on a real pseudo terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

BOUND = 60.0
PROGRAM = Path(__file__).with_name("standin.py")
_ESCAPES = re.compile(r"\x1b\][^\x07]*\x07|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]")


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")} | {
        "TERM": "xterm-256color",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "PYTHONUNBUFFERED": "1",
    }


def run(home: Path, said: str, *arguments: str, timeout: float = BOUND) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(home), *arguments],
        input=said,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        check=False,
    )


def test_the_whole_of_standard_input_is_one_message(tmp_path: Path) -> None:
    done = run(tmp_path, "one\ntwo\n", "home")
    assert (done.returncode, done.stdout, done.stderr) == (0, "You said: one\ntwo\n", "")


def test_each_line_may_be_a_message(tmp_path: Path) -> None:
    done = run(tmp_path, "one\n\ntwo\n", "Ada", "--lines")
    assert (done.returncode, done.stdout) == (0, "You said: one\nYou said: two\n")


def test_a_message_may_stand_on_the_command_line_with_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    done = run(tmp_path, "", "home", "-m", "look", "--file", str(tmp_path / "a.txt"))
    assert (done.returncode, done.stdout) == (0, "You said: look [a.txt]\n")


def test_machines_get_lines_of_json(tmp_path: Path) -> None:
    done = run(tmp_path, "evil", "home", "--json")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["type"] for frame in frames] == ["accepted", "message"]
    assert "\x1b" not in done.stdout and "\x1b[2J" in frames[1]["text"]


def test_files_come_as_paths(tmp_path: Path) -> None:
    done = run(tmp_path, "file", "home")
    path = Path(done.stdout.rsplit(": ", 1)[1].strip())
    assert path.read_text() == "from the agent" and path.is_relative_to(tmp_path)


def test_a_failed_turn_ends_with_1_and_the_reason(tmp_path: Path) -> None:
    done = run(tmp_path, "fail", "home")
    notice = "The agent could not answer this message (auth).\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, notice, "the turn failed: auth: no such key\n")


def test_a_refused_message_ends_with_1_and_the_reason(tmp_path: Path) -> None:
    """C007."""
    done = run(tmp_path, "refuse", "home")
    assert (done.returncode, done.stderr) == (1, "not sent: the disk is full\n")


def test_a_text_that_is_too_long_is_refused_with_a_way_out(tmp_path: Path) -> None:
    for said in ("\x01" * 1_000_000, "x" * 5_000_000):
        done = run(tmp_path, said, "home")
        assert done.returncode in (1, 2) and "file" in done.stderr


def test_when_time_runs_out_it_ends_with_1(tmp_path: Path) -> None:
    done = run(tmp_path, "silent", "home", "--timeout", "1")
    assert done.returncode == 1 and "no answer within 1 seconds" in done.stderr


def test_a_host_that_goes_away_is_waited_for(tmp_path: Path) -> None:
    done = run(tmp_path, "vanish", "home")
    assert (done.returncode, done.stdout) == (0, "I am back\n")
    assert "The host went away" in done.stderr


def test_a_repeated_send_is_shown_once(tmp_path: Path) -> None:
    assert run(tmp_path, "twice", "home").stdout == "once only\n"


def test_nothing_to_say_is_a_usage_error(tmp_path: Path) -> None:
    done = run(tmp_path, " \n", "home")
    assert done.returncode == 2 and "nothing to send" in done.stderr


def test_an_unknown_group_is_named_with_its_neighbours(tmp_path: Path) -> None:
    done = run(tmp_path, "x", "hone")
    assert done.returncode == 3 and "did you mean home?" in done.stderr


def test_without_a_group_the_known_ones_are_named(tmp_path: Path) -> None:
    done = run(tmp_path, "x")
    assert done.returncode == 2 and "the groups are: home, bob" in done.stderr


def test_at_a_terminal_one_of_several_agents_is_chosen_by_number(tmp_path: Path) -> None:
    opened = Terminal(tmp_path)
    try:
        assert "1. " in opened.until("2. Bob (bob)")
        opened.until("Talk to")
        opened.type("7\n")
        opened.until("Talk to")
        opened.type("2\n")
        opened.until("›")
        opened.type("hello\r")
        opened.until("You said: hello")
    finally:
        opened.close()


def test_ctrl_c_at_the_choice_of_an_agent_ends_it(tmp_path: Path) -> None:
    opened = Terminal(tmp_path)
    try:
        opened.until("Talk to")
        # Python loses a signal that comes right before it begins to read; a person presses the keys once more.
        assert opened.interrupted() in (1, 130)
    finally:
        opened.close()


def test_a_mark_at_the_beginning_of_what_is_piped_is_no_text(tmp_path: Path) -> None:
    done = run(tmp_path, "\ufeffone\n", "home")
    assert (done.returncode, done.stdout) == (0, "You said: one\n")
    done = run(tmp_path, "\ufeffone\ntwo\n", "home", "--lines")
    assert done.stdout == "You said: one\nYou said: two\n"


def test_an_empty_name_of_a_thread_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, "x", "home", "--thread", "")
    assert done.returncode == 2 and "--thread is empty" in done.stderr


def test_a_reader_that_left_ends_it_quietly(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(tmp_path), "home", "-m", "hi"],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.PIPE,
            timeout=BOUND,
            env=environment(),
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_ctrl_c_while_waiting_ends_it_cleanly(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(tmp_path), "home", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"silent")
    process.stdin.close()
    process.stdin = None
    assert b"accepted" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=BOUND)
    assert (process.returncode, err) == (130, b"")


def test_ctrl_c_while_nobody_writes_to_standard_input_ends_it_too(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", str(PROGRAM), str(tmp_path), "home"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "jackfield_channel_terminal.piped" in line:
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=BOUND)
    assert process.returncode == 130


class Terminal:
    """A program on a pseudo terminal of 80 x 24, and what it wrote."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        import fcntl
        import struct
        import termios

        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(home), *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(),
            start_new_session=True,
        )
        os.close(slave)
        self.raw = b""
        self._from = 0

    @property
    def text(self) -> str:
        """What came since the last `until`, without escape sequences."""
        return _ESCAPES.sub("", self.raw[self._from :].decode("utf-8", "replace"))

    def until(self, wanted: str) -> str:
        deadline = time.monotonic() + BOUND
        while wanted not in self.text:
            if not select.select([self.master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{wanted!r} did not come; the screen said:\n{self.text}")
            try:
                data = os.read(self.master, 65536)
            except OSError:
                data = b""
            if not data:
                raise AssertionError(f"the program ended without {wanted!r}:\n{self.text}")
            self.raw += data
        seen, self._from = self.text, len(self.raw)
        return seen

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def interrupted(self) -> int:
        """Press Ctrl-C, and again each second, until it ends; the exit code."""
        deadline = time.monotonic() + BOUND
        while self.process.poll() is None and time.monotonic() < deadline:
            self.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=1)
        return self.ended()

    def ended(self) -> int:
        """The exit code; what it still writes is read, so that it can end."""
        deadline = time.monotonic() + BOUND
        while self.process.poll() is None and time.monotonic() < deadline:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.raw += os.read(self.master, 65536)
                except OSError:
                    break
        return self.process.wait(timeout=BOUND)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path, "home")
    opened.until("›")
    yield opened
    opened.close()


def test_a_conversation_at_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type("hello\r")
    terminal.until("You said: hello")
    terminal.type("again\r")
    terminal.until("You said: again")
    terminal.type("\x04")
    assert terminal.ended() == 0
    history = tmp_path / "terminal_history"
    assert "+hello" in history.read_text() and stat.S_IMODE(history.stat().st_mode) == 0o600


def test_a_question_is_a_numbered_menu(terminal: Terminal) -> None:
    terminal.type("ask\r")
    terminal.until("2. Coffee")
    terminal.type("2\r")
    seen = terminal.until("You chose c")
    assert "That is settled." in seen


def test_an_answer_grows_and_is_replaced_by_the_whole(terminal: Terminal) -> None:
    terminal.type("stream\r")
    terminal.until("Ada is at work")
    terminal.until("word")
    terminal.until("the whole text")
    terminal.type("/quit\r")
    assert terminal.ended() == 0


def test_a_message_of_several_lines(terminal: Terminal) -> None:
    terminal.type("one\x1b\r")
    terminal.type("two\\\r")
    terminal.type("three\r")
    terminal.until("You said: one two three")


def test_a_dragged_in_file_is_sent(terminal: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "my photo.png"
    path.write_bytes(b"x")
    terminal.type(f"'{path}'\r")
    terminal.until("[my photo.png]")


def test_what_a_model_says_never_drives_the_terminal(terminal: Terminal) -> None:
    terminal.type("evil\r")
    terminal.until("gnp.exe")
    for harmful in (b"owned", b"\x1b[2J", b"\x9b", "\u202e".encode(), b"\x07"):
        assert harmful not in terminal.raw, harmful


def test_ctrl_c_empties_the_line_and_twice_leaves(terminal: Terminal) -> None:
    terminal.type("half a th\x03")
    terminal.type("\x03")
    terminal.until("Press Ctrl-C again")
    terminal.type("\x03")
    assert terminal.ended() == 0
    assert b"You said" not in terminal.raw


def test_help_and_an_error_are_shown(terminal: Terminal) -> None:
    terminal.type("/help\r")
    terminal.until("Alt+Enter")
    terminal.type("/file nowhere\r")
    terminal.until("there is no file nowhere")
    terminal.type("refuse\r")
    terminal.until("not sent: the disk is full")


def test_a_failed_turn_is_told_with_its_reason_once(terminal: Terminal) -> None:
    terminal.type("fail\r")
    terminal.until("the turn failed: auth: no such key")
    terminal.type("hello\r")
    assert "the turn failed" not in terminal.until("You said: hello")


def test_a_host_that_goes_away_is_waited_for_at_a_terminal(terminal: Terminal) -> None:
    terminal.type("vanish\r")
    terminal.until("The host went away")
    terminal.until("I am back")
    terminal.type("hello\r")
    terminal.until("You said: hello")


def test_a_plain_terminal_is_not_redrawn(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, "home", "--plain")
    try:
        terminal.type("hello\n")
        terminal.until("You said: hello")
        terminal.type("stream\n")
        terminal.until("the **whole** text")
        assert b"\x1b" not in terminal.raw
        terminal.type("\x04")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_the_command_is_imported_without_prompt_toolkit_and_rich() -> None:
    code = (
        "import sys, jackfield_channel_terminal.chat, jackfield_channel_terminal.plugin; "
        "print([m for m in ('prompt_toolkit', 'rich', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=BOUND, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
