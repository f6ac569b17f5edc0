"""Cutting long texts."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.models import TextUnit
from jackfield.models.splitting import measure, opening, split_text

FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$")


def balanced(chunk: str) -> bool:
    opened: str | None = None
    for line in chunk.split("\n"):
        found = FENCE.match(line)
        if opened is None:
            if found and not (found[1][0] == "`" and "`" in found[2]):
                opened = found[1]
        elif found and found[1][0] == opened[0] and len(found[1]) >= len(opened) and not found[2].strip():
            opened = None
    return opened is None


def bodies(chunks: list[str], marker: str) -> str:
    """What lies inside the fences of that marker, joined."""
    out = []
    for chunk in chunks:
        inside = False
        for line in chunk.split("\n"):
            if line.startswith(marker) and (inside is False or line == marker):
                inside = not inside
            elif inside:
                out.append(line + "\n")
    return "".join(out)


@pytest.mark.parametrize("size", range(1994, 2004))
def test_no_chunk_is_longer_than_the_limit_with_its_fence(size: int) -> None:
    """C021."""
    body = ("x = 1\n" * 400)[: size - 1] + "\n"
    chunks = split_text("```\n" + body + "```", 2000)
    assert all(len(chunk) <= 2000 and balanced(chunk) for chunk in chunks)
    assert bodies(chunks, "```") == body


def test_a_block_over_three_messages_is_fenced_in_each_and_its_body_is_kept() -> None:
    """C023."""
    body = "".join(f"    row_{n} = f({n})\n" for n in range(300))
    chunks = split_text("Here:\n```py\n" + body + "```\nEnd.", 2000)
    assert len(chunks) >= 3 and all(balanced(chunk) and len(chunk) <= 2000 for chunk in chunks)
    assert all("```py\n" in chunk for chunk in chunks)
    assert bodies(chunks, "```") == body and chunks[-1].endswith("End.")


def test_a_nested_fence_belongs_to_the_body_of_the_outer_one() -> None:
    """C023."""
    body = "".join(f"```sh\nmake {n}\n```\n" for n in range(100))
    chunks = split_text("````md\n" + body + "````", 400)
    assert all(len(chunk) <= 400 and chunk.startswith("````md\n") and chunk.endswith("\n````") for chunk in chunks)
    assert bodies(chunks, "````") == body


@pytest.mark.parametrize(
    ("text", "unit", "limit"),
    [
        ("🎩" * 2100, TextUnit.UTF16, 4096),
        ("é" * 2500, TextUnit.UTF8, 4000),
        ("ab🎈" * 1100, TextUnit.UTF16, 4096),
        ("ab🎈" * 1100, TextUnit.UTF8, 4000),
        ("ab🎈" * 1100, TextUnit.CODEPOINTS, 1000),
    ],
)
def test_lengths_are_counted_in_the_platforms_unit(text: str, unit: TextUnit, limit: int) -> None:
    """C027."""
    chunks = split_text(text, limit, unit)
    assert "".join(chunks) == text
    assert all(measure(chunk, unit) <= limit for chunk in chunks)
    assert len(chunks) <= 2 * (measure(text, unit) // limit + 1)


def test_a_link_that_fits_is_never_cut() -> None:
    """C029."""
    link = "[invite](https://cal.example/i?" + "k=" + "Z" * 60 + ")"
    chunks = split_text("p" * 99 + " " + link + " after.", 120)
    assert len(chunks) == 2 and chunks[1].startswith(link)


def test_of_a_link_longer_than_a_message_the_url_stays_in_one_piece() -> None:
    """C029."""
    url = "https://cal.example/i?k=" + "Z" * 90
    chunks = split_text(f"See [the long invitation]({url}) and more words after it, quite a few of them indeed.", 120)
    assert any(url in chunk.split("\n") for chunk in chunks) and "the long invitation" in "\n".join(chunks)
    assert all(len(chunk) <= 120 for chunk in chunks)


def test_a_fenced_table_that_fits_a_message_moves_to_the_next_one() -> None:
    """C031."""
    table = "```\n" + ("| " + "x" * 37 + " |\n") * 20 + "```"
    chunks = split_text("word " * 180 + "\n\n" + table, 1600)
    assert chunks[-1] == table


def test_a_cut_prefers_paragraphs_then_lines_then_sentences_then_words() -> None:
    assert split_text("a" * 60 + "\n\n" + "b b" * 30, 100)[0] == "a" * 60
    assert split_text("a" * 60 + "\n" + "b b" * 30, 100)[0] == "a" * 60
    assert split_text("w " * 30 + "end. " + "b " * 40, 100)[0] == "w " * 30 + "end."
    assert split_text("abc " * 50, 50)[0] == ("abc " * 12).strip()


def test_a_text_that_fits_is_left_as_it_is_and_an_empty_one_has_no_part() -> None:
    assert split_text("\n  hi \n", 50) == ["\n  hi \n"]
    assert split_text(" \n", 50) == []
    assert split_text("x" * 100_000, None) == ["x" * 100_000]


def test_bidirectional_text_passes_byte_for_byte() -> None:
    """C215."""
    for body in ("שלום, הפגישה ב-14:30 (חדר 3)", "מחיר: 40 USD → ok"):
        assert split_text(body, 4096) == [body]
        long = (body + " ") * 20
        assert " ".join(split_text(long, 100)).split() == long.split()


units = st.sampled_from(list(TextUnit))
pieces = st.sampled_from(
    [
        "a",
        "word ",
        " ",
        "\n",
        "\n\n",
        "```",
        "```py\n",
        "~~~\n",
        "`",
        "é",
        "🎩",
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "é",
        "❤️",
        "[l](https://x.example/abc)",
        "(",
        "[",
        "]",
        "\\",
        ". ",
        "- item\n",
        "\r\n",
        "👍🏽",
        "한",
        "하",
    ]
)
texts = st.lists(pieces, max_size=120).map("".join)


@given(texts, st.integers(50, 200), units)
@settings(deadline=None, max_examples=300)
def test_every_chunk_fits_and_is_balanced(text: str, limit: int, unit: TextUnit) -> None:
    """C021, C023, C027."""
    chunks = split_text(text, limit, unit)
    assert all(measure(chunk, unit) <= limit for chunk in chunks)
    if measure(text, unit) > limit:
        assert all(balanced(chunk) for chunk in chunks)


@given(texts.filter(lambda text: "```" not in text and "~~~" not in text), st.integers(50, 200), units)
@settings(deadline=None, max_examples=300)
def test_only_white_space_is_dropped_and_no_character_is_torn(text: str, limit: int, unit: TextUnit) -> None:
    chunks = split_text(text, limit, unit)
    assert "".join("".join(chunks).split()) == "".join(text.split())
    for chunk in chunks[1:]:
        assert not "\u1160" <= chunk[0] <= "\u11ff"
        assert not unicodedata.category(chunk[0]).startswith("M") and chunk[0] != "\u200d"
    for chunk in chunks[:-1]:
        assert not chunk.endswith("\u200d")


HOSTILE = [
    "[",
    "[a](",
    "[a]((",
    "*",
    "`",
    "<",
    "[[x]",
    "> ",
    "|",
    "`a``b",
    "https://",
    '[a](b "',
    "```\n",
    "~~~`\n",
    "🇩🇪",
]


@pytest.mark.parametrize("unit_of_text", HOSTILE)
def test_the_time_grows_no_faster_than_the_text(unit_of_text: str) -> None:
    """C217: 100,000 characters take far less than a second of work; a quadratic step would take minutes."""
    text = unit_of_text * (100_000 // len(unit_of_text))
    for unit in TextUnit:
        started = time.process_time()
        split_text(text, 100, unit)
        assert time.process_time() - started < 5.0


@given(st.text(max_size=60), st.integers(1, 40))
def test_the_opening_of_a_text_is_a_whole_beginning(text: str, size: int) -> None:
    start = opening(text, size)
    assert text.startswith(start)
