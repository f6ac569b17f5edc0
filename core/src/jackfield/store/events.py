"""Events as channels handed them in: each once, until routing is done with it (architecture 5, rules 1 and 3)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, EventId, new_id
from jackfield.models import Address, EventState
from jackfield.store.text import storable

if TYPE_CHECKING:
    from jackfield.api.channels import Cursor  # only its name; commands that need no plugin stay light

__all__ = [
    "Accepted",
    "Drop",
    "StoredEvent",
    "accept",
    "any_kept",
    "audit_drop",
    "drops",
    "event",
    "finish",
    "forget_words",
    "get_cursor",
    "ignored",
    "ignored_for",
    "kept",
    "prune_events",
    "reopen",
    "reopen_kept",
    "set_cursor",
    "take_back_drop",
    "unfinished",
    "unrouted",
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of handing in.  A duplicate has the id and state of the first one."""

    event_id: EventId
    state: EventState
    duplicate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """`body` is the event as JSON text; `type` names its class."""

    id: EventId
    channel_type: str
    instance: str
    dedupe_key: str
    type: str
    body: str
    state: EventState
    reason: str | None
    received_at: UnixMs
    finished_at: UnixMs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Messages that nobody took, counted by chat, sender and reason (pitfall 12 of messaging.md 17.4)."""

    address: Address
    sender: str
    reason: str
    sender_name: str | None
    agent_group_id: AgentGroupId | None
    count: int
    first_at: UnixMs
    last_at: UnixMs


_COLUMNS = "id, channel_type, instance, dedupe_key, type, body, state, reason, received_at, finished_at"


def _event(row: tuple[Any, ...]) -> StoredEvent:
    return StoredEvent(
        id=EventId(row[0]),
        channel_type=row[1],
        instance=row[2],
        dedupe_key=row[3],
        type=row[4],
        body=row[5],
        state=EventState(row[6]),
        reason=row[7],
        received_at=UnixMs(row[8]),
        finished_at=row[9],
    )


def accept(
    db: sqlite3.Connection,
    channel_type: str,
    instance: str,
    dedupe_key: str,
    type_name: str,
    body: str,
    now: UnixMs,
    cursor: Cursor | None = None,
) -> Accepted:
    """Store an event as `received`, unless it is known, and move the channel's cursor, in one go."""
    if cursor is not None:
        set_cursor(db, channel_type, instance, cursor.key, cursor.value)
    id = EventId(new_id("ev", now))
    done = db.execute(
        "INSERT INTO events (id, channel_type, instance, dedupe_key, type, body, state, received_at) "
        "VALUES (?, ?, ?, ?, ?, ?, 'received', ?) ON CONFLICT (channel_type, instance, dedupe_key) DO NOTHING",
        (id, channel_type, instance, dedupe_key, type_name, body, now),
    )
    if done.rowcount == 1:
        return Accepted(id, EventState.RECEIVED, duplicate=False)
    known, state = db.execute(
        "SELECT id, state FROM events WHERE channel_type = ? AND instance = ? AND dedupe_key = ?",
        (channel_type, instance, dedupe_key),
    ).fetchone()
    return Accepted(EventId(known), EventState(state), duplicate=True)


def unfinished(db: sqlite3.Connection, limit: int, after: EventId | None = None) -> list[StoredEvent]:
    """Events that routing is not done with, in the order of their acceptance; `after` an event already seen."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM events WHERE state = 'received' "
        "AND ord > coalesce((SELECT ord FROM events WHERE id = ?), 0) ORDER BY ord LIMIT ?",
        (after, limit),
    )
    return [_event(row) for row in rows]


def unrouted(db: sqlite3.Connection, channel_type: str, instance: str) -> int:
    """How many events of a channel are stored and not routed yet."""
    row = db.execute(
        "SELECT count(*) FROM events WHERE state = 'received' AND channel_type = ? AND instance = ?",
        (channel_type, instance),
    ).fetchone()
    return int(row[0])


def finish(
    db: sqlite3.Connection,
    event_id: EventId,
    state: EventState,
    reason: str | None = None,
    *,
    now: UnixMs,
    keep: bool = False,
) -> bool:
    """Routing is done with it.  False when it was done before (that end stays) or is unknown.

    Of an ignored event only the key stays, against duplicates: what a refused person wrote is not kept, unless `keep`
    says that somebody is asked about them; then `reopen_kept` or `forget_words` follows.
    """
    if state is EventState.RECEIVED:
        raise ValueError(f"{state.value!r} is no end for the event {event_id}")
    done = db.execute(
        "UPDATE events SET state = ?1, reason = ?2, finished_at = ?3, "
        "body = iif(?1 = 'ignored' AND NOT ?5, '', body) WHERE id = ?4 AND state = 'received'",
        (state.value, storable(reason), now, event_id, keep),
    )
    return done.rowcount == 1


def ignored(db: sqlite3.Connection, reasons: Collection[str], limit: int) -> list[StoredEvent]:
    """Events that nobody took, at least one agent for one of these reasons (`ignored_for`); the newest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM events WHERE state = 'ignored' AND reason IS NOT NULL ORDER BY ord DESC")
    return list(islice((one for one in map(_event, rows) if ignored_for(one, reasons)), limit))


def ignored_for(event: StoredEvent, reasons: Collection[str]) -> bool:
    """Whether it was ignored for one of these reasons: the first words of those that agents had, between commas."""
    if event.state is not EventState.IGNORED:
        return False
    return any(reason.partition(" ")[0] in reasons for reason in (event.reason or "").split(", "))


def reopen(db: sqlite3.Connection, event_id: EventId) -> bool:
    """Have an event routed once more; its rows keep their ids, so what is done already stays done."""
    done = db.execute(
        "UPDATE events SET state = 'received', reason = NULL, finished_at = NULL WHERE id = ?", (event_id,)
    )
    return done.rowcount == 1


def reopen_kept(db: sqlite3.Connection, event_id: EventId) -> bool:
    """Have an ignored event routed whose words were kept.  False when it is under way, done or forgotten."""
    done = db.execute(
        "UPDATE events SET state = 'received', reason = NULL, finished_at = NULL "
        "WHERE id = ? AND state = 'ignored' AND body <> ''",
        (event_id,),
    )
    return done.rowcount == 1


def forget_words(db: sqlite3.Connection, event_id: EventId) -> bool:
    """Take the words of an ignored event away that were kept."""
    done = db.execute("UPDATE events SET body = '' WHERE id = ? AND state = 'ignored' AND body <> ''", (event_id,))
    return done.rowcount == 1


def any_kept(db: sqlite3.Connection) -> bool:
    """Whether `kept` would find anything."""
    row = db.execute("SELECT 1 FROM events WHERE state = 'ignored' AND body <> '' LIMIT 1").fetchone()
    return row is not None


def kept(db: sqlite3.Connection, before: UnixMs) -> list[EventId]:
    """Ignored events whose words were kept before a moment."""
    rows = db.execute("SELECT id FROM events WHERE state = 'ignored' AND body <> '' AND finished_at < ?", (before,))
    return [EventId(id) for (id,) in rows]


def event(db: sqlite3.Connection, event_id: EventId) -> StoredEvent | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM events WHERE id = ?", (event_id,)).fetchone()
    return None if row is None else _event(row)


def get_cursor(db: sqlite3.Connection, channel_type: str, instance: str, key: str) -> str | None:
    row = db.execute(
        "SELECT value FROM cursors WHERE channel_type = ? AND instance = ? AND key = ?", (channel_type, instance, key)
    ).fetchone()
    return None if row is None else str(row[0])


def set_cursor(db: sqlite3.Connection, channel_type: str, instance: str, key: str, value: str) -> None:
    """Move a channel's position.  It is the platform's own text: which one is later, only the channel knows."""
    db.execute(
        "INSERT INTO cursors (channel_type, instance, key, value) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (channel_type, instance, key) DO UPDATE SET value = excluded.value",
        (channel_type, instance, key, value),
    )


def prune_events(db: sqlite3.Connection, before: UnixMs, limit: int = 1000) -> int:
    """Forget finished events received before a moment, the oldest first; how many went.  Repeat while it is `limit`.

    After that the same event would be taken for a new one: keep them at least 7 days (architecture 5, rule 3).  One
    whose message is still open stays: a mailbox that is replaced is filled again from it.
    """
    return db.execute(
        "DELETE FROM events WHERE ord IN (SELECT ord FROM events WHERE state <> 'received' AND received_at < ? "
        "AND id NOT IN (SELECT event_id FROM inbound INDEXED BY inbound_by_state WHERE event_id IS NOT NULL "
        "AND state IN ('queued', 'claimed', 'retrying', 'parked', 'context')) ORDER BY received_at LIMIT ?)",
        (before, limit),
    ).rowcount


def audit_drop(
    db: sqlite3.Connection,
    address: Address,
    sender: str,
    reason: str,
    now: UnixMs,
    *,
    sender_name: str | None = None,
    agent_group_id: AgentGroupId | None = None,
) -> None:
    """Count a message that nobody took.  `sender` is the handle on the channel, empty when there is none."""
    db.execute(
        "INSERT INTO drops (channel_type, instance, platform_id, sender, reason, sender_name, agent_group_id, count, "
        "first_at, last_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1, ?8, ?8) "
        "ON CONFLICT (channel_type, instance, platform_id, sender, reason) DO UPDATE SET count = count + 1, "
        "last_at = max(last_at, excluded.last_at), sender_name = coalesce(excluded.sender_name, sender_name), "
        "agent_group_id = coalesce(excluded.agent_group_id, agent_group_id)",
        (
            address.channel_type,
            address.instance,
            address.platform_id,
            sender,
            reason,
            storable(sender_name),
            agent_group_id,
            now,
        ),
    )


def take_back_drop(db: sqlite3.Connection, address: Address, sender: str, reason: str) -> None:
    """Somebody takes one of these messages after all: it does not count any more."""
    key = (address.channel_type, address.instance, address.platform_id, sender, reason)
    at = "channel_type = ? AND instance = ? AND platform_id = ? AND sender = ? AND reason = ?"
    db.execute(f"UPDATE drops SET count = count - 1 WHERE {at}", key)
    db.execute(f"DELETE FROM drops WHERE {at} AND count <= 0", key)


def drops(db: sqlite3.Connection, limit: int = 50) -> list[Drop]:
    """The newest first."""
    rows = db.execute(
        "SELECT channel_type, instance, platform_id, sender, reason, sender_name, agent_group_id, count, first_at, "
        "last_at FROM drops ORDER BY last_at DESC LIMIT ?",
        (limit,),
    )
    return [
        Drop(
            address=Address(row[0], row[1], row[2]),
            sender=row[3],
            reason=row[4],
            sender_name=row[5],
            agent_group_id=row[6],
            count=row[7],
            first_at=row[8],
            last_at=row[9],
        )
        for row in rows
    ]
