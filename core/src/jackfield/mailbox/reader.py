"""Reading `outbound.db` as the work of a hostile writer (runtime.md 3.6, 3.7).

Always read-only, never recovering; each read on a connection of its own that is closed when everything is fetched.
Limits, a deadline and the check that each table is exactly ours keep a forged file from costing more than a refusal.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable
from typing import Final, TypeVar

from jackfield.errors import MailboxBlocked, MailboxDamaged
from jackfield.mailbox.database import BUSY_SECONDS, hot_or_busy, open_reader, refuse_special_file, translate
from jackfield.mailbox.paths import SessionFolder
from jackfield.mailbox.schema import OUTBOUND, check_layout

__all__ = ["LENGTH_LIMIT", "OutboundReader"]

T = TypeVar("T")

LENGTH_LIMIT: Final = 4 << 20
_DEADLINE: Final = 1.0
_STEPS: Final = 20_000
_HOT_TRIES: Final = 5
# Exclusive locking keeps SQLite from mapping a -shm file, should somebody turn the header to WAL between our look at it
# and SQLite's: a mapped file that is truncated kills the host by SIGBUS.  A reader's lock is shared all the same.
_SETTINGS: Final = """
PRAGMA locking_mode=EXCLUSIVE;
PRAGMA query_only=ON;
PRAGMA trusted_schema=OFF;
PRAGMA cell_size_check=ON;
PRAGMA mmap_size=0;
"""


class OutboundReader:
    """Asks questions of one `outbound.db`.  Not for two threads at once."""

    def __init__(self, folder: SessionFolder) -> None:
        self._folder = folder
        # Kept open, because closing any descriptor of a database drops the locks that this process holds on it.
        self._file: int | None = None
        self._inode: tuple[int, int] | None = None

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def ask(self, question: Callable[[sqlite3.Connection], T]) -> T | None:
        """The answer, from one consistent state; None while nobody has written to the file yet.

        Text comes as bytes.

        Raises:
            RecoveryNeeded: its writer died in mid-transaction (C209).
            MailboxBlocked: its writer holds it for longer than 2 s, or it changes all the time.
            MailboxDamaged: it is not our database, or takes more than 1 s of computing to read.
            MailboxFormat: another version wrote it.
        """
        until = time.monotonic() + BUSY_SECONDS
        hot = 0
        while True:
            self._look()
            try:
                answer, steady = self._attempt(question)
            except sqlite3.Error as problem:
                hot += 1
                if hot_or_busy(problem) and hot < _HOT_TRIES and time.monotonic() < until:
                    time.sleep(0.001 * 2**hot)
                    continue
                raise translate(problem, f"read {self._folder.outbound_db}") from problem
            if steady:
                return answer
            if time.monotonic() > until:
                raise MailboxBlocked(f"{self._folder.outbound_db} was changing for {BUSY_SECONDS:g} s, locks or not")
            time.sleep(0.002)

    def _look(self) -> None:
        path = self._folder.outbound_db
        refuse_special_file(path)
        try:
            journal = self._folder.outbound_journal.lstat()
        except FileNotFoundError:
            pass
        else:
            if not stat.S_ISREG(journal.st_mode):
                raise MailboxDamaged(f"{self._folder.outbound_journal} is not a regular file")
        found = path.lstat()
        if self._file is None or (found.st_dev, found.st_ino) != self._inode:
            self.close()
            try:
                self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as problem:
                raise MailboxDamaged(f"could not open {path}: {problem.strerror}") from problem
            opened = os.fstat(self._file)
            if not stat.S_ISREG(opened.st_mode):
                raise MailboxDamaged(f"{path} is not a regular file")
            self._inode = (opened.st_dev, opened.st_ino)
        header = os.pread(self._file, 24, 0)
        if header and (not header.startswith(b"SQLite format 3\0") or header[18:20] != b"\x01\x01"):
            raise MailboxDamaged(f"{path} is not a SQLite database in rollback mode")

    def _attempt(self, question: Callable[[sqlite3.Connection], T]) -> tuple[T | None, bool]:
        database = open_reader(self._folder.outbound_db)
        try:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH_LIMIT)
            database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            database.text_factory = bytes
            # Computing time, not the wall clock: a busy machine is no attack.
            until = time.thread_time() + _DEADLINE
            database.set_progress_handler(lambda: time.thread_time() > until, _STEPS)
            database.executescript(_SETTINGS)
            database.execute("BEGIN")
            written = check_layout(database, OUTBOUND, str(self._folder.outbound_db))
            before = self._stamp()
            answer = question(database) if written else None
            return answer, before is not None and before == self._stamp()
        finally:
            database.close()

    def _stamp(self) -> bytes | None:
        """The file's change counter; None while a journal is live, which under working locks no reader can see.

        A journal whose first byte is zero was not synced yet: the database behind it is untouched.
        """
        assert self._file is not None
        try:
            descriptor = os.open(
                self._folder.outbound_journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except FileNotFoundError:
            pass
        except OSError as problem:
            raise MailboxDamaged(f"could not open {self._folder.outbound_journal}: {problem.strerror}") from problem
        else:
            try:
                if os.pread(descriptor, 1, 0) not in (b"", b"\0"):
                    return None
            finally:
                os.close(descriptor)
        return os.pread(self._file, 4, 24)
