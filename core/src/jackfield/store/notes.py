"""Small facts of the installation under a key: its id, which host runs it."""

from __future__ import annotations

import sqlite3

__all__ = ["get", "remove", "set"]


def get(db: sqlite3.Connection, key: str) -> str | None:
    row = db.execute("SELECT value FROM notes WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])


def set(db: sqlite3.Connection, key: str, value: str) -> None:
    db.execute(
        "INSERT INTO notes (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def remove(db: sqlite3.Connection, key: str) -> bool:
    return db.execute("DELETE FROM notes WHERE key = ?", (key,)).rowcount == 1
