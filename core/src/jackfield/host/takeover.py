"""What a runner that is gone left behind: its last rows are collected, what it held is released.

After a runner's end that happens at once; for what an earlier host's runners left, before the session's first launch in
this life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from jackfield.errors import NotFound, RecoveryNeeded
from jackfield.host.collect import Collector
from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher
from jackfield.host.streams import Streams
from jackfield.host.supervisor import Runner
from jackfield.host.unfinished import Unfinished
from jackfield.ids import SessionId
from jackfield.models import Session
from jackfield.store import groups

__all__ = ["Takeover"]

log = logging.getLogger(__name__)


class Takeover:
    def __init__(
        self,
        hub: Hub,
        launcher: Launcher,
        collector: Collector,
        unfinished: Unfinished,
        streams: Streams,
        *,
        nudge: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._launcher = launcher
        self._collector = collector
        self._unfinished = unfinished
        self._streams = streams
        self._nudge = nudge
        self._settled: set[SessionId] = set()
        """Sessions of which nothing is left from an earlier life."""

    def adopted(self, sessions: Iterable[Session]) -> None:
        """Their runners live on: what they hold stays theirs."""
        self._settled.update(session.id for session in sessions)

    async def before_launch(self, session: Session) -> None:
        """The first time in this life: take over what an earlier runner committed, and release what it held.

        Raises:
            MailboxError, StoreError: it can't be done now; call again.
        """
        if session.id in self._settled:
            return
        folder = self._hub.folder_of(session)
        if folder.outbound_db.exists():
            try:
                everything = await self._collector.collect(session.id)
            except RecoveryNeeded:
                await self._recover(session)
                everything = await self._collector.collect(session.id)
            if not everything:
                return  # among the rest may be what ends a claim; so that comes before its launch, but beside the start
        await self._unfinished.release_claims(session)
        self._nudge()
        self._collector.forget(session.id)
        self._settled.add(session.id)

    async def after_end(self, runner: Runner) -> bool:
        """A runner of this life ended; whether there is work for another one.

        Raises:
            RecoveryNeeded, MailboxError: its rows can't be read as they are.
        """
        everything = await self._collector.collect(runner.session.id)
        await self._streams.abort(runner.session.id)
        if not everything:
            return True  # the next host takes the rest, and then releases what is still claimed
        released = await self._unfinished.release_claims(runner.session)
        runner.worked = released.held or bool(runner.claims)
        self._nudge()
        self._collector.forget(runner.session.id)
        return released.ready

    async def _recover(self, session: Session) -> None:
        group = await self._hub.store.read(groups.agent_group, session.agent_group_id)
        if group is None:
            raise NotFound(f"agent group {session.agent_group_id} does not exist any more")
        runtime = await asyncio.to_thread(self._launcher.runtime, self._hub.agent_settings(group).runtime)
        log.info("rolling back the last transaction of session %s", session.id)
        await runtime.recover(self._launcher.place_of(session, group))
