"""The one thread that writes `state.db`, and how it commits for many callers at once.

Whatever waits when it becomes free is one group: one transaction, one sync to disk.  The first unit of a group runs
bare (if it fails, everything so far is rolled back, and that is only itself); each later one runs in a savepoint.  When
the system is idle, a group is one unit, and a unit costs one hop to this thread and one back.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.clock import Clock
from jackfield.errors import StoreError
from jackfield.points import reach
from jackfield.store.faults import primary_code, translated
from jackfield.store.opening import BUSY_MS

__all__ = ["Unit", "Writer"]

logger = logging.getLogger(__name__)

GROUP_LIMIT = 256
HOLD = 0.25
"""Seconds that a unit which nobody waits for may wait for company."""
BUSY_TRIES = 5
"""How often to ask for the write lock, each time for the busy time-out of 2 s."""
TIDY_AFTER = 200
"""Commits between two checkpoints while there is quiet in between; four times as many without."""
LOG_FRAMES = 4000
"""Pages in the log above which a checkpoint waits for readers to end, so that the log can start over."""
LOG_BYTES = 32 * 1024 * 1024
TIDY_MS = 250
"""How long the writer waits then for readers to end; if they don't, it tries again later."""


@dataclass(slots=True)
class Unit:
    """One unit of work, and who waits for it; `future` None means nobody."""

    work: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop | None
    future: asyncio.Future[Any] | None


_Outcome = tuple[Unit, Any, BaseException | None]


class _TransactionLost(Exception):
    """SQLite rolled the whole transaction back on its own while a unit ran."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(str(problem))
        self.problem = problem


class Writer:
    """Runs units in order of arrival.  `connect` is called in the thread itself."""

    def __init__(self, path: Path, clock: Clock, connect: Callable[[], sqlite3.Connection]) -> None:
        self.commits = 0
        self.problem: StoreError | None = None
        """What the newest write failed with; None again after the next success."""
        self._path = path
        self._log = path.with_name(path.name + "-wal")
        self._clock = clock
        self._connect = connect
        self._queue: queue.SimpleQueue[Unit | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._db: sqlite3.Connection = None  # type: ignore[assignment]  # set before the first unit runs
        self._since_tidy = 0
        self.handed_in = 0
        """How many units there were so far; counted by the event loop, which is all that hands them in."""
        self._taken = self._finished = 0

    @property
    def quiet(self) -> bool:
        """Whether everything that was handed in is on the disk, or has failed."""
        return self._finished == self.handed_in

    def put(self, unit: Unit) -> None:
        self.handed_in += 1
        self._queue.put(unit)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._thread = threading.Thread(target=self._main, args=(loop, ready), name="store-writer", daemon=True)
        self._thread.start()
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            self._queue.put(None)
            raise

    async def stop(self) -> None:
        """Everything that was put before is committed first."""
        thread = self._thread
        if thread is not None:
            self._queue.put(None)
            await asyncio.shield(asyncio.to_thread(thread.join))
            self._thread = None

    def _main(self, loop: asyncio.AbstractEventLoop, ready: asyncio.Future[None]) -> None:
        try:
            self._db = self._connect()
        except BaseException as problem:  # noqa: BLE001  # it belongs to whoever awaits the start
            _post(loop, _settle, [(Unit(_nothing, (), {}, loop, ready), None, problem)])
            return
        _post(loop, _settle, [(Unit(_nothing, (), {}, loop, ready), None, None)])
        while (unit := self._queue.get()) is not None:
            group = [unit]
            self._taken += 1
            try:
                self._perform(group)
                self._finished = self._taken
                self._tidy()
            except Exception:
                logger.exception("a group of %d writes to %s failed in an unforeseen way", len(group), self._path)
                self._roll_back()
                self.problem = StoreError(f"{self._path} could not be written; the log says why")
                self._answer([(unit, None, self.problem) for unit in group])
        self._db.close()

    def _drain(self, group: list[Unit], until: float) -> None:
        """Add who waits by now.  When nobody waits for any of the group, it stays open for company until that moment:
        its work is done already when the next unit comes, whose commit it shares."""
        while len(group) < GROUP_LIMIT:
            try:
                if all(unit.future is None for unit in group):
                    unit = self._queue.get(timeout=min(HOLD, max(0.0, until - self._clock.monotonic())))
                else:
                    unit = self._queue.get_nowait()
            except queue.Empty:
                return
            if unit is None:
                self._queue.put(None)  # the end is for _main to see; nothing is put after it
                return
            group.append(unit)
            self._taken += 1
            if unit.future is None:
                return  # it is done at once

    def _perform(self, group: list[Unit], *, grow: bool = True) -> None:
        """Run a group and answer it."""
        db = self._db
        outcomes: list[_Outcome] = []
        position = 0
        bare = True
        until = self._clock.monotonic() + HOLD
        try:
            while position < len(group):
                if not db.in_transaction:
                    self._begin()
                    bare = True
                outcomes.append(self._run(group[position], bare))
                bare = False
                position += 1
                if grow and position == len(group):
                    self._drain(group, until)
            if db.in_transaction:
                reach("store.mid_transaction")
                db.execute("COMMIT")
                self.commits += 1
                self._since_tidy += 1
                self.problem = None
        except _TransactionLost as lost:
            self._roll_back()
            again = [unit for unit, _, problem in outcomes if problem is None] + group[position + 1 :]
            self._answer([outcome for outcome in outcomes if outcome[2] is not None])
            self._answer([(group[position], None, self._reported(lost.problem))])
            for unit in again:
                self._perform([unit], grow=False)
            return
        except (sqlite3.Error, StoreError) as problem:
            self._roll_back()
            error = self._reported(problem)
            failed: list[_Outcome] = [(unit, value, own or error) for unit, value, own in outcomes]
            failed += [(unit, None, error) for unit in group[len(outcomes) :]]
            self._answer(failed)
            return
        self._answer(outcomes)

    def _begin(self) -> None:
        for attempt in range(1, BUSY_TRIES + 1):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as problem:
                if primary_code(problem) != sqlite3.SQLITE_BUSY or attempt == BUSY_TRIES:
                    raise

    def _run(self, unit: Unit, bare: bool) -> _Outcome:
        db = self._db
        if not bare:
            db.execute("SAVEPOINT unit")
        try:
            value = unit.work(db, *unit.args, **unit.kwargs)
        except BaseException as problem:  # it belongs to the unit's caller, not to this thread
            if not db.in_transaction:
                raise _TransactionLost(problem) from problem
            if bare:
                db.execute("ROLLBACK")
            else:
                db.execute("ROLLBACK TO unit")
                db.execute("RELEASE unit")
            return unit, None, self._reported(problem)
        if not db.in_transaction:
            raise _TransactionLost(StoreError(f"{unit.work!r} ended the transaction that it was run in"))
        if not bare:
            db.execute("RELEASE unit")
        return unit, value, None

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:
                logger.exception("a failed transaction of %s could not be rolled back", self._path)

    def _reported(self, problem: BaseException) -> BaseException:
        error = translated(problem, self._path)
        if isinstance(error, StoreError):
            self.problem = error
        return error

    def _answer(self, outcomes: list[_Outcome]) -> None:
        """Resume the callers: one wake-up of the loop for all of them."""
        waiting: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
        for outcome in outcomes:
            unit, _, problem = outcome
            if unit.loop is not None:
                waiting.setdefault(unit.loop, []).append(outcome)
            elif problem is not None:
                logger.error("a write that nobody waits for failed: %r", unit.work, exc_info=problem)
        for loop, theirs in waiting.items():
            _post(loop, _settle, theirs)

    def _tidy(self) -> None:
        """Move the log into the database before it grows large.  Callers have their answers already."""
        if self._since_tidy < TIDY_AFTER:
            try:
                if self._since_tidy % 16 or self._log.stat().st_size < LOG_BYTES:
                    return
            except OSError:
                return
        elif self._since_tidy < 4 * TIDY_AFTER and not self._queue.empty():
            return
        self._since_tidy = 0
        try:
            _, frames, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames > LOG_FRAMES or self._log.stat().st_size >= LOG_BYTES:
                # Readers that always overlap would keep the log from ever starting again at its beginning.  While
                # this waits nothing is written, so new readers soon read the database itself and are in no way.
                self._db.execute(f"PRAGMA busy_timeout = {TIDY_MS}")
                try:
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                finally:
                    self._db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        except (sqlite3.Error, OSError) as problem:
            logger.warning("%s: the log could not be moved into the database: %s", self._path, problem)


def _nothing() -> None:
    return None


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], outcomes: list[_Outcome]) -> None:
    try:
        loop.call_soon_threadsafe(call, outcomes)
    except RuntimeError:
        logger.warning("%d writes ended after their event loop was closed", len(outcomes))


def _settle(outcomes: list[_Outcome]) -> None:
    for unit, value, problem in outcomes:
        future = unit.future
        if future is None or future.done():
            continue
        if problem is None:
            future.set_result(value)
        elif isinstance(problem, StopIteration):
            future.set_exception(RuntimeError(f"{unit.work!r} raised StopIteration"))
        else:
            future.set_exception(problem)
