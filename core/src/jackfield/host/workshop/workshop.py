"""What an agent group has besides what its runtime gives: installed packages, and MCP servers (messaging.md 11.3).

Everything is built first; then `agent.toml` records it, and the group's runners are replaced, each after its turn.  A
failure on the way leaves all as it was.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jackfield.api import GroupPlace, Runtime, SessionPlace
from jackfield.config import AgentSettings
from jackfield.config.edit import change_agent
from jackfield.config.settings import McpSettings
from jackfield.errors import Conflict, JackfieldError, NotFound, RolledBack
from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher
from jackfield.host.workshop import shelf
from jackfield.host.workshop.installing import BUILT, bench_for, build, refuse_apt
from jackfield.host.workshop.requests import checked_packages, checked_server, refuse_plain_secrets
from jackfield.host.workshop.scripts import named_files, verify_files
from jackfield.host.workshop.shelf import Installed, Shelf
from jackfield.ids import AgentGroupId, SessionId, new_id
from jackfield.models import AgentGroup, Session
from jackfield.models.packages import MANAGERS, Packages
from jackfield.models.secret_references import secrets_named
from jackfield.store import groups

__all__ = ["Workshop"]

log = logging.getLogger(__name__)

REPLACE_SECONDS = 600.0
"""How long the asking conversation's turn may go on before it is told what was done by the old runner."""


class Workshop:
    """`WorkshopService`, and what the operator's commands do."""

    def __init__(
        self,
        hub: Hub,
        launcher: Launcher,
        *,
        replace: Callable[[AgentGroupId, str], None] = lambda group_id, why: None,
        replaced: Callable[[SessionId], Awaitable[None]] | None = None,
        notify: Callable[[Session, str], Awaitable[None]] | None = None,
    ) -> None:
        """`replace` ends the group's runners, each after its turn; `replaced` waits until a session's runner is none of
        those any more; `notify` tells an agent.  Without a running host there is none of these."""
        self._hub = hub
        self._runtime = launcher.runtime
        self._replace = replace
        self._replaced = replaced
        self._notify = notify
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: set[tuple[str, str]] = set()
        launcher.look = self.look

    # ---- what there is

    async def packages(self, group_id: AgentGroupId) -> tuple[Packages, Packages]:
        """The group's recorded packages, and those of them that are missing.

        Raises:
            NotFound, ConfigError: there is no such group, or its settings can't be used.
        """
        group, agent = await self._group(group_id)
        recorded = agent.packages.packages
        return recorded, await self._missing(group, agent)

    async def servers(self, group_id: AgentGroupId) -> Mapping[str, Mapping[str, Any]]:
        """What the group's `[mcp]` tables say, by name."""
        _, agent = await self._group(group_id)
        return {name: one.model_dump(exclude_defaults=True) for name, one in agent.mcp.items()}

    # ---- packages

    async def check_packages(self, group_id: AgentGroupId, values: Mapping[str, Any]) -> Packages:
        _, agent = await self._group(group_id)
        found = checked_packages(values)
        refuse_apt(found, agent.packages.packages)
        return found

    async def install(self, group_id: AgentGroupId, packages: Packages, *, asked_in: SessionId | None = None) -> str:
        """Install packages and record them; repeating it changes nothing.  What was done, in a sentence.

        Raises:
            UsageError: this runtime can't have some of them.
            RolledBack: the installation failed.
            Conflict: somebody else changed `agent.toml`.
        """
        group, _ = await self._group(group_id)
        await self._build(group, lambda recorded: recorded.with_more(packages))
        await self._settle(group, f"its packages changed: {packages}", asked_in)
        return f"Installed ({packages}). Check that it works before you rely on it."

    async def remove(self, group_id: AgentGroupId, packages: Packages) -> str:
        """Remove packages, and what only they needed.

        Raises:
            NotFound: none of them is recorded.
        """
        group, _ = await self._group(group_id)

        def less(recorded: Packages) -> Packages:
            kept = recorded.without(packages)
            if kept == recorded:
                raise NotFound(f"{group.folder} has no such packages ({packages})", fix=f"it has: {recorded}")
            return kept

        await self._build(group, less)
        await self._settle(group, f"its packages changed: without {packages}", None)
        return f"Removed ({packages})."

    async def rebuild(self, group_id: AgentGroupId, *, asked_in: SessionId | None = None) -> str:
        """Install everything that is recorded anew, and start the group's runners again."""
        group, agent = await self._group(group_id)
        await self._build(group, lambda recorded: recorded, anew=True)
        await self._settle(group, "it was rebuilt", asked_in)
        return f"Rebuilt ({agent.packages.packages}), and started anew."

    async def _build(self, group: AgentGroup, change: Callable[[Packages], Packages], *, anew: bool = False) -> None:
        """Make what is installed what `change` makes of what is recorded, and record it."""
        async with self._locks[group.id]:
            await self._may_edit(group)
            agent = self._hub.agent_settings(group)
            recorded = agent.packages.packages
            wanted = change(recorded)
            refuse_apt(wanted, recorded)
            folder = self._hub.home.groups / group.folder
            runtime = await asyncio.to_thread(self._runtime, agent.runtime)
            base = await self._base(group, runtime)
            before = await asyncio.to_thread(shelf.read_installed, folder)
            shelves = dict(before.shelves)
            bench_folder = self._hub.home.root / "workshop"
            async with bench_for(group, bench_folder, runtime, agent.runtime_limits(), self._hub.install_id) as bench:
                for manager in BUILT:
                    names = wanted.of(manager)
                    if not names:
                        shelves.pop(manager, None)
                    elif anew or not shelf.holds(shelves.get(manager), names, base):
                        log.info("installing for %s: %s %s", group.folder, manager, ", ".join(names))
                        built = await build(bench, manager, names)
                        number = new_id("bld")
                        await asyncio.to_thread(_move, built, shelf.build_of(folder, manager, number))
                        shelves[manager] = Shelf(build=number, base=base, packages=names)
            await self._commit(group, folder, before, Installed(shelves), wanted, recorded)

    async def _commit(
        self, group: AgentGroup, folder: Path, before: Installed, after: Installed, wanted: Packages, recorded: Packages
    ) -> None:
        """Name the new builds, then record them; back to the old ones if that can't be done."""

        def work() -> None:
            shelf.write_installed(folder, after)
            if wanted == recorded:
                return
            values: dict[tuple[str, ...], Any] = {}
            for manager in MANAGERS:
                if wanted.of(manager) != recorded.of(manager):
                    values["packages", manager] = list(wanted.of(manager)) or None
            try:
                change_agent(folder, values, "the packages were not recorded")
            except BaseException:
                shelf.write_installed(folder, before)
                raise

        await self._may_edit(group)
        try:
            await asyncio.to_thread(work)
        except OSError as problem:
            raise RolledBack(f"the packages could not be recorded: {problem}; nothing was changed") from problem
        await self._hub.accept_agent_settings(group)
        await asyncio.to_thread(shelf.forget_builds, folder, (before, after))

    # ---- MCP servers

    async def check_server(self, group_id: AgentGroupId, name: object, settings: Mapping[str, Any]) -> dict[str, Any]:
        _, agent = await self._group(group_id)
        table = checked_server(name, settings)
        refuse_plain_secrets(table)
        known = agent.mcp.get(str(name))
        if known is not None and known != McpSettings.model_validate(table):
            raise Conflict(f"there is another MCP server {name!r}", fix="choose another name, or ask for its removal")
        return table

    async def server_files(self, group_id: AgentGroupId, settings: Mapping[str, Any]) -> Sequence[Path]:
        group, agent = await self._group(group_id)
        place = GroupPlace(agent_group_id=group.id, folder=self._hub.home.groups / group.folder)
        runtime = await asyncio.to_thread(self._runtime, agent.runtime)
        somewhere = SessionPlace(session_id=SessionId(""), folder=place.folder, group=place)
        seen_as = runtime.paths(somewhere).workspace
        return await asyncio.to_thread(named_files, settings, seen_as, place.workspace)

    async def add_server(
        self,
        group_id: AgentGroupId,
        name: str,
        settings: Mapping[str, Any],
        *,
        approved: Sequence[Path] | None = None,
        asked_in: SessionId | None = None,
    ) -> str:
        """Record an MCP server, or change the one of that name.  An operator approves nothing: `approved` is None.

        Raises:
            MalformedData: the settings are none of an MCP server.
            VerificationFailed: files that it names are not those that were approved.
        """
        group, agent = await self._group(group_id)
        table, known = checked_server(name, settings), name in agent.mcp
        if approved is not None:
            files = await self.server_files(group_id, table)
            bench = self._hub.home.root / "workshop" / new_id("cmp")
            workspace = self._hub.home.groups / group.folder / "workspace"
            await asyncio.to_thread(verify_files, files, approved, workspace, bench, self._hub.settings.file_limit)
        await self._edit(group, {("mcp", name): table}, f"MCP server {name!r} was not added")
        await self._settle(group, f"its MCP server {name} is {'changed' if known else 'new'}", asked_in)
        done = "changed" if known else "set up"
        said = f"MCP server {name} is {done}. Its tools are named {name}__...; check that they are there."
        lacking = self._secrets_lacking(group, table)
        if lacking:
            said += (
                f" It does not work before an operator assigns {', '.join(lacking)}: "
                f"`jackfield secret assign {lacking[0]} {group.folder}`."
            )
        return said

    async def remove_server(self, group_id: AgentGroupId, name: str) -> str:
        """Forget an MCP server.

        Raises:
            NotFound: there is none of that name.
        """
        group, agent = await self._group(group_id)
        if name not in agent.mcp:
            known = ", ".join(agent.mcp) or "none"
            raise NotFound(f"{group.folder} has no MCP server {name!r}", fix=f"there are: {known}")
        await self._edit(group, {("mcp", name): None}, f"MCP server {name!r} was not removed")
        await self._settle(group, f"its MCP server {name} is gone", None)
        return f"MCP server {name} is removed."

    def _secrets_lacking(self, group: AgentGroup, table: Mapping[str, Any]) -> list[str]:
        """Secrets that a server's settings name and the group's agents are not given."""
        named = secrets_named([*table.get("env", {}).values(), *table.get("headers", {}).values()])
        given = self._hub.vault.versions(group.id, self._hub.agent_settings(group).secrets)
        return [name for name in named if name not in given]

    async def _edit(self, group: AgentGroup, values: Mapping[tuple[str, ...], Any], refused: str) -> None:
        async with self._locks[group.id]:
            await self._may_edit(group)
            folder = self._hub.home.groups / group.folder
            await asyncio.to_thread(change_agent, folder, values, refused)
            await self._hub.accept_agent_settings(group)

    # ---- at a launch

    async def look(self, session: Session, group: AgentGroup, agent: AgentSettings, base: str) -> None:
        """Tell the agent, once, and the operator when a recorded package is not there for this image (C178)."""
        recorded = agent.packages.packages
        if not recorded.count:
            return
        folder = self._hub.home.groups / group.folder
        gone = shelf.missing(recorded, await asyncio.to_thread(shelf.read_installed, folder), base)
        if not gone.count or (session.id, str(gone)) in self._told:
            return
        self._told.add((session.id, str(gone)))
        self._hub.trouble(f"packages of {group.folder}")
        log.warning(
            "agent %s lacks recorded packages (%s): `jackfield group packages rebuild %s`",
            group.folder, gone, group.folder,
        )  # fmt: skip
        if self._notify is not None:
            await self._notify(session, f"Some packages of yours are not installed at the moment: {gone}.")

    # ---- small things

    async def collect_garbage(self) -> None:
        """Remove what installations of a host that was killed have left."""
        await asyncio.to_thread(shutil.rmtree, self._hub.home.root / "workshop", ignore_errors=True)

    async def _group(self, group_id: AgentGroupId) -> tuple[AgentGroup, AgentSettings]:
        group = await self._hub.store.read(groups.agent_group, group_id)
        if group is None:
            raise NotFound(f"there is no agent group {group_id}")
        return group, self._hub.agent_settings(group)

    async def _missing(self, group: AgentGroup, agent: AgentSettings) -> Packages:
        folder, recorded = self._hub.home.groups / group.folder, agent.packages.packages
        if not recorded.count:
            return recorded
        base = await self._base(group, await asyncio.to_thread(self._runtime, agent.runtime))
        return shelf.missing(recorded, await asyncio.to_thread(shelf.read_installed, folder), base)

    async def _base(self, group: AgentGroup, runtime: Runtime) -> str:
        """The image that the group's packages are installed for."""
        place = GroupPlace(agent_group_id=group.id, folder=self._hub.home.groups / group.folder)
        return (await runtime.prepare(place)).reference

    async def _may_edit(self, group: AgentGroup) -> None:
        """What nobody accepted must not become accepted by an edit of ours."""
        if await self._hub.changed_by_others(group):
            raise Conflict(
                f"{group.folder}'s agent.toml was changed by something else than commands, and is not accepted yet",
                fix=f"look at it, then `jackfield group accept {group.folder}`",
            )

    async def _settle(self, group: AgentGroup, why: str, asked_in: SessionId | None) -> None:
        """All runners of the group go after their turn; the one that asked is waited for, so that what follows is told
        to a fresh one (messaging.md 11.3)."""
        self._replace(group.id, why)
        if asked_in is not None and self._replaced is not None:
            try:
                async with asyncio.timeout(REPLACE_SECONDS):
                    await self._replaced(asked_in)
            except TimeoutError:
                log.warning("the turn of session %s goes on; its runner is replaced later", asked_in)


def _move(built: Path, target: Path) -> None:
    """Take what the sandbox made into the group's folder."""
    target.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    built.rename(target)
    if not target.is_dir() or target.is_symlink():
        raise JackfieldError(f"{target} is not the folder that was built")
