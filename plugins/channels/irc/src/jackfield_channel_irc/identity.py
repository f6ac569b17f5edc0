"""Ids of messages on networks that have none, stable enough that a replay finds them again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from jackfield.clock import UnixMs

__all__ = ["Ids", "is_made"]

_MADE = "made-"
REMEMBERED = 2000


def is_made(message_id: str) -> bool:
    """Whether the network doesn't know this id."""
    return message_id.startswith(_MADE)


def made(*parts: str) -> str:
    return _MADE + hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Ids:
    """Makes an id of chat, sender, text and the second, which is what servers keep of the time; equal ones are
    counted.  A replay counts anew (`replay`)."""

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[str, ...], int] = OrderedDict()

    def of(self, chat: str, sender: str, text: str, at: UnixMs, replay: str = "") -> str:
        """The id; `replay` names the batch that repeats old messages, or is empty."""
        key = (replay, chat, sender, str(at // 1000), text)
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        self._counts.move_to_end(key)
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return made(*key[1:], str(count))
