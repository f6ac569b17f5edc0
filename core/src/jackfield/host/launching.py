"""From a session to a live runner: settings, isolation, epoch, projection, `session.json`, launch."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jackfield.api import (
    GroupPlace,
    Isolation,
    LaunchSpec,
    Limits,
    ModelGateway,
    Runtime,
    RuntimeHandle,
    SessionPlace,
)
from jackfield.config import AgentSettings, Configuration
from jackfield.errors import ConfigError, JackfieldError, NotFound, PluginBroken, RuntimeFailed
from jackfield.host import instructions
from jackfield.host.agents import places
from jackfield.host.hub import Hub, accepted_key
from jackfield.host.models.gateways import provider_secrets, secrets_in
from jackfield.host.settings_of import validated
from jackfield.host.workshop.shelf import folders_seen
from jackfield.ids import SessionId
from jackfield.mailbox import HostBell
from jackfield.models import (
    GATEWAY_TOKEN,
    MAILBOX_FORMAT,
    RUNNER_PROTOCOL,
    Address,
    AgentGroup,
    Destination,
    RunnerSpec,
    Session,
)
from jackfield.plugins import Kind
from jackfield.redaction import REDACTOR
from jackfield.store import groups, notes, sessions, wirings

__all__ = ["IMPORTED", "Launched", "Launcher", "Refused"]

log = logging.getLogger(__name__)

IMPORTED = "imported"
"""Where the digest of an accepted `agent.toml` stands, for one that came from elsewhere: no file has that one."""


class Refused(JackfieldError):
    """No runner for this session until a person changes something."""


@dataclass(frozen=True, slots=True)
class _Told:
    """What a live runner was launched with.  None for what is not known of one that an earlier host launched."""

    group: AgentGroup
    settings: RunnerSpec
    limits: Limits | None
    runtime: str | None
    agent: AgentSettings | None
    configuration: Configuration | None
    """The very objects that the settings were made from: while these are the present ones, nothing can have changed."""
    secrets: int
    """The vault's revision then; likewise."""


@dataclass(frozen=True, slots=True)
class Launched:
    session: Session
    handle: RuntimeHandle
    runtime: Runtime
    bell: HostBell


class Launcher:
    """Makes runners.  Runtimes are created once, when the first group asks for one."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._runtimes: dict[str, Runtime] = {}
        self._warned: set[str] = set()
        self._usable: set[str] = set()
        """Tool sets that are loaded."""
        self._folders: dict[str, str] = {}
        self._told: dict[SessionId, _Told] = {}
        self.look: Callable[[Session, AgentGroup, AgentSettings, str], Awaitable[None]] | None = None
        """Called before a launch, with the image that it is for; set by who knows what should be there."""
        self.notes: Callable[[Sequence[Destination]], dict[str, str]] = lambda destinations: {}
        """What an agent should know of the channels of these; set by who knows the channels."""

    @property
    def runtimes(self) -> dict[str, Runtime]:
        return self._runtimes

    def runtime(self, name: str) -> Runtime:
        """The runtime of that name.

        Raises:
            NotFound, PluginBroken: it is not installed, or can't be loaded.
        """
        found = self._runtimes.get(name)
        if found is None:
            kind = self._hub.plugins.runtime_type(name)
            table = self._hub.configuration.runtimes.get(name, {})
            settings = validated(kind.settings, table, f"[runtimes.{name}]")
            found = kind.create(_RuntimeContext(self._hub, name), settings)
            self._runtimes[name] = found
        return found

    def place_of(self, session: Session, group: AgentGroup | None = None) -> SessionPlace:
        folder = self._hub.home.groups / (group.folder if group is not None else self._folders[session.agent_group_id])
        return SessionPlace(
            session_id=session.id,
            folder=self._hub.folder_of(session).root,
            group=GroupPlace(agent_group_id=session.agent_group_id, folder=folder),
        )

    async def launch(self, session: Session, make_bell: Callable[[Session, int | None], HostBell]) -> Launched:
        """Start the session's runner under a new epoch.

        Raises:
            Refused: the settings, the plugins or the isolation rule forbid it; the message is for people.
            RuntimeFailed, OSError, StoreError, MailboxError: it did not work now.
        """
        group = await self._hub.store.read(groups.agent_group, session.agent_group_id)
        if group is None:
            raise Refused(f"agent group {session.agent_group_id} does not exist any more")
        self._folders[group.id] = group.folder
        try:
            agent = self._hub.agent_settings(group)
            runtime = await asyncio.to_thread(self.runtime, agent.runtime)
        except (ConfigError, NotFound, PluginBroken) as problem:
            raise Refused(f"agent {group.name} can't run: {problem}", fix=problem.fix) from problem
        await self._check_plugins(group, agent)
        await self._check_isolation(session, group, agent, runtime)
        try:
            gateway = self._hub.gateways.serving(agent)
        except NotFound as problem:
            log.error("agent %s can't run: %s. %s", group.folder, problem, problem.fix)
            raise Refused("it can't reach its model; its operator has been told", fix=problem.fix) from problem
        if await self._hub.changed_by_others(group):
            await self._accept_or_refuse(group, runtime)
        place = self.place_of(session, group)
        folder = self._hub.folder_of(session)
        await asyncio.to_thread(folder.create)
        epoch = await self._hub.store.write(sessions.begin_epoch, session.id, self._hub.clock.now())
        await self._project(session, group)
        tools = tuple(agent.tools)
        revision = self._hub.vault.revision
        spec = replace(
            self.spec_of(session, group, agent, runtime, place, epoch),
            instructions=await instructions.additions(self._hub, session, group, tools),
            channels=self.notes(await self._hub.store.read(wirings.destinations, group.id)),
            tool_instructions=await instructions.tool_instructions(self._hub, tools),
        )
        await asyncio.to_thread(folder.write_spec, spec)
        session = replace(session, epoch=epoch)
        bell = make_bell(session, None)
        await bell.open()
        try:
            async with asyncio.timeout(self._hub.settings.launch_timeout):
                image = await runtime.prepare(place.group)
                if self.look is not None:
                    await self.look(session, group, agent, image.reference)
                handle = await runtime.launch(
                    LaunchSpec(
                        place=place,
                        runner=spec,
                        image=image,
                        limits=agent.runtime_limits(),
                        secrets=self._secrets(session, agent, gateway),
                        environment=kill_points(),
                    )
                )
        except TimeoutError as problem:
            await bell.close()
            raise RuntimeFailed(
                f"runtime {agent.runtime} took over {self._hub.settings.launch_timeout:g} s to start it"
            ) from problem
        except BaseException:
            await bell.close()
            raise
        self._told[session.id] = _Told(
            group, _settings_in(spec), agent.runtime_limits(), agent.runtime, agent, self._hub.configuration, revision
        )
        return Launched(session, handle, runtime, bell)

    # ---- settings that change while a runner lives

    async def adopted(self, session: Session) -> None:
        """Remember what the runner of an earlier host was told.

        Raises:
            MalformedData: its `session.json` can't be read.
        """
        group = await self._hub.store.read(groups.agent_group, session.agent_group_id)
        if group is not None:
            self._folders[group.id] = group.folder
            spec = await asyncio.to_thread(self._hub.folder_of(session).read_spec)
            self._told[session.id] = _Told(group, _settings_in(spec), None, None, None, None, 0)

    def ended(self, session_id: SessionId) -> None:
        """The session's runner is gone."""
        self._told.pop(session_id, None)

    def changed(self, session: Session) -> bool:
        """Whether the session's next runner would be told something else than the present one was.

        For an `agent.toml` that can't be used it is False: the old settings stay until it is mended.
        """
        told = self._told.get(session.id)
        if told is None or not self._hub.gateways.settled:
            return False
        try:
            agent = self._hub.agent_settings(told.group)
            revision = self._hub.vault.revision
            if agent is told.agent and self._hub.configuration is told.configuration and revision == told.secrets:
                return False
            runtime = self.runtime(agent.runtime)
            place = self.place_of(session, told.group)
            settings = _settings_in(self.spec_of(session, told.group, agent, runtime, place, 0))
        except (ConfigError, NotFound, PluginBroken) as problem:
            self._keeps_old(told.group, problem)
            return False
        same = (
            settings == told.settings
            and told.limits in (None, agent.runtime_limits())
            and told.runtime in (None, agent.runtime)
        )
        if same:
            self._told[session.id] = replace(told, agent=agent, configuration=self._hub.configuration, secrets=revision)
        return not same

    async def renewable(self, session: Session) -> bool:
        """Whether a runner with the present settings would be launched: they are accepted, and their plugins work."""
        told = self._told.get(session.id)
        if told is None:
            return False
        try:
            agent = self._hub.agent_settings(told.group)
            await self._check_plugins(told.group, agent)
            isolation = (await self.runtime(agent.runtime).check()).isolation
            self._hub.gateways.levels[agent.runtime] = isolation
            self._hub.gateways.serving(agent)
        except JackfieldError as problem:
            self._keeps_old(told.group, problem)
            return False
        return isolation is not Isolation.NONE or not await self._hub.changed_by_others(told.group)

    def _keeps_old(self, group: AgentGroup, problem: JackfieldError) -> None:
        """Said once, not with every message."""
        said = f"agent {group.folder} keeps its old settings, the new ones can't be used: {problem}"
        if said not in self._warned:
            self._warned.add(said)
            log.warning("%s", said)

    # ---- before a launch

    async def _check_plugins(self, group: AgentGroup, agent: AgentSettings) -> None:
        """No runner for an agent whose plugins can't be used; its tool sets' host halves are loaded (C179).

        A plugin that ends the process that imports it would otherwise end one runner after the other.
        """
        unseen = [name for name in agent.tools if name not in self._usable]
        plugins = self._hub.plugins
        try:
            if unseen:
                await plugins.prepare([(Kind.TOOLS, name) for name in unseen])
            for name in unseen:
                plugins.load(Kind.TOOLS, name)
                self._usable.add(name)
            installed = {(info.kind, info.name): info for info in plugins.listing()}
            for named in ((Kind.PROVIDER, agent.provider), *((Kind.PACK, name) for name in agent.packs)):
                info = installed.get(named)
                if info is None:
                    raise NotFound(f"no {named[0]} {named[1]!r} is installed", fix="see `jackfield config check`")
                if info.broken is not None:
                    raise PluginBroken(info.name, info.broken.phase, info.broken.reason, fix=info.broken.fix)
        except (NotFound, PluginBroken) as problem:
            log.error("agent %s can't run: %s. %s", group.folder, problem, problem.fix or "")
            raise Refused("it is not set up correctly; its operator has been told", fix=problem.fix) from problem

    async def _check_isolation(
        self, session: Session, group: AgentGroup, agent: AgentSettings, runtime: Runtime
    ) -> None:
        """At the last level, every channel but the terminal needs the operator's word (runtime.md 5)."""
        health = await runtime.check()
        if not health.ok:
            raise RuntimeFailed(f"runtime {agent.runtime} does not work: {health.detail}", fix=health.fix)
        self._hub.gateways.levels[agent.runtime] = health.isolation
        if agent.runtime not in self._warned:
            self._warned.add(agent.runtime)
            log.info("runtime %s: %s (%s)", agent.runtime, health.isolation, health.detail)
        if health.isolation is not Isolation.NONE or agent.allow_unisolated:
            return
        # Whoever writes to an agent reaches the agents that it asks, too.
        chat = await self._hub.store.read(places.root_chat, session)
        if chat is None:
            return
        try:
            local = (await asyncio.to_thread(self._hub.plugins.channel_type, chat.address.channel_type)).info.local
        except JackfieldError:
            local = False
        if not local:
            raise Refused(
                f"agent {group.name} is {health.isolation}, and {chat.address.channel_type} lets others write to it",
                fix=f"use a runtime that isolates, or set `allow_unisolated = true` for group {group.folder}",
            )

    async def _accept_or_refuse(self, group: AgentGroup, runtime: Runtime) -> None:
        """A changed `agent.toml` is the operator's where no agent can write it; else they must say so.  So they must of
        one that came from another home."""
        if await self._hub.store.read(notes.get, accepted_key(group)) == IMPORTED:
            raise Refused(
                f"groups/{group.folder}/agent.toml was imported, and nobody has accepted it yet",
                fix=f"look at it, then `jackfield group accept {group.folder}`",
            )
        if (await runtime.check()).isolation is Isolation.NONE:
            raise Refused(
                f"groups/{group.folder}/agent.toml was changed, and an agent that is not isolated could have done it",
                fix=f"look at it, then `jackfield group accept {group.folder}`",
            )
        await self._hub.accept_agent_settings(group)

    async def _project(self, session: Session, group: AgentGroup) -> None:
        """Show the runner whom its agent may address, and where it is."""
        await self.show_destinations(session, await self._hub.store.read(wirings.destinations, group.id))

    async def show_destinations(self, session: Session, known: Sequence[Destination]) -> None:
        """Write the group's destinations into the session's inbox, for its runner to read."""
        routing = await self.routing_of(session)
        await self._hub.mailboxes.run(self._hub.folder_of(session), lambda box: box.project(known, routing))

    async def routing_of(self, session: Session) -> Address | None:
        """Where the session's words go when nothing else says so; None when neither a chat nor an agent is there."""
        return await self._hub.store.read(places.home_of, session)

    def spec_of(
        self,
        session: Session,
        group: AgentGroup,
        agent: AgentSettings,
        runtime: Runtime,
        place: SessionPlace,
        epoch: int,
    ) -> RunnerSpec:
        """What a runner of the session is told, as far as it follows from settings.

        Raises:
            NotFound: it is to use a model gateway, and none covers its provider.
        """
        host = self._hub.settings
        provider = agent.providers.get(agent.provider, {})
        versions = self._hub.vault.versions(group.id, agent.secrets)
        gateway = self._hub.gateways.serving(agent)
        if gateway is not None:
            provider = {key: value for key, value in provider.items() if not secrets_in(value)}
            for name in provider_secrets(agent):
                versions.pop(name, None)
        return RunnerSpec(
            session_id=session.id,
            agent_group_id=group.id,
            epoch=epoch,
            install_id=self._hub.install_id,
            agent_name=agent.name or group.name,
            provider=agent.provider,
            model=agent.model or None,
            paths=runtime.paths(place),
            tools=tuple(agent.tools),
            packs=tuple(agent.packs),
            plugins=self._modules(agent),
            provider_settings={key: json.dumps(value) for key, value in provider.items()},
            tool_settings={key: json.dumps(value) for key, value in agent.tool_settings.items()},
            servers={name: one.external() for name, one in agent.mcp.items() if one.enabled},
            package_folders=folders_seen(place.group.folder, runtime.paths(place).group),
            secrets=versions,
            gateway=self._hub.gateways.address(agent, gateway) if gateway is not None else "",
            limits=agent.runner_limits(host),
            timezone=agent.timezone or host.timezone,
            unwrapped=agent.unwrapped,
            format=MAILBOX_FORMAT,
            protocol=RUNNER_PROTOCOL,
        )

    def _secrets(self, session: Session, agent: AgentSettings, gateway: ModelGateway | None) -> dict[str, str]:
        """What the runner is given; behind the gateway its token in place of what the provider's settings name."""
        given = self._hub.vault.given_to(session.agent_group_id, agent.secrets)
        if gateway is not None:
            for name in provider_secrets(agent):
                given.pop(name, None)
            given[GATEWAY_TOKEN] = gateway.token(session.id, session.agent_group_id)
            REDACTOR.register(given[GATEWAY_TOKEN])
        return given

    def _modules(self, agent: AgentSettings) -> dict[str, str]:
        """Where the runner finds the plugins that it is told to load."""
        named = {(Kind.PROVIDER, agent.provider), *((Kind.TOOLS, name) for name in agent.tools)}
        return {
            f"{info.kind}:{info.name}": info.entry
            for info in self._hub.plugins.listing()
            if (info.kind, info.name) in named
        }


def _settings_in(spec: RunnerSpec) -> RunnerSpec:
    """What of a spec follows from settings alone, so that two of them can be compared."""
    return replace(spec, epoch=0, instructions="", channels={}, tool_instructions={})


def kill_points() -> dict[str, str]:
    """The kill point that a crash test set for the first runner (`JACKFIELD_KILL_RUNNER_AT`), as its own variable."""
    at = os.environ.pop("JACKFIELD_KILL_RUNNER_AT", "")
    return {"JACKFIELD_KILL_AT": at} if at else {}


class _RuntimeContext:
    """`RuntimeContext` for one runtime."""

    def __init__(self, hub: Hub, name: str) -> None:
        self._hub = hub
        self._name = name
        self._log = logging.getLogger("jackfield.runner")

    @property
    def install_id(self) -> str:
        return self._hub.install_id

    @property
    def home(self) -> Path:
        return self._hub.home.root

    @property
    def folder(self) -> Path:
        folder = self._hub.home.root / "runtimes" / self._name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def log_line(self, session_id: SessionId, line: str) -> None:
        self._log.debug("%s: %s", session_id, line)
