"""What a look at the whole of `state.db` says: is it sound, and what in it waits too long."""

from __future__ import annotations

import sqlite3
import time
from typing import NamedTuple

from jackfield.clock import UnixMs

__all__ = ["Waiting", "newest_moment", "quick_check", "schema_number", "waiting"]

_STEPS = 10_000
"""Of SQLite's machine between two looks at the time."""
_WAITING = """
SELECT '{word}', state, count(*), min(created_at), sum(updated_at >= ?) FROM {table}
WHERE state IN ({states}) GROUP BY state"""
_OPEN_DELIVERIES = "'pending', 'sending', 'retrying', 'waiting', 'failed', 'blocked'"
_OPEN_INBOUND = "'queued', 'claimed', 'retrying', 'parked', 'failed'"


class Waiting(NamedTuple):
    """Entries of the ledger in one state that is no good end.  `recent` is how many came into it since a given time."""

    direction: str
    """`in` or `out`."""
    state: str
    entries: int
    oldest: UnixMs
    recent: int


def quick_check(db: sqlite3.Connection, seconds: float) -> list[str] | None:
    """What SQLite finds wrong with the file, at most 10 lines; nothing when it is sound, None when it took too long."""
    until = time.monotonic() + seconds
    db.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        return [str(line) for (line,) in db.execute("PRAGMA quick_check(10)") if line != "ok"]
    except sqlite3.OperationalError:
        if time.monotonic() > until:
            return None
        raise
    finally:
        db.set_progress_handler(None, 0)


def schema_number(db: sqlite3.Connection) -> int:
    """The newest migration that was applied."""
    return int(db.execute("SELECT max(number) FROM schema_version").fetchone()[0])


def waiting(db: sqlite3.Connection, since: UnixMs) -> list[Waiting]:
    """Everything that is not well done, by direction and state."""
    out = _WAITING.format(word="out", table="deliveries", states=_OPEN_DELIVERIES)
    inward = _WAITING.format(word="in", table="inbound", states=_OPEN_INBOUND)
    rows = db.execute(f"{out} UNION ALL {inward}", (since, since))
    return [
        Waiting(direction, state, count, UnixMs(oldest), recent) for direction, state, count, oldest, recent in rows
    ]


def newest_moment(db: sqlite3.Connection) -> UnixMs:
    """The latest time that the ledger knows of; 0 while it is empty."""
    newest = [
        db.execute(f"SELECT updated_at FROM {table} ORDER BY ord DESC LIMIT 1").fetchone()
        for table in ("inbound", "deliveries")
    ]
    return UnixMs(max((row[0] for row in newest if row), default=0))
