"""Long answers as parts that fit when they are rendered."""

from __future__ import annotations

import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.models import TextUnit
from jackfield.models.splitting import measure
from jackfield_channel_kit.text.dialects import DIALECTS
from jackfield_channel_kit.text.markdown import clean, parse
from jackfield_channel_kit.text.render import plain, render
from jackfield_channel_kit.text.split import rendered_parts, split

POINTS = TextUnit.CODEPOINTS


def fences(part: str) -> list[tuple[str, str, str]]:
    """Marker, info and body of each fenced block, which must be closed in the part itself."""
    found = []
    for token in parse(part):
        if token.type == "fence" and token.level == 0:
            assert token.map is not None
            assert part.split("\n")[token.map[1] - 1].strip(" >") == token.markup
            found.append((token.markup, token.info, token.content))
    return found


@pytest.mark.parametrize("size", [1998, *range(1994, 2004)])
@pytest.mark.parametrize("dialect", ["discord", "slack-mrkdwn", "telegram-html", "commonmark"])
def test_no_part_is_longer_than_the_limit_with_its_fence(size: int, dialect: str) -> None:
    """C021."""
    body = ("x = 1\n" * 400)[: size - 1] + "\n"
    parts = rendered_parts("```\n" + body + "```", 2000, POINTS, dialect)
    assert all(len(shown) <= 2000 for _, shown in parts)
    assert "".join(content for part, _ in parts for _, _, content in fences(part)) == body


def test_a_block_over_three_messages_is_fenced_in_each_and_its_body_is_kept() -> None:
    """C023."""
    body = "".join(f"    row_{n} = f({n})\n" for n in range(300))
    parts = split("Here:\n```py\n" + body + "```\nEnd.", 2000, POINTS, "discord")
    blocks = [block for part in parts for block in fences(part)]
    assert len(parts) >= 3 and {block[:2] for block in blocks} == {("```", "py")}
    assert "".join(block[2] for block in blocks) == body and parts[-1].endswith("End.")


def test_a_nested_fence_belongs_to_the_body_of_the_outer_one() -> None:
    """C023."""
    body = "".join(f"```sh\nmake {n}\n```\n" for n in range(100))
    parts = split("````md\n" + body + "````", 400, POINTS)
    assert all(part.startswith("````md\n") and part.endswith("\n````") for part in parts)
    assert "".join(content for part in parts for _, _, content in fences(part)) == body


@pytest.mark.parametrize("text", ["**x** & y < z\n" * 300, "**ab** " * 550])
def test_what_is_measured_is_what_is_sent(text: str) -> None:
    """C025."""
    parts = rendered_parts(text, 4096, TextUnit.UTF16, "telegram-html")
    assert len(parts) == 2
    assert all(len(shown) <= 4096 and shown == render(part, "telegram-html") for part, shown in parts)
    assert all(shown.count("<b>") == shown.count("</b>") and "*" not in shown for _, shown in parts)
    assert sum(shown.count("<b>") for _, shown in parts) == text.count("**") // 2


@pytest.mark.parametrize(
    ("text", "unit", "limit", "most"),
    [
        ("🎩" * 2100, TextUnit.UTF16, 4096, 2),
        ("é" * 2500, TextUnit.UTF8, 4000, 2),
        ("ab🎈" * 1100, TextUnit.UTF16, 4096, 2),
        ("ab🎈" * 1100, TextUnit.UTF8, 4000, 2),
        ("한" * 900, TextUnit.UTF8, 1000, 3),
        ("👩\u200d👩\u200d👧" * 300, TextUnit.UTF16, 500, 5),
        ("🇩🇪" * 300, TextUnit.UTF16, 502, 3),
        ("\u1112\u1161\u11ab" * 300, TextUnit.UTF8, 500, 6),
    ],
)
def test_lengths_are_counted_in_the_platforms_unit_and_no_character_is_torn(
    text: str, unit: TextUnit, limit: int, most: int
) -> None:
    """C027."""
    parts = split(text, limit, unit, "telegram-html")
    assert "".join(parts) == text and len(parts) <= most
    assert all(measure(part, unit) <= limit for part in parts)
    whole = text[: len(text) // max(1, text.count(text[0]) // (3 if "👩" in text else 2 if "🇩" in text else 1))]
    for part in parts:
        assert not unicodedata.category(part[0]).startswith("M") and part[0] not in "\u200d\u1161\u11ab"
        assert not part.endswith(("\u200d", "\u1112", "\u1161"))
        assert whole[0] == part[0] or text.startswith("ab")


def test_a_link_that_fits_is_never_cut() -> None:
    """C029."""
    link = "[invite](https://cal.example/i?" + "k=" + "Z" * 60 + ")"
    parts = split("p" * 99 + " " + link + " after.", 120, POINTS)
    assert len(parts) == 2 and parts[1] == link + " after."


def test_of_a_link_longer_than_a_message_the_url_stays_in_one_piece() -> None:
    """C029."""
    url = "https://cal.example/i?k=" + "Z" * 90
    text = f"See [the long invitation]({url}) and more words after it, quite a few of them indeed."
    parts = split(text, 120, POINTS)
    assert any(url in part.split("\n") for part in parts) and "the long invitation" in "\n".join(parts)


def test_a_fenced_table_that_fits_a_message_moves_to_the_next_one() -> None:
    """C031."""
    table = "```\n" + ("| " + "x" * 37 + " |\n") * 20 + "```"
    assert split("word " * 180 + "\n\n" + table, 1600, POINTS, "slack-mrkdwn")[-1] == table


@pytest.mark.parametrize("dialect", ["slack-mrkdwn", "gfm", "matrix-html", "telegram-html"])
def test_a_long_table_gets_its_header_in_each_part_and_is_cut_between_rows(dialect: str) -> None:
    """C031."""
    rows = [f"| row {n} | value & {n} |" for n in range(100)]
    parts = rendered_parts("\n".join(["| name | value |", "|------|-------|", *rows]), 500, POINTS, dialect)
    assert len(parts) > 3 and all("name" in shown and len(shown) <= 500 for _, shown in parts)
    assert [line for part, _ in parts for line in part.split("\n")[2:]] == rows


def test_a_list_is_cut_between_its_items_and_goes_on_counting() -> None:
    text = "".join(f"1. point {n}\n   - detail of **{n}**\n" for n in range(60))
    parts = rendered_parts(text, 300, POINTS, "plain")
    numbers = [int(found) for _, shown in parts for found in re.findall(r"^(\d+)\. point", shown, re.M)]
    assert numbers == list(range(1, 61))
    assert all(shown == render(part, "plain") for part, shown in parts)


def test_a_quote_is_one_in_each_part() -> None:
    parts = rendered_parts("> " + "word " * 300 + "\n> - a\n> - b\n", 400, POINTS, "slack-mrkdwn")
    assert all(line.startswith("> ") for _, shown in parts for line in shown.split("\n"))


def test_long_emphasis_is_opened_again_in_each_part() -> None:
    parts = rendered_parts("**" + "bold words here " * 60 + "end** plain.", 300, POINTS, "telegram-html")
    assert len(parts) > 3 and all(shown.startswith("<b>") and shown.count("</b>") == 1 for _, shown in parts)


def test_a_heading_goes_with_what_it_is_the_heading_of() -> None:
    parts = split("a" * 150 + "\n\n## Head\n\n" + "b" * 150, 200, POINTS)
    assert parts == ["a" * 150, "## Head\n\n" + "b" * 150]


def test_a_part_knows_the_definitions_that_stood_elsewhere() -> None:
    parts = split("[x][r] and words. " * 100 + "\n\n[r]: https://x.example/", 500, POINTS, "slack-mrkdwn")
    assert sum(part.count("[x](https://x.example/)") for part in parts) == 100


def test_a_text_that_fits_is_left_as_it_is_and_an_empty_one_has_no_part() -> None:
    assert split("a *b*\n\n* c", 50, POINTS) == ["a *b*\n\n* c"]
    assert split(" \n", 50, POINTS) == [] and split("[x]: https://y.example", 50, POINTS) == []
    with pytest.raises(ValueError, match="too small"):
        split("x", 8, POINTS)


# ---- properties

PIECES = [
    "a",
    "word,",
    "end.",
    "`code`",
    "**bold**",
    "*it*",
    "~~no~~",
    "[l](https://x.example/a_b)",
    "https://u.example/_x_",
    "<",
    "&",
    "é",
    "🎩",
    "👩\u200d👧",
    "🇩🇪",
    "你好",
    "é",
    "한",
    "\\*",
    "snake_case",
]
STARTS = [
    "\n\n",
    "\n",
    "\n- ",
    "\n  - ",
    "\n> ",
    "\n1. ",
    "\n\n# ",
    "\n```py\n",
    "\n```\n",
    "\n\n|a|b|\n|-|-|\n|c|d|\n",
    "    ",
    "\n---\n",
]
texts = st.lists(
    st.sampled_from([*(f"{piece} " for piece in PIECES * 2), *PIECES, *STARTS, "x" * 70]), max_size=150
).map("".join)


@given(
    texts | st.text(max_size=500),
    st.integers(50, 300),
    st.sampled_from(list(TextUnit)),
    st.sampled_from(sorted(DIALECTS)),
)
@settings(deadline=None, max_examples=400)
def test_every_part_fits_rendered_by_whoever_renders_it(text: str, limit: int, unit: TextUnit, dialect: str) -> None:
    """C021, C025, C027."""
    parts = rendered_parts(text, limit, unit, dialect)
    for part, shown in parts:
        assert measure(shown, unit) <= limit
        assert measure(render(part, dialect), unit) <= limit
        if len(parts) > 1:
            fences(part)


def words(text: str) -> list[str]:
    """The words in order, also those that a cut or a fence stands between."""
    return re.findall(r"[a-z]", plain(text).lower())


@given(texts, st.integers(60, 300), st.sampled_from(["telegram-html", "slack-mrkdwn", "matrix-html", "commonmark"]))
@settings(deadline=None, max_examples=300)
def test_the_text_is_complete_and_in_order(text: str, limit: int, dialect: str) -> None:
    text = clean(text)
    if "|a|b|" in text:
        text = text.replace("|a|b|\n|-|-|\n", "")  # a header may be repeated
    parts = split(text, limit, POINTS, dialect)
    assert [word for part in parts for word in words(part)] == words(text)


@given(
    st.lists(
        st.sampled_from(
            ["word ", "[label](https://x.example/abc) ", "`some code` ", "**two words** ", "🇩🇪", "👩\u200d👧 "]
        ),
        max_size=100,
    ).map("".join),
    st.integers(60, 200),
)
@settings(deadline=None, max_examples=200)
def test_no_link_code_or_character_is_cut(text: str, limit: int) -> None:
    for dialect in ("slack-mrkdwn", "telegram-html", "discord"):
        parts = split(text, limit, TextUnit.UTF16, dialect)
        for whole in ("[label](https://x.example/abc)", "`some code`", "🇩🇪", "👩\u200d👧", "**two words**"):
            assert sum(part.count(whole) for part in parts) == text.count(whole)


HOSTILE = [
    "[",
    "[a](",
    "*",
    "**a ",
    "*a_ ",
    "`",
    "`a``b",
    "<",
    "> ",
    "> a\n",
    "|",
    "https://",
    "&",
    "~~a ",
    "- ",
    "- a\n",
    "> - ",
    "x",
    "x ",
    "🇩🇪",
]
HOSTILE += ["|a|b|\n|-|-|\n", "```\n", "~~~`\n", "1. a\n\n", "\\", "_", "# a\n", "- a\n  ", "é", "a\n"]


@pytest.mark.parametrize("repeated", HOSTILE)
def test_the_time_grows_no_faster_than_the_text(repeated: str) -> None:
    """C217."""
    text = repeated * (20_000 // len(repeated))
    for dialect in ("slack-mrkdwn", "commonmark", "matrix-html"):
        began = time.process_time()
        split(text, 100, TextUnit.UTF8, dialect)
        assert time.process_time() - began < 10.0
