"""Foreign text on a terminal."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.cli import output, printable
from jackfield.cli.failures import report
from jackfield.cli.state import State
from jackfield.errors import UsageError


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Eve\u202e nimda", "Eve\\u202e nimda"),
        ("\u2067אבג", "\u2068\\u2067אבג\u2069"),
        ("a\x1b[31mred\x07", "a\\x1b[31mred\\x07"),
        ("two\nlines\tand  more", "two lines and more"),
        ("Zoë 你好 👩‍👩‍👧", "Zoë 你好 👩‍👩‍👧"),
        ("مرحبا", "\u2068مرحبا\u2069"),
        ("\ufeffx\udc80", "\\ufeffx\\udc80"),
    ],
)
def test_a_name_can_neither_steer_the_terminal_nor_turn_the_line_around(name: str, shown: str) -> None:
    """C215."""
    assert printable.line(name) == shown


@pytest.mark.parametrize(
    "body", ["שלום, הפגישה ב-14:30 (חדר 3)", "מחיר: 40 USD → ok", "a\n\u2067אבג\u2069 b\n", "x\u200fy"]
)
def test_honest_right_to_left_text_passes_unchanged_in_bodies(body: str) -> None:
    """C215."""
    assert printable.block(body) == body


def test_an_override_in_a_body_ends_with_its_line() -> None:
    """C215."""
    assert printable.block("a\u202eb\nc\u2069\u202cd") == "a\u202eb\u202c\ncd"
    assert printable.block("\x1b]0;title\x07\r\nb") == "\\x1b]0;title\\x07\nb"


def test_a_name_in_our_own_words_turns_none_of_them_around() -> None:
    """An error is read by its words after the name, too (C215)."""
    assert printable.told("there is no \u202eabc here\n\tand \x9b\u2066x") == (
        "there is no \\u202eabc here\n    and \\x9b\\u2066x"
    )
    state, error = State(), UsageError("no \u202eabc here", fix="not \u2067x")
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        report(state, error)
    assert "no \\u202eabc here" in stream.getvalue()
    assert "not \\u2067x" in stream.getvalue()


@given(st.text())
def test_one_line_stays_one_line_without_any_control(text: str) -> None:
    shown = printable.line(text)
    inside = shown.removeprefix("\u2068").removesuffix("\u2069")
    assert not any(
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in "\u200c\u200d"
        for character in inside
    )
    assert len(shown.splitlines()) <= 1


@given(st.text(), st.integers(1, 30))
def test_a_cut_text_fits_and_closes_what_it_opened(text: str, columns: int) -> None:
    shown = printable.cut(printable.line(text), columns)
    assert printable.width(shown) <= columns
    assert shown.count("\u2068") == shown.count("\u2069")


@given(st.text())
def test_json_is_harmless_and_still_the_same_value(text: str) -> None:
    shown = printable.harmless_json(json.dumps({text: text}, ensure_ascii=False))
    assert json.loads(shown) == {text: text}
    assert not set(shown) & set("\u202e\u2066\u2028\x9b\x7f")
    shown.encode()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_json_is_json_whatever_standard_output_can_carry(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C247."""
    value = {"né": "ÿ 你好 🦊 \x9b \u202e"}
    carried = io.BytesIO()
    out = io.TextIOWrapper(carried, encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", out)
    print(printable.json_text(value), flush=True)
    assert json.loads(carried.getvalue().decode(encoding)) == value


def test_times_are_said_as_people_say_them() -> None:
    now = datetime.datetime(2026, 3, 10, 12, 0, tzinfo=datetime.UTC)

    def said(**delta: float) -> str | None:
        return output.ago((now - datetime.timedelta(**delta)).isoformat(), now=now)

    assert said(seconds=1) == "now"
    assert said(seconds=20) == "20 s ago"
    assert said(minutes=3.5) == "3 min ago"
    assert said(minutes=-3.5) == "in 3 min"
    assert said(hours=5) == "5 h ago"
    assert output.ago("2026-01-05T21:00:00.000Z", now=now) is not None
    assert output.ago(None) is None
    assert output.ago("soon") == "soon"
