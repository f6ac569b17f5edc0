"""Asking the ledger about parts, and forgetting old ones."""

from __future__ import annotations

import sqlite3

from jackfield.clock import UnixMs
from jackfield.ids import DeliveryId, SessionId
from jackfield.models import Address, Delivery, DeliveryState
from jackfield.store.deliveries.rows import COLUMNS, ENDS, OPEN, delivery_of
from jackfield.store.where import where

__all__ = [
    "by_platform_id",
    "counts",
    "deliveries",
    "delivery",
    "is_own_message",
    "open_in_chat",
    "parts_of",
    "platform_ids_of",
    "prune_deliveries",
]


def delivery(db: sqlite3.Connection, id: DeliveryId) -> Delivery | None:
    row = db.execute(f"SELECT {COLUMNS} FROM deliveries WHERE id = ?", (id,)).fetchone()
    return None if row is None else delivery_of(row)


def deliveries(
    db: sqlite3.Connection,
    *,
    session_id: SessionId | None = None,
    state: DeliveryState | None = None,
    limit: int = 50,
) -> list[Delivery]:
    """The newest first."""
    narrowed, values = where({"session_id = ?": session_id, "state = ?": state})
    order = "out_seq DESC, part DESC" if session_id is not None else "ord DESC"
    rows = db.execute(f"SELECT {COLUMNS} FROM deliveries {narrowed} ORDER BY {order} LIMIT ?", (*values, limit))
    return [delivery_of(row) for row in rows]


def parts_of(db: sqlite3.Connection, session_id: SessionId, out_seq: int) -> list[Delivery]:
    """All parts of one outbound row, in order."""
    rows = db.execute(
        f"SELECT {COLUMNS} FROM deliveries WHERE session_id = ? AND out_seq = ? ORDER BY part", (session_id, out_seq)
    )
    return [delivery_of(row) for row in rows]


def platform_ids_of(db: sqlite3.Connection, session_id: SessionId, out_seq: int) -> tuple[str, ...]:
    """The platform's ids of a whole outbound row, in order: what an edit must name (channels.md R8)."""
    return tuple(id for part in parts_of(db, session_id, out_seq) for id in part.platform_ids)


def by_platform_id(db: sqlite3.Connection, address: Address, platform_id: str) -> Delivery | None:
    """The part that became this message of a chat (its thread does not matter); the newest if an id was used twice."""
    columns = ", ".join(f"d.{name}" for name in COLUMNS.split(", "))
    row = db.execute(
        f"SELECT {columns} FROM sent_messages s JOIN deliveries d ON d.ord = s.delivery_ord "
        "WHERE s.channel_type = ? AND s.instance = ? AND s.message_id = ? AND s.chat = ? "
        "ORDER BY s.delivery_ord DESC LIMIT 1",
        (address.channel_type, address.instance, platform_id, address.platform_id),
    ).fetchone()
    return None if row is None else delivery_of(row)


def is_own_message(db: sqlite3.Connection, channel_type: str, instance: str, platform_id: str) -> bool:
    """Whether a message of that platform account was sent by us, in any chat."""
    row = db.execute(
        "SELECT 1 FROM sent_messages WHERE channel_type = ? AND instance = ? AND message_id = ? LIMIT 1",
        (channel_type, instance, platform_id),
    ).fetchone()
    return row is not None


def open_in_chat(db: sqlite3.Connection, chat: Address) -> int:
    """How many parts for a chat, in whatever thread, have no end yet."""
    row = db.execute(
        "SELECT (SELECT count(*) FROM deliveries WHERE destination = ?1 AND " + OPEN + ") + "
        "(SELECT count(*) FROM deliveries WHERE destination >= ?1 || ':' AND destination < ?1 || ';' AND " + OPEN + ")",
        (str(chat.chat),),
    ).fetchone()
    return int(row[0])


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many parts are in each state."""
    rows = db.execute("SELECT state, count(*) FROM deliveries GROUP BY state")
    return {str(state): int(count) for state, count in rows}


def prune_deliveries(db: sqlite3.Connection, before: UnixMs, limit: int = 1000) -> int:
    """Forget parts that ended and were made before a moment, at most `limit` of each end; how many went."""
    return sum(
        db.execute(
            "DELETE FROM deliveries WHERE ord IN (SELECT ord FROM "
            "(SELECT ord, created_at FROM deliveries WHERE state = ? ORDER BY ord LIMIT ?) WHERE created_at < ?)",
            (state.value, limit, before),
        ).rowcount
        for state in ENDS
    )
