"""The doorbell, kept connected, and the pulse that wakes whoever waits for news."""

from __future__ import annotations

import asyncio
import logging

from jackfield.clock import Clock
from jackfield.errors import JackfieldError
from jackfield.mailbox import RunnerBell, SessionFolder

__all__ = ["Bell", "Pulse"]

_LOG = logging.getLogger(__name__)


class Pulse:
    """A counter that can be waited on: nobody misses a beat that came between looking and waiting."""

    def __init__(self) -> None:
        self.count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def beat(self) -> None:
        """Something may have happened: everyone looks again."""
        self.count += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    async def wait(self, seen: int, timeout: float | None) -> bool:
        """Wait until the count differs from `seen`; False when `timeout` seconds passed before."""
        if self.count != seen:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return self.count != seen
        finally:
            self._waiters.discard(waiter)
        return True


class Bell:
    """Rings the host and beats the pulse when the host rings.

    A host that is gone is no reason to stop: the bell is tried again every `poll` seconds, so that a restarted host can
    adopt this runner.
    """

    def __init__(self, folder: SessionFolder, pulse: Pulse, clock: Clock, poll: float) -> None:
        self._folder = folder
        self._pulse = pulse
        self._clock = clock
        self._poll = max(0.05, poll)
        self._line: RunnerBell | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._line is not None and not self._line.closed

    async def start(self) -> None:
        """Try to connect once, then keep at it in the background."""
        await self._connect()
        self._task = asyncio.create_task(self._keep(), name="doorbell")

    def ring(self) -> None:
        """Tell the host that something was written; without a host nothing happens."""
        if self._line is not None and not self._line.closed:
            self._line.ring()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._line is not None:
            await self._line.close()
            self._line = None

    async def _connect(self) -> None:
        line = RunnerBell()
        try:
            await line.connect(self._folder)
        except (OSError, JackfieldError) as problem:
            _LOG.debug("no host at the doorbell: %s", problem)
            await line.close()
            return
        self._line = line

    async def _keep(self) -> None:
        while True:
            line = self._line
            if line is None:
                await self._clock.sleep(self._poll)
                await self._connect()
                if self._line is not None:
                    # What was written while nobody listened is told now.
                    self._line.ring()
                    self._pulse.beat()
                continue
            if await line.wait(60.0):
                self._pulse.beat()
            if line.closed:
                _LOG.info("the host is gone from the doorbell")
                await line.close()
                self._line = None
                self._pulse.beat()
