"""What the ledger may forget: what has had its end for long enough (architecture 5, rule 2).

For a sweep now and then, in bites.  Each question reads the oldest entries of an end, of which the old ones come first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, InboundId, SessionId
from jackfield.store import inbound, sessions
from jackfield.store.sessions import OutCursor

__all__ = [
    "EndedMessage",
    "closed_sessions",
    "ended_messages",
    "forget_drops",
    "forget_messages",
    "forget_questions",
    "forget_session",
    "forgotten_up_to",
    "oldest_open",
]

_OPEN = "('queued', 'claimed', 'retrying', 'parked', 'context')"


@dataclass(frozen=True, slots=True)
class EndedMessage:
    """A message in that may go, from the ledger and from its session's mailbox.  `group_id` is None when its session is
    not known any more."""

    id: InboundId
    session_id: SessionId
    group_id: AgentGroupId | None


def ended_messages(db: sqlite3.Connection, before: UnixMs, limit: int = 500) -> list[EndedMessage]:
    """Messages in that ended before a moment and whose event is forgotten already, at most `limit` of each end.

    An event that is still known could be routed again, and would find its message missing.
    """
    found = []
    for state in sorted(inbound.ENDS):
        found += db.execute(
            "SELECT m.id, m.session_id, s.agent_group_id FROM "
            "(SELECT id, session_id, event_id, updated_at FROM inbound WHERE state = ? ORDER BY ord LIMIT ?) AS m "
            "LEFT JOIN sessions AS s ON s.id = m.session_id "
            "WHERE m.updated_at < ? AND NOT EXISTS (SELECT 1 FROM events AS e WHERE e.id = m.event_id)",
            (state.value, limit, before),
        ).fetchall()
    return [EndedMessage(InboundId(row[0]), SessionId(row[1]), row[2]) for row in found]


def forget_messages(db: sqlite3.Connection, ids: Sequence[InboundId]) -> int:
    """Delete entries that `ended_messages` named; how many."""
    return sum(db.execute(f"DELETE FROM inbound WHERE id = ? AND state NOT IN {_OPEN}", (id,)).rowcount for id in ids)


def forgotten_up_to(db: sqlite3.Connection, session_id: SessionId) -> OutCursor:
    """How far into the session's `outbound.db` everything was read and no delivery is in the ledger any more."""
    cursor = sessions.cursors(db, session_id)
    first = db.execute("SELECT min(out_seq) FROM deliveries WHERE session_id = ?", (session_id,)).fetchone()[0]
    seq = cursor.seq if first is None else min(cursor.seq, int(first) - 1)
    return OutCursor(seq=seq, change=cursor.change, activity=cursor.activity, usage=cursor.usage)


def closed_sessions(db: sqlite3.Connection, before: UnixMs, limit: int = 100) -> list[tuple[SessionId, AgentGroupId]]:
    """Sessions that were closed before a moment and of which the ledger knows nothing any more."""
    rows = db.execute(
        "SELECT id, agent_group_id FROM sessions AS s WHERE status = 'closed' AND last_active_at < ? "
        "AND NOT EXISTS (SELECT 1 FROM inbound WHERE session_id = s.id) "
        "AND NOT EXISTS (SELECT 1 FROM deliveries WHERE session_id = s.id) ORDER BY last_active_at LIMIT ?",
        (before, limit),
    )
    return [(SessionId(row[0]), AgentGroupId(row[1])) for row in rows]


def forget_session(db: sqlite3.Connection, id: SessionId) -> bool:
    """Delete a closed session.  False when it is active or unknown."""
    return db.execute("DELETE FROM sessions WHERE id = ? AND status = 'closed'", (id,)).rowcount == 1


def forget_questions(db: sqlite3.Connection, before: UnixMs) -> int:
    """Delete questions that were decided or expired before a moment; how many."""
    return db.execute("DELETE FROM questions WHERE state <> 'open' AND decided_at < ?", (before,)).rowcount


def forget_drops(db: sqlite3.Connection, before: UnixMs) -> int:
    """Delete the counts of what nobody took that last grew before a moment; how many.  Strangers make these."""
    return db.execute("DELETE FROM drops WHERE last_at < ?", (before,)).rowcount


def oldest_open(db: sqlite3.Connection) -> UnixMs | None:
    """When the oldest event came that may still have to be put into a mailbox, for the first time or again."""
    row = db.execute(
        "SELECT (SELECT received_at FROM events WHERE state = 'received' ORDER BY ord LIMIT 1), "
        f"(SELECT min(created_at) FROM inbound INDEXED BY inbound_by_state WHERE state IN {_OPEN})"
    ).fetchone()
    return min((UnixMs(at) for at in row if at is not None), default=None)
