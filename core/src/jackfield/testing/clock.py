"""A clock that a test moves by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from jackfield.clock import UnixMs
from jackfield.testing.waiting import Changes, let_run

__all__ = ["ManualClock"]


class ManualClock:
    """`jackfield.clock.Clock` that stands still until it is told to move.

    `advance` wakes sleepers in the order in which they are due, and lets each do its work before the next moment comes,
    so that a loop that sleeps again and again runs as often as it would have.
    """

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self._now = now
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._changes = Changes()

    def now(self) -> UnixMs:
        return UnixMs(self._now)

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Wait until somebody has moved the clock so far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (self._monotonic + seconds, next(self._numbers), woken)
        heapq.heappush(self._sleepers, entry)
        self._changes.tell()
        try:
            await woken
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)

    @property
    def sleepers(self) -> tuple[float, ...]:
        """In how many seconds each sleeper is due, the nearest first."""
        return tuple(sorted(due - self._monotonic for due, _, _ in self._sleepers))

    async def until_sleeping(self, count: int = 1, *, bound: float | None = None) -> None:
        """Wait, in real time, until so many sleep.

        Raises:
            AssertionError: they did not within `bound` seconds.
        """
        await self._changes.until(lambda: len(self._sleepers) >= count, f"{count} to sleep on the clock", bound)

    async def advance(self, seconds: float) -> None:
        """Let time pass; returns once everybody who was due has run."""
        target = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, woken = heapq.heappop(self._sleepers)
            self._move(due - self._monotonic)
            if not woken.done():
                woken.set_result(None)
            await let_run()
        self._move(target - self._monotonic)
        await let_run()

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; nobody wakes, `monotonic` goes on."""
        self._now += round(seconds * 1000)

    def _move(self, seconds: float) -> None:
        self._monotonic += max(0.0, seconds)
        self._now += round(max(0.0, seconds) * 1000)
