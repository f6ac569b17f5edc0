"""What people decide: each request once, what became of it, and where it was shown (architecture 8).

States: `pending`, then one of `approved`, `rejected`, `expired`, `cancelled`, which never changes again.  After that
the deed has an outcome (none, `running`, then `done`, `failed` or `interrupted`), and `finished_at` is set when all
that follows from the decision was done and told.  Every step is one UPDATE that names the state it leaves, so that of
all who try exactly one succeeds.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jackfield.api.approvals import ApprovalChoice, ApprovalField, ApprovalState
from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, ApprovalId, RequestId, SessionId
from jackfield.models import Address
from jackfield.store.text import storable

__all__ = [
    "Approval",
    "ApprovedFile",
    "DeedOutcome",
    "Via",
    "add",
    "any_due",
    "approval",
    "approvals",
    "begin_deed",
    "by_request",
    "cancel_of_group",
    "cancel_of_session",
    "counts",
    "decide",
    "end_deed",
    "expire_due",
    "finish",
    "forget",
    "open_payloads",
    "pending_alike",
    "pending_keys",
    "remind_due",
    "unfinished",
]


class Via(StrEnum):
    """How it was decided."""

    CARD = "card"
    REPLY = "reply"
    CLI = "cli"
    POLICY = "policy"
    """By the group's `[permissions]`, without asking."""


class DeedOutcome(StrEnum):
    """What became of what was approved."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """The host ended in the middle; nobody knows how far it came."""


@dataclass(frozen=True, slots=True)
class ApprovedFile:
    """A file that is part of what is decided: its name, and the digest of its content."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """`payload` is the JSON text that `apply` gets; `digest` binds the decision to all that was shown."""

    id: ApprovalId
    kind: str
    dedupe_key: str
    agent_group_id: AgentGroupId | None
    session_id: SessionId | None
    request_id: RequestId | None
    origin: Address | None
    title: str
    reason: str
    fields: tuple[ApprovalField, ...]
    payload: str
    files: tuple[ApprovedFile, ...]
    digest: str
    choices: tuple[ApprovalChoice, ...]
    state: ApprovalState
    created_at: UnixMs
    expires_at: UnixMs
    remind_at: UnixMs | None = None
    value: str | None = None
    decided_by: str | None = None
    """A user's id, or `operator`."""
    via: Via | None = None
    note: str | None = None
    """What the person who decided wrote about it."""
    outcome: DeedOutcome | None = None
    outcome_text: str | None = None
    decided_at: UnixMs | None = None
    finished_at: UnixMs | None = None

    @property
    def chosen(self) -> ApprovalChoice | None:
        """The choice that a person made; None while nobody did."""
        return next((choice for choice in self.choices if choice.value == self.value), None)


_COLUMNS = (
    "id, kind, dedupe_key, agent_group_id, session_id, request_id, origin, title, reason, fields, payload, files, "
    "digest, choices, state, created_at, expires_at, remind_at, value, decided_by, via, note, outcome, outcome_text, "
    "decided_at, finished_at"
)


def _approval(row: tuple[Any, ...]) -> Approval:
    return Approval(
        id=ApprovalId(row[0]),
        kind=row[1],
        dedupe_key=row[2],
        agent_group_id=row[3],
        session_id=row[4],
        request_id=row[5],
        origin=None if row[6] is None else Address.parse(row[6]),
        title=row[7],
        reason=row[8],
        fields=tuple(ApprovalField(label=label, value=value) for label, value in json.loads(row[9])),
        payload=row[10],
        files=tuple(ApprovedFile(*one) for one in json.loads(row[11])),
        digest=row[12],
        choices=tuple(
            ApprovalChoice(value=value, label=label, approves=approves, selected_label=selected)
            for value, label, approves, selected in json.loads(row[13])
        ),
        state=ApprovalState(row[14]),
        created_at=UnixMs(row[15]),
        expires_at=UnixMs(row[16]),
        remind_at=row[17],
        value=row[18],
        decided_by=row[19],
        via=None if row[20] is None else Via(row[20]),
        note=row[21],
        outcome=None if row[22] is None else DeedOutcome(row[22]),
        outcome_text=row[23],
        decided_at=row[24],
        finished_at=row[25],
    )


def _values(item: Approval) -> tuple[Any, ...]:
    choices = [[one.value, one.label, one.approves, one.selected_label] for one in item.choices]
    return (
        item.id,
        item.kind,
        item.dedupe_key,
        item.agent_group_id,
        item.session_id,
        item.request_id,
        None if item.origin is None else str(item.origin),
        storable(item.title),
        storable(item.reason),
        json.dumps([[one.label, one.value] for one in item.fields]),
        item.payload,
        json.dumps([[one.name, one.sha256, one.size] for one in item.files]),
        item.digest,
        json.dumps(choices),
        item.state.value,
        item.created_at,
        item.expires_at,
        item.remind_at,
        item.value,
        item.decided_by,
        item.via,
        storable(item.note),
        item.outcome,
        storable(item.outcome_text),
        item.decided_at,
        item.finished_at,
    )


def add(db: sqlite3.Connection, item: Approval) -> tuple[Approval, bool]:
    """Put a request on record; the one that counts, and whether it is this one.

    The same request of a session is the same approval for ever; of one kind and dedupe key only one may be pending.
    """
    known = None
    if item.session_id is not None and item.request_id is not None:
        known = by_request(db, item.session_id, item.request_id)
    if known is None and item.state is ApprovalState.PENDING:
        row = db.execute(
            f"SELECT {_COLUMNS} FROM approvals WHERE kind = ? AND dedupe_key = ? AND state = 'pending'",
            (item.kind, item.dedupe_key),
        ).fetchone()
        known = None if row is None else _approval(row)
    if known is not None:
        return known, False
    values = _values(item)
    db.execute(f"INSERT INTO approvals ({_COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)
    return item, True


def approval(db: sqlite3.Connection, id: ApprovalId) -> Approval | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM approvals WHERE id = ?", (id,)).fetchone()
    return None if row is None else _approval(row)


def by_request(db: sqlite3.Connection, session_id: SessionId, request_id: RequestId) -> Approval | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE session_id = ? AND request_id = ?", (session_id, request_id)
    ).fetchone()
    return None if row is None else _approval(row)


def approvals(db: sqlite3.Connection, state: ApprovalState | None = None, limit: int = 100) -> list[Approval]:
    """The newest first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE ?1 IS NULL OR state = ?1 ORDER BY id DESC LIMIT ?2",
        (None if state is None else state.value, limit),
    )
    return [_approval(row) for row in rows]


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many are in each state."""
    return {str(state): int(count) for state, count in db.execute("SELECT state, count(*) FROM approvals GROUP BY 1")}


def pending_keys(db: sqlite3.Connection, kind: str, prefix: str) -> list[str]:
    """The keys of what waits of a kind, that begin so; `prefix` ends with a space."""
    rows = db.execute(
        "SELECT dedupe_key FROM approvals WHERE kind = ?1 AND dedupe_key >= ?2 AND dedupe_key < ?3 "
        "AND state = 'pending'",
        (kind, prefix, prefix[:-1] + "!"),
    )
    return [key for (key,) in rows]


def open_payloads(db: sqlite3.Connection, kinds: tuple[str, ...]) -> list[str]:
    """The payloads of what waits, or whose end is not carried out yet; reads all approvals."""
    rows = db.execute(
        f"SELECT payload FROM approvals WHERE finished_at IS NULL AND kind IN ({', '.join('?' * len(kinds))})", kinds
    )
    return [payload for (payload,) in rows]


def pending_alike(db: sqlite3.Connection, agent_group_id: AgentGroupId | None, *, by_agent: bool) -> int:
    """How many decisions wait about a group, or about none: what its agent asked for, or what others brought up.

    They are counted apart, so that strangers can't keep an agent from asking, nor an agent strangers.
    """
    row = db.execute(
        "SELECT count(*) FROM approvals WHERE state = 'pending' AND agent_group_id IS ?1 "
        "AND (session_id IS NOT NULL) = ?2",
        (agent_group_id, by_agent),
    ).fetchone()
    return int(row[0])


# ---- the decision


def decide(
    db: sqlite3.Connection,
    id: ApprovalId,
    state: ApprovalState,
    now: UnixMs,
    *,
    value: str | None = None,
    by: str | None = None,
    via: Via | None = None,
    note: str | None = None,
) -> Approval | None:
    """End the waiting.  Of all who try, exactly one gets the decided approval; the others None (C153).

    Nothing but `expired` is possible once its time is over.
    """
    row = db.execute(
        "UPDATE approvals SET state = ?1, value = ?2, decided_by = ?3, via = ?4, note = ?5, decided_at = ?6, "
        "remind_at = NULL WHERE id = ?7 AND state = 'pending' AND (expires_at > ?6 OR ?1 IN ('expired', 'cancelled')) "
        f"RETURNING {_COLUMNS}",
        (state.value, value, by, via, storable(note), now, id),
    ).fetchone()
    return None if row is None else _approval(row)


def any_due(db: sqlite3.Connection, now: UnixMs) -> bool:
    """Whether something expires, or someone must be reminded."""
    row = db.execute(
        "SELECT EXISTS (SELECT 1 FROM approvals WHERE state = 'pending' AND expires_at <= ?1) OR EXISTS "
        "(SELECT 1 FROM approvals WHERE state = 'pending' AND remind_at IS NOT NULL AND remind_at <= ?1)",
        (now,),
    ).fetchone()
    return bool(row[0])


def expire_due(db: sqlite3.Connection, now: UnixMs) -> list[Approval]:
    """End those whose time is over; each is returned by exactly one call."""
    rows = db.execute(
        "UPDATE approvals SET state = 'expired', decided_at = ?1, remind_at = NULL "
        f"WHERE state = 'pending' AND expires_at <= ?1 RETURNING {_COLUMNS}",
        (now,),
    ).fetchall()
    return [_approval(row) for row in rows]


def remind_due(db: sqlite3.Connection, now: UnixMs) -> list[Approval]:
    """Those of which people must be reminded now; each is returned by exactly one call."""
    rows = db.execute(
        "UPDATE approvals SET remind_at = NULL WHERE state = 'pending' AND remind_at IS NOT NULL AND remind_at <= ? "
        f"RETURNING {_COLUMNS}",
        (now,),
    ).fetchall()
    return [_approval(row) for row in rows]


def cancel_of_session(db: sqlite3.Connection, session_id: SessionId, now: UnixMs) -> int:
    """Nobody waits for these any more: the conversation that asked is being closed.  How many."""
    return _cancel(db, "session_id = ?", session_id, now)


def cancel_of_group(db: sqlite3.Connection, agent_group_id: AgentGroupId, now: UnixMs) -> int:
    """Its group is being removed.  How many."""
    return _cancel(db, "agent_group_id = ?", agent_group_id, now)


def _cancel(db: sqlite3.Connection, whose: str, id: str, now: UnixMs) -> int:
    return db.execute(
        f"UPDATE approvals SET state = 'cancelled', decided_at = ?, remind_at = NULL WHERE {whose} "
        "AND state = 'pending'",
        (now, id),
    ).rowcount


# ---- the deed


def begin_deed(db: sqlite3.Connection, id: ApprovalId, *, again: bool = False) -> bool:
    """Whether the caller is the one that does it.  `again` takes up what a host's end interrupted."""
    found = "outcome IS NULL" if not again else "outcome = 'running'"
    done = db.execute(
        f"UPDATE approvals SET outcome = 'running' WHERE id = ? AND {found} AND state IN ('approved', 'rejected')",
        (id,),
    )
    return done.rowcount == 1


def end_deed(db: sqlite3.Connection, id: ApprovalId, outcome: DeedOutcome, text: str | None) -> bool:
    """What became of it.  False when it has ended already."""
    done = db.execute(
        "UPDATE approvals SET outcome = ?, outcome_text = ? WHERE id = ? AND outcome = 'running'",
        (outcome.value, storable(text), id),
    )
    return done.rowcount == 1


def finish(db: sqlite3.Connection, id: ApprovalId, now: UnixMs) -> None:
    """All that follows from the decision was done and told."""
    db.execute("UPDATE approvals SET finished_at = ? WHERE id = ? AND state <> 'pending'", (now, id))


def unfinished(db: sqlite3.Connection) -> list[Approval]:
    """Decided, and not everything that follows was done; the oldest first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM approvals WHERE state <> 'pending' AND finished_at IS NULL ORDER BY decided_at, id"
    )
    return [_approval(row) for row in rows]


def forget(db: sqlite3.Connection, before: UnixMs, limit: int = 500) -> int:
    """Delete what ended before that moment, with its cards; how many."""
    return db.execute(
        "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE state <> 'pending' AND decided_at < ? "
        "AND finished_at IS NOT NULL LIMIT ?)",
        (before, limit),
    ).rowcount
