"""Host services from plugins: started when `jackfield.toml` names them, each on its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from jackfield.api import (
    AgentService,
    ApprovalService,
    Extension,
    HostContext,
    ModelService,
    ScheduleService,
    WorkshopService,
)
from jackfield.clock import Clock
from jackfield.errors import JackfieldError, NotFound, Unsupported
from jackfield.host.hub import Hub
from jackfield.host.settings_of import validated
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import AgentGroup, Session, SessionStatus
from jackfield.store import groups, sessions

__all__ = ["Extensions", "HostServices", "Notifier"]

log = logging.getLogger(__name__)

START_DEADLINE = 10.0
STOP_DEADLINE = 5.0


class Notifier(Protocol):
    """How a notice gets into a session; the inbox."""

    async def notify(self, session: Session, text: str, *, subject: str = "", wake: bool = False) -> None: ...


class HostServices:
    """`HostContext`: what extensions and the host half of tool plugins may do."""

    def __init__(self, hub: Hub, notifier: Notifier) -> None:
        self._hub = hub
        self._notifier = notifier
        self._approvals: ApprovalService | None = None
        self._schedule: ScheduleService | None = None
        self._workshop: WorkshopService | None = None
        self._agents: AgentService | None = None
        self._models: ModelService | None = None

    def join(
        self,
        *,
        approvals: ApprovalService,
        schedule: ScheduleService,
        workshop: WorkshopService,
        agents: AgentService,
        models: ModelService,
    ) -> None:
        """What is made after this, and is reached through it."""
        self._approvals = approvals
        self._schedule = schedule
        self._workshop = workshop
        self._agents = agents
        self._models = models

    @property
    def approvals(self) -> ApprovalService:
        if self._approvals is None:
            raise Unsupported("this host asks nobody for approval")
        return self._approvals

    @property
    def schedule(self) -> ScheduleService:
        if self._schedule is None:
            raise Unsupported("this host schedules nothing")
        return self._schedule

    @property
    def agents(self) -> AgentService:
        if self._agents is None:
            raise Unsupported("this host makes no agents")
        return self._agents

    @property
    def workshop(self) -> WorkshopService:
        if self._workshop is None:
            raise Unsupported("this host installs nothing")
        return self._workshop

    @property
    def models(self) -> ModelService:
        if self._models is None:
            raise Unsupported("this host knows no models")
        return self._models

    @property
    def install_id(self) -> str:
        return self._hub.install_id

    @property
    def clock(self) -> Clock:
        return self._hub.clock

    async def agent_groups(self) -> Sequence[AgentGroup]:
        return await self._hub.store.read(groups.agent_groups)

    async def notify(self, session_id: SessionId, text: str, *, subject: str = "", wake: bool = False) -> None:
        session = await self._hub.store.read(sessions.session, session_id)
        if session is None:
            raise NotFound(f"there is no session {session_id!r}")
        await self._notifier.notify(session, text, subject=subject, wake=wake)

    async def broadcast(self, agent_group_id: AgentGroupId, text: str, *, subject: str = "") -> int:
        found = await self._hub.store.read(
            sessions.sessions, agent_group_id=agent_group_id, status=SessionStatus.ACTIVE
        )
        for session in found:
            await self._notifier.notify(session, text, subject=subject)
        return len(found)


class Extensions:
    """An extension that can't start, or hangs, is reported and left out (C185)."""

    def __init__(self, hub: Hub, services: HostContext) -> None:
        self._hub = hub
        self._services = services
        self._running: dict[str, Extension] = {}
        self.failed: dict[str, str] = {}

    async def start(self) -> None:
        for name in self._hub.configuration.extensions:
            try:
                async with asyncio.timeout(START_DEADLINE):
                    await self._start(name)
            except TimeoutError:
                self._broken(name, f"it did not start within {START_DEADLINE:g} s")
            except JackfieldError as problem:
                self._broken(name, str(problem))
            except Exception as problem:
                log.exception("extension %s failed to start", name)
                self._broken(name, repr(problem))

    async def _start(self, name: str) -> None:
        kind = await asyncio.to_thread(self._hub.plugins.extension_type, name)
        section = self._hub.configuration.extensions[name]
        extension = kind.create(validated(kind.settings, section.settings, f"[extensions.{name}]"))
        await extension.start(self._services)
        self._running[name] = extension
        log.info("extension %s started", name)

    def _broken(self, name: str, reason: str) -> None:
        self.failed[name] = reason
        self._hub.trouble(f"extension {name}")
        log.error("the host runs without extension %s: %s", name, reason)

    async def stop(self) -> None:
        for name, extension in self._running.items():
            try:
                async with asyncio.timeout(STOP_DEADLINE):
                    await extension.stop()
            except Exception:
                log.exception("extension %s failed to stop", name)
        self._running.clear()
