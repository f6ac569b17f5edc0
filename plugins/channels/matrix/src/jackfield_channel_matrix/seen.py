"""The events that passed by lately: what a reply, an edit, a reaction or a redaction refers to (a cache, no more)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Seen", "SeenEvents"]

EVENTS = 5000
SHOWN = 500
"""Characters of a text that a quote shows."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One event.  For a reaction `target` and `emoji` say what it was."""

    sender: str
    thread: str | None = None
    text: str = ""
    target: str = ""
    emoji: str = ""


class SeenEvents:
    """By room and id; the newest `EVENTS`."""

    def __init__(self) -> None:
        self._events: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._latest: OrderedDict[tuple[str, str], str] = OrderedDict()

    def add(self, room: str, event_id: str, event: Seen, *, newest: bool = True) -> None:
        """Remember it; not as its thread's newest message when it was looked up."""
        self._events[room, event_id] = event
        while len(self._events) > EVENTS:
            self._events.popitem(last=False)
        if newest and event.thread is not None and not event.target:
            self._latest[room, event.thread] = event_id
            self._latest.move_to_end((room, event.thread))
            while len(self._latest) > EVENTS:
                self._latest.popitem(last=False)

    def get(self, room: str, event_id: str) -> Seen | None:
        return self._events.get((room, event_id))

    def latest(self, room: str, thread: str) -> str | None:
        """The newest message of a thread, as far as it passed by."""
        return self._latest.get((room, thread))
