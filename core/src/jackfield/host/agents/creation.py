"""New agents that agents ask for: approved by a person, and made whole or not at all (messaging.md 11.2; C143).

The new group's folder is written beside the others under a name that none can have, then its rows are stored in one
transaction, then the folder gets its name.  A host that ends in between finishes or clears away at its next start.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

from jackfield.api import ActionContext, ApprovalField, ApprovalTicket
from jackfield.errors import Conflict, JackfieldError, MalformedData, NotAllowed, NotFound, TooLarge
from jackfield.host.agents import folders
from jackfield.host.approvals import Approvals, Decision, HostKind
from jackfield.host.hub import Hub
from jackfield.ids import AgentGroupId, RequestId, derive_id
from jackfield.models import AgentGroup, Destination, DestinationKind, destination_name
from jackfield.points import reach
from jackfield.store import groups, wirings

__all__ = ["CREATE_AGENT", "Creation"]

log = logging.getLogger(__name__)

CREATE_AGENT = "create_agent"
NAME_LIMIT = 60
INSTRUCTIONS_LIMIT = 20_000
"""Characters; a person must read them before they say yes."""
UNISOLATED = ", reached through its maker from everywhere, although nothing may isolate it"
PARENT = "parent"
"""How a new agent calls the one that asked for it."""


class Creation:
    """`jackfield.api.AgentService`, and the approval kind behind it."""

    def __init__(self, hub: Hub, approvals: Approvals, *, project: Callable[[AgentGroupId], Awaitable[None]]) -> None:
        self._hub = hub
        self._approvals = approvals
        self._project = project
        self._one_at_a_time = asyncio.Lock()
        kind = HostKind(name=CREATE_AGENT, title="Create an agent", apply=self.apply, idempotent=True, mode="ask")
        approvals.kinds.register(kind)

    async def create(
        self, context: ActionContext, request_id: RequestId, name: str, instructions: str = ""
    ) -> ApprovalTicket:
        """See `AgentService.create`."""
        parent = context.agent_group
        name = _name(name)
        if len(instructions) > INSTRUCTIONS_LIMIT:
            raise TooLarge(
                f"instructions have {len(instructions):,} characters; at most {INSTRUCTIONS_LIMIT:,} can be approved",
                limit=INSTRUCTIONS_LIMIT,
            )
        local = destination_name(name)
        taken = await self._hub.store.read(wirings.destinations, parent.id)
        if any(one.name == local for one in taken):
            raise Conflict(f"you already have a destination named {local!r}", fix="choose another name")
        await self._hub.store.read(self._within_limit, parent)
        agent = self._hub.agent_settings(parent)
        payload = {
            "name": name,
            "local": local,
            "instructions": instructions,
            "provider": agent.provider,
            "model": agent.model or "",
            "runtime": agent.runtime,
        }
        fields = [
            ApprovalField(label="Name", value=name),
            ApprovalField(label="Instructions", value=instructions.strip() or "(none)"),
            ApprovalField(label="Provider", value=f"{agent.provider} {agent.model or ''}".strip()),
            ApprovalField(label="Runtime", value=agent.runtime + UNISOLATED * agent.allow_unisolated),
            ApprovalField(label="Tools", value=", ".join(folders.TOOLS)),
            ApprovalField(label="May write to", value=f"{parent.name}, who may write to it; nobody else"),
        ]
        return await self._approvals.request(context, request_id, CREATE_AGENT, payload, fields=fields)

    async def apply(self, decision: Decision) -> str | None:
        """Make what was approved; again, it finishes what an earlier time began.

        Raises:
            NotFound, NotAllowed, Conflict, ConfigError: it can't be made any more; nothing of it is left.
        """
        if not decision.approved:
            return None
        async with self._one_at_a_time:
            parent = await self._parent(decision)
            group_id = AgentGroupId(derive_id("ag", decision.id))
            group = await self._hub.store.read(groups.agent_group, group_id)
            if group is None:
                if await self._hub.changed_by_others(parent):
                    # Much of the parent's settings is passed on, and accepted with that.
                    raise Conflict(
                        f"{parent.folder}'s agent.toml was changed by something else than commands and is not accepted",
                        fix=f"look at it, then `jackfield group accept {parent.folder}`, and let it ask again",
                    )
                group = await self._make(parent, group_id, decision.payload)
            await asyncio.to_thread(folders.name_it, self._hub.home.groups, group)
            await self._hub.accept_agent_settings(group)
        await self._project(parent.id)
        known = await self._hub.store.read(wirings.destinations, parent.id)
        local = next((one.name for one in known if one.agent_group_id == group.id), group.folder)
        log.info("agent %s has made agent %s", parent.folder, group.folder)
        return f'Agent "{local}" was created. Write to it as "{local}".'

    async def recover(self) -> None:
        """Finish or clear away what the last life of the host was making."""
        for group_id in await asyncio.to_thread(folders.unfinished, self._hub.home.groups):
            group = await self._hub.store.read(groups.agent_group, AgentGroupId(group_id))
            try:
                if group is None:
                    await asyncio.to_thread(folders.clear_away, self._hub.home.groups, AgentGroupId(group_id))
                else:
                    await asyncio.to_thread(folders.name_it, self._hub.home.groups, group)
            except OSError as problem:
                self._hub.trouble("create agent")
                log.warning("what was begun of agent %s is left for later: %s", group_id, problem)

    # ---- parts

    async def _parent(self, decision: Decision) -> AgentGroup:
        found = None
        if decision.agent_group_id is not None:
            found = await self._hub.store.read(groups.agent_group, decision.agent_group_id)
        if found is None:
            raise NotFound("the agent that asked for it does not exist any more")
        return found

    def _within_limit(self, db: sqlite3.Connection, parent: AgentGroup) -> None:
        limit = self._hub.configuration.agents.max_created
        if groups.count_created(db, parent.id) >= limit:
            raise NotAllowed(f"an agent may have created {limit} agents, and you have; ask your operator to remove one")

    async def _make(self, parent: AgentGroup, group_id: AgentGroupId, payload: dict[str, Any]) -> AgentGroup:
        home, now = self._hub.home.groups, self._hub.clock.now()
        known = {one.folder for one in await self._hub.store.read(groups.agent_groups)}
        folder = await asyncio.to_thread(folders.free_folder, home, str(payload["local"]), known)
        group = AgentGroup(id=group_id, name=str(payload["name"]), folder=folder, created_at=now)
        await asyncio.to_thread(folders.stage, home, group, parent, payload)

        def store(db: sqlite3.Connection) -> None:
            self._within_limit(db, parent)
            groups.add_agent_group(db, group, created_by=parent.id)
            for owner, other, wanted in ((parent, group, str(payload["local"])), (group, parent, PARENT)):
                to = Destination(
                    name=wirings.free_name(db, owner.id, wanted),
                    kind=DestinationKind.AGENT,
                    display_name=other.name,
                    agent_group_id=other.id,
                )
                wirings.add_destination(db, owner.id, to, now)

        try:
            await self._hub.store.write(store)
        except JackfieldError:
            await asyncio.to_thread(folders.clear_away, home, group_id)
            raise
        reach("host.agents.after_rows")
        return group


def _name(name: str) -> str:
    """The name on one line.

    Raises:
        MalformedData: it is empty, too long, or no letter or digit is in it.
    """
    name = " ".join(name.split())
    if not name.isprintable() or not 1 <= len(name) <= NAME_LIMIT:
        raise MalformedData(f"a name needs 1 to {NAME_LIMIT} printable characters, got {name[:80]!r}")
    if not any(character.isascii() and character.isalnum() for character in name):
        raise MalformedData(f"{name!r} has no letter or digit from which a destination could be named")
    return name
