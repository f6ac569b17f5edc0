"""The runner's mailbox on its one thread: SQLite and disk never hold up the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from jackfield.clock import Clock
from jackfield.mailbox import RunnerMailbox, SessionFolder

__all__ = ["MailRoom"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class MailRoom:
    """Runs pieces of work with the mailbox, one after the other, in the order in which they were handed in."""

    def __init__(self, folder: SessionFolder, epoch: int, clock: Clock) -> None:
        self.folder = folder
        self.failures = 0
        """How often work that nobody waits for has failed."""
        self._epoch = epoch
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mailbox")
        self._mailbox: RunnerMailbox | None = None

    async def open(self) -> None:
        """Open the mailbox's files.

        Raises:
            MailboxError: a file is damaged, or of a format that this version doesn't read.
        """

        def begin() -> None:
            self._mailbox = RunnerMailbox(self.folder, self._epoch, self._clock)

        await asyncio.get_running_loop().run_in_executor(self._thread, begin)

    async def run(self, work: Callable[[RunnerMailbox], T]) -> T:
        """Do the work in the mailbox's thread and give back its result.

        Once begun it is finished, even when the caller is cancelled meanwhile.
        """
        return await asyncio.wrap_future(self._thread.submit(self._do, work))

    def post(self, what: str, work: Callable[[RunnerMailbox], object]) -> None:
        """Have the work done in its turn, without waiting; a failure is logged and counted."""

        def finished(future: Future[object]) -> None:
            problem = future.exception()
            if problem is not None:
                self.failures += 1
                _LOG.error("could not write %s to the mailbox", what, exc_info=problem)

        self._thread.submit(self._do, work).add_done_callback(finished)

    async def close(self) -> None:
        """Finish what was handed in and close the files."""

        def end() -> None:
            if self._mailbox is not None:
                self._mailbox.close()
                self._mailbox = None

        await asyncio.get_running_loop().run_in_executor(self._thread, end)
        self._thread.shutdown(wait=True)

    def _do(self, work: Callable[[RunnerMailbox], T]) -> T:
        if self._mailbox is None:
            raise RuntimeError("the mailbox is not open")
        return work(self._mailbox)
