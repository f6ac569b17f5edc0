"""What all rooms of the host share: where things are, and the doors to store, mailboxes and plugins."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from jackfield.clock import Clock
from jackfield.config import AgentSettings, Configuration, HostSettings, agent_digest, load_agent
from jackfield.config.home import Home
from jackfield.host.loops import Loops
from jackfield.host.models.gateways import Gateways
from jackfield.host.secrets.vault import Vault
from jackfield.mailbox import MailboxPool, SessionFolder
from jackfield.models import AgentGroup, Session
from jackfield.plugins import PluginRegistry
from jackfield.store import Store, notes

__all__ = ["Hub", "accepted_key"]

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Hub:
    """Made once by the application and handed to every part of the host."""

    home: Home
    clock: Clock
    store: Store
    mailboxes: MailboxPool
    plugins: PluginRegistry
    configuration: Configuration
    """Replaced as a whole by a reload."""
    install_id: str
    epoch: int = 0
    """Of this host's life; grows with every start."""
    troubles: dict[str, int] = field(default_factory=dict)
    """How often something went wrong that was survived, by what it was; shown by `jackfield status`."""
    vault: Vault = field(init=False)
    gateways: Gateways = field(default_factory=Gateways)
    loops: Loops = field(default_factory=Loops)
    """The pace of every chat, so that no two programs answer each other without end."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _folders: dict[str, SessionFolder] = field(default_factory=dict)
    _agents: dict[str, tuple[float, AgentSettings]] = field(default_factory=dict)
    _agent_files: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.vault = Vault(self.home, self.store, self.clock)

    @property
    def settings(self) -> HostSettings:
        return self.configuration.host

    def folder_of(self, session: Session) -> SessionFolder:
        found = self._folders.get(session.id)
        if found is None:
            # Asked several times for each message; making paths costs more than looking them up.
            found = self._folders[session.id] = SessionFolder(self.home.sessions / session.agent_group_id / session.id)
        return found

    def agent_settings(self, group: AgentGroup) -> AgentSettings:
        """What the group's `agent.toml` says, read again only when the file changed.

        Raises:
            ConfigError: it can't be used.
        """
        path = self._agent_files.get(group.folder)
        if path is None:  # asked several times for each message; making a path costs more than the look
            path = self._agent_files[group.folder] = str(self.home.groups / group.folder / "agent.toml")
        try:
            stamp = os.stat(path).st_mtime  # noqa: PTH116
        except OSError:
            stamp = -1.0
        known = self._agents.get(group.folder)
        if known is None or known[0] != stamp:
            known = (stamp, load_agent(self.home.groups / group.folder))
            self._agents[group.folder] = known
        return known[1]

    async def changed_by_others(self, group: AgentGroup) -> bool:
        """Whether `agent.toml` differs from what the CLI wrote or the operator accepted.  The first look accepts."""
        digest = agent_digest(self.home.groups / group.folder)
        accepted = await self.store.read(notes.get, accepted_key(group))
        if accepted is None:
            await self.accept_agent_settings(group)
            return False
        return accepted != digest

    async def accept_agent_settings(self, group: AgentGroup) -> bool:
        """Accept the group's `agent.toml` as it is now; whether that changed anything."""
        digest = agent_digest(self.home.groups / group.folder)
        known = await self.store.read(notes.get, accepted_key(group))
        await self.store.write(notes.set, accepted_key(group), digest)
        return known != digest

    def trouble(self, what: str) -> None:
        """Count something that went wrong and was survived, so that it is visible."""
        self.troubles[what] = self.troubles.get(what, 0) + 1

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` beside everything else; what it raises is logged and counted, never lost."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.trouble(f"task {task.get_name().split(' ')[0]}")
            log.error("%s failed", task.get_name(), exc_info=problem)

    async def settle(self, grace: float) -> None:
        """Wait for the spawned work; what is left after `grace` seconds is cancelled."""
        tasks = {task for task in self._tasks if task is not asyncio.current_task()}
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=grace)
            for task in pending:
                task.cancel()
            if pending:
                await asyncio.wait(pending, timeout=5)


def accepted_key(group: AgentGroup) -> str:
    """The note that holds the digest of the `agent.toml` that was accepted."""
    return f"agent.toml {group.id}"
