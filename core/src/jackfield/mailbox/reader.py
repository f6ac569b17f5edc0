"""Reading `outbound.db` as the work of a hostile writer (runtime.md 3.6, 3.7).

Always read-only, never recovering; everything is fetched in one short transaction.  Limits, a deadline and the check
that each table is exactly ours keep a forged file from costing more than a refusal.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from typing import Final, TypeVar

from jackfield.errors import MailboxBlocked, MailboxDamaged
from jackfield.mailbox.database import (
    BUSY_SECONDS,
    Patience,
    open_reader,
    refuse_special_file,
    rolled_back,
    translate,
)
from jackfield.mailbox.paths import SessionFolder
from jackfield.mailbox.schema import OUTBOUND, check_layout

__all__ = ["LENGTH_LIMIT", "OutboundReader"]

T = TypeVar("T")

LENGTH_LIMIT: Final = 4 << 20
_DEADLINE: Final = 1.0
_STEPS: Final = 20_000
_SETTINGS: Final = """
PRAGMA query_only=ON;
PRAGMA trusted_schema=OFF;
PRAGMA cell_size_check=ON;
PRAGMA mmap_size=0;
PRAGMA cache_size=-256;
"""


class OutboundReader:
    """Asks questions of one `outbound.db`.  Not for two threads at once.

    Between questions it holds no lock, only what it learned: open files, and the layout that it accepted.  Both are
    dropped at the first sign that something else is there now.
    """

    def __init__(self, folder: SessionFolder) -> None:
        self._path = folder.outbound_db
        self._journal = folder.outbound_journal
        self._shown = str(self._path)
        self._database: sqlite3.Connection | None = None
        # A descriptor of our own for the stamp.  It is closed after the connection only: closing any descriptor of a
        # file drops all locks that this process holds on it.
        self._file: int | None = None
        self._inode: tuple[int, int] | None = None
        self._layout: int | None = None
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether it holds the file."""
        return self._file is not None

    def close(self) -> None:
        """Let go of the file."""
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._layout = None

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T | None:
        """The answer, from one consistent state; None while nobody has written to the file yet.

        Text comes as bytes.

        Raises:
            RecoveryNeeded: its writer died in mid-transaction (C209).
            MailboxBlocked: its writer holds it for longer than 2 s, or it changes all the time.
            MailboxDamaged: it is not our database, or takes more than 1 s of computing to read.
            MailboxFormat: another version wrote it.
        """
        patience = Patience()
        while True:
            try:
                database = self._look()
                answer, steady = self._attempt(database, question)
            except sqlite3.Error as problem:
                if patience.try_again(problem):
                    continue
                self.close()
                raise translate(problem, f"read {self._shown}") from problem
            except UnicodeDecodeError as problem:  # SQLite's message shows names of the file's own
                self.close()
                raise MailboxDamaged(f"could not read {self._shown}: not our database") from problem
            except BaseException:
                self.close()
                raise
            if steady:
                return answer
            self.close()  # its cache may hold half a transaction
            if not patience.left():
                raise MailboxBlocked(f"{self._shown} was changing for {BUSY_SECONDS:g} s, locks or not")

    def _look(self) -> sqlite3.Connection:
        """The connection, to what lies there now."""
        try:
            found = os.lstat(self._path)
        except OSError as problem:
            raise MailboxDamaged(f"could not find {self._shown}: {problem.strerror}") from problem
        if self._database is None or (found.st_dev, found.st_ino) != self._inode:
            self.close()
            self._connect()
        try:
            journal = os.lstat(self._journal)
        except FileNotFoundError:
            pass
        else:
            if not stat.S_ISREG(journal.st_mode):
                raise MailboxDamaged(f"{self._journal} is not a regular file")
        assert self._database is not None and self._file is not None
        header = os.pread(self._file, 20, 0)
        # Bytes 18 and 19 tell WAL mode, in which a -shm file would be mapped.
        if header and (not header.startswith(b"SQLite format 3\0") or header[18:] != b"\x01\x01"):
            raise MailboxDamaged(f"{self._shown} is not a SQLite database in rollback mode")
        return self._database

    def _connect(self) -> None:
        refuse_special_file(self._path)
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as problem:
            raise MailboxDamaged(f"could not open {self._shown}: {problem.strerror}") from problem
        opened = os.fstat(self._file)
        if not stat.S_ISREG(opened.st_mode):
            raise MailboxDamaged(f"{self._shown} is not a regular file")
        self._inode = (opened.st_dev, opened.st_ino)
        database = self._database = open_reader(self._path)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH_LIMIT)
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.text_factory = bytes
        # Computing time, not the wall clock: a busy machine is no attack.
        database.set_progress_handler(lambda: time.thread_time() > self._until, _STEPS)

    def _attempt(
        self, database: sqlite3.Connection, question: Callable[[sqlite3.Connection], T]
    ) -> tuple[T | None, bool]:
        self._until = time.thread_time() + _DEADLINE
        if self._layout is None:
            database.executescript(_SETTINGS)
        database.execute("BEGIN")
        try:
            # Our statements run against the tables of this number, or are prepared again.
            layout = database.execute("PRAGMA schema_version").fetchone()[0]
            before = self._stamp()
            if layout != self._layout:
                self._layout = layout if check_layout(database, OUTBOUND, self._shown) else None
            answer = question(database) if self._layout is not None else None
            return answer, before is not None and before == self._stamp()
        finally:
            rolled_back(database)

    def _stamp(self) -> bytes | None:
        """The file's change counter; None while a journal is live, which under working locks no reader can see.

        A journal whose first byte is zero was not synced yet: the database behind it is untouched.
        """
        assert self._file is not None
        try:
            descriptor = os.open(self._journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise MailboxDamaged(f"could not open {self._journal}: {problem.strerror}") from problem
        else:
            try:
                if os.pread(descriptor, 1, 0) not in (b"", b"\0"):
                    return None
            finally:
                os.close(descriptor)
        return os.pread(self._file, 4, 24)
