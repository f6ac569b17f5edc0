"""The sign of life.  It beats on a timer of the event loop, so that it stops when the loop is held up."""

from __future__ import annotations

import asyncio
import logging

from jackfield.clock import Clock
from jackfield.mailbox import SessionFolder

__all__ = ["Heartbeat"]

_LOG = logging.getLogger(__name__)
_SHORTEST = 0.5


class Heartbeat:
    """Touches `heartbeat` every `every` seconds and whenever the provider says something.

    It is bounded by the turn's own limit: a provider that never answers is stopped by that, not by silence
    (messaging.md 9; 17.4, pitfall 37).
    """

    def __init__(self, folder: SessionFolder, clock: Clock, every: float) -> None:
        self._path = folder.heartbeat
        self._clock = clock
        self._every = max(0.1, every)
        self._last = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self.failures = 0

    def touch(self) -> None:
        """Now, but not more often than twice a second: a stream of deltas costs nothing."""
        now = self._clock.monotonic()
        if now - self._last < _SHORTEST:
            return
        self._last = now
        try:
            self._path.touch()
        except OSError as problem:
            self.failures += 1
            if self.failures == 1:
                _LOG.error("could not touch %s: %s", self._path, problem)

    def start(self) -> None:
        self._task = asyncio.create_task(self._beat(), name="heartbeat")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _beat(self) -> None:
        while True:
            self.touch()
            await self._clock.sleep(self._every)
