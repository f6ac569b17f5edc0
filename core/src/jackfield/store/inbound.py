"""The ledger of messages in: one entry per message and wiring, until it has a visible end (architecture 5, rule 2).

States move freely among the unfinished ones; an end is left by `revive` only.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, EventId, InboundId, MessagingGroupId, SessionId, TurnId, WiringId
from jackfield.models import InboundEntry, InboundState
from jackfield.store.text import storable
from jackfield.store.where import where

__all__ = [
    "ENDS",
    "active_in_chat",
    "counts",
    "drop_of_group",
    "due_entries",
    "entries",
    "entry",
    "of_chat",
    "open_entries",
    "record",
    "record_all",
    "revive",
    "sessions_awaited",
    "sessions_with_open",
    "set_state",
    "take_back",
]

ENDS = frozenset({InboundState.COMPLETED, InboundState.FAILED, InboundState.DROPPED, InboundState.REFUSED})

_COLUMNS = (
    "id, event_id, wiring_id, session_id, state, attempts, next_try_at, reason, preview, created_at, updated_at, "
    "turn, hops, chain, source"
)
# The text of these conditions is that of the partial indexes; SQLite uses one only for the very same condition.
_OPEN = "state IN ('queued', 'claimed', 'retrying', 'parked', 'context')"
_ACTIVE = "state IN ('queued', 'claimed', 'retrying', 'parked')"


def _entry(row: tuple[Any, ...]) -> InboundEntry:
    return InboundEntry(
        id=InboundId(row[0]),
        event_id=row[1],
        wiring_id=row[2],
        session_id=SessionId(row[3]),
        state=InboundState(row[4]),
        attempts=row[5],
        next_try_at=row[6],
        reason=row[7],
        preview=row[8],
        created_at=UnixMs(row[9]),
        updated_at=UnixMs(row[10]),
        turn=row[11],
        hops=row[12],
        chain=row[13],
        source=row[14],
    )


def record(
    db: sqlite3.Connection,
    *,
    id: InboundId,
    event_id: EventId | None,
    wiring_id: WiringId | None,
    session_id: SessionId,
    state: InboundState,
    preview: str,
    now: UnixMs,
    reason: str | None = None,
    hops: int = 0,
    chain: str | None = None,
    source: SessionId | None = None,
) -> bool:
    """Enter a message.  False when this id is there already; then nothing changes.

    `hops`, `chain` and `source` are of what follows from another agent's message (`jackfield.store.chains`).
    """
    done = db.execute(
        "INSERT INTO inbound (id, event_id, wiring_id, session_id, state, reason, preview, created_at, updated_at, "
        "hops, chain, source) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (
            id,
            event_id,
            wiring_id,
            session_id,
            state.value,
            storable(reason),
            storable(preview),
            now,
            now,
            hops,
            chain,
            source,
        ),
    )
    return done.rowcount == 1


def record_all(db: sqlite3.Connection, entries: Iterable[tuple[InboundId, SessionId, str]], now: UnixMs) -> None:
    """Enter messages that nobody wrote, as (id, session, preview), queued; those that are there already stay."""
    db.executemany(
        "INSERT INTO inbound (id, session_id, state, preview, created_at, updated_at) "
        "VALUES (?, ?, 'queued', ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        [(id, session_id, storable(preview), now, now) for id, session_id, preview in entries],
    )


def set_state(
    db: sqlite3.Connection,
    id: InboundId,
    state: InboundState,
    now: UnixMs,
    *,
    attempts: int | None = None,
    next_try_at: UnixMs | None = None,
    reason: str | None = None,
    turn: TurnId | None = None,
) -> bool:
    """Move an unfinished entry.  `attempts` and `turn` stay when None; `next_try_at` and `reason` are replaced.

    False when it has an end already (which stays) or is unknown.
    """
    done = db.execute(
        "UPDATE inbound SET state = ?, attempts = coalesce(?, attempts), next_try_at = ?, reason = ?, "
        f"turn = coalesce(?, turn), updated_at = ? WHERE id = ? AND {_OPEN}",
        (state.value, attempts, None if state in ENDS else next_try_at, storable(reason), turn, now, id),
    )
    return done.rowcount == 1


def revive(db: sqlite3.Connection, id: InboundId, now: UnixMs, *, attempts: int | None = None) -> bool:
    """Queue a failed or dropped message again; an operator's act.  `attempts` stays when None.

    False for any other state: a completed one is answered, a refused one stays refused.
    """
    done = db.execute(
        "UPDATE inbound SET state = 'queued', attempts = coalesce(?, attempts), next_try_at = NULL, reason = NULL, "
        "updated_at = ? WHERE id = ? AND state IN ('failed', 'dropped')",
        (attempts, now, id),
    )
    return done.rowcount == 1


def take_back(db: sqlite3.Connection, id: InboundId) -> bool:
    """Delete an unfinished entry, so that its event can be routed anew.  False when it has an end or is unknown."""
    return db.execute(f"DELETE FROM inbound WHERE id = ? AND {_OPEN}", (id,)).rowcount == 1


def drop_of_group(db: sqlite3.Connection, agent_group_id: AgentGroupId, reason: str, now: UnixMs) -> int:
    """End everything unfinished in the sessions of an agent group; how many entries."""
    return db.execute(
        "UPDATE inbound SET state = 'dropped', next_try_at = NULL, reason = ?, updated_at = ? "
        f"WHERE {_OPEN} AND session_id IN (SELECT id FROM sessions WHERE agent_group_id = ?)",
        (reason, now, agent_group_id),
    ).rowcount


def entry(db: sqlite3.Connection, id: InboundId) -> InboundEntry | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM inbound WHERE id = ?", (id,)).fetchone()
    return None if row is None else _entry(row)


def entries(
    db: sqlite3.Connection,
    *,
    session_id: SessionId | None = None,
    state: InboundState | None = None,
    limit: int = 50,
) -> list[InboundEntry]:
    """The newest first."""
    narrowed, values = where({"session_id = ?": session_id, "state = ?": state})
    rows = db.execute(f"SELECT {_COLUMNS} FROM inbound {narrowed} ORDER BY ord DESC LIMIT ?", (*values, limit))
    return [_entry(row) for row in rows]


def open_entries(db: sqlite3.Connection, session_id: SessionId) -> list[InboundEntry]:
    """Everything of a session without an end, `context` too, the oldest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM inbound WHERE session_id = ? AND {_OPEN} ORDER BY ord", (session_id,))
    return [_entry(row) for row in rows]


def of_chat(
    db: sqlite3.Connection, messaging_group_id: MessagingGroupId, states: Sequence[InboundState], since: UnixMs
) -> list[InboundEntry]:
    """A chat's messages in one of the states that were routed at `since` or later, the oldest first."""
    marks = ", ".join("?" * len(states))
    columns = ", ".join(f"i.{name.strip()}" for name in _COLUMNS.split(","))
    rows = db.execute(
        f"SELECT {columns} FROM wirings w JOIN inbound i ON i.wiring_id = w.id "
        f"WHERE w.messaging_group_id = ? AND i.created_at >= ? AND i.state IN ({marks}) ORDER BY i.ord",
        (messaging_group_id, since, *(state.value for state in states)),
    )
    return [_entry(row) for row in rows]


def sessions_with_open(db: sqlite3.Connection) -> list[SessionId]:
    """Sessions that have a message without an end which starts a turn."""
    return [SessionId(row[0]) for row in db.execute(f"SELECT DISTINCT session_id FROM inbound WHERE {_ACTIVE}")]


def sessions_awaited(db: sqlite3.Connection) -> set[SessionId]:
    """Of these, the ones in which somebody's own words wait, and not only a task or a notice."""
    rows = db.execute(f"SELECT DISTINCT session_id FROM inbound WHERE {_ACTIVE} AND event_id IS NOT NULL")
    return {SessionId(row[0]) for row in rows}


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many messages are in each state."""
    return {str(state): int(count) for state, count in db.execute("SELECT state, count(*) FROM inbound GROUP BY state")}


def due_entries(db: sqlite3.Connection, now: UnixMs, limit: int = 200) -> list[InboundEntry]:
    """Entries whose `next_try_at` has come, the longest due first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM inbound WHERE next_try_at IS NOT NULL AND next_try_at <= ? "
        "ORDER BY next_try_at LIMIT ?",
        (now, limit),
    )
    return [_entry(row) for row in rows]


def active_in_chat(db: sqlite3.Connection, messaging_group_id: MessagingGroupId) -> int:
    """How many messages of a chat wait for their turn's end; `context` does not count, it starts none."""
    row = db.execute(
        "SELECT count(*) FROM wirings w JOIN inbound i ON i.wiring_id = w.id "
        f"WHERE w.messaging_group_id = ? AND i.{_ACTIVE}",
        (messaging_group_id,),
    ).fetchone()
    return int(row[0])
