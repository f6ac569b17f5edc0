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
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.add(waiter)
        late = None if timeout is None else loop.call_later(timeout, _stop_waiting, waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if late is not None:
                late.cancel()
        return self.count != seen


def _stop_waiting(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


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
        self._line = RunnerBell(on_ring=pulse.beat, on_gone=self._host_gone)
        self._calling: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return not self._line.closed

    async def start(self) -> None:
        """Try to connect once; without a host, keep at it in the background."""
        if not await self._connect():
            self._call()

    def ring(self) -> None:
        """Tell the host that something was written, from any thread; without a host nothing happens."""
        self._line.ring()

    async def close(self) -> None:
        if self._calling is not None:
            self._calling.cancel()
            await asyncio.wait({self._calling})
        await self._line.close()

    async def _connect(self) -> bool:
        try:
            await self._line.connect(self._folder)
        except (OSError, JackfieldError) as problem:
            _LOG.debug("no host at the doorbell: %s", problem)
            return False
        return True

    def _host_gone(self) -> None:
        _LOG.info("the host is gone from the doorbell")
        self._pulse.beat()
        self._call()

    def _call(self) -> None:
        self._calling = asyncio.create_task(self._until_answered(), name="doorbell")

    async def _until_answered(self) -> None:
        while True:
            await self._clock.sleep(self._poll)
            if await self._connect():
                # What was written while nobody listened is told now.
                self._line.ring()
                self._pulse.beat()
                return
