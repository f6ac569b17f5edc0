"""Operations on destinations: to whom an agent may write, and by which name."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.errors import NotFound, UsageError
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import destination_json
from jackfield.ids import AgentGroupId
from jackfield.models import AgentGroup, Destination, DestinationKind, MessagingGroup, destination_name
from jackfield.store import groups, wirings

__all__: list[str] = []


@operation("destination.list")
async def destination_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    name = args.optional_text("group")
    only = await context.group(name) if name else None

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        known = {group.id: group for group in groups.agent_groups(db)}
        return [
            _shown(group, item, known)
            for group in known.values()
            if only is None or group.id == only.id
            for item in wirings.destinations(db, group.id)
        ]

    return await context.hub.store.read(look)


@operation("destination.add")
async def destination_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Let an agent write to a chat that was seen, or to another agent; with `both`, that one to it as well.

    What is there already, under whatever name, stays when no name is asked for.
    """
    group, text = await context.group(args.text("group")), args.text("target")
    name, both = args.name("name") if args.given("name") else None, args.flag("both")
    target = await _target(context, text)
    if both and isinstance(target, MessagingGroup):
        raise UsageError("--both is for two agents", fix=f"`jackfield wire {text} {group.folder}` lets a chat be heard")
    now = context.hub.clock.now()

    def add(db: sqlite3.Connection) -> list[dict[str, Any]]:
        known = {one.id: one for one in groups.agent_groups(db)}
        added = [_shown(group, _add(db, group, target, name, now), known)]
        if both and isinstance(target, AgentGroup):
            added.append(_shown(target, _add(db, target, group, None, now), known))
        return added

    added = await context.hub.store.write(add)
    await _project(context, group, target if both else None)
    return {"added": added}


@operation("destination.remove")
async def destination_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Take a destination away; with `both`, also those by which the agent there reaches this one."""
    group, name = await context.group(args.text("group")), args.text("name")
    both = args.flag("both")

    def remove(db: sqlite3.Connection) -> tuple[list[dict[str, Any]], AgentGroup | None]:
        known = {one.id: one for one in groups.agent_groups(db)}
        found = next((one for one in wirings.destinations(db, group.id) if one.name == destination_name(name)), None)
        if found is None:
            raise NotFound(
                f"{group.folder} has no destination {name!r}", fix=f"see `jackfield destination list {group.folder}`"
            )
        other = known.get(found.agent_group_id) if found.agent_group_id is not None else None
        if both and other is None:
            raise UsageError(f"--both is for two agents, and {found.name} is a chat")
        gone = [(group, found)]
        if both and other is not None:
            gone += [(other, one) for one in wirings.destinations(db, other.id) if one.agent_group_id == group.id]
        for owner, one in gone:
            wirings.remove_destination(db, owner.id, one.name)
        return [_shown(owner, one, known) for owner, one in gone], other

    removed, other = await context.hub.store.write(remove)
    await _project(context, group, other if both else None)
    return {"removed": removed}


async def _target(context: ServiceContext, text: str) -> AgentGroup | MessagingGroup:
    if text.lower().startswith("mg_") or ":" in text:
        chat = await context.chat(text)
        if chat is None:
            raise NotFound(f"no chat is known at {text!r}", fix="`jackfield channel chats` lists those that were seen")
        return chat
    return await context.group(text)


def _add(
    db: sqlite3.Connection, group: AgentGroup, target: AgentGroup | MessagingGroup, name: str | None, now: Any
) -> Destination:
    chat = target if isinstance(target, MessagingGroup) else None
    agent = target if isinstance(target, AgentGroup) else None
    address = chat.address if chat is not None else None
    target_id = agent.id if agent is not None else None
    if name is None:
        for known in wirings.destinations(db, group.id):
            if (known.address, known.agent_group_id) == (address, target_id):
                return known
    if agent is not None:
        label = agent.folder
    else:
        assert chat is not None
        label = chat.name or f"{chat.address.channel_type}-{chat.id[-8:]}"
    wanted = Destination(
        name=name or wirings.free_name(db, group.id, label),
        kind=DestinationKind.AGENT if agent is not None else DestinationKind.CHANNEL,
        display_name=target.name or "",
        address=address,
        agent_group_id=target_id,
    )
    return wirings.add_destination(db, group.id, wanted, now)


async def _project(context: ServiceContext, *changed: AgentGroup | MessagingGroup | None) -> None:
    """Show the agents that run what they may do now."""
    if context.live is not None:
        for group in changed:
            if isinstance(group, AgentGroup):
                await context.live.project(group.id)


def _shown(group: AgentGroup, item: Destination, known: dict[AgentGroupId, AgentGroup]) -> dict[str, Any]:
    return {"group": group.folder, **destination_json(item, known)}
