"""Lines that belong together (IRCv3 batch): which are a replay of old messages, which answer a label."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield_channel_irc.lines import Line

__all__ = ["Batches"]

_REPLAYS = frozenset({"chathistory", "playback", "znc.in/playback", "draft/chathistory"})
OPEN_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class _Batch:
    replay: str
    label: str | None


class Batches:
    """The open batches of one connection."""

    def __init__(self) -> None:
        self._open: dict[str, _Batch] = {}
        self._count = 0

    def heard(self, line: Line) -> None:
        """Open or close one."""
        if line.command != "BATCH":
            return
        name = line.param(0)[1:]
        if not line.param(0).startswith("+"):
            self._open.pop(name, None)
            return
        self._count += 1
        replay = str(self._count) if line.param(1) in _REPLAYS else self.replay(line)
        if len(self._open) < OPEN_AT_ONCE:
            self._open[name] = _Batch(replay, self.label(line))

    def replay(self, line: Line) -> str:
        """A name for the replay that the line is part of; empty for what is said now."""
        batch = self._open.get(line.tags.get("batch", ""))
        return batch.replay if batch is not None else ""

    def label(self, line: Line) -> str | None:
        """The label that the line answers, by itself or as part of a batch."""
        batch = self._open.get(line.tags.get("batch", ""))
        return line.tags.get("label") or (batch.label if batch is not None else None)
