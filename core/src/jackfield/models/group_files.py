"""The files of a group's folder that its agent is shown: the same for the runner, which uses them, and the host, which
shows what they become.  Pure, and without dataclasses: a runner needs it before its first heartbeat."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MEMORY_INDEX", "MEMORY_LIMIT", "WORDS_FILES", "WORDS_LIMIT", "join_words"]

WORDS_FILES = ("AGENTS.md", "CLAUDE.md")
"""The group's own words."""
WORDS_LIMIT = 256 * 1024
"""Bytes of one of them."""
MEMORY_INDEX = "memory/index.md"
"""What its memory says of itself."""
MEMORY_LIMIT = 16 * 1024


def join_words(texts: Sequence[str]) -> str:
    """What these files say together; the same text is taken once."""
    return "\n\n".join(dict.fromkeys(text.strip() for text in texts if text.strip()))
