"""Text without markup, for platforms that show none and for what people read elsewhere (notifications, subjects)."""

from __future__ import annotations

from jackfield_channel_kit.text.dialects.dialect import Dialect

__all__ = ["Plain"]


class Plain(Dialect):
    """Emphasis is dropped; lists, quotes and columns stay; a link is its label and its target."""

    bullets = ("- ",)
