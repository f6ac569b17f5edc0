"""Forgetting what has had its end for long enough (architecture 5, rule 2): events, deliveries, mailbox rows, spool."""

from __future__ import annotations

import asyncio
import logging
import sqlite3

from jackfield.clock import UnixMs
from jackfield.host.hub import Hub
from jackfield.host.spool import Spool
from jackfield.store import deliveries, events, wirings

__all__ = ["Retention"]

log = logging.getLogger(__name__)

EVERY = 3600.0


class Retention:
    """`sweep` may be called each minute; it works once an hour."""

    def __init__(self, hub: Hub, spool: Spool) -> None:
        self._hub = hub
        self._spool = spool
        self._last = -EVERY

    async def sweep(self) -> None:
        if self._hub.clock.monotonic() - self._last < EVERY:
            return
        self._last = self._hub.clock.monotonic()
        now = self._hub.clock.now()
        before = UnixMs(now - self._hub.settings.keep_days * 86_400_000)

        def forget(db: sqlite3.Connection) -> int:
            wirings.expire_sticky(db, now)
            return events.prune_events(db, before) + deliveries.prune_deliveries(db, before)

        # In bites, so that no message waits behind a long transaction.
        while await self._hub.store.write(forget):
            await self._hub.clock.sleep(0.05)
        await asyncio.to_thread(self._spool.forget_before, before / 1000)
