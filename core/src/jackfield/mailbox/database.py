"""How both sides open the mailbox's files, write in one transaction, and name what went wrong (runtime.md 3.5-3.8)."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jackfield.errors import (
    MailboxBlocked,
    MailboxDamaged,
    MailboxError,
    MailboxFull,
    MalformedData,
    RecoveryNeeded,
)
from jackfield.points import reach

__all__ = [
    "BUSY_SECONDS",
    "Patience",
    "open_reader",
    "open_writer",
    "refuse_foreign_journal",
    "refuse_special_file",
    "rolled_back",
    "transaction",
    "translate",
]

BUSY_SECONDS = 2.0
"""How long a writer waits for a reader, and a reader for a writer (architecture 6)."""

_JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_HOT_TRIES = 4
_MODES = ("synchronous=FULL", "trusted_schema=OFF", "cell_size_check=ON", "temp_store=MEMORY", "cache_size=-256")
"""Of every writer.  The cache is small, because a host keeps 64 of them and asks only by index."""
_READONLY_ROLLBACK = 776
_IOERR_CORRUPTFS = 8458


def open_writer(path: Path) -> sqlite3.Connection:
    """The one writing side's connection: TRUNCATE + FULL, rolling back what a dead predecessor left.

    The order matters where the folder is read-only and only the files are writable: the first read may have to roll a
    journal back, and only in exclusive locking mode does SQLite then clear the journal instead of unlinking it.

    Raises:
        MailboxBlocked, MailboxDamaged, MailboxFull, MailboxError: see `translate`.
    """
    refuse_special_file(path)
    refuse_foreign_journal(path)
    database: sqlite3.Connection | None = None
    try:
        database = _connect(path, "rw", BUSY_SECONDS)
        database.execute("PRAGMA locking_mode=EXCLUSIVE").fetchone()
        database.execute("PRAGMA journal_mode=TRUNCATE").fetchone()
        database.execute("PRAGMA locking_mode=NORMAL").fetchone()
        # Both modes are per connection, never a property of the file.
        for pragma in _MODES:
            database.execute(f"PRAGMA {pragma}").fetchone()
        database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error as problem:
        if database is not None:
            database.close()
        raise translate(problem, f"open {path}") from problem
    except UnicodeDecodeError as problem:  # SQLite's message shows names of the file's own
        if database is not None:
            database.close()
        raise MailboxDamaged(f"could not open {path}: not our database") from problem
    return database


def open_reader(path: Path) -> sqlite3.Connection:
    """A read-only connection, for use with `Patience`: it doesn't wait for a writer itself.

    Raises:
        sqlite3.Error: it can't be opened.
    """
    return _connect(path, "ro", 0.0)


class Patience:
    """How a reader waits, for at most 2 s in all.

    In short steps while a writer holds the lock: SQLite's own waiting grows to 100 ms a step, in which a writer that
    commits all the time is met again and again.  A few times when a journal looks hot, since between two commits a live
    one may look like a dead writer's.
    """

    def __init__(self) -> None:
        self._until = time.monotonic() + BUSY_SECONDS
        self._hot = 0

    def left(self) -> bool:
        """Whether there is time left; waits one step."""
        time.sleep(0.0005)
        return time.monotonic() < self._until

    def try_again(self, problem: sqlite3.Error) -> bool:
        """Whether to ask once more after that; waits before it says so."""
        code = getattr(problem, "sqlite_errorcode", 0)
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self.left()
        if code == _READONLY_ROLLBACK and self._hot < _HOT_TRIES:
            self._hot += 1
            time.sleep(0.001 * 2**self._hot)
            return True
        return False


def _connect(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
    )


def refuse_special_file(path: Path) -> None:
    """Only a regular file is ever opened as a database: never a link, a FIFO, a device or a folder.

    Raises:
        MailboxDamaged: it is something else, or missing.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise MailboxDamaged(f"{path} is missing") from None
    except OSError as problem:
        raise MailboxDamaged(f"{path} can't be looked at: {problem}") from problem
    if not stat.S_ISREG(mode):
        raise MailboxDamaged(f"{path} is {stat.filemode(mode)}, not a regular file")


def refuse_foreign_journal(path: Path) -> None:
    """Never roll back a journal that names a super-journal: SQLite would delete the file it names (runtime.md 3.7).

    Ours never do, since no transaction spans two files.

    Raises:
        MailboxDamaged: the journal beside `path` is such a one, or no regular file.
    """
    journal = path.with_name(path.name + "-journal")
    try:
        descriptor = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as problem:
        raise MailboxDamaged(f"{journal} can't be opened as a file: {problem.strerror}") from problem
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise MailboxDamaged(f"{journal} is {stat.filemode(found.st_mode)}, not a regular file")
        tail = os.pread(descriptor, len(_JOURNAL_MAGIC), max(0, found.st_size - len(_JOURNAL_MAGIC)))
    finally:
        os.close(descriptor)
    if tail == _JOURNAL_MAGIC and found.st_size > len(_JOURNAL_MAGIC):
        raise MailboxDamaged(f"{journal} names a super-journal, which Jackfield never writes; it is not rolled back")


@contextmanager
def transaction(database: sqlite3.Connection, point: str, what: str) -> Iterator[sqlite3.Connection]:
    """One immediate transaction: all of it, or nothing (C211).

    A transaction that changed nothing costs no write.  `point` is the kill point in its middle.

    Raises:
        MailboxBlocked, MailboxDamaged, MailboxFull, MailboxError: see `translate`; nothing was written.
    """
    try:
        database.execute("BEGIN IMMEDIATE")
        yield database
        reach(point)
        database.execute("COMMIT")
    except sqlite3.Error as problem:
        rolled_back(database)
        raise translate(problem, what) from problem
    except UnicodeEncodeError as problem:
        rolled_back(database)
        raise MalformedData(f"{what}: an id holds half a character: {problem}") from None
    except UnicodeDecodeError as problem:
        rolled_back(database)
        raise MailboxDamaged(f"could not {what}: it holds text that is none") from problem
    except BaseException:
        rolled_back(database)
        raise


def rolled_back(database: sqlite3.Connection) -> bool:
    """Give an open transaction up.  False when even that failed and the connection must be dropped."""
    try:
        if database.in_transaction:
            database.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return True


def translate(problem: sqlite3.Error, what: str) -> MailboxError:
    """The typed error for SQLite's; `what` was tried.

    A lock that outlasts the time-out is `MailboxBlocked`; a hot journal that we may not roll back is `RecoveryNeeded`
    (C209); a full disk or an I/O error is `MailboxFull`; what is no database of ours is `MailboxDamaged`.
    """
    code = getattr(problem, "sqlite_errorcode", None)
    if code is None:
        return MailboxError(f"could not {what}: {problem}")
    primary = code & 0xFF
    text = f"could not {what}: {problem} ({getattr(problem, 'sqlite_errorname', code)})"
    if code == _READONLY_ROLLBACK:
        return RecoveryNeeded(text, fix="a writer died in mid-transaction; Runtime.recover rolls its journal back")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return MailboxBlocked(text, fix="the other side holds the file locked; if it stays so, stop the runner")
    if code == _IOERR_CORRUPTFS or primary in (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_TOOBIG,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_SCHEMA,
        sqlite3.SQLITE_MISMATCH,
    ):
        return MailboxDamaged(text, fix="set the mailbox aside; the host re-enqueues what its ledger still has open")
    if primary in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return MailboxFull(text, fix="free space on the disk that holds the sessions, or mend it")
    return MailboxError(text)
