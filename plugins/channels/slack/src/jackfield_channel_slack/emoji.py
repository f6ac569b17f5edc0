"""Emoji by Slack's names: reactions are made and told by name.  The common ones; others pass as `:name:`."""

from __future__ import annotations

import re

from jackfield_channel_kit.emoji import NAMES, emoji_named

__all__ = ["character", "name_of"]

_NAME = re.compile(r":?([a-z0-9_+'-]{1,100}):?")
_VARIATIONS = {0xFE0E: None, 0xFE0F: None}
_TONES = {chr(0x1F3FB + number): f"::skin-tone-{number + 2}" for number in range(5)}


def name_of(emoji: str) -> str | None:
    """Slack's name of an emoji, or of what is a name already; None when we don't know it."""
    bare = emoji.strip().translate(_VARIATIONS)
    tone = next((suffix for char, suffix in _TONES.items() if bare.endswith(char)), "")
    name = NAMES.get(bare[:-1] if tone else emoji_named(bare) or bare)
    if name is not None:
        return name + tone
    found = _NAME.fullmatch(bare)
    return found[1] if found is not None else None


def character(name: str) -> str:
    """The emoji of that name as a character, else `:name:`; its skin tone is left out."""
    bare = name.partition("::")[0]
    return emoji_named(bare) or f":{bare}:"
