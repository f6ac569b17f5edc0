"""Operations on agent groups, chats and wirings."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from jackfield.config import load_agent
from jackfield.errors import Conflict, JackfieldError, NotFound, UsageError
from jackfield.host import engage
from jackfield.host.services.context import Args, ServiceContext, chat_address, operation
from jackfield.host.services.shapes import chat_json, destination_json, drop_json, group_json, wiring_json
from jackfield.ids import AgentGroupId, MessagingGroupId, WiringId, new_id, user_id
from jackfield.models import (
    Address,
    AgentGroup,
    EngageMode,
    IgnoredPolicy,
    Role,
    RoleName,
    SenderScope,
    SessionMode,
    SessionStatus,
    UnknownSenderPolicy,
    Wiring,
    WiringOrigin,
    valid_folder,
)
from jackfield.store import chats, events, groups, people, sessions, wirings

__all__ = ["add_group"]

TERMINAL = "terminal"


def _local_chat(folder: str) -> Address:
    return Address(TERMINAL, TERMINAL, folder)


def add_group(db: sqlite3.Connection, group: AgentGroup) -> None:
    """The group, its own chat in the terminal, and the wiring between the two."""
    groups.add_agent_group(db, group)
    chat = chats.ensure_messaging_group(
        db,
        _local_chat(group.folder),
        name=group.name,
        is_group=False,
        policy=UnknownSenderPolicy.STRICT,
        now=group.created_at,
    )
    wirings.add_wiring(
        db,
        Wiring(
            id=WiringId(new_id("wr")),
            messaging_group_id=chat.id,
            agent_group_id=group.id,
            engage_mode=EngageMode.ALWAYS,
            engage_pattern=None,
            sender_scope=SenderScope.ALL,
            ignored_policy=IgnoredPolicy.DROP,
            session_mode=SessionMode.SHARED,
            priority=0,
            origin=WiringOrigin.TRUSTED,
            created_at=group.created_at,
        ),
    )


@operation("home.setup")
async def home_setup(context: ServiceContext, args: Args) -> dict[str, Any]:
    """The first group and the first owner: what `init` asks for.  Repeating it changes nothing."""
    folder, name, user = valid_folder(args.text("folder")), args.name("name"), args.text("user")
    now = context.hub.clock.now()
    owner = user_id(TERMINAL, user)

    def set_up(db: sqlite3.Connection) -> tuple[AgentGroup, bool]:
        people.ensure_user(db, owner, TERMINAL, user, now)
        roles = people.roles_of(db, owner)
        if not any(role.role is RoleName.OWNER for role in roles):
            role = Role(user_id=owner, role=RoleName.OWNER, agent_group_id=None, granted_by=None, granted_at=now)
            people.grant(db, role)
        existing = groups.agent_group_by_folder(db, folder)
        if existing is not None:
            return existing, False
        group = AgentGroup(id=AgentGroupId(new_id("ag")), name=name, folder=folder, created_at=now)
        add_group(db, group)
        return group, True

    group, created = await context.hub.store.write(set_up)
    return {"group": group_json(group), "created": created, "owner": owner}


@operation("group.list")
async def group_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    return [group_json(group) for group in await context.hub.store.read(groups.agent_groups)]


@operation("group.show")
async def group_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    group = await context.group(args.text("name"))
    folder = context.hub.home.groups / group.folder
    shown = group_json(group)
    shown["path"] = str(folder)
    shown["accepted"] = not await context.hub.changed_by_others(group)
    try:
        shown["settings"] = (await asyncio.to_thread(load_agent, folder)).model_dump(mode="json")
    except JackfieldError as problem:
        shown["settings"] = None
        shown["problem"] = str(problem)

    def related(db: sqlite3.Connection) -> dict[str, Any]:
        wired = wirings.wirings_of_group(db, group.id)
        maker = groups.creator(db, group.id)
        known = {one.id: one for one in groups.agent_groups(db)}
        return {
            "created_by": maker.folder if maker is not None else None,
            "wirings": [
                wiring_json(wiring, chats.messaging_group(db, wiring.messaging_group_id), group) for wiring in wired
            ],
            "destinations": [destination_json(item, known) for item in wirings.destinations(db, group.id)],
            "members": [member.user_id for member in people.members(db, group.id)],
            "sessions": len(sessions.sessions(db, agent_group_id=group.id, status=SessionStatus.ACTIVE)),
        }

    return shown | await context.hub.store.read(related)


@operation("group.add")
async def group_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    folder = valid_folder(args.text("folder"))
    group = AgentGroup(
        id=AgentGroupId(new_id("ag")), name=args.name("name"), folder=folder, created_at=context.hub.clock.now()
    )

    def add(db: sqlite3.Connection) -> None:
        if groups.agent_group_by_folder(db, folder) is not None:
            raise Conflict(f"there is an agent group {folder!r} already", fix="choose another --folder")
        add_group(db, group)

    await context.hub.store.write(add)
    return group_json(group)


@operation("group.remove")
async def group_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Forget the group; its folder and mailboxes stay on disk."""
    group = await context.group(args.text("name"))
    own_chat = _local_chat(group.folder)

    def look(db: sqlite3.Connection) -> list[str]:
        wired = (
            chats.messaging_group(db, wiring.messaging_group_id) for wiring in wirings.wirings_of_group(db, group.id)
        )
        return [str(chat.address) for chat in wired if chat is not None and chat.address != own_chat]

    wired = await context.hub.store.read(look)
    if wired and not args.flag("force"):
        raise Conflict(f"{group.folder} is wired to {', '.join(wired)}", fix="unwire it first, or use --force")
    for session in await context.hub.store.read(sessions.sessions, agent_group_id=group.id):
        if context.live is not None:
            await context.live.stop_runner(session.id, "its agent group was removed")
    knew_it = await context.hub.store.read(wirings.groups_that_reach, group.id)
    await context.hub.store.write(groups.remove_agent_group, group.id, context.hub.clock.now())
    if context.live is not None:
        for other in knew_it:
            await context.live.project(other)
        await context.live.tell_askers()
        await context.live.approvals.sweep()
    return {"removed": group.folder, "folder": str(context.hub.home.groups / group.folder)}


@operation("group.accept")
async def group_accept(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Accept an `agent.toml` that something else than the CLI changed (architecture, section 6).

    One that can't be used is refused.  All the group's runners are replaced: those that have nothing to do at once, so
    that the next message finds the new settings, the others when their turn is over.
    """
    group = await context.group(args.text("name"))
    await asyncio.to_thread(load_agent, context.hub.home.groups / group.folder)
    changed = await context.hub.accept_agent_settings(group)
    if changed and context.live is not None:
        context.live.renew(group.id)
    return {"group": group.folder, "changed": changed}


@operation("channel.list")
async def channel_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    states = {item["name"]: item for item in (context.live.report()["channels"] if context.live is not None else [])}
    out = []
    for name, section in context.hub.configuration.channels.items():
        state = states.get(name, {"state": "stopped", "detail": ""})
        out.append(
            {
                "name": name,
                "type": section.type,
                "enabled": section.enabled,
                "state": state["state"],
                "detail": state["detail"],
            }
        )
    return out


@operation("channel.chats")
async def channel_chats(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    instance = args.optional_text("instance")

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        by_id = {group.id: group for group in groups.agent_groups(db)}
        return [
            chat_json(chat)
            | {
                "wired_to": [
                    by_id[wiring.agent_group_id].folder
                    for wiring in wirings.wirings_of_chat(db, chat.id)
                    if wiring.agent_group_id in by_id
                ]
            }
            for chat in chats.messaging_groups(db, instance=instance)
        ]

    return await context.hub.store.read(look)


@operation("channel.drops")
async def channel_drops(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """The audit of what no agent took: counts by chat, sender and reason, never a word of the text."""
    limit = args.number("limit", 50, low=1, high=1000)

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        by_id = {group.id: group for group in groups.agent_groups(db)}
        return [
            drop_json(one, by_id.get(one.agent_group_id) if one.agent_group_id is not None else None)
            for one in events.drops(db, limit)
        ]

    return await context.hub.store.read(look)


@operation("chat.set")
async def chat_set(context: ServiceContext, args: Args) -> dict[str, Any]:
    chat = await context.chat(args.text("chat"))
    if chat is None:
        raise NotFound(f"there is no chat {args.text('chat')!r}", fix="see `jackfield channel chats`")
    name, policy = args.name("name") if args.given("name") else None, args.optional_text("policy")
    wanted = args.choice("policy", UnknownSenderPolicy, chat.unknown_sender_policy)
    if name is None and policy is None:
        raise UsageError("say what to set: policy or name")

    def change(db: sqlite3.Connection) -> None:
        if policy is not None:
            chats.set_policy(db, chat.id, wanted)
        if name is not None:
            chats.rename_chat(db, chat.id, name)

    await context.hub.store.write(change)
    await context.reconsider()
    changed = await context.hub.store.read(chats.messaging_group, chat.id)
    return chat_json(changed or chat)


@operation("wire.list")
async def wire_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        return [
            wiring_json(wiring, chats.messaging_group(db, wiring.messaging_group_id), group)
            for group in groups.agent_groups(db)
            for wiring in wirings.wirings_of_group(db, group.id)
        ]

    return await context.hub.store.read(look)


@operation("wire.add")
async def wire_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Join a chat to a group.  The chat need not have been seen yet when it is given by its address."""
    text = args.text("chat")
    group = await context.group(args.text("group"))
    chat = await context.chat(text)
    if chat is None and text.lower().startswith("mg_"):
        raise NotFound(f"there is no chat {text!r}", fix="see `jackfield channel chats`")
    address = chat.address if chat is not None else chat_address(text)
    section = context.hub.configuration.channels.get(address.instance)
    warnings = []
    if section is None or section.type != address.channel_type:
        warnings.append(f"jackfield.toml has no channel {address.instance!r} of type {address.channel_type}")
    # Of a chat that was never seen only its id is known, and where that is a name, # marks a channel.
    is_group = chat.is_group if chat is not None else args.flag("is_group") or address.platform_id.startswith("#")
    pattern = args.optional_text("pattern")
    mode = args.choice(
        "engage",
        EngageMode,
        EngageMode.PATTERN if pattern else EngageMode.MENTION_STICKY if is_group else EngageMode.ALWAYS,
    )
    if mode is EngageMode.PATTERN:
        if not pattern:
            raise UsageError("engage mode pattern needs --pattern")
        engage.check_pattern(pattern)
    elif pattern:
        raise UsageError(f"--pattern goes with engage mode pattern, not with {mode}")
    policy = args.optional_text("policy")
    wanted_policy = args.choice("policy", UnknownSenderPolicy, UnknownSenderPolicy.STRICT)
    now = context.hub.clock.now()
    wiring = Wiring(
        id=WiringId(new_id("wr")),
        messaging_group_id=chat.id if chat is not None else MessagingGroupId(""),
        agent_group_id=group.id,
        engage_mode=mode,
        engage_pattern=pattern,
        sender_scope=args.choice("scope", SenderScope, SenderScope.ALL),
        ignored_policy=args.choice("ignored", IgnoredPolicy, IgnoredPolicy.DROP),
        session_mode=args.choice("session", SessionMode, SessionMode.SHARED),
        priority=args.number("priority", 0, low=-1000, high=1000),
        origin=WiringOrigin.TRUSTED,
        created_at=now,
    )

    def add(db: sqlite3.Connection) -> tuple[dict[str, Any], list[str]]:
        from dataclasses import replace

        known = chats.ensure_messaging_group(db, address, name=None, is_group=is_group, policy=wanted_policy, now=now)
        if policy is not None and known.unknown_sender_policy is not wanted_policy:
            chats.set_policy(db, known.id, wanted_policy)
            known = chats.messaging_group(db, known.id) or known
        others = wirings.wirings_of_chat(db, known.id)
        if any(other.agent_group_id == group.id for other in others):
            raise Conflict(f"{address} is wired to {group.folder} already", fix="unwire it first")
        if known.denied_at is not None:
            chats.deny_chat(db, known.id, None)
        placed = replace(wiring, messaging_group_id=known.id)
        wirings.add_wiring(db, placed)
        noisy = [other for other in others if other.engage_mode is EngageMode.ALWAYS]
        doubled = []
        if mode is EngageMode.ALWAYS and noisy:
            named = groups.agent_group(db, noisy[0].agent_group_id)
            folder = named.folder if named is not None else noisy[0].agent_group_id
            doubled.append(f"{group.folder} and {folder} will both answer every message there")
        return wiring_json(placed, known, group), doubled

    added, doubled = await context.hub.store.write(add)
    if context.live is not None:
        await context.live.project(group.id)
    await context.reconsider()
    return {"wiring": added, "warnings": warnings + doubled}


@operation("wire.remove")
async def wire_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    chat = await context.chat(args.text("chat"))
    group = await context.group(args.text("group"))

    def remove(db: sqlite3.Connection) -> str | None:
        for wiring in wirings.wirings_of_chat(db, chat.id) if chat is not None else ():
            if wiring.agent_group_id == group.id:
                wirings.remove_wiring(db, wiring.id)
                return wiring.id
        return None

    removed = await context.hub.store.write(remove)
    if removed is None:
        raise NotFound(f"{args.text('chat')} is not wired to {group.folder}", fix="`jackfield wire` lists what is")
    if context.live is not None:
        await context.live.project(group.id)
    return {"removed": removed}
