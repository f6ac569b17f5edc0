"""The bare sequence: the commits that a message can't do without, by nothing but `sqlite3`.

accept (state.db, WAL + FULL), enqueue (inbound.db), answer and ack in one (outbound.db), delivery intent (state.db);
the mailbox files in TRUNCATE + FULL as the real ones.  It is what the exchange is compared with, in the same run on the
same file system, and it must never be changed to make the comparison look better.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

__all__ = ["BareSequence", "bare_state", "percentile", "refuse_tmpfs"]

BODY = "x" * 500


def bare_state(path: Path) -> sqlite3.Connection:
    """A state database as plain as can be: events and deliveries."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, key TEXT UNIQUE, body TEXT)")
    db.execute("CREATE TABLE IF NOT EXISTS deliveries (id INTEGER PRIMARY KEY, key TEXT UNIQUE, body TEXT)")
    return db


def _mailbox_file(path: Path, ddl: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    db.execute("PRAGMA journal_mode=TRUNCATE")
    db.execute("PRAGMA synchronous=FULL")
    db.execute(ddl)
    return db


class BareSequence:
    """One session's share of the sequence; `state` may be shared (then the caller's threads wait for each other)."""

    def __init__(self, folder: Path, state: sqlite3.Connection) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._state = state
        self._inbound = _mailbox_file(
            folder / "bare-inbound.db",
            "CREATE TABLE IF NOT EXISTS messages_in (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, body TEXT)",
        )
        self._outbound = _mailbox_file(
            folder / "bare-outbound.db",
            "CREATE TABLE IF NOT EXISTS messages_out (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, body TEXT)",
        )
        self._outbound.execute("CREATE TABLE IF NOT EXISTS acks (id TEXT PRIMARY KEY, status TEXT)")

    def once(self, key: str) -> float:
        """All four commits for one message; the seconds that they took."""
        began = time.perf_counter()
        self._commit(self._state, ("INSERT INTO events (key, body) VALUES (?, ?)", (key, BODY)))
        self._commit(self._inbound, ("INSERT INTO messages_in (id, body) VALUES (?, ?)", (key, BODY)))
        self._commit(
            self._outbound,
            ("INSERT INTO messages_out (id, body) VALUES (?, ?)", (key, BODY)),
            ("INSERT INTO acks (id, status) VALUES (?, 'completed')", (key,)),
        )
        self._commit(self._state, ("INSERT INTO deliveries (key, body) VALUES (?, ?)", (key, BODY)))
        return time.perf_counter() - began

    @staticmethod
    def _commit(db: sqlite3.Connection, *statements: tuple[str, tuple[str, ...]]) -> None:
        db.execute("BEGIN IMMEDIATE")
        for sql, values in statements:
            db.execute(sql, values)
        db.execute("COMMIT")

    def close(self) -> None:
        self._inbound.close()
        self._outbound.close()


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` (0..1) of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def refuse_tmpfs(folder: Path) -> None:
    """A file system in memory has no commits to compare.

    Raises:
        SystemExit: the folder lies on one.
    """
    best, kind = "", ""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return  # no Linux: nothing to tell by
    for line in mounts:
        _, point, fstype, *_ = line.split()
        if str(folder.resolve()).startswith(point) and len(point) >= len(best):
            best, kind = point, fstype
    if kind in ("tmpfs", "ramfs"):
        raise SystemExit(f"{folder} lies on {kind}: set BENCH_FOLDER to a folder on a disk")
