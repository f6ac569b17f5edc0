"""In which channels we are to be, and in which we are.  Lines in, changes out, no socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jackfield.models import ConversationChange

from jackfield_channel_irc.lines import Line, shown, written
from jackfield_channel_irc.network import Network

__all__ = ["Rooms"]

_REFUSED = frozenset(
    {"403", "405", "407", "437", "448", "470", "471", "473", "474", "475", "476", "477", "479", "489", "520"}
)
"""Answers to JOIN that mean no."""
LONGEST_JOIN = 400
"""Bytes of a JOIN's names and keys."""


class Rooms:
    """For one connection.  `keys` are by the names as the settings write them."""

    def __init__(self, names: Sequence[str], keys: Mapping[str, str], network: Network) -> None:
        self._names = names
        self._keys = {name.lower(): key for name, key in keys.items()}
        self._network = network
        self._in: set[str] = set()
        self._refused: dict[str, str] = {}
        self._put_out: set[str] = set()

    def missing(self) -> list[str]:
        """The channels, as the settings write them, where we are not."""
        return [name for name in self._names if self._network.fold(name) not in self._in]

    def is_missing(self, target: str) -> bool:
        """Whether it is a channel where we are to be, and are not."""
        return self._network.fold(target) in {self._network.fold(name) for name in self.missing()}

    def problem(self) -> str:
        """Where we are not, and why, for the operator; empty when all is well."""
        reasons = (
            f"{name}: {self._refused.get(self._network.fold(name), 'no answer to JOIN yet')}" for name in self.missing()
        )
        return "; ".join(f"not in {reason}" for reason in reasons)

    def joins(self) -> Iterator[bytes]:
        """Lines that join what is missing; those with keys first, as the protocol counts."""
        names: list[str] = []
        keys: list[str] = []
        for name in sorted(self.missing(), key=lambda one: one.lower() not in self._keys):
            key = self._keys.get(name.lower())
            added = len(name.encode()) + len((key or "").encode()) + 2
            if names and len(",".join((*names, *keys)).encode()) + added > LONGEST_JOIN:
                yield self._join(names, keys)
                names, keys = [], []
            names.append(name)
            if key is not None:
                keys.append(key)
        if names:
            yield self._join(names, keys)

    @staticmethod
    def _join(names: Sequence[str], keys: Sequence[str]) -> bytes:
        return written("JOIN", ",".join(names), *([",".join(keys)] if keys else []))

    def heard(self, line: Line) -> tuple[str, ConversationChange] | None:
        """Learn from any line; what changed for us: the channel, and how.

        Joining at the start is no change; joining again after we were put out is.
        """
        if line.command in _REFUSED and self._wanted(line.param(1)):
            self._refused[self._network.fold(line.param(1))] = shown(line.param(-1))
            return None
        room = self._network.fold(line.param(0))
        me = self._network.is_me(line.nick)
        if line.command == "JOIN" and me:
            self._in.add(room)
            self._refused.pop(room, None)
            if room in self._put_out:
                self._put_out.discard(room)
                return room, ConversationChange.JOINED
        elif line.command == "KICK" and self._network.is_me(line.param(1)):
            return self._left(room, f"kicked by {line.nick}: {line.param(2)}", ConversationChange.REMOVED)
        elif line.command == "PART" and me:
            return self._left(room, "left", ConversationChange.LEFT)
        return None

    def _left(self, room: str, why: str, change: ConversationChange) -> tuple[str, ConversationChange]:
        self._in.discard(room)
        self._put_out.add(room)
        self._refused[room] = shown(why)
        return room, change

    def _wanted(self, room: str) -> bool:
        return self._network.fold(room) in {self._network.fold(name) for name in self._names}
