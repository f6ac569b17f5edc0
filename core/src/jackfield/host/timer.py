"""The due-timer: one timer that sleeps until the next due moment (architecture, section 10).

Everything that waits in the store (retries, expiries, parked sessions) is one ordered question to it; what waits only
in memory (a launch that backs off) is asked of `soonest`.  A sweep every 60 s is the safety net: for a nudge that was
missed and for a wall clock that jumped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError
from jackfield.host.hub import Hub
from jackfield.host.wall_clock import WallClock
from jackfield.store import due

__all__ = ["DueTimer"]

log = logging.getLogger(__name__)

SWEEP = 60.0
"""Seconds between two sweeps."""


class DueTimer:
    """Calls every `due` function when something is due, and every `sweep` function each minute.

    A function that raises is logged and counted; the others still run, and it is called again the next time.
    `set_back` is told the seconds by which somebody set the wall clock back: what waits would wait so much longer.
    """

    def __init__(
        self,
        hub: Hub,
        *,
        due: Sequence[Callable[[], Awaitable[None]]],
        sweep: Sequence[Callable[[], Awaitable[None]]],
        soonest: Callable[[], float | None] = lambda: None,
        set_back: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._hub = hub
        self._due = due
        self._sweep = sweep
        self._soonest = soonest
        self._set_back = set_back
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0

    def start(self) -> None:
        self._task = self._hub.spawn(self._run(), "timer")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=5)

    def nudge(self) -> None:
        """Something may be due earlier than the timer knows."""
        self._nudged.set()

    async def _run(self) -> None:
        clock = self._hub.clock
        swept = clock.monotonic()
        wall = WallClock(clock)
        while True:
            self._nudged.clear()
            if (moved := wall.jumped()) < 0:
                await self._call([partial(self._set_back, -moved)] if self._set_back is not None else [])
            wait = SWEEP - (clock.monotonic() - swept)
            next_due = await self._next_due()
            if next_due is not None:
                wait = min(wait, (next_due - clock.now()) / 1000)
            soonest = self._soonest()
            if soonest is not None:
                wait = min(wait, soonest - clock.monotonic())
            if wait > 0:
                try:
                    async with asyncio.timeout(wait):
                        await self._nudged.wait()
                    continue
                except TimeoutError:
                    pass
            self.rounds += 1
            await self._call(self._due)
            if clock.monotonic() - swept >= SWEEP:
                swept = clock.monotonic()
                await self._call(self._sweep)
            # A due row that nobody could move (its mailbox is locked, say) must not make this a busy loop.
            await clock.sleep(0.05)

    async def _next_due(self) -> UnixMs | None:
        try:
            return await self._hub.store.read(due.next_due)
        except JackfieldError:
            self._hub.trouble("timer")
            log.exception("the store could not say what is due next; asking again at the next sweep")
            return None

    async def _call(self, functions: Sequence[Callable[[], Awaitable[None]]]) -> None:
        for function in functions:
            try:
                await function()
            except Exception:
                self._hub.trouble("timer")
                log.exception("timed work failed; it is tried again the next time")
