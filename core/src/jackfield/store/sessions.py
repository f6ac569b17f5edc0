"""Sessions: one conversation of one agent group each, and how far the host has read its mailbox."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from jackfield.clock import UnixMs
from jackfield.errors import NotFound
from jackfield.ids import AgentGroupId, MessagingGroupId, SessionId, new_id
from jackfield.models import Session, SessionMode, SessionStatus
from jackfield.store.where import where

__all__ = [
    "OutCursor",
    "ParkedScope",
    "active_session",
    "begin_epoch",
    "close_session",
    "cursors",
    "move_cursors",
    "park",
    "park_scope",
    "parked_due",
    "parked_scope",
    "parked_scopes",
    "reset_cursors",
    "session",
    "session_for",
    "sessions",
    "touch_session",
    "unpark",
    "unpark_due",
    "unpark_scope",
]

Scope = Literal["credential", "provider"]

_COLUMNS = (
    "id, agent_group_id, key, mode, messaging_group_id, thread_id, status, epoch, parked_until, parked_reason, "
    "created_at, last_active_at"
)


@dataclass(frozen=True, slots=True)
class OutCursor:
    """How far the host has read `outbound.db`: the last message, the last change of an ack, the last activity row, the
    last use of a model."""

    seq: int = 0
    change: int = 0
    activity: int = 0
    usage: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedScope:
    """A credential or provider that nobody may use before `until` (architecture 5, rule 5)."""

    scope: Scope
    key: str
    until: UnixMs
    reason: str


def _session(row: tuple[Any, ...]) -> Session:
    return Session(
        id=SessionId(row[0]),
        agent_group_id=AgentGroupId(row[1]),
        key=row[2],
        mode=SessionMode(row[3]),
        messaging_group_id=row[4],
        thread_id=row[5],
        status=SessionStatus(row[6]),
        epoch=row[7],
        parked_until=row[8],
        parked_reason=row[9],
        created_at=UnixMs(row[10]),
        last_active_at=UnixMs(row[11]),
    )


def session_for(
    db: sqlite3.Connection,
    agent_group_id: AgentGroupId,
    key: str,
    *,
    mode: SessionMode,
    messaging_group_id: MessagingGroupId | None,
    thread_id: str | None,
    now: UnixMs,
) -> tuple[Session, bool]:
    """The group's active session under `key`, and whether it was made just now.  There is never a second one.

    Raises:
        NotFound: no such agent group.
    """
    found = db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE agent_group_id = ? AND key = ? AND status = 'active'",
        (agent_group_id, key),
    ).fetchone()
    if found is not None:
        return _session(found), False
    if db.execute("SELECT 1 FROM agent_groups WHERE id = ?", (agent_group_id,)).fetchone() is None:
        raise NotFound(f"there is no agent group {agent_group_id!r} for a session")
    row = db.execute(
        "INSERT INTO sessions "
        "(id, agent_group_id, key, mode, messaging_group_id, thread_id, status, created_at, last_active_at) "
        f"VALUES (?, ?, ?, ?, ?, ?, 'active', ?, ?) RETURNING {_COLUMNS}",
        (new_id("ses", now), agent_group_id, key, mode.value, messaging_group_id, thread_id, now, now),
    ).fetchone()
    return _session(row), True


def session(db: sqlite3.Connection, id: SessionId) -> Session | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (id,)).fetchone()
    return None if row is None else _session(row)


def active_session(db: sqlite3.Connection, agent_group_id: AgentGroupId, key: str) -> Session | None:
    """The active session under that key, if there is one."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE agent_group_id = ? AND key = ? AND status = 'active'",
        (agent_group_id, key),
    ).fetchone()
    return None if row is None else _session(row)


def sessions(
    db: sqlite3.Connection,
    *,
    agent_group_id: AgentGroupId | None = None,
    status: SessionStatus | None = None,
    limit: int | None = None,
) -> list[Session]:
    """The most recently active first."""
    narrowed, values = where({"agent_group_id = ?": agent_group_id, "status = ?": status})
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM sessions {narrowed} ORDER BY last_active_at DESC, id DESC LIMIT ?",
        (*values, -1 if limit is None else limit),
    )
    return [_session(row) for row in rows]


def close_session(db: sqlite3.Connection, id: SessionId, now: UnixMs) -> bool:
    """End a session; its key is free for a new one.  False when it is closed or unknown."""
    done = db.execute(
        "UPDATE sessions SET status = 'closed', parked_until = NULL, parked_reason = NULL, "
        "last_active_at = max(last_active_at, ?) WHERE id = ? AND status = 'active'",
        (now, id),
    )
    return done.rowcount == 1


def touch_session(db: sqlite3.Connection, id: SessionId, now: UnixMs) -> None:
    """Something happened in it."""
    db.execute("UPDATE sessions SET last_active_at = ?1 WHERE id = ?2 AND last_active_at < ?1", (now, id))


def begin_epoch(db: sqlite3.Connection, session_id: SessionId, now: UnixMs) -> int:
    """The epoch of the launch that begins now; rows of every older one are refused from here on.

    Raises:
        NotFound: no such session.
    """
    row = db.execute(
        "UPDATE sessions SET epoch = epoch + 1, last_active_at = max(last_active_at, ?) WHERE id = ? RETURNING epoch",
        (now, session_id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no session {session_id!r} to launch")
    return int(row[0])


def cursors(db: sqlite3.Connection, session_id: SessionId) -> OutCursor:
    """Where reading its `outbound.db` goes on; zeros for an unknown session."""
    row = db.execute(
        "SELECT seq_cursor, change_cursor, activity_cursor, usage_cursor FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return OutCursor() if row is None else OutCursor(*row)


def move_cursors(db: sqlite3.Connection, session_id: SessionId, to: OutCursor) -> None:
    """Each of them only ever grows, whatever order the calls come in."""
    db.execute(
        "UPDATE sessions SET seq_cursor = max(seq_cursor, ?), change_cursor = max(change_cursor, ?), "
        "activity_cursor = max(activity_cursor, ?), usage_cursor = max(usage_cursor, ?) WHERE id = ?",
        (to.seq, to.change, to.activity, to.usage, session_id),
    )


def reset_cursors(db: sqlite3.Connection, session_id: SessionId) -> None:
    """Begin reading at the start: the session has a fresh mailbox."""
    db.execute(
        "UPDATE sessions SET seq_cursor = 0, change_cursor = 0, activity_cursor = 0, usage_cursor = 0 WHERE id = ?",
        (session_id,),
    )


def unpark_due(db: sqlite3.Connection, now: UnixMs) -> int:
    """Let everything go on whose parking is over, sessions and scopes; how many."""
    freed = db.execute(
        "UPDATE sessions SET parked_until = NULL, parked_reason = NULL "
        "WHERE parked_until IS NOT NULL AND parked_until <= ?",
        (now,),
    ).rowcount
    return freed + db.execute("DELETE FROM parked_scopes WHERE until <= ?", (now,)).rowcount


def park(db: sqlite3.Connection, session_id: SessionId, until: UnixMs, reason: str) -> None:
    """Start nothing in this session before `until`."""
    db.execute(
        "UPDATE sessions SET parked_until = ?, parked_reason = ? WHERE id = ? AND status = 'active'",
        (until, reason, session_id),
    )


def unpark(db: sqlite3.Connection, session_id: SessionId) -> bool:
    """False when it was not parked."""
    done = db.execute(
        "UPDATE sessions SET parked_until = NULL, parked_reason = NULL WHERE id = ? AND parked_until IS NOT NULL",
        (session_id,),
    )
    return done.rowcount == 1


def parked_due(db: sqlite3.Connection, now: UnixMs) -> list[Session]:
    """Parked sessions whose time has come, the longest due first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM sessions WHERE parked_until IS NOT NULL AND parked_until <= ? ORDER BY parked_until",
        (now,),
    )
    return [_session(row) for row in rows]


def park_scope(db: sqlite3.Connection, scope: Scope, key: str, until: UnixMs, reason: str) -> None:
    """Start no session that uses this credential or provider before `until`."""
    db.execute(
        "INSERT INTO parked_scopes (scope, key, until, reason) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (scope, key) DO UPDATE SET until = excluded.until, reason = excluded.reason",
        (scope, key, until, reason),
    )


def unpark_scope(db: sqlite3.Connection, scope: Scope, key: str) -> bool:
    return db.execute("DELETE FROM parked_scopes WHERE scope = ? AND key = ?", (scope, key)).rowcount == 1


def parked_scope(db: sqlite3.Connection, scope: Scope, key: str) -> ParkedScope | None:
    row = db.execute(
        "SELECT scope, key, until, reason FROM parked_scopes WHERE scope = ? AND key = ?", (scope, key)
    ).fetchone()
    return None if row is None else ParkedScope(scope=row[0], key=row[1], until=row[2], reason=row[3])


def parked_scopes(db: sqlite3.Connection, due: UnixMs | None = None) -> list[ParkedScope]:
    """All that are parked, the next to end first; with `due`, those whose time has come at that moment."""
    rows = db.execute(
        "SELECT scope, key, until, reason FROM parked_scopes WHERE until <= ? ORDER BY until, scope, key",
        (2**62 if due is None else due,),
    )
    return [ParkedScope(scope=row[0], key=row[1], until=row[2], reason=row[3]) for row in rows]
