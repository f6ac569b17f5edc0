"""The running host: its parts started and stopped in order, and what the commands of operators ask of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from jackfield.api import Attaches
from jackfield.config.load import load, remember_good
from jackfield.errors import ConfigError, JackfieldError, NotFound, Unsupported
from jackfield.host.assembly import Assembly
from jackfield.host.control import ServerConnection
from jackfield.host.enabled import load_plugins, prepare_runtimes
from jackfield.host.hub import Hub
from jackfield.host.notices import answer_address
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import (
    Address,
    InboundRow,
    InboundState,
    MessagingGroup,
    Session,
)
from jackfield.store import inbound

__all__ = ["LiveHost"]

log = logging.getLogger(__name__)

INTAKE_GRACE = 5.0
SEND_GRACE = 5.0


class LiveHost(Assembly):
    """See `jackfield.host.application`, which owns its life."""

    def __init__(self, hub: Hub, *, request_stop: Callable[[], None], stop_requested: asyncio.Event) -> None:
        super().__init__(hub)
        self.request_stop = request_stop
        self.stop_requested = stop_requested

    # ---- life

    async def start(self) -> None:
        """Take up what the last life left, connect the channels, and begin."""
        await load_plugins(self.hub)
        await prepare_runtimes(self.hub, self.launcher)
        await self.workshop.collect_garbage()
        await self.creation.recover()
        adopted = await self.supervisor.adopt(self.launcher.runtimes)
        self.takeover.adopted(adopted)
        for session in adopted:
            await self.launcher.adopted(session)
        waiting = await self.unfinished.sessions_with_work()
        for session in waiting:
            try:
                await self.takeover.before_launch(session)
            except JackfieldError as problem:
                self.hub.trouble("start")
                log.warning("what session %s left can't be read yet: %s", session.id, problem)
        self.collector.hurry = False
        await self.delivery.start()
        await self.intake.retake()
        await self.channels.start(self.intake)
        await self.extensions.start()
        self.hub.gateways.settled = True
        self.renewal.renew()  # not before: only now is it known how an agent reaches its model
        await self.approvals.start()
        await self.schedule.start()
        awaited = await self.hub.store.read(inbound.sessions_awaited)
        for session in await self.unfinished.sessions_with_work():
            self.renewal.wake(session, patient=session.id not in awaited)
        self.supervisor.open()
        self.intake.open()
        self.timer.start()

    async def stop(self) -> None:
        self.collector.hurry = True
        await self.intake.close(INTAKE_GRACE)
        await self.timer.stop()
        await self.retention.stop()
        await self.supervisor.close(leave=self.hub.settings.on_stop == "leave")
        await self.delivery.stop(SEND_GRACE)
        await self.extensions.stop()
        await self.channels.stop()
        await self.hub.settle(SEND_GRACE)

    async def reload(self) -> dict[str, Any]:
        """Read `jackfield.toml` again; an invalid one keeps the old.

        Raises:
            ConfigError: it has errors; nothing was changed.
        """
        fresh = await asyncio.to_thread(load, self.hub.home, strict=True, fall_back=False)
        self.hub.configuration = fresh
        await asyncio.to_thread(self.hub.plugins.refresh)
        await load_plugins(self.hub)
        await asyncio.to_thread(remember_good, fresh)
        await self.channels.reload(self.intake)
        self.renewal.renew()
        self.supervisor.forgive()
        await self.parking.forgive()
        await self.intake.retake()
        for session in await self.unfinished.sessions_with_work():
            self._wake_session(session)
        self.nudge()
        log.info("the configuration was read again")
        return {"channels": [instance.name for instance in self.channels.all()], "problems": list(self.problems())}

    def reload_soon(self) -> None:
        """For SIGHUP."""

        async def work() -> None:
            try:
                await self.reload()
            except ConfigError as problem:
                log.error("the configuration stays as it was: %s", problem)

        self.hub.spawn(work(), "reload")

    def problems(self) -> tuple[str, ...]:
        configured = [str(problem) for problem in self.hub.configuration.problems]
        broken = [
            f"plugin {info.name} ({info.kind}) is {info.state}: {info.broken.reason}"
            for info in self.hub.plugins.listing()
            if info.broken is not None
        ]
        return (*configured, *broken)

    # ---- for operations

    def kick(self, destinations: list[str]) -> None:
        self.delivery.kick(destinations)

    def wake(self, session_id: SessionId, group_id: AgentGroupId) -> None:
        self.supervisor.wake(session_id, group_id)

    def renew(self, group_id: AgentGroupId | None = None) -> None:
        self.renewal.renew(group_id)

    async def stop_runner(self, session_id: SessionId, reason: str) -> bool:
        return await self.supervisor.stop(session_id, reason)

    def answer_address(self, session: Session, chat: MessagingGroup | None) -> Address | None:
        return answer_address(session, chat)

    async def enqueue(self, session: Session, row: InboundRow) -> None:
        await self.inbox.use(session, lambda box: box.enqueue([row]))
        await self.hub.store.write(
            inbound.record,
            id=row.id,
            event_id=None,
            wiring_id=None,
            session_id=session.id,
            state=InboundState.QUEUED,
            preview=getattr(row.content, "text", "")[:200],
            now=self.hub.clock.now(),
        )
        self._wake_session(session)

    async def secret_changed(self, name: str) -> None:
        await self.models.secret_changed(name)

    async def tell_askers(self) -> None:
        await self.agents.outcomes.look()

    async def settle_tasks(self) -> None:
        await self.schedule.settle()

    async def reconsider(self) -> None:
        await self.registration.reconsider()

    # ---- the control socket

    async def attach(self, connection: ServerConnection, args: dict[str, Any]) -> Callable[[], Awaitable[None]]:
        """Hand a connection over to the channel that it asks for."""
        name, options = args.get("instance"), args.get("options", {})
        if not isinstance(name, str) or not isinstance(options, dict):
            raise NotFound("channel.attach needs the name of a channel and options")
        found = next((instance for instance in self.channels.all() if instance.name == name), None)
        if found is None:
            raise NotFound(
                f"this host has no channel {name!r}",
                fix=f"add it: `jackfield channel add {name}`, then `jackfield reload`",
            )
        channel = found.channel
        if channel is None:
            raise Unsupported(f"channel {name} is {found.status.state}: {found.status.detail}")
        if not isinstance(channel, Attaches):
            raise Unsupported(f"channel {name} of type {found.type} takes no local clients")
        return lambda: channel.attach(connection, options)

    def report(self) -> dict[str, Any]:
        return {
            "channels": [
                {
                    "name": instance.name,
                    "type": instance.type,
                    "state": str(instance.status.state),
                    "detail": instance.status.detail,
                }
                for instance in self.channels.all()
            ],
            "ingress": self.channels.ingress.report(),
            "runners": {
                session_id: "stopping" if runner.stopping else "working" if runner.claims else "idle"
                for session_id, runner in self.supervisor.runners.items()
            },
            "runner_cap": self.supervisor.cap,
            "runners_waiting": self.supervisor.waiting,
            "runtimes": dict.fromkeys(self.launcher.runtimes),
        }
