"""What agents did: tool calls, commands, uses of secrets (architecture 5: the runner's drain).

A runner may write as much as it likes, so only the newest entries of a session are kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import ActivityKind, ActivityRow, Session
from jackfield.store.text import storable
from jackfield.store.where import where

__all__ = ["KEPT", "Activity", "entries", "forget_activity", "newest_of", "record"]

KEPT = 10_000
"""Entries of one session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One thing that an agent did."""

    ord: int
    """Grows with every entry, over all sessions."""
    session_id: SessionId
    agent_group_id: AgentGroupId
    kind: ActivityKind
    target: str
    summary: str
    at: UnixMs


_COLUMNS = "ord, session_id, agent_group_id, kind, target, summary, at"


def _activity(row: tuple[Any, ...]) -> Activity:
    return Activity(
        ord=row[0],
        session_id=SessionId(row[1]),
        agent_group_id=AgentGroupId(row[2]),
        kind=ActivityKind(row[3]),
        target=row[4],
        summary=row[5],
        at=UnixMs(row[6]),
    )


def record(db: sqlite3.Connection, session: Session, did: Sequence[ActivityRow]) -> None:
    """Enter what a session's agent did.  Doing it again changes nothing."""
    db.executemany(
        "INSERT INTO activity (session_id, agent_group_id, seq, kind, target, summary, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (session_id, seq, at) DO NOTHING",
        [
            (
                session.id, session.agent_group_id, row.seq, row.kind.value, storable(row.target),
                storable(row.summary), row.at,
            )
            for row in did
        ],
    )  # fmt: skip
    newest = max((row.seq for row in did), default=0)
    db.execute("DELETE FROM activity WHERE session_id = ? AND seq <= ?", (session.id, newest - KEPT))


def entries(
    db: sqlite3.Connection,
    *,
    agent_group_id: AgentGroupId | None = None,
    session_id: SessionId | None = None,
    kind: ActivityKind | None = None,
    since: UnixMs | None = None,
    limit: int = 100,
) -> list[Activity]:
    """The newest first."""
    narrowed, values = where(
        {"agent_group_id = ?": agent_group_id, "session_id = ?": session_id, "kind = ?": kind, "at >= ?": since}
    )
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM activity {narrowed} ORDER BY ord DESC LIMIT ?",
        (*values, limit),
    )
    return [_activity(row) for row in rows]


def newest_of(db: sqlite3.Connection, agent_group_id: AgentGroupId, target: str) -> Activity | None:
    """The last that a group's agent did with that target."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM activity WHERE agent_group_id = ? AND target = ? ORDER BY ord DESC LIMIT 1",
        (agent_group_id, target),
    ).fetchone()
    return None if row is None else _activity(row)


def forget_activity(db: sqlite3.Connection, before: UnixMs) -> int:
    """Delete what was done before a moment; how many entries."""
    return db.execute("DELETE FROM activity WHERE at < ?", (before,)).rowcount
