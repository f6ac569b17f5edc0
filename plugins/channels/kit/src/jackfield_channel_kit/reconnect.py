"""Connections that come back: waits that grow, states that are reported, silence that is noticed (C234, C236)."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from jackfield.clock import Clock
from jackfield.errors import AuthFailed, ChannelError, RateLimited, Transient
from jackfield.models import ChannelState, ChannelStatus

__all__ = ["Connect", "Watchdog", "supervise"]

log = logging.getLogger(__name__)

T = TypeVar("T")

Connect = Callable[[Callable[[], None]], Awaitable[None]]
"""`connect(ready)`: connect, call `ready()` once it works (again and again does no harm), and stay until the
connection ends; then return, or raise why."""


async def supervise(
    connect: Connect,
    report: Callable[[ChannelStatus], None],
    *,
    clock: Clock,
    first: float = 1.0,
    most: float = 60.0,
    stable: float = 60.0,
    fatal: tuple[type[BaseException], ...] = (AuthFailed,),
    random: Callable[[], float] = random.random,
) -> None:
    """Keep a connection: run `connect` again and again until it fails with one of `fatal`.  Times are seconds.

    After the n-th failure in a row it waits between half and the whole of `first` x 2^(n-1), at most `most`; a
    `RateLimited` at least as long as it says.  A connection that was ready for `stable` seconds begins the count
    anew.  Reports READY when `ready` is called, RECONNECTING with the reason before each wait, AUTH_FAILED before it
    returns.  Give it to `context.spawn`: cancelling it cancels `connect`.
    """
    failures = 0
    while True:
        since: float | None = None

        def ready() -> None:
            nonlocal since
            if since is None:
                since = clock.monotonic()
                report(ChannelStatus(state=ChannelState.READY))

        least = 0.0
        try:
            await connect(ready)
            reason = "the connection ended"
        except fatal as problem:
            report(ChannelStatus(state=ChannelState.AUTH_FAILED, detail=str(problem)))
            return
        except (ChannelError, OSError) as problem:
            reason = str(problem) or type(problem).__name__
            least = problem.retry_after if isinstance(problem, RateLimited) else 0.0
        except Exception as problem:
            log.exception("the connection failed in a way that nobody expected")
            reason = f"{type(problem).__name__}: {problem}"
        if since is not None and clock.monotonic() - since >= stable:
            failures = 0
        failures += 1
        wait = max(least, backoff(failures, first, most, random()))
        tries = f" ({failures} in a row)" if failures > 1 else ""
        report(ChannelStatus(state=ChannelState.RECONNECTING, detail=f"{reason}{tries}; next try in {wait:.0f} s"))
        await clock.sleep(wait)


def backoff(failures: int, first: float, most: float, chance: float) -> float:
    """Seconds to wait after so many failures in a row; `chance` in [0, 1) spreads those who failed together."""
    return min(most, first * 2.0 ** min(failures - 1, 60)) * (0.5 + chance / 2)


class Watchdog:
    """Notices a connection that is open and says nothing for `silence` seconds: a socket whose other end is gone."""

    def __init__(self, silence: float, *, clock: Clock) -> None:
        self._silence = silence
        self._clock = clock
        self._heard = clock.monotonic()

    def heard(self) -> None:
        """Something came: a message, a pong, an answer to a poll."""
        self._heard = self._clock.monotonic()

    async def guard(self, work: Awaitable[T]) -> T:
        """Run the reader of a connection; its result.

        Raises:
            Transient: nothing was heard for too long; the work was cancelled.
        """
        self.heard()
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Transient(f"nothing was heard for {self._silence:g} s")
        finally:
            for one in (task, watch):
                one.cancel()
            await asyncio.gather(task, watch, return_exceptions=True)

    async def _watch(self) -> None:
        while (left := self._heard + self._silence - self._clock.monotonic()) > 0:
            await self._clock.sleep(left)
