"""What a restored home must be told before a host runs on it.

Time went on without it: the home that the backup was made of may have sent what was open in the backup, and may still
live.  So every send that was open counts as maybe done, and the restored home is an installation of its own: runners of
the old life are never taken for its own, and the next launch of a session has a higher epoch than whatever wrote into
its mailbox.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, StoreError, VerificationFailed
from jackfield.host.archive.manifest import Manifest
from jackfield.ids import new_id
from jackfield.mailbox import SessionFolder
from jackfield.mailbox.inbound import begin_above
from jackfield.store.faults import primary_code, translated

__all__ = ["Repaired", "repair"]

HOST_LIVES = 1000
"""By how much the host's epoch is raised: the old home may have gone through that many lives since the backup."""
GAP = 1000
"""By how much the numbers of an outbox that begins anew lie above those that were used."""
_OF_THE_FILE = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT)
_OPEN = "('pending', 'sending', 'retrying', 'waiting')"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What the restored home holds."""

    sessions: int
    """Active ones."""
    open_messages: int
    """Messages in that are not answered yet; they will be, also when the old home has answered them since."""
    maybe_sent: int
    """Parts of messages out that were open: their channel's rule decides whether and how they are sent again."""
    fresh_outboxes: int
    """Sessions whose outbox could not be backed up: what lay in it unread is lost."""
    install: str


def repair(home: Path, manifest: Manifest, *, now: UnixMs) -> Repaired:
    """Prepare an unpacked home.

    Raises:
        VerificationFailed: its `state.db`, or a session's mailbox, is none.
        StoreError, MailboxError: they can't be read or written now.
    """
    path = home / "state.db"
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            if db.execute("PRAGMA integrity_check(1)").fetchone()[0] != "ok":
                raise VerificationFailed("state.db is damaged inside a sound archive", fix="use another backup")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            maybe_sent = _doubt(db, now)
            floors = [_start_outbox_anew(db, name) for name in manifest.fresh_outboxes]
            install = _found_anew(db, manifest, now)
            active = _count(db, "SELECT count(*) FROM sessions WHERE status = 'active'")
            open_messages = _count(
                db, "SELECT count(*) FROM inbound WHERE state IN ('queued', 'claimed', 'retrying', 'parked')"
            ) + _count(db, "SELECT count(*) FROM events WHERE state = 'received'")
            db.execute("COMMIT")
    except sqlite3.Error as problem:
        raise _refused(problem, path) from problem
    for name in manifest.folders:
        if name.startswith("sessions/") and name.count("/") == 2:
            SessionFolder(home / name).create()  # the files that no backup holds, like the heartbeat
    for name, (floor, ended) in zip(manifest.fresh_outboxes, floors, strict=True):
        folder = SessionFolder(home / name)
        try:
            begin_above(folder, floor)
            _settle(folder, ended)
        except sqlite3.Error as problem:
            raise _refused(problem, folder.inbound_db) from problem
    return Repaired(
        sessions=active,
        open_messages=open_messages,
        maybe_sent=maybe_sent,
        fresh_outboxes=len(floors),
        install=install,
    )


def _refused(problem: sqlite3.Error, path: Path) -> JackfieldError:
    """The disk's fault, or that of whoever made the archive: what a host has written holds the tables that it knows."""
    if primary_code(problem) in _OF_THE_FILE:
        return VerificationFailed(f"{path.name} in the archive can't be used: {problem}", fix="use another backup")
    found = translated(problem, path)
    return found if isinstance(found, JackfieldError) else StoreError(f"{path} could not be used: {problem}")


def _doubt(db: sqlite3.Connection, now: UnixMs) -> int:
    """Every open send becomes one that a crash left open; the host settles those by its own rule when it starts."""
    return db.execute(
        "UPDATE deliveries SET state = 'sending', attempts = max(attempts, 1), first_try_at = ?, next_try_at = ?, "
        f"head_at = NULL, updated_at = ? WHERE state IN {_OPEN}",
        (now, now, now),
    ).rowcount


def _start_outbox_anew(db: sqlite3.Connection, folder: str) -> tuple[int, list[str]]:
    """Read the session's outbox from its beginning, which is above every number that was used; that number, and the
    messages that have their end, which only the lost outbox could tell a runner."""
    session_id = folder.rpartition("/")[2]
    floor = _count(
        db,
        "SELECT max(coalesce((SELECT seq_cursor FROM sessions WHERE id = ?1), 0), "
        "coalesce((SELECT max(out_seq) FROM deliveries WHERE session_id = ?1), 0))",
        session_id,
    )
    db.execute("UPDATE sessions SET seq_cursor = 0, change_cursor = 0, activity_cursor = 0 WHERE id = ?", (session_id,))
    ended = db.execute(
        "SELECT id FROM inbound WHERE session_id = ? AND state IN ('completed', 'failed', 'dropped', 'refused')",
        (session_id,),
    )
    return floor + GAP, [str(row[0]) for row in ended]


def _settle(folder: SessionFolder, ended: list[str]) -> None:
    with closing(sqlite3.connect(folder.inbound_db, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("UPDATE messages_in SET settled = 1 WHERE id = ?", [(one,) for one in ended])
        db.execute("COMMIT")


def _found_anew(db: sqlite3.Connection, manifest: Manifest, now: UnixMs) -> str:
    """The id of the new installation, so that two that live side by side never take each other's runners for theirs."""
    row = db.execute("SELECT value FROM notes WHERE key = 'host_epoch'").fetchone()
    _note(db, "host_epoch", str(int(row[0] if row else 0) + HOST_LIVES))
    install = new_id("ins")
    _note(db, "install_id", install)
    said = {"at": now, "made_at": manifest.made_at, "install": manifest.install, "home": manifest.home}
    _note(db, "restored", json.dumps(said))
    return install


def _note(db: sqlite3.Connection, key: str, value: str) -> None:
    db.execute(
        "INSERT INTO notes (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )


def _count(db: sqlite3.Connection, sql: str, *values: object) -> int:
    return int(db.execute(sql, values).fetchone()[0] or 0)
