"""`state.db`: one writer, a few readers, and whole units of work instead of single statements."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from jackfield.clock import Clock, SystemClock
from jackfield.errors import StoreError
from jackfield.store.faults import translated
from jackfield.store.migrations import MIGRATIONS, Migration
from jackfield.store.opening import connect_reader, open_database
from jackfield.store.writer import Unit, Writer

__all__ = ["Store"]

P = ParamSpec("P")
T = TypeVar("T")
READERS = 3


class Store:
    """The host's database (architecture 3, 5 and 10).

    A unit of work is a synchronous function whose first parameter is the connection, like those of the modules beside
    this one.  It runs in another thread, inside a transaction, and must do nothing but talk to the database: after a
    full disk it may be run a second time.
    """

    def __init__(
        self,
        path: Path,
        clock: Clock | None = None,
        *,
        backups: Path | None = None,
        max_pages: int | None = None,
        migrations: Sequence[Migration] = MIGRATIONS,
    ) -> None:
        """`backups` is the folder for copies made before a migration (`backups/` beside the database by default);
        `max_pages` limits the database's size, in pages of 4 KiB."""
        self.path = path
        clock = clock or SystemClock()
        connect = functools.partial(
            open_database,
            path,
            clock,
            backups=backups or path.parent / "backups",
            max_pages=max_pages,
            migrations=migrations,
        )
        self._writer = Writer(path, clock, connect)
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        self._state = "new"

    @property
    def commits(self) -> int:
        """How many transactions were committed since it was opened."""
        return self._writer.commits

    @property
    def handed_in(self) -> int:
        """How many units of work were handed in to be written so far."""
        return self._writer.handed_in

    @property
    def quiet(self) -> bool:
        """Whether everything that was handed in is on the disk, so that a question asked now hears of all of it."""
        return self._writer.quiet

    @property
    def problem(self) -> StoreError | None:
        """What the newest write failed with, like a full disk; None when all is well again (C213)."""
        return self._writer.problem

    async def open(self) -> None:
        """Check, back up, migrate, and start.

        Raises:
            StoreNewer: a newer version wrote the database; no byte was touched (C202).
            StoreError: it is damaged, not ours, or a migration failed and was rolled back.
        """
        if self._state != "new":
            raise StoreError(f"{self.path} was opened before; make a new Store")
        await self._writer.start()
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-reader")
        self._state = "open"

    async def close(self) -> None:
        """Commit everything that was handed over, and let go of the file.  Twice is fine."""
        if self._state != "open":
            return
        self._state = "closed"
        readers, self._readers = self._readers, None
        if readers is not None:
            await asyncio.to_thread(readers.shutdown)
        for db in self._open_readers:
            db.close()
        self._open_readers.clear()
        await self._writer.stop()  # last, since only a connection that may write can clear the log away

    async def write(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a unit of work; its result is on the disk when this returns.

        It shares its transaction with whatever else waits, but its exception is its own: only what it did is undone.
        Cancelling the caller does not stop the unit.

        Raises:
            StoreFull: no space; nothing of this was stored.
            StoreError: the disk or another process is in the way; nothing of this was stored.
            Exception: whatever the unit raised.
        """
        return await self.begin(work, *args, **kwargs)

    def begin(
        self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """As `write`, for who has something to do while it is written."""
        self._require_open()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._writer.put(Unit(work, args, kwargs, loop, future))
        return future

    def write_soon(
        self, work: Callable[Concatenate[sqlite3.Connection, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Run a unit in the next transaction of anybody's, or in one of its own within 0.25 s.

        For what can be derived again: a crash may lose it, and its errors only reach the log.
        """
        self._require_open()
        self._writer.put(Unit(work, args, kwargs, None, None))

    async def read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask something: one consistent view that holds every write that returned before.

        Raises:
            StoreError: the database can't be read.
            Exception: whatever `work` raised.
        """
        self._require_open()
        assert self._readers is not None
        call = functools.partial(self._read, work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._readers, call)

    def peek(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask a small thing at once, in the caller's own thread: the same view as `read` gives.

        For indexed point queries on the message path, where the way to a reader's thread and back costs more than the
        question.  Readers of a WAL database wait for no writer.

        Raises:
            StoreError: the database can't be read.
            Exception: whatever `work` raised.
        """
        self._require_open()
        return self._read(work, *args, **kwargs)

    def _read(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None:
                db = connect_reader(self.path)
                self._local.db = db
                self._open_readers.append(db)
            db.execute("BEGIN")
            try:
                return work(db, *args, **kwargs)
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as problem:
            error = translated(problem, self.path)
            if error is problem:
                raise
            raise error from problem

    def _require_open(self) -> None:
        if self._state != "open":
            raise StoreError(f"{self.path} is {'closed' if self._state == 'closed' else 'not open yet'}")
