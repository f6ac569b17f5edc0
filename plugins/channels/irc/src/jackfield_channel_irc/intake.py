"""Events on their way to the core, in order.  IRC repeats nothing, so one that can't be stored is tried again."""

from __future__ import annotations

import asyncio
import logging

from jackfield.api import ChannelContext, Cursor
from jackfield.errors import JackfieldError, MalformedData
from jackfield.models import Event

__all__ = ["Intake"]

log = logging.getLogger(__name__)

MOST = 1000
"""Events that wait; with more, nothing is read from the server until the core has caught up."""
LONGEST_WAIT = 30.0


class Intake:
    """Put events in; `run` stores them one after the other."""

    def __init__(self, context: ChannelContext) -> None:
        self._context = context
        self._queue: asyncio.Queue[tuple[Event, Cursor | None]] = asyncio.Queue(MOST)

    async def put(self, event: Event, cursor: Cursor | None = None) -> None:
        """Take an event; waits when too many wait."""
        await self._queue.put((event, cursor))

    async def run(self) -> None:
        while True:
            event, cursor = await self._queue.get()
            await self._store(event, cursor)

    async def _store(self, event: Event, cursor: Cursor | None) -> None:
        wait = 0.5
        while True:
            try:
                await self._context.accept(event, cursor)
            except MalformedData:
                log.exception("an event of %s can't be stored and is dropped", event.address)
            except JackfieldError as problem:
                log.warning("an event of %s is not stored yet: %s; next try in %.1f s", event.address, problem, wait)
                await self._context.clock.sleep(wait)
                wait = min(wait * 2, LONGEST_WAIT)
                continue
            return
