"""What holds when a group sets nothing.  `settings` checks what it does set; an echo needs no validation library."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Defaults"]


class Defaults(NamedTuple):
    """The fields of `MockSettings`, unset."""

    script: list[dict[str, Any]] | str | None = None
    reply: str = "You said: {text}"
    delay: float = 0.0
    stream: bool = True
    commands: bool = True
