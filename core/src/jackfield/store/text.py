"""Text that people and platforms wrote, in a form that SQLite takes."""

from __future__ import annotations

from typing import overload

__all__ = ["storable"]


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: str | None) -> str | None: ...
def storable(text: str | None) -> str | None:
    """The text itself; only halves of broken surrogate pairs, which are no text, become `?`.

    For names, previews and error texts.  Keys and ids are never changed.
    """
    if text is None or text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
