"""What is printed, and what is typed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield_channel_terminal.cleaning import clean, clean_name
from jackfield_channel_terminal.rendering import plain, rich_text, size_text
from jackfield_channel_terminal.tty_screen import _tail
from jackfield_channel_terminal.typed import Choose, Help, Nothing, Problem, Quit, Speak, dropped_paths, read_line


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x9b31mred \x90q\x9cok", "red ok"),
        ("\x1bPq#0\x1b\\x\x1b(By\x1b", "xy"),
        ("a\x08b\x07c\x7fd\x00", "abcd"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("\ud800", "\ufffd"),
        ("Eve\u202e nimda", "Eve[U+202E] nimda"),
        ("\u2067אבג", "\u2067אבג\u2069"),
        ("\u202bא\u2067ב\nnext", "\u202bא\u2067ב\u2069\u202c\nnext"),
    ],
)
def test_what_could_harm_a_terminal_is_taken_out_or_shown(raw: str, shown: str) -> None:
    """C215."""
    assert clean(raw) == shown


@pytest.mark.parametrize("body", ["שלום, הפגישה ב-14:30 (חדר 3)", "מחיר: 40 USD → ok", "👩‍💻 e\u0301 中文"])
def test_honest_text_of_any_script_passes_unchanged(body: str) -> None:
    """C215."""
    assert clean(body) == body


def test_names_are_on_one_line_isolated_and_bounded() -> None:
    """C215."""
    assert clean_name("Ada") == "Ada"
    assert clean_name("Eve\u202e nimda") == "Eve[U+202E] nimda"
    assert clean_name("\u2067אבג") == "\u2068[U+2067]אבג\u2069"
    assert clean_name("two\nlines\x1b[2J") == "two lines"
    assert clean_name("x" * 500) == "\u2068" + "x" * 119 + "…\u2069"


@given(st.text())
def test_nothing_that_is_printed_holds_a_control_character(text: str) -> None:
    for shown in (clean(text), clean_name(text), plain({"text": text}), "\n".join(_tail(text, 40, 5))):
        assert not [c for c in shown if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 or c == "\u202e"]
    assert clean(clean(text)) == clean(text)


HOSTILE = ["[", "[a](", "*", "`", "<", "[[x]", "> ", "|", "\x1b[", "\x1b]", "\u2067", "\x1b[0"]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("draw", [clean, clean_name, lambda text: rich_text({"text": text}, width=80, color=True)])
def test_hostile_text_costs_no_more_than_its_length(piece: str, draw: Callable[[str], str]) -> None:
    """C217."""

    def spent(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        draw(text)
        return time.process_time() - start

    spent(10_000)
    assert spent(100_000) <= max(1.0, 30 * spent(10_000))


def everything(**more: Any) -> dict[str, Any]:
    return {
        "text": "Hello **you**",
        "files": [{"name": "a.txt", "path": "/x/a.txt", "size": 1500}],
        "card": {
            "title": "Build",
            "text": "of *today*",
            "fields": [{"name": "State", "value": "green"}],
            "image_url": "https://x/i.png",
            "links": [{"label": "Log", "url": "https://x/log"}],
        },
        "prompt": {"id": "q", "title": "Drink", "question": "What?", "choices": [{"label": "Tea"}], "allow_text": True},
    } | more


def test_a_message_is_plain_for_a_pipe() -> None:
    assert plain(everything()) == (
        "Hello **you**\nBuild\nof *today*\nState: green\nhttps://x/i.png\nLog: https://x/log\n"
        "[file] a.txt (1.5 kB): /x/a.txt\nDrink\nWhat?\n  1. Tea\n  or write an answer"
    )
    assert plain({"text": "x", "maybe_duplicate": True}) == "(perhaps shown before) x"


def test_a_message_is_drawn_for_a_terminal() -> None:
    drawn = rich_text(everything(), width=60, color=True)
    assert "\x1b[1myou\x1b[0m" in drawn and "Build" in drawn and "1. Tea" in drawn and "╭" in drawn
    bare = rich_text(everything(text="[link](https://evil)"), width=60, color=False)
    assert "\x1b" not in bare and "https://evil" in bare


def test_a_frame_of_another_shape_is_drawn_as_far_as_it_goes() -> None:
    frame = {"text": None, "files": "x", "card": {"fields": [1], "links": None}, "prompt": {"choices": "x"}}
    assert plain(frame) == ""
    rich_text(frame, width=10, color=False)
    assert size_text(None) == "0 bytes" and size_text(12_345_678) == "12.3 MB"


ASKED = {"id": "q", "choices": [{"value": "t", "label": "Tea"}, {"value": "c", "label": "Black Coffee"}]}


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("", Nothing()),
        ("  ", Nothing()),
        ("/help", Help()),
        ("/quit", Quit()),
        ("/EXIT", Quit()),
        ("/clear", Speak("/clear")),
        ("hello  ", Speak("hello")),
        ("  indented", Speak("  indented")),
        ("2", Choose("q", "c")),
        ("1.", Choose("q", "t")),
        ("black coffee", Choose("q", "c")),
        ("3", Speak("3")),
        ("0", Speak("0")),
        ("9" * 5000, Speak("9" * 5000)),
        ("²", Speak("²")),
        ("/file", Problem("/file needs a path: /file PATH [TEXT]")),
        ("/file nothing", Problem("there is no file nothing")),
    ],
)
def test_a_line_means(line: str, meant: object, tmp_path: Path) -> None:
    assert read_line(line, ASKED, tmp_path) == meant


def test_without_a_question_a_number_is_a_text(tmp_path: Path) -> None:
    assert read_line("1", None, tmp_path) == Speak("1")


def test_files_are_named_or_dragged_in(tmp_path: Path) -> None:
    path = tmp_path / "my file's.txt"
    path.write_text("x")
    quoted = str(path).replace(" ", "\\ ").replace("'", "\\'")
    for line in (f"/file {path}", "/file my file's.txt", str(path), quoted, f'"{path}"', f"{path.as_uri()} "):
        assert read_line(line, None, tmp_path) == Speak("", (str(path),)), line
    assert read_line(f"/file {quoted} look at this", None, tmp_path) == Speak("look at this", (str(path),))
    assert read_line(f'/file "{path}" look', None, tmp_path) == Speak("look", (str(path),))
    assert dropped_paths(f"{quoted} {quoted}") == (str(path), str(path))
    assert dropped_paths(f"{quoted} and this") == ()
    assert dropped_paths("/no/such/file") == () and dropped_paths("'open") == () and dropped_paths("~nobody9/x") == ()


@given(st.text(max_size=40))
def test_any_line_means_something(line: str) -> None:
    for start in ("", "/file ", "'", "/", "~/", "file://"):
        read_line(start + line, ASKED, Path("/"))
