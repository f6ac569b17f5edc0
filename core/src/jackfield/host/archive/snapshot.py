"""Consistent copies of `state.db` and of mailboxes, taken beside a running host.

The order is what makes them fit together.  First the store is copied, then mailboxes, then the store is asked once
more what came in and what became of sends meanwhile.  So a mailbox is never older than the store that describes it:
what it has more is found again by the same rules as after a crash, and nothing that was sent before the backup ended is
sent by the restored home.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from jackfield.clock import UnixMs
from jackfield.errors import MailboxBlocked, MailboxError, RecoveryNeeded, StoreError
from jackfield.mailbox import HostMailbox
from jackfield.store.faults import translated
from jackfield.store.opening import connect_reader

__all__ = ["MailboxCopy", "catch_up", "copy_mailbox", "copy_store", "forget_conversations", "schema_of"]

SLACK = 60_000
"""Milliseconds before the copy from which sends are looked at again: clocks may step."""
_OPEN = "('pending', 'sending', 'retrying', 'waiting')"


def copy_store(source: Path, target: Path) -> None:
    """One consistent copy of `state.db`, checked, as a single file.  Blocks; waits for no writer and stops none.

    Raises:
        StoreError: it can't be read or the copy can't be written, or the copy is damaged.
    """
    _fresh(target)
    try:
        with closing(connect_reader(source)) as db, closing(sqlite3.connect(target, isolation_level=None)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as problem:
        raise translated(problem, target) from problem
    if verdict != "ok":
        raise StoreError(
            f"{source} is damaged: {verdict}; no backup was made", fix="put back an older backup, and keep this one too"
        )


def schema_of(path: Path) -> int:
    """The newest migration that a copy holds."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT coalesce(max(number), 0) FROM schema_version").fetchone()[0])


def catch_up(source: Path, target: Path, since: UnixMs, epochs: Mapping[str, int]) -> dict[str, int]:
    """Enter into the copy what became of sends since then, and what was accepted since then, with the cursors that a
    platform goes on from; how many sends are still open, by state.

    An event that came since then is entered as one that is not routed yet: whether its row is in the copy of the
    mailbox or not, routing it again comes to the same.  `epochs` are those of mailboxes, by session: a runner that
    was started since then has a newer one than the copy knows, and what it wrote must be taken for good.

    Raises:
        StoreError: the store can't be read, or the copy not be written.
    """
    try:
        with closing(connect_reader(source)) as db, closing(sqlite3.connect(target, isolation_level=None)) as copy:
            names = [row[1] for row in db.execute("PRAGMA table_info(deliveries)")]
            known = {row[0] for row in copy.execute("SELECT id FROM sessions")}
            last = copy.execute("SELECT coalesce(max(ord), 0) FROM deliveries").fetchone()[0]
            db.execute("BEGIN")
            changed = [
                row
                for row in db.execute(
                    f"SELECT {', '.join(names)} FROM deliveries WHERE ord > ? OR updated_at >= ?", (last, since - SLACK)
                )
                if row[names.index("session_id")] in known or row[names.index("ord")] <= last
            ]
            orders = [row[names.index("ord")] for row in changed]
            copy.execute("BEGIN")
            copy.executemany(
                f"INSERT OR REPLACE INTO deliveries ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                changed,
            )
            for order in orders:
                rows = db.execute("SELECT * FROM sent_messages WHERE delivery_ord = ?", (order,)).fetchall()
                copy.executemany("INSERT OR IGNORE INTO sent_messages VALUES (?, ?, ?, ?, ?)", rows)
            _enter_events(db, copy)
            copy.executemany(
                "UPDATE sessions SET epoch = max(epoch, ?) WHERE id = ?", [(epoch, id) for id, epoch in epochs.items()]
            )
            copy.execute("COMMIT")
            db.execute("ROLLBACK")
            counted = copy.execute(f"SELECT state, count(*) FROM deliveries WHERE state IN {_OPEN} GROUP BY state")
            return {str(state): int(count) for state, count in counted}
    except sqlite3.Error as problem:
        raise translated(problem, target) from problem


def _enter_events(db: sqlite3.Connection, copy: sqlite3.Connection) -> None:
    """Events, their lines in the ledger, and cursors."""
    names = [row[1] for row in db.execute("PRAGMA table_info(events)")]
    last = copy.execute("SELECT coalesce(max(ord), 0) FROM events").fetchone()[0]
    taken = ", ".join(
        {
            "state": "CASE state WHEN 'routed' THEN 'received' ELSE state END",
            "finished_at": "CASE state WHEN 'routed' THEN NULL ELSE finished_at END",
        }.get(name, name)
        for name in names
    )
    rows = db.execute(f"SELECT {taken} FROM events WHERE ord > ?", (last,)).fetchall()
    copy.executemany(f"INSERT OR IGNORE INTO events ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows)
    # The ledger's lines of these are entered as open, so that acknowledgements in the copied mailbox find them.
    names = [row[1] for row in db.execute("PRAGMA table_info(inbound)")]
    last = copy.execute("SELECT coalesce(max(ord), 0) FROM inbound").fetchone()[0]
    taken = ", ".join(
        {
            "state": "CASE WHEN state IN ('refused', 'dropped', 'context') THEN state ELSE 'queued' END",
            "attempts": "0",
            "next_try_at": "NULL",
        }.get(name, name)
        for name in names
    )
    unrouted = {row[0] for row in copy.execute("SELECT id FROM events WHERE state = 'received'")}
    known = {row[0] for row in copy.execute("SELECT id FROM sessions")}
    event, session = names.index("event_id"), names.index("session_id")
    entered = [
        row
        for row in db.execute(f"SELECT {taken} FROM inbound WHERE ord > ?", (last,))
        if row[event] in unrouted and row[session] in known
    ]
    copy.executemany(
        f"INSERT OR IGNORE INTO inbound ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", entered
    )
    cursors = db.execute("SELECT channel_type, instance, key, value FROM cursors").fetchall()
    copy.executemany("INSERT OR REPLACE INTO cursors (channel_type, instance, key, value) VALUES (?, ?, ?, ?)", cursors)


def forget_conversations(target: Path, now: UnixMs) -> None:
    """Make the copy one without conversations: sessions are closed, what was open in them has its end.

    Raises:
        StoreError: it can't be written.
    """
    reason = "not in the backup"
    try:
        with closing(sqlite3.connect(target, isolation_level=None)) as copy:
            copy.execute("BEGIN")
            copy.execute(
                "UPDATE sessions SET status = 'closed', parked_until = NULL, parked_reason = NULL "
                "WHERE status = 'active'"
            )
            copy.execute(
                "UPDATE inbound SET state = 'dropped', reason = ?, next_try_at = NULL, updated_at = ? "
                "WHERE state IN ('queued', 'claimed', 'retrying', 'parked', 'context')",
                (reason, now),
            )
            copy.execute(
                "UPDATE deliveries SET state = 'dropped', reason = ?, head_at = NULL, updated_at = ? "
                f"WHERE state IN {_OPEN}",
                (reason, now),
            )
            copy.execute(
                "UPDATE events SET state = 'failed', reason = ?, finished_at = ? WHERE state = 'received'",
                (reason, now),
            )
            copy.execute("UPDATE questions SET state = 'expired', decided_at = ? WHERE state = 'open'", (now,))
            copy.execute("COMMIT")
    except sqlite3.Error as problem:
        raise translated(problem, target) from problem


@dataclass(slots=True)
class MailboxCopy:
    """What was copied of a mailbox, and what not.  `files` are in the folder that was named; `fresh_outbox` says that
    the session's runner must begin a new `outbound.db`."""

    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fresh_outbox: bool = False
    epoch: int = 0
    """Of the newest runner that has opened the outbox."""


def copy_mailbox(box: HostMailbox, target: Path) -> MailboxCopy:
    """Copies of both databases of a mailbox, for the pool: `inbound.db` first, so that no answer lacks in the copy
    that the runner gave before its question was copied.

    What is damaged is copied as it lies there, for the restored host to judge as this one would; what is blocked is
    left out and noted.  Neither ends the backup.

    Raises:
        OSError, sqlite3.Error: the copy can't be written.
    """
    made = MailboxCopy()
    for name, copy in (("inbound.db", box.copy_inbound), ("outbound.db", box.copy_outbound)):
        place = target / name
        _fresh(place)
        try:
            if _copied(copy, place):
                made.files.append(name)
        except MailboxBlocked as problem:
            made.notes.append(f"{name} was left out: {problem.message}")
        except MailboxError as problem:
            place.unlink()
            _copy_as_it_is(box.folder.root, name, target, made, problem)
        if name not in made.files:
            place.unlink(missing_ok=True)
            made.fresh_outbox = made.fresh_outbox or (name == "outbound.db" and bool(made.notes))
    with contextlib.suppress(MailboxError):  # it was noted above
        made.epoch = box.newest_epoch()
    return made


def _copied(copy: Callable[[sqlite3.Connection], bool], place: Path) -> bool:
    with closing(sqlite3.connect(place, isolation_level=None)) as database:
        return copy(database)


def _copy_as_it_is(folder: Path, name: str, target: Path, made: MailboxCopy, problem: MailboxError) -> None:
    """A file that nobody can read as a database now, with its journal: a dead runner's, or a damaged one."""
    names = [one for one in (name, f"{name}-journal") if (folder / one).exists()]
    try:
        before = [_stamp(folder / one) for one in names]
        for one in names:
            _copy_bytes(folder / one, target / one)
        steady = before == [_stamp(folder / one) for one in names]
    except OSError as other:
        if other.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
            raise
        made.notes.append(f"{name} was left out: {problem.message}; {other.strerror}")
        steady = False
    else:
        said = (
            "is in the backup with the journal of a runner that died"
            if isinstance(problem, RecoveryNeeded)
            else "is in the backup as it is"
        )
        made.notes.append(f"{name} {said}: {problem.message}" if steady else f"{name} was left out: {problem.message}")
    if steady:
        made.files += names
    else:
        for one in names:
            (target / one).unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"{path.name} is {stat.filemode(found.st_mode)}, not a regular file")
    return found.st_ino, found.st_size, found.st_mtime_ns


def _copy_bytes(path: Path, place: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source:
        _fresh(place)
        with place.open("wb") as copy:
            while chunk := source.read(1 << 18):
                copy.write(chunk)


def _fresh(place: Path) -> None:
    for name in (place, place.with_name(place.name + "-journal")):
        name.unlink(missing_ok=True)
    os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
