"""Waiting for what must happen, with a bound that only a hang reaches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["BOUND", "Changes", "let_run", "soon", "until"]

T = TypeVar("T")

BOUND = 30.0
"""Seconds after which something that must happen counts as hung."""
_POLL = 0.02


async def soon(work: Awaitable[T], what: str, bound: float | None = None) -> T:
    """The result of something that must come.

    Raises:
        AssertionError: it did not within `bound` seconds, `BOUND` without it.
    """
    bound = BOUND if bound is None else bound
    try:
        return await asyncio.wait_for(work, bound)
    except TimeoutError:
        raise AssertionError(f"waited {bound:g} s in vain for {what}") from None


async def until(condition: Callable[[], bool], what: str, bound: float | None = None) -> None:
    """Ask again and again about something that tells nobody when it changes: a file, a process.

    Raises:
        AssertionError: it did not come true within `bound` seconds.
    """

    async def ask() -> None:
        while not condition():  # noqa: ASYNC110 - nobody tells when it changes
            await asyncio.sleep(_POLL)

    await soon(ask(), what, bound)


async def let_run() -> None:
    """Let everything in this event loop run that could run without anything from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


class Changes:
    """Tells those who wait for a condition when they should look again."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def tell(self) -> None:
        for event in self._waiting:
            event.set()

    async def until(self, condition: Callable[[], bool], what: str, bound: float | None = None) -> None:
        """Return when the condition holds.

        Raises:
            AssertionError: it did not within `bound` seconds.
        """
        bound = BOUND if bound is None else bound
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(bound):
                while not condition():
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise AssertionError(f"waited {bound:g} s in vain for {what}") from None
        finally:
            self._waiting.discard(changed)
