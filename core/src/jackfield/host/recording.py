"""The one transaction in which a runner's batch enters the ledger (architecture 5): its deliveries, the ends of the
messages that it took, the retries that the pure rule decided, what it did, and how far it was read.

Everything here runs inside that transaction and is told what to do afterwards by an `Outcome`.
"""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from jackfield.clock import UnixMs
from jackfield.host import retry
from jackfield.host.agents.entering import Entered
from jackfield.host.parking import Keys
from jackfield.ids import InboundId, TurnId
from jackfield.models import (
    SCRIPT_FAILED,
    Ack,
    AckStatus,
    ActivityRow,
    DeliveryState,
    InboundEntry,
    InboundState,
    Session,
    TurnError,
    UsageEntry,
)
from jackfield.models import Delivery as DeliveryRow
from jackfield.store import activity, deliveries, inbound, sessions, tasks, usage
from jackfield.store.sessions import OutCursor

__all__ = ["Outcome", "record", "record_early"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What one batch changed, for the work after the commit."""

    added: deliveries.Added = field(default_factory=lambda: deliveries.Added([], []))
    ended: list[tuple[Ack, str]] = field(default_factory=list)
    refused: list[tuple[DeliveryRow, InboundId]] = field(default_factory=list)
    """Messages for other agents that were not entered, and the notices that tell so."""
    early: set[InboundId] = field(default_factory=set)
    later: bool = False
    parked: bool = False
    shared: sessions.Scope | None = None
    """Whether the session is parked, and what of it, with all that share that."""
    tell: str | None = None
    """What the person in the chat is told, once for the batch."""
    of_tasks: set[TurnId | None] = field(default_factory=set)
    """Turns that failed over a task."""
    keys: Keys = field(default_factory=lambda: {"credential": "", "provider": ""})
    owner: tuple[str, str] | None = None
    """What an owner is told, and what it is about."""
    worked: bool = False
    """Whether a turn ended well: then nothing that it uses is out of order."""


def record(
    db: sqlite3.Connection,
    session: Session,
    parts: Sequence[DeliveryRow],
    acks: Sequence[Ack],
    did: Sequence[ActivityRow],
    used: Sequence[UsageEntry],
    cursor: OutCursor,
    now: UnixMs,
    keys: Keys,
    enter: Callable[[sqlite3.Connection, DeliveryRow], Entered],
) -> Outcome:
    """The one transaction."""
    outcome = Outcome(keys=keys)
    failed = [ack for ack in acks if ack.status is AckStatus.FAILED]
    outcome.of_tasks = {ack.turn for ack in failed if tasks.is_run(db, ack.message_id)}
    for ack in acks:  # first, so that the ledger knows which messages a turn took that wrote to other agents
        _apply_ack(db, session, ack, now, outcome)
    final: list[DeliveryRow] = []
    for part in parts:
        if part.address.is_agent and part.state not in deliveries.ENDS:
            entered = enter(db, part)
            part = entered.part
            if entered.notice is not None:
                outcome.refused.append((part, entered.notice))
        final.append(part)
    outcome.added = deliveries.add(db, final, start=True, now=now)
    if acks:
        sessions.touch_session(db, session.id, now)
    if did:
        activity.record(db, session, did)
    if used:
        usage.record_entries(db, session, used)
    sessions.move_cursors(db, session.id, cursor)
    outcome.later = outcome.later or any(part.state is DeliveryState.RETRYING for part in parts)
    return outcome


def record_early(db: sqlite3.Connection, session: Session, acks: Sequence[Ack], now: UnixMs, keys: Keys) -> Outcome:
    """What was acknowledged before it was in the ledger, for what nothing has become of since."""
    outcome = Outcome(keys=keys)
    for ack in acks:
        entry = inbound.entry(db, ack.message_id)
        if entry is None or (entry.attempts == 0 and entry.state in (InboundState.QUEUED, InboundState.CONTEXT)):
            _apply_ack(db, session, ack, now, outcome)
    return outcome


def _apply_ack(db: sqlite3.Connection, session: Session, ack: Ack, now: UnixMs, outcome: Outcome) -> None:
    entry = inbound.entry(db, ack.message_id)
    if entry is None:
        outcome.early.add(ack.message_id)
        return
    if entry.session_id != session.id:
        return  # not a message of this session: nothing that a runner says about it counts
    if ack.status is AckStatus.PROCESSING:
        inbound.set_state(db, entry.id, InboundState.CLAIMED, now, attempts=ack.attempt, turn=ack.turn)
    elif ack.status is AckStatus.RELEASED:
        inbound.set_state(db, entry.id, InboundState.QUEUED, now, attempts=max(0, ack.attempt - 1))
    elif ack.status is AckStatus.COMPLETED:
        inbound.set_state(db, entry.id, InboundState.COMPLETED, now, attempts=ack.attempt, turn=ack.turn)
        outcome.ended.append((ack, InboundState.COMPLETED))
        outcome.worked = outcome.worked or ack.turn is not None
    else:
        told = outcome.tell
        _apply_failure(db, session, entry, ack, now, outcome)
        if entry.event_id is None and ack.turn in outcome.of_tasks:
            # Nobody wrote it, nor the notices beside it; what people are told of a series, the schedule tells once.
            outcome.tell = told


def _apply_failure(
    db: sqlite3.Connection, session: Session, entry: InboundEntry, ack: Ack, now: UnixMs, outcome: Outcome
) -> None:
    error = ack.error or TurnError(kind="protocol", message="the runner gave no reason")
    if error.kind == "config" and not error.message.startswith(
        SCRIPT_FAILED
    ):  # a mistake of the operator, who learns its wording nowhere else
        log.warning("session %s: the agent is not set up correctly: %s", session.id, error.message[:2000])
    decision = retry.after_turn(error, attempts=ack.attempt, now=now, random=random.random())
    match decision:
        case retry.RetryAt(at=at, reason=reason):
            state = InboundState.RETRYING
        case retry.ParkSession(until=at, reason=reason, tell=tell):
            state = InboundState.PARKED
            sessions.park(db, session.id, at, reason)
            outcome.parked = True
            outcome.tell = tell if ack.attempt == 1 else outcome.tell  # told once, not at each try
        case retry.ParkScope(scope=scope, until=at, reason=reason, tell=tell, tell_owner=owner):
            state = InboundState.PARKED
            sessions.park_scope(db, scope, outcome.keys[scope], at, reason)
            sessions.park(db, session.id, at, reason)
            outcome.parked, outcome.shared = True, scope
            if owner is not None:
                outcome.owner = (owner, outcome.keys[scope])
            outcome.tell = tell if ack.attempt == 1 else outcome.tell
        case retry.Complete(reason=reason):
            inbound.set_state(
                db, entry.id, InboundState.DROPPED, now, attempts=ack.attempt, reason=reason, turn=ack.turn
            )
            outcome.ended.append((ack, InboundState.DROPPED))
            return
        case retry.Fail(reason=reason, tell=tell):
            inbound.set_state(
                db, entry.id, InboundState.FAILED, now, attempts=ack.attempt, reason=reason, turn=ack.turn
            )
            outcome.ended.append((ack, InboundState.FAILED))
            outcome.tell = tell
            return
    inbound.set_state(db, entry.id, state, now, attempts=ack.attempt, next_try_at=at, reason=reason, turn=ack.turn)
    outcome.later = True
