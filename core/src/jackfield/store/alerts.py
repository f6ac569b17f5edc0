"""What only an owner can mend, from when it was noticed until it is mended."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.store.text import storable

__all__ = ["Alert", "alerts", "raise_alert", "settle", "told"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    key: str
    """The same for the same trouble, so that it is told once."""
    subject: str
    text: str
    raised_at: UnixMs
    told_at: UnixMs | None
    """When an owner was written to; None while none could be."""


def raise_alert(db: sqlite3.Connection, key: str, subject: str, text: str, now: UnixMs) -> bool:
    """Whether it is new."""
    done = db.execute(
        "INSERT INTO alerts (key, subject, text, raised_at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
        (key, storable(subject), storable(text), now),
    )
    return done.rowcount == 1


def told(db: sqlite3.Connection, key: str, now: UnixMs) -> None:
    """An owner was written to."""
    db.execute("UPDATE alerts SET told_at = ? WHERE key = ?", (now, key))


def settle(db: sqlite3.Connection, key: str) -> bool:
    """It is mended.  False when nothing was wrong."""
    return db.execute("DELETE FROM alerts WHERE key = ?", (key,)).rowcount == 1


def alerts(db: sqlite3.Connection) -> list[Alert]:
    """All that is not mended, the oldest first."""
    rows = db.execute("SELECT key, subject, text, raised_at, told_at FROM alerts ORDER BY raised_at, key")
    return [Alert(key=row[0], subject=row[1], text=row[2], raised_at=row[3], told_at=row[4]) for row in rows]
