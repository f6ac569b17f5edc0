"""The one action that every answer is made of.  The others are imported when something asks for them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Say"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """A text of the answer; `{text}`, `{last}`, `{sender}`, `{result}`, `{turn}` and `{inputs}` are filled in."""

    say: str
