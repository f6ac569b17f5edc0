"""The runner's mailbox on its one thread: SQLite and disk never hold up the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from jackfield.clock import Clock
from jackfield.mailbox import RunnerMailbox, SessionFolder

__all__ = ["MailRoom"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class MailRoom:
    """Runs pieces of work with the mailbox, one after the other, in the order in which they were handed in.

    A thread and a queue of its own: an executor's futures cost a turn more than the questions that it asks.
    """

    def __init__(self, folder: SessionFolder, epoch: int, clock: Clock) -> None:
        self.folder = folder
        self.failures = 0
        """How often work that nobody waits for has failed."""
        self._epoch = epoch
        self._clock = clock
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon, so that a runner whose mailbox can't be opened still ends; `close` waits for it.
        self._thread = Thread(target=self._serve, name="mailbox", daemon=True)
        self._mailbox: RunnerMailbox | None = None

    async def open(self) -> None:
        """Open the mailbox's files.

        Raises:
            MailboxError: a file is damaged, or of a format that this version doesn't read.
        """

        def begin() -> None:
            self._mailbox = RunnerMailbox(self.folder, self._epoch, self._clock)

        self._thread.start()
        await self._hand_in(begin)

    async def run(self, work: Callable[[RunnerMailbox], T]) -> T:
        """Do the work in the mailbox's thread and give back its result.

        Once begun it is finished, even when the caller is cancelled meanwhile.
        """
        return await self.begin(work)

    def begin(self, work: Callable[[RunnerMailbox], T]) -> asyncio.Future[T]:
        """Have the work done; its result or failure comes later."""
        return self._hand_in(lambda: self._do(work))

    def post(self, what: str, work: Callable[[RunnerMailbox], object]) -> None:
        """Have the work done in its turn, without waiting; a failure is logged and counted."""

        def do() -> None:
            try:
                self._do(work)
            except Exception:  # noqa: BLE001 - nobody waits for it: this is where it is told
                self.failures += 1
                _LOG.exception("could not write %s to the mailbox", what)

        self._work.put(do)

    async def close(self) -> None:
        """Finish what was handed in and close the files."""

        def end() -> None:
            if self._mailbox is not None:
                self._mailbox.close()
                self._mailbox = None

        await self._hand_in(end)
        self._work.put(None)
        self._thread.join()

    def _hand_in(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def do() -> None:
            if answer.cancelled():
                return
            result: T | None = None
            problem: BaseException | None = None
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
                problem = error
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_tell, answer, result, problem)

        self._work.put(do)
        return answer

    def _do(self, work: Callable[[RunnerMailbox], T]) -> T:
        if self._mailbox is None:
            raise RuntimeError("the mailbox is not open")
        return work(self._mailbox)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # it may hold on to a whole turn


def _tell(answer: asyncio.Future[Any], result: object, problem: BaseException | None) -> None:
    if answer.cancelled():
        return
    if problem is None:
        answer.set_result(result)
    else:
        answer.set_exception(problem)
