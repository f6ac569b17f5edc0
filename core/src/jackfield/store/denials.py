"""Strangers who were denied: remembered, until a moment, so that nobody is asked about them again (C145)."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.ids import MessagingGroupId, UserId

__all__ = ["Denial", "any_old", "denials", "deny", "forget", "forget_old", "is_denied"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    messaging_group_id: MessagingGroupId
    user_id: UserId
    """A user's id; `<channel type>:` alone stands for all whom nobody vouches for."""
    denied_by: str | None
    denied_at: UnixMs
    until: UnixMs


_COLUMNS = "messaging_group_id, user_id, denied_by, denied_at, until"


def deny(db: sqlite3.Connection, denial: Denial) -> None:
    """Remember it; a later one replaces an earlier one."""
    db.execute(
        f"INSERT INTO denials ({_COLUMNS}) VALUES (?, ?, ?, ?, ?) ON CONFLICT (messaging_group_id, user_id) DO UPDATE "
        "SET denied_by = excluded.denied_by, denied_at = excluded.denied_at, until = excluded.until",
        (denial.messaging_group_id, denial.user_id, denial.denied_by, denial.denied_at, denial.until),
    )


def is_denied(db: sqlite3.Connection, chat: MessagingGroupId, user: UserId, now: UnixMs) -> bool:
    row = db.execute(
        "SELECT 1 FROM denials WHERE messaging_group_id = ? AND user_id = ? AND until > ?", (chat, user, now)
    ).fetchone()
    return row is not None


def denials(db: sqlite3.Connection, now: UnixMs) -> list[Denial]:
    """Those that hold, the newest first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM denials WHERE until > ? ORDER BY denied_at DESC, user_id", (now,))
    return [
        Denial(messaging_group_id=row[0], user_id=row[1], denied_by=row[2], denied_at=row[3], until=row[4])
        for row in rows
    ]


def forget(db: sqlite3.Connection, chat: MessagingGroupId, user: UserId | None = None) -> int:
    """Take back what was denied in a chat: of one person, or all of it.  How many."""
    return db.execute(
        "DELETE FROM denials WHERE messaging_group_id = ?1 AND (?2 IS NULL OR user_id = ?2)", (chat, user)
    ).rowcount


def any_old(db: sqlite3.Connection, now: UnixMs) -> bool:
    """Whether `forget_old` would find anything."""
    return db.execute("SELECT 1 FROM denials WHERE until <= ? LIMIT 1", (now,)).fetchone() is not None


def forget_old(db: sqlite3.Connection, now: UnixMs) -> int:
    """Forget those whose time is over; `is_denied` is right without this too."""
    return db.execute("DELETE FROM denials WHERE until <= ?", (now,)).rowcount
