"""One-time codes by which the operator becomes an owner in a chat; only their digests are kept."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.ids import UserId

__all__ = ["Claim", "add", "open_claim", "use", "used"]


SET_BACK = 60_000
"""Milliseconds by which a clock may be set back without ending a code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    digest: str
    created_at: UnixMs
    expires_at: UnixMs


def add(db: sqlite3.Connection, claim: Claim) -> None:
    """Keep a new code.  It takes the place of every code that nobody has used."""
    db.execute("DELETE FROM claims WHERE used_by IS NULL")
    db.execute(
        "INSERT INTO claims (digest, created_at, expires_at) VALUES (?, ?, ?)",
        (claim.digest, claim.created_at, claim.expires_at),
    )


def use(db: sqlite3.Connection, digest: str, by: UserId, now: UnixMs) -> bool:
    """Whether that person may have what the code promises: of all who try one code, exactly one, once, before its
    end; nor does it live longer because the clock was set back."""
    done = db.execute(
        "UPDATE claims SET used_by = ?1, used_at = ?2 WHERE digest = ?3 AND used_by IS NULL AND expires_at > ?2 "
        "AND created_at <= ?2 + ?4",
        (by, now, digest, SET_BACK),
    )
    return done.rowcount == 1


def used(db: sqlite3.Connection, digest: str, by: UserId, now: UnixMs) -> bool:
    """Whether that person has used that code a short while ago."""
    row = db.execute(
        "SELECT 1 FROM claims WHERE digest = ? AND used_by = ? AND expires_at > ?", (digest, by, now)
    ).fetchone()
    return row is not None


def open_claim(db: sqlite3.Connection, now: UnixMs) -> Claim | None:
    """The code that somebody may still use."""
    row = db.execute(
        "SELECT digest, created_at, expires_at FROM claims WHERE used_by IS NULL AND expires_at > ?", (now,)
    ).fetchone()
    return None if row is None else Claim(digest=row[0], created_at=UnixMs(row[1]), expires_at=UnixMs(row[2]))
