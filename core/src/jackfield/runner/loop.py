"""The life of a runner: heartbeat, doorbell, then batch after batch until it is idle, told to stop, or replaced.

Nothing here imports the plugin API or a plugin: those come in a worker thread, after the first heartbeat.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jackfield.clock import Clock, UnixMs
from jackfield.errors import MailboxBlocked, MailboxError, PluginBroken
from jackfield.mailbox import RunnerMailbox, SessionFolder
from jackfield.models import Ack, AckStatus, RunnerSpec, TurnError
from jackfield.runner.bell import Bell, Pulse
from jackfield.runner.board import Board
from jackfield.runner.heartbeat import Heartbeat
from jackfield.runner.intake import Fence, Taken, take
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.secrets import Secrets

if TYPE_CHECKING:
    from jackfield.runner.agent import Agent
    from jackfield.runner.loading import Engine

__all__ = ["Runner"]

_LOG = logging.getLogger(__name__)
_LEAVE_SECONDS = 8.0
_CLAIM_RING = 1.0
"""Seconds after which the host is told of a claim; a turn that is over sooner tells it with its end."""
_CALM = 0.05
"""Seconds for which a runner that left no row behind listens before it looks again: whatever came since has rung."""
_BLOCKED_TRIES = 10
_FORGET_EVERY = 3600.0
"""Seconds between two looks for rows that may be deleted."""
_REPLACED = UnixMs(-1)
"""Instead of a due time: the session has a later runner."""


class Runner:
    """One session's runner.  `run` gives the process's exit code."""

    def __init__(self, folder: SessionFolder, spec: RunnerSpec, clock: Clock, secrets: Secrets | None = None) -> None:
        self._spec = spec
        self._secrets = secrets if secrets is not None else Secrets()
        self._folder = folder
        self._clock = clock
        self._limits = spec.limits
        self._group = Path(spec.paths.group)
        self._mail = MailRoom(folder, spec.epoch, clock)
        self._pulse = Pulse()
        self._bell = Bell(folder, self._pulse, clock, spec.limits.poll)
        self._heartbeat = Heartbeat(folder, clock, spec.limits.heartbeat)
        self._board = Board(self._mail, clock, self._bell.ring)
        self._fence = Fence(folder, spec.epoch)
        self._stopping = False
        self._stop: asyncio.Future[None]
        """Done once the runner is told to stop; made by `run`, which has the event loop."""
        self._first = True
        self._forgot_at = clock.monotonic()
        self._loading: asyncio.Task[Agent] | None = None

    async def run(self) -> int:
        """Live.

        Raises:
            MailboxFormat: the mailbox has a format that this version doesn't read.
            MailboxError: it can't be opened, or written for longer than a moment.
        """
        loop = asyncio.get_running_loop()
        self._stop = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)
        await self._mail.open()
        self._heartbeat.start()
        self._heartbeat.touch()
        await self._bell.start()
        self._loading = asyncio.create_task(self._load(), name="load the provider")
        try:
            await self._live()
        finally:
            await self._wind_down()
        return 0

    # ---- living

    async def _live(self) -> None:
        idle_since = self._clock.monotonic()
        blocked = seen = 0
        calm = False
        while not self._stopping:
            agent = self._loaded()
            if agent is not None and agent.has_news:
                await self._watch(agent, asyncio.create_task(agent.hear(), name="turn"))
                idle_since = self._clock.monotonic()
                continue
            if calm:
                calm = False
                await self._pulse.wait(seen, _CALM)
                continue
            seen = self._pulse.count
            now = self._clock.now()
            claim: asyncio.Future[UnixMs | None] | None = None
            try:
                found, claim = await self._take(now)
                if isinstance(found, Taken):
                    await self._see_through(found, claim)
            except MailboxBlocked as problem:
                if claim is not None and not _failed_with(claim, problem):
                    raise
                blocked += 1
                if blocked > _BLOCKED_TRIES:
                    raise
                _LOG.warning("the mailbox is held by somebody (%d): %s", blocked, problem)
                await self._pulse.wait(seen, self._limits.poll or 1.0)
                continue
            blocked = 0
            if found is _REPLACED:
                _LOG.warning("a later runner has this session; this one ends")
                return
            if isinstance(found, Taken):
                idle_since = self._clock.monotonic()
                calm = not found.more
                continue
            idle = self._clock.monotonic() - idle_since
            if self._limits.idle_exit and idle >= self._limits.idle_exit:
                _LOG.info("idle for %.0f s: done", idle)
                return
            if self._clock.monotonic() - self._forgot_at >= _FORGET_EVERY:
                await self._forget_old()
            await self._pulse.wait(seen, self._pause(found, now, idle))

    async def _take(self, now: UnixMs) -> tuple[Taken | UnixMs | None, asyncio.Future[UnixMs | None]]:
        """The next batch in one step of the mailbox's thread, and its claim, which is still on its way to the disk.

        Nothing may follow from the batch but what a failed claim can take back, until the claim is done.
        """
        first, self._first = self._first, False
        limit, group = self._limits.messages_per_prompt, self._group
        loop = asyncio.get_running_loop()
        chosen: asyncio.Future[Taken | None] = loop.create_future()

        def settle(taken: Taken | None) -> None:
            if not chosen.done():
                chosen.set_result(taken)

        def choose(taken: Taken) -> None:
            loop.call_soon_threadsafe(settle, taken)

        def work(mailbox: RunnerMailbox) -> UnixMs | None:
            if self._fence.superseded():
                return _REPLACED
            return take(mailbox, now, limit, group, first=first, chosen=choose)

        claim = self._mail.begin(work)
        claim.add_done_callback(lambda _: settle(None))
        taken = await chosen
        return claim.result() if taken is None else taken, claim

    async def _see_through(self, taken: Taken, claim: asyncio.Future[UnixMs | None]) -> None:
        told = asyncio.get_running_loop().call_later(_CLAIM_RING, self._bell.ring)
        try:
            await self._serve(taken, claim)
        finally:
            told.cancel()

    def _pause(self, due: int | None, now: int, idle: float) -> float:
        """How long to wait for the bell: the poll, the next due row, or the idle exit, whichever is first."""
        pause = self._limits.poll or 60.0
        if due is not None:
            pause = min(pause, max(0.0, (due - now) / 1000))
        if self._limits.idle_exit:
            pause = min(pause, self._limits.idle_exit - idle)
        return max(0.001, pause)

    async def _forget_old(self) -> None:
        """Delete what the host let go of, in bites; what can't be deleted now goes another time."""
        self._forgot_at = self._clock.monotonic()
        try:
            while await self._mail.run(lambda mailbox: mailbox.prune()) and not self._stopping:
                pass
        except MailboxError as problem:
            _LOG.warning("old rows stay for now: %s", problem)

    async def _serve(self, taken: Taken, claim: asyncio.Future[UnixMs | None]) -> None:
        if self._loaded() is None:
            await claim  # there is nothing to do meanwhile
        try:
            agent = await self._agent()
        except PluginBroken as broken:
            await self._refuse(taken, broken)
            return
        if agent is None:
            await self._acknowledge(taken, AckStatus.RELEASED)
            return
        await self._watch(agent, asyncio.create_task(agent.answer(taken, claim), name="turn"))

    async def _watch(self, agent: Agent, work: asyncio.Task[None]) -> None:
        """See the work through, and hurry it when the runner is told to stop."""
        await asyncio.wait({work, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await agent.leave()
            await asyncio.wait({work}, timeout=_LEAVE_SECONDS)
            if not work.done():
                _LOG.error("the turn does not end; its messages stay claimed by this runner")
                work.cancel()
                await asyncio.wait({work})
        if not work.cancelled():
            work.result()

    async def _refuse(self, taken: Taken, broken: PluginBroken) -> None:
        """The agent can't be set up: the rows end with an error that the host shows."""
        error = TurnError(
            kind="config",
            message=str(broken) + (f" ({broken.fix})" if broken.fix else ""),
            scope="session",
            message_for_user="This agent is not set up correctly; its operator has been told.",
        )
        await self._acknowledge(taken, AckStatus.FAILED, error)

    async def _acknowledge(self, taken: Taken, status: AckStatus, error: TurnError | None = None) -> None:
        now = self._clock.now()
        acks = [
            Ack(
                message_id=row.id,
                status=status,
                attempt=row.attempt,
                epoch=self._spec.epoch,
                at=now,
                turn=taken.turn,
                error=error,
            )
            for row in taken.batch.all_rows
        ]
        await self._mail.run(lambda mailbox: mailbox.write(acks=acks))
        self._bell.ring()

    # ---- loading

    async def _load(self) -> Agent:
        """Import the plugin API and the group's plugins in a thread, so that the heart goes on beating."""

        def fetch() -> tuple[type[Agent], Engine]:
            agent = importlib.import_module("jackfield.runner.agent")
            loading = importlib.import_module("jackfield.runner.loading")
            return agent.Agent, loading.load_engine(self._spec, self._secrets)

        made, engine = await asyncio.to_thread(fetch)
        return made(
            self._spec, engine, self._mail, self._clock, self._bell, self._pulse, self._board, self._heartbeat,
            self._secrets,
        )  # fmt: skip

    async def _agent(self) -> Agent | None:
        """The agent, once it is loaded; None when the runner is told to stop before.  A load that failed is tried again
        with the next batch.

        Raises:
            PluginBroken: the provider or a tool set can't be loaded.
        """
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="load the provider")
        loading = self._loading
        if not loading.done():
            either: set[asyncio.Future[Any]] = {loading, self._stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not loading.done():
                return None
        problem = loading.exception()
        if problem is None:
            return loading.result()
        _LOG.error("the agent could not be loaded", exc_info=problem)
        self._loading = None
        if isinstance(problem, PluginBroken):
            raise problem
        raise PluginBroken(self._spec.provider, "load", repr(problem)) from problem

    def _loaded(self) -> Agent | None:
        loading = self._loading
        if loading is None or not loading.done() or loading.cancelled() or loading.exception() is not None:
            return None
        return loading.result()

    # ---- ending

    def _told_to_stop(self) -> None:
        self._stopping = True
        if not self._stop.done():
            self._stop.set_result(None)
        self._pulse.beat()

    async def _wind_down(self) -> None:
        agent = self._loaded()
        if agent is not None:
            await agent.close()
        elif self._loading is not None:
            self._loading.cancel()
            await asyncio.wait({self._loading})
            if not self._loading.cancelled():
                self._loading.exception()
        state, activity = self._board.settle()
        try:
            await self._mail.run(lambda mailbox: mailbox.write(state=state, activity=activity))
        except MailboxError as problem:
            _LOG.warning("could not write the last state: %s", problem)
        self._bell.ring()
        await self._forget_old()
        await self._bell.close()
        await self._heartbeat.close()
        await self._mail.close()


def _failed_with(work: asyncio.Future[Any], problem: Exception) -> bool:
    return work.done() and not work.cancelled() and work.exception() is problem
