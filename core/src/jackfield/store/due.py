"""When the host must wake next: one question over everything that waits for a moment (architecture 10)."""

from __future__ import annotations

import sqlite3

from jackfield.clock import UnixMs

__all__ = ["move", "next_due"]

# Each line is the first entry of one index.
_NEXT = """SELECT
    (SELECT min(next_try_at) FROM inbound WHERE next_try_at IS NOT NULL AND next_try_at > ?1),
    (SELECT min(head_at) FROM deliveries WHERE head_at IS NOT NULL AND state = 'retrying' AND head_at > ?1),
    (SELECT min(expires_at) FROM questions WHERE state = 'open' AND expires_at IS NOT NULL AND expires_at > ?1),
    (SELECT min(parked_until) FROM sessions WHERE parked_until IS NOT NULL AND parked_until > ?1),
    (SELECT min(look_at) FROM tasks WHERE look_at IS NOT NULL AND look_at > ?1),
    (SELECT min(until) FROM parked_scopes WHERE until > ?1),
    (SELECT min(expires_at) FROM approvals WHERE state = 'pending' AND expires_at > ?1),
    (SELECT min(remind_at) FROM approvals WHERE state = 'pending' AND remind_at IS NOT NULL AND remind_at > ?1)"""


def next_due(db: sqlite3.Connection, after: UnixMs | None = None) -> UnixMs | None:
    """The earliest moment at which something is due, or None; it may have passed.

    What it covers: retries of messages in, retries of deliveries at the head of their destination, questions that
    expire, sessions and scopes that are parked, approvals that expire or of which people must be reminded.  Deliveries
    that only wait for a worker or a channel need no timer.

    `after` leaves out everything up to that moment: for a timer that has just dealt with all that was due then, so that
    something that can't be done yet does not wake it over and over.
    """
    row = db.execute(_NEXT, (-1 if after is None else after,)).fetchone()
    return min((UnixMs(at) for at in row if at is not None), default=None)


_MOVED = (
    ("inbound", "next_try_at"),
    ("deliveries", "next_try_at"),
    ("deliveries", "head_at"),
    ("questions", "expires_at"),
    ("sessions", "parked_until"),
    ("parked_scopes", "until"),
)
"""Ends of waits that were counted from when they began.  A schedule's moments, and an approval's end, are
told to people as times of day and stay."""


def move(db: sqlite3.Connection, milliseconds: int, now: UnixMs) -> None:
    """The clock was moved by so much: what waits goes on waiting as long as it would have."""
    for table, column in _MOVED:
        db.execute(f"UPDATE {table} SET {column} = {column} + ?1 WHERE {column} > ?2", (milliseconds, now))
