"""What agents write to each other, as the ledger knows it (messaging.md 11.1; C168, C170).

A *chain* is all that follows from one message which no agent wrote: a person's, or one run of a task.  Its id is that
message's.  *Hops* tell how often its text, or what came of it, went from one agent to another.  Both are read from
which messages a turn took, so that no runner can begin a chain anew by saying so.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, InboundId, SessionId, TurnId

__all__ = [
    "Chain",
    "Standing",
    "bad_ends",
    "chain",
    "close_unasked",
    "count_written",
    "forget_chains",
    "grow",
    "standing",
    "stop",
    "stopped",
]

_COLUMNS = "id, messages, first_at, last_at, stopped"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where in its chain a turn stands: how many hops its messages have made, at the most."""

    chain: str
    hops: int


RECENT = 2000
"""Messages of a session, the newest, among which its running turn is looked for: an index over turns would cost every
message a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """`messages` went between agents.  `stopped` is why another one did not, the first time."""

    id: str
    messages: int
    first_at: UnixMs
    last_at: UnixMs
    stopped: str | None


def standing(db: sqlite3.Connection, session_id: SessionId, turn: TurnId | None) -> Standing:
    """Where a turn of the session stands.

    A turn of which the ledger knows nothing, because the agent acts of its own accord or its runner lies, counts as one
    over the newest message that starts a turn; a session that never had one is a chain by itself.
    """
    found = None
    if turn is not None:
        found = db.execute(
            "SELECT id, hops, chain FROM "
            "(SELECT id, hops, chain, turn, event_id, ord FROM inbound WHERE session_id = ? ORDER BY ord DESC LIMIT ?) "
            "WHERE turn = ? ORDER BY hops DESC, event_id IS NULL, ord LIMIT 1",
            (session_id, RECENT, turn),
        ).fetchone()
    if found is None:
        found = db.execute(
            "SELECT id, hops, chain FROM inbound WHERE session_id = ? AND state <> 'context' ORDER BY ord DESC LIMIT 1",
            (session_id,),
        ).fetchone()
    return Standing(session_id, 0) if found is None else Standing(found[2] or found[0], found[1])


def grow(db: sqlite3.Connection, id: str, now: UnixMs) -> None:
    """One more message of the chain."""
    db.execute(
        "INSERT INTO chains (id, messages, first_at, last_at) VALUES (?1, 1, ?2, ?2) "
        "ON CONFLICT (id) DO UPDATE SET messages = messages + 1, last_at = max(last_at, ?2)",
        (id, now),
    )


def stop(db: sqlite3.Connection, id: str, reason: str, now: UnixMs) -> None:
    """A message of the chain was refused for its length.  The first reason stays."""
    db.execute(
        "INSERT INTO chains (id, messages, first_at, last_at, stopped) VALUES (?1, 0, ?2, ?2, ?3) "
        "ON CONFLICT (id) DO UPDATE SET stopped = coalesce(stopped, ?3), last_at = max(last_at, ?2)",
        (id, now, reason),
    )


def chain(db: sqlite3.Connection, id: str) -> Chain | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM chains WHERE id = ?", (id,)).fetchone()
    return None if row is None else _chain(row)


def stopped(db: sqlite3.Connection, limit: int = 20) -> list[Chain]:
    """The chains that were stopped, the last to grow first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM chains WHERE stopped IS NOT NULL ORDER BY last_at DESC, id LIMIT ?", (limit,)
    )
    return [_chain(row) for row in rows]


def _chain(row: tuple[str, int, int, int, str | None]) -> Chain:
    return Chain(id=row[0], messages=row[1], first_at=UnixMs(row[2]), last_at=UnixMs(row[3]), stopped=row[4])


def count_written(db: sqlite3.Connection, writer: AgentGroupId, reader: AgentGroupId, since: UnixMs) -> int:
    """How many messages one agent group's sessions wrote to another's after a moment."""
    row = db.execute(
        "SELECT count(*) FROM inbound i INDEXED BY inbound_of_agents "
        "CROSS JOIN sessions w ON w.id = i.source CROSS JOIN sessions r ON r.id = i.session_id "
        "WHERE i.source IS NOT NULL AND i.created_at > ? AND w.agent_group_id = ? AND r.agent_group_id = ?",
        (since, writer, reader),
    ).fetchone()
    return int(row[0])


def bad_ends(db: sqlite3.Connection, since: UnixMs) -> list[InboundId]:
    """Messages of agents that failed or were dropped at a moment or later, the oldest end first."""
    rows = db.execute(
        "SELECT id FROM inbound INDEXED BY inbound_unanswered "
        "WHERE source IS NOT NULL AND state IN ('failed', 'dropped') AND updated_at >= ? ORDER BY updated_at",
        (since,),
    )
    return [InboundId(row[0]) for row in rows]


def close_unasked(db: sqlite3.Connection, before: UnixMs) -> int:
    """Close conversations with agents whose asking session is closed or gone, when nothing happened for long enough.

    Nobody can write into them any more.
    """
    return db.execute(
        "UPDATE sessions SET status = 'closed', parked_until = NULL, parked_reason = NULL "
        "WHERE status = 'active' AND key >= 'agent:' AND key < 'agent;' AND last_active_at < ? "
        "AND NOT EXISTS (SELECT 1 FROM sessions a WHERE a.id = substr(sessions.key, 7) AND a.status = 'active')",
        (before,),
    ).rowcount


def forget_chains(db: sqlite3.Connection, before: UnixMs) -> int:
    """Delete the chains that last grew before a moment; how many.  The ledger has forgotten their messages by then."""
    return db.execute("DELETE FROM chains WHERE last_at < ?", (before,)).rowcount
