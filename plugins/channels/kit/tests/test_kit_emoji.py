"""Emoji and their names."""

from __future__ import annotations

import pytest
from jackfield.errors import Unsupported
from jackfield_channel_kit.emoji import NAMES, bare_emoji, emoji_named, literal_emoji


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("thumbs_up", "👍"),
        ("+1", "👍"),
        (":+1:", "👍"),
        ("+1::skin-tone-4", "👍"),
        ("👍", "👍"),
        ("👍🏽", "👍🏽"),
        ("white_check_mark", "✅"),
        ("Check Mark Button", "✅"),
        ("✅", "✅"),
        ("❤", "❤\ufe0f"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("❤\ufe0e", "❤\ufe0f"),
        ("heart", "❤\ufe0f"),
        ("☃", "☃\ufe0f"),
        ("✍\ufe0f", "✍\ufe0f"),
        ("1\ufe0f\u20e3", "1\ufe0f\u20e3"),
        ("one", "1\ufe0f\u20e3"),
        ("🫠", "🫠"),
        ("👨\u200d💻", "👨\u200d💻"),
        ("🇩🇪", "🇩🇪"),
    ],
)
def test_an_emoji_or_a_name_of_it_is_understood(written: str, meant: str) -> None:
    """C060, C062."""
    assert literal_emoji(written) == meant


@pytest.mark.parametrize("written", ["not_an_emoji", "", "1", "yes", "👍 great", "x👍", "👍" * 40, "😀\n"[:1] + "\nx"])
def test_what_is_none_is_refused_with_some_that_are(written: str) -> None:
    """C060: never sent as it is, where people would see the word."""
    with pytest.raises(Unsupported) as caught:
        literal_emoji(written)
    assert caught.value.fix is not None and "thumbs_up" in caught.value.fix


def test_every_name_means_its_character() -> None:
    for char, name in NAMES.items():
        assert emoji_named(f":{name}:") == char and bare_emoji(literal_emoji(char)) == char
