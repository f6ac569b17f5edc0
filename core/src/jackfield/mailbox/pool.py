"""Mailboxes for an event loop: opened on demand, worked on in threads, each folder's calls in order."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, cast

from jackfield.clock import Clock, SystemClock
from jackfield.errors import MailboxBlocked, MailboxError
from jackfield.mailbox.host import HostMailbox
from jackfield.mailbox.paths import SessionFolder

__all__ = ["MailboxPool"]

T = TypeVar("T")
_SLOW_WORKERS: Final = 2


class _Job(Generic[T]):
    __slots__ = ("loop", "problem", "result", "value", "work")

    def __init__(self, work: Callable[[HostMailbox], T], loop: asyncio.AbstractEventLoop) -> None:
        self.work = work
        self.loop = loop
        self.result: asyncio.Future[T] = loop.create_future()
        self.value: T | None = None
        self.problem: BaseException | None = None

    def run(self, mailbox: HostMailbox) -> None:
        """In a thread."""
        try:
            self.value = self.work(mailbox)
        except BaseException as problem:  # noqa: BLE001 - it is handed to whoever awaits the result
            self.problem = problem

    def deliver(self) -> None:
        """In the event loop."""
        if self.result.cancelled():
            return
        if self.problem is None:
            self.result.set_result(cast(T, self.value))
        else:
            self.result.set_exception(self.problem)


class _Threads:
    """Takes work from any thread, and starts a thread for it while all are busy, up to `most`.

    An executor does the same, but its futures and their locks cost a message as much as its mailbox does.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: list[threading.Thread] = []

    def submit(self, work: Callable[[], None]) -> None:
        """Have the work done; it must not raise."""
        self._work.put(work)
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif len(self._threads) < self._most:
                thread = threading.Thread(target=self._serve, name=f"{self._name}_{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def end(self) -> None:
        """Finish what was submitted."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work
            with self._lock:
                self._idle += 1


class _Entry:
    __slots__ = ("active", "blocked", "closing", "jobs", "lock", "mailbox")

    def __init__(self, mailbox: HostMailbox) -> None:
        self.mailbox = mailbox
        self.jobs: deque[_Job[Any]] = deque()
        self.lock = threading.Lock()
        self.active = False
        self.blocked = False
        self.closing = False


_LOOK_AT = 8
"""How many busy mailboxes are passed over in search of an idle one to close; the next call goes on searching."""


class MailboxPool:
    """At most `keep` mailboxes stay open; `workers` threads serve all of them.

    The calls for one folder run one after the other, in order; a call that has begun always ends, also when whoever
    asked stopped waiting.  A folder whose other side held a lock too long goes on in threads of its own until it works
    again, so that it never delays the others (architecture 5, rule 6).
    """

    def __init__(self, clock: Clock | None = None, keep: int = 64, workers: int = 16) -> None:
        self._clock = clock or SystemClock()
        self._keep = keep
        self._threads = _Threads(workers, "mailbox")
        self._slow = _Threads(_SLOW_WORKERS, "mailbox-blocked")
        self._entries: OrderedDict[SessionFolder, _Entry] = OrderedDict()
        self._closed = False

    async def run(self, folder: SessionFolder, work: Callable[[HostMailbox], T]) -> T:
        """The result of `work`, done in a worker thread.

        Raises:
            MailboxError: the pool is closed; and whatever `work` raises.
        """
        if self._closed:
            raise MailboxError("the host is stopping; its mailboxes are closed")
        entry = self._entries.get(folder)
        if entry is None:
            entry = self._entries[folder] = _Entry(HostMailbox(folder, self._clock))
        else:
            entry.closing = False
            self._entries.move_to_end(folder)
        try:
            return await self._submit(entry, work)
        finally:
            if len(self._entries) > self._keep and not self._closed:
                self._evict()

    async def forget(self, folder: SessionFolder) -> None:
        """Close a folder's files after all that waits for them, and let go of it."""
        entry = self._entries.get(folder)
        if entry is not None:
            await self._submit(entry, HostMailbox.close)
            self._remove(folder, entry)

    async def close(self) -> None:
        """Finish what was asked for, close all files and end the threads.  Later calls are refused."""
        self._closed = True
        closing = [self._submit(entry, HostMailbox.close) for entry in self._entries.values()]
        await asyncio.gather(*closing)
        self._entries.clear()
        await asyncio.to_thread(self._threads.end)
        await asyncio.to_thread(self._slow.end)

    @property
    def open(self) -> int:
        """How many mailboxes are kept."""
        return len(self._entries)

    def _submit(self, entry: _Entry, work: Callable[[HostMailbox], T]) -> asyncio.Future[T]:
        job = _Job(work, asyncio.get_running_loop())
        with entry.lock:
            entry.jobs.append(job)
            start, entry.active = not entry.active, True
        if start:
            self._lane(entry).submit(partial(self._work, entry))
        return job.result

    def _lane(self, entry: _Entry) -> _Threads:
        return self._slow if entry.blocked else self._threads

    def _work(self, entry: _Entry) -> None:
        """In a thread: one call, then to the end of the line, so that one busy folder leaves room for others."""
        with entry.lock:
            job = entry.jobs.popleft()
        job.run(entry.mailbox)
        entry.blocked = isinstance(job.problem, MailboxBlocked)
        with entry.lock:
            again = entry.active = bool(entry.jobs)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            job.loop.call_soon_threadsafe(job.deliver)
        if again:
            self._lane(entry).submit(partial(self._work, entry))

    def _evict(self) -> None:
        """Close the mailboxes that were not used for longest, idle ones only."""
        surplus = len(self._entries) - self._keep
        # The oldest lie in front; so many of them at the most are busy or closing already.
        for folder, entry in list(islice(self._entries.items(), surplus + _LOOK_AT)):
            if surplus <= 0:
                return
            if entry.closing:
                surplus -= 1
                continue
            with entry.lock:
                if entry.active:
                    continue
            surplus -= 1
            entry.closing = True
            # The entry stays until its files are closed: two mailboxes of one folder would drop each other's locks.
            closing = self._submit(entry, HostMailbox.close)
            closing.add_done_callback(partial(self._closed_one, folder, entry))

    def _closed_one(self, folder: SessionFolder, entry: _Entry, _: asyncio.Future[None]) -> None:
        self._remove(folder, entry)

    def _remove(self, folder: SessionFolder, entry: _Entry) -> None:
        with entry.lock:
            if entry.active or entry.mailbox.is_open:  # somebody came meanwhile
                return
        if self._entries.get(folder) is entry:
            del self._entries[folder]
