"""What becomes of messages, once it is decided: by message, by session, and as entries of the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError
from jackfield.host.routing import Arrival, Facts, Outcome, note_unwired, record
from jackfield.ids import SessionId
from jackfield.models import EventState, Session
from jackfield.store import events

__all__ = ["Judged", "by_session", "ledger"]


@dataclass(slots=True)
class Judged:
    """What becomes of one message."""

    arrival: Arrival
    outcomes: list[Outcome] = field(default_factory=list)
    ignored: str | None = None
    """Why it goes to no agent at all."""
    unwired: bool = False
    keep: bool = False
    """Whether its words are kept although nobody gets them, since somebody is asked about its sender or chat."""
    failed: JackfieldError | None = None
    """Why some wiring has no outcome; the event is routed again."""

    @property
    def routed(self) -> bool:
        return self.ignored is None and not self.unwired

    @property
    def asks(self) -> bool:
        """Whether somebody could be asked about its sender or chat."""
        return self.unwired or any(outcome.ask for outcome in self.outcomes)

    def refuse(self, reason: str) -> None:
        """Give what was refused for lack of an answer its reason, now that nobody is asked."""
        self.outcomes[:] = [
            replace(outcome, reason=reason, ask=False) if outcome.ask else outcome for outcome in self.outcomes
        ]

    def changes(self, facts: Facts | None) -> bool:
        """Whether the next message must be judged by other facts than this one."""
        taken = [outcome for outcome in self.outcomes if outcome.session is not None]
        if facts is None or not taken:
            return self.failed is not None
        return (
            self.failed is not None
            or (self.arrival.sender.user_id is not None and not facts.user_known)
            or any(outcome.wired.session is None for outcome in taken)
            or any(outcome.stick_until is not None and not outcome.wired.sticky for outcome in taken)
        )


def by_session(judged: Sequence[Judged]) -> list[tuple[Session, list[tuple[Judged, Outcome]]]]:
    """What goes into each inbox, in order."""
    found: dict[SessionId, tuple[Session, list[tuple[Judged, Outcome]]]] = {}
    for verdict in judged:
        for outcome in verdict.outcomes:
            if outcome.session is not None:
                found.setdefault(outcome.session.id, (outcome.session, []))[1].append((verdict, outcome))
    return list(found.values())


def ledger(verdict: Judged, now: UnixMs) -> Callable[[sqlite3.Connection], object]:
    """What is entered in the ledger for one message."""
    if verdict.ignored is not None:
        return partial(
            events.finish,
            event_id=verdict.arrival.event_id,
            state=EventState.IGNORED,
            reason=verdict.ignored,
            now=now,
        )
    if verdict.unwired:
        return partial(note_unwired, arrival=verdict.arrival, keep=verdict.keep, now=now)
    return partial(
        record,
        arrival=verdict.arrival,
        outcomes=tuple(verdict.outcomes),
        complete=verdict.failed is None,
        keep=verdict.keep,
        now=now,
    )
