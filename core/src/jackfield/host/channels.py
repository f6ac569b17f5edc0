"""The configured channel instances: started, watched, stopped, each on its own.

A channel that fails, hangs or blocks in `start` never keeps the host from becoming ready (C185); it is tried again with
growing waits, but for one whose credentials are refused, which waits for the operator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from jackfield.api import Accepted, Channel, ChannelContext, ChannelInfo, ChannelType, Cursor, ServesRoutes
from jackfield.clock import Clock
from jackfield.config import ChannelSection
from jackfield.errors import AuthFailed, ConfigError, JackfieldError
from jackfield.host.hub import Hub
from jackfield.host.ingress import Ingress, mount_points
from jackfield.host.logs.records import bind
from jackfield.host.settings_of import validated
from jackfield.models import AGENT_CHANNEL, Address, ChannelState, ChannelStatus, Event
from jackfield.store import events

__all__ = ["ChannelDirectory", "ChannelInstance", "EventSink"]

log = logging.getLogger(__name__)

START_DEADLINE = 20.0
"""Seconds after which the host goes on without a channel that still starts."""
STOP_DEADLINE = 2.0
SETTLED = 60.0
"""Seconds after which a channel that ran is not counted as failing again and again."""
RESTART_WAITS = (2.0, 5.0, 10.0, 30.0, 60.0, 300.0)

_OPEN = (ChannelState.READY, ChannelState.DEGRADED)


class EventSink(Protocol):
    """Where accepted events go; the intake."""

    async def accept(self, instance: ChannelInstance, event: Event, cursor: Cursor | None) -> Accepted: ...


class ChannelInstance:
    """One `[channels.<name>]` table, alive.  `ready` is set while messages can be sent."""

    def __init__(
        self,
        hub: Hub,
        name: str,
        section: ChannelSection,
        on_ready: Callable[[ChannelInstance], None],
        ingress: Ingress,
    ) -> None:
        self.name = name
        self.section = section
        self.info: ChannelInfo | None = None
        self.channel: Channel | None = None
        self.status = ChannelStatus(state=ChannelState.STARTING)
        self.ready = asyncio.Event()
        self.failures = 0
        self._hub = hub
        self._on_ready = on_ready
        self._ingress = ingress
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = 0.0
        self._failed_before = 0
        self.serves = False
        """Whether it has routes in the ingress."""
        self._restart: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._again: asyncio.Task[None] | None = None
        self._lost: BaseException | None = None

    @property
    def type(self) -> str:
        return self.section.type

    def report(self, status: ChannelStatus) -> None:
        """The channel's state changed."""
        if status.state != self.status.state:
            level = logging.INFO if status.state in (*_OPEN, ChannelState.STOPPED) else logging.WARNING
            log.log(level, "channel %s is %s%s", self.name, status.state, f": {status.detail}" if status.detail else "")
        self.status = status
        if status.state in _OPEN:
            if not self.ready.is_set():
                self.ready.set()
                self._on_ready(self)
        else:
            self.ready.clear()

    async def run(self, sink: EventSink, wake: Callable[[Address], None]) -> None:
        """Create, start and keep the channel; returns when it runs, or when trying again makes no sense."""
        bind(channel=self.name)
        while True:
            try:
                self._lost = None
                await self._start_once(sink, wake)
                if self._lost is None:
                    self._restart = partial(self._run_again, sink, wake)
                    return
                self._failed(self._lost)
            except AuthFailed as problem:
                self.report(ChannelStatus(state=ChannelState.AUTH_FAILED, detail=str(problem)))
                return
            except (ConfigError, JackfieldError) as problem:
                self._failed(problem)
                if isinstance(problem, ConfigError):
                    return
            except Exception as problem:
                log.exception("channel %s failed to start", self.name)
                self._failed(problem)
            await self._rest()

    async def _run_again(self, sink: EventSink, wake: Callable[[Address], None]) -> None:
        await self._rest()
        await self.run(sink, wake)

    async def _rest(self) -> None:
        await self._quit()
        wait = RESTART_WAITS[min(self.failures, len(RESTART_WAITS)) - 1]
        log.info("channel %s is tried again in %g s", self.name, wait)
        await self._hub.clock.sleep(wait)

    async def _start_once(self, sink: EventSink, wake: Callable[[Address], None]) -> None:
        kind: ChannelType = await asyncio.to_thread(self._hub.plugins.channel_type, self.type)
        self.info = kind.info
        settings = validated(kind.settings, self.section.settings, f"[channels.{self.name}]")
        channel = kind.create(self.name, settings)
        self.channel = channel
        self.report(ChannelStatus(state=ChannelState.STARTING))
        context: ChannelContext = _Context(self._hub, self, sink, wake)
        await self._serve(channel)
        try:
            await channel.start(context)
        except BaseException:
            self._ingress.unmount(self.name)
            raise
        if self.status.state is ChannelState.STARTING:
            self.report(ChannelStatus(state=ChannelState.READY))
        self._started = self._hub.clock.monotonic()
        self._failed_before, self.failures = self.failures, 0

    async def _serve(self, channel: Channel) -> None:
        """Mount its routes.  They are served from before `start`: a platform may call back while it is being told."""
        routes = channel.http_routes() if isinstance(channel, ServesRoutes) else ()
        if routes:
            self.serves = True
            points = mount_points(self.name, routes)
            await self._ingress.open()
            self._ingress.mount(self.name, points)

    def _failed(self, problem: BaseException) -> None:
        self.failures += 1
        self._hub.trouble(f"channel {self.name}")
        detail = str(problem) or type(problem).__name__
        if isinstance(problem, JackfieldError) and problem.fix:
            detail = f"{detail}; {problem.fix}"
        self.report(ChannelStatus(state=ChannelState.FAILED, detail=detail))

    def route_url(self, path: str) -> str | None:
        return self._ingress.route_url(self.name, path) if self.serves else None

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._hub.spawn(work, f"channel {self.name}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A task that failed may be the one that listens; nobody else would notice, so the channel starts anew."""
        self._tasks.discard(task)
        if task.cancelled() or (problem := task.exception()) is None:
            return
        restart, self._restart = self._restart, None
        if restart is None:
            self._lost = problem  # while it starts, ends or starts anew already
            return
        if self._hub.clock.monotonic() - self._started < SETTLED:
            self.failures = self._failed_before
        self._failed(problem)
        self._again = self._hub.spawn(restart(), f"channel {self.name}")

    async def stop(self) -> None:
        """Stop within 2 s, also when the adapter hangs."""
        self._restart = None
        if self._again is not None:
            self._again.cancel()
        await self._quit()
        self.report(ChannelStatus(state=ChannelState.STOPPED))

    async def _quit(self) -> None:
        channel, self.channel = self.channel, None
        self.ready.clear()
        self._ingress.unmount(self.name)
        if channel is not None:
            try:
                async with asyncio.timeout(STOP_DEADLINE):
                    await channel.stop()
            except TimeoutError:
                log.warning("channel %s did not stop within %g s; going on without it", self.name, STOP_DEADLINE)
            except Exception:
                self._hub.trouble(f"channel {self.name}")
                log.exception("channel %s failed to stop", self.name)
        for task in list(self._tasks):
            task.cancel()


class _Context:
    """`ChannelContext` for one instance."""

    def __init__(self, hub: Hub, instance: ChannelInstance, sink: EventSink, wake: Callable[[Address], None]) -> None:
        self._hub = hub
        self._instance = instance
        self._sink = sink
        self._wake = wake

    @property
    def instance(self) -> str:
        return self._instance.name

    @property
    def clock(self) -> Clock:
        return self._hub.clock

    @property
    def folder(self) -> Path:
        folder = self._hub.home.root / "channels" / self._instance.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        return await self._sink.accept(self._instance, event, cursor)

    async def cursor(self, key: str) -> str | None:
        return await self._hub.store.read(events.get_cursor, self._instance.type, self._instance.name, key)

    async def secret(self, name: str) -> str | None:
        return self._hub.vault.find(name)

    def route_url(self, path: str = "") -> str | None:
        return self._instance.route_url(path)

    def report(self, status: ChannelStatus) -> None:
        self._instance.report(status)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._instance.spawn(work, name)

    def wake(self, address: Address) -> None:
        self._wake(address)


class ChannelDirectory:
    """All instances by name.  `on_ready` is told which one can send again."""

    def __init__(
        self,
        hub: Hub,
        *,
        on_ready: Callable[[ChannelInstance], None],
        wake: Callable[[Address], None],
    ) -> None:
        self._hub = hub
        self._on_ready = on_ready
        self._wake = wake
        self.ingress = Ingress(hub)
        self._instances: dict[str, ChannelInstance] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._agents: ChannelInstance | None = None

    def join_agents(self, line: Channel) -> None:
        """Deliver what agents write to each other by this channel, which no configuration names."""
        section = ChannelSection(AGENT_CHANNEL, AGENT_CHANNEL)
        self._agents = ChannelInstance(self._hub, AGENT_CHANNEL, section, lambda instance: None, self.ingress)
        self._agents.channel = line
        self._agents.report(ChannelStatus(state=ChannelState.READY))

    def instance(self, channel_type: str, name: str) -> ChannelInstance | None:
        """The instance of that name, if it is of that type."""
        found = self._agents if channel_type == name == AGENT_CHANNEL else self._instances.get(name)
        return found if found is not None and found.type == channel_type else None

    def all(self) -> Iterable[ChannelInstance]:
        return tuple(self._instances.values())

    async def start(self, sink: EventSink) -> None:
        """Start every enabled instance side by side; returns when each runs, failed, or took too long."""
        for name, section in self._hub.configuration.channels.items():
            if section.enabled:
                self._begin(name, section, sink)
        await self._wait_for(self._starting.values())

    async def reload(self, sink: EventSink) -> None:
        """Stop what is gone or changed, start what is new; and again what gave up: its secret may be another now."""
        wanted = {name: section for name, section in self._hub.configuration.channels.items() if section.enabled}
        for name, instance in list(self._instances.items()):
            changed = wanted.get(name) != instance.section or (instance.serves and self.ingress.outdated)
            if changed or instance.status.state in (ChannelState.AUTH_FAILED, ChannelState.FAILED):
                await self._end(name)
        await self.ingress.close_if_unused()
        fresh = [name for name in wanted if name not in self._instances]
        for name in fresh:
            self._begin(name, wanted[name], sink)
        await self._wait_for(self._starting[name] for name in fresh)

    async def stop(self) -> None:
        await asyncio.gather(*(self._end(name) for name in list(self._instances)))
        await self.ingress.close()

    def _begin(self, name: str, section: ChannelSection, sink: EventSink) -> None:
        instance = ChannelInstance(self._hub, name, section, self._on_ready, self.ingress)
        self._instances[name] = instance
        self._starting[name] = self._hub.spawn(instance.run(sink, self._wake), f"channel {name}")

    async def _end(self, name: str) -> None:
        instance = self._instances.pop(name)
        task = self._starting.pop(name, None)
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=STOP_DEADLINE)
        await instance.stop()

    async def _wait_for(self, starting: Iterable[Awaitable[None]]) -> None:
        tasks = [task for task in starting if isinstance(task, asyncio.Task)]
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=START_DEADLINE)
        for task in late:
            log.warning(
                "%s still starts after %g s; the host goes on, it may join later", task.get_name(), START_DEADLINE
            )
