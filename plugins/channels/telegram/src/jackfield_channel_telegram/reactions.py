"""The emoji that a bot may react with, and the ways in which people and agents write them (C060, C062)."""

from __future__ import annotations

from jackfield.errors import Unsupported

__all__ = ["ALLOWED", "chosen"]

ALLOWED: tuple[str, ...] = (
    "👍", "❤", "🔥", "👎", "🥰", "👏", "😁", "🤔", "🤯", "😱", "🤬", "😢", "🎉", "🤩", "🤮", "💩", "🙏", "👌",
    "🕊", "🤡", "🥱", "🥴", "😍", "🐳", "❤‍🔥", "🌚", "🌭", "💯", "🤣", "⚡", "🍌", "🏆", "💔", "🤨", "😐", "🍓",
    "🍾", "💋", "🖕", "😈", "😴", "😭", "🤓", "👻", "👨‍💻", "👀", "🎃", "🙈", "😇", "😨", "🤝", "✍", "🤗", "🫡",
    "🎅", "🎄", "☃", "💅", "🤪", "🗿", "🆒", "💘", "🙉", "🦄", "😘", "💊", "🙊", "😎", "👾", "🤷‍♂", "🤷",
    "🤷‍♀", "😡",
)  # fmt: skip
"""As Telegram writes them, without U+FE0F."""

_NAMES = {
    "+1": "👍", "thumbs_up": "👍", "thumbsup": "👍", "like": "👍", "-1": "👎", "thumbs_down": "👎", "thumbsdown": "👎",
    "heart": "❤", "red_heart": "❤", "fire": "🔥", "clap": "👏", "tada": "🎉", "party": "🎉", "party_popper": "🎉",
    "eyes": "👀", "thinking": "🤔", "thinking_face": "🤔", "pray": "🙏", "folded_hands": "🙏", "ok_hand": "👌",
    "100": "💯", "hundred": "💯", "joy": "🤣", "rofl": "🤣", "laughing": "😁", "grin": "😁", "cry": "😢", "sob": "😭",
    "salute": "🫡", "saluting_face": "🫡", "handshake": "🤝", "writing_hand": "✍", "hugs": "🤗", "hugging_face": "🤗",
    "zap": "⚡", "trophy": "🏆", "broken_heart": "💔", "scream": "😱", "exploding_head": "🤯", "sunglasses": "😎",
    "heart_eyes": "😍", "star_struck": "🤩", "rage": "😡", "shrug": "🤷", "ghost": "👻", "unicorn": "🦄",
    "snowman": "☃", "nerd_face": "🤓", "neutral_face": "😐", "sleeping": "😴", "technologist": "👨‍💻",
    "poop": "💩", "cool": "🆒",
}  # fmt: skip
_IGNORED = {ord("\ufe0e"): None, ord("\ufe0f"): None} | dict.fromkeys(range(0x1F3FB, 0x1F400))
"""Variation selectors and skin tones."""


def chosen(emoji: str) -> str:
    """The reaction that an emoji or its name stands for.

    Raises:
        Unsupported: Telegram has no such reaction; it names some that exist.
    """
    bare = emoji.strip().translate(_IGNORED)
    found = (
        bare
        if bare in ALLOWED
        else _NAMES.get(bare.strip(":").lower().replace("-", "_")) or _NAMES.get(bare.strip(":"))
    )
    if found is None:
        raise Unsupported(
            f"Telegram has no reaction {emoji!r}", fix=f"use one of {' '.join(ALLOWED[:12])} or thumbs_up, heart, eyes"
        )
    return found
