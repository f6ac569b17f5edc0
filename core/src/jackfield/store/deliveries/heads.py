"""The head of each destination: what is sent next, and when it may be tried."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import NotFound
from jackfield.ids import DeliveryId
from jackfield.models import Delivery, DeliveryState
from jackfield.store.deliveries.rows import COLUMNS, OPEN, delivery_of

__all__ = ["advance", "begin", "destinations_due", "head_of", "left_open", "next_for", "place_of"]


def head_of(db: sqlite3.Connection, destination: str) -> tuple[Any, ...] | None:
    """The row of a destination's head: `COLUMNS`, then `ord` and `head_at`; None when nothing is unfinished."""
    row: tuple[Any, ...] | None = db.execute(
        f"SELECT {COLUMNS}, ord, head_at FROM deliveries WHERE destination = ? AND {OPEN} ORDER BY ord LIMIT 1",
        (destination,),
    ).fetchone()
    return row


def advance(db: sqlite3.Connection, destination: str, now: UnixMs, *, start: bool) -> Delivery | None:
    """Mark what is now the head of a destination; with `start`, begin to send it when it may be tried."""
    row = head_of(db, destination)
    if row is None:
        return None
    head = delivery_of(row)
    order, head_at = row[-2], row[-1]
    if head.state is DeliveryState.SENDING:
        return head
    if start and head.next_try_at <= now:
        return begin(db, order, now)
    if head_at != head.next_try_at:
        db.execute("UPDATE deliveries SET head_at = next_try_at WHERE ord = ?", (order,))
    return head


def begin(db: sqlite3.Connection, order: int, now: UnixMs) -> Delivery:
    """Record that the part of that `ord` is being sent: one more attempt."""
    row = db.execute(
        "UPDATE deliveries SET state = 'sending', attempts = attempts + 1, head_at = NULL, "
        f"first_try_at = coalesce(first_try_at, ?1), updated_at = ?1 WHERE ord = ?2 RETURNING {COLUMNS}",
        (now, order),
    ).fetchone()
    return delivery_of(row)


def place_of(db: sqlite3.Connection, id: DeliveryId) -> tuple[int, str, DeliveryState]:
    """A part's `ord`, destination and state.

    Raises:
        NotFound: no such delivery.
    """
    row = db.execute("SELECT ord, destination, state FROM deliveries WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise NotFound(f"there is no delivery {id!r}")
    return row[0], row[1], DeliveryState(row[2])


def next_for(db: sqlite3.Connection, destination: str, now: UnixMs) -> Delivery | None:
    """The oldest unfinished part of a destination, due or not: the caller looks at `next_try_at` and `state`."""
    row = head_of(db, destination)
    return None if row is None else delivery_of(row[:-2])


def destinations_due(db: sqlite3.Connection, now: UnixMs) -> list[str]:
    """Destinations whose head may be tried and is not being sent, the longest due first."""
    rows = db.execute(
        "SELECT destination FROM deliveries WHERE head_at IS NOT NULL AND head_at <= ? ORDER BY head_at", (now,)
    )
    return list(dict.fromkeys(row[0] for row in rows))


def left_open(db: sqlite3.Connection) -> list[Delivery]:
    """Parts that are being sent; when the host starts, what a crash left ambiguous (architecture 5, rule 5)."""
    rows = db.execute(f"SELECT {COLUMNS} FROM deliveries WHERE state = 'sending' ORDER BY ord")
    return [delivery_of(row) for row in rows]
