"""Operations on users, owners, admins and members."""

from __future__ import annotations

import sqlite3
from typing import Any
from zoneinfo import available_timezones

from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound, UsageError
from jackfield.host.registration.claiming import CLAIM_MINUTES, digest_of, new_code
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import member_json, moment, role_json, user_json
from jackfield.ids import AgentGroupId, UserId
from jackfield.models import AgentGroup, Member, Role, RoleName
from jackfield.store import chats, claims, denials, groups, people

__all__: list[str] = []


async def _user(context: ServiceContext, args: Args) -> UserId:
    """The user that is meant, by id or by an alias that exactly one known user has.

    An alias only finds: what is granted is granted to the id, which nobody else can take (C141).

    Raises:
        UsageError: it can't be a user.
        NotFound, Conflict: nobody, or several people, are known by that alias.
    """
    text = args.text("user")
    channel, separator, handle = text.partition(":")
    if not (channel and separator and handle):
        raise UsageError(f"{text!r} is not a user", fix="write it as <channel type>:<handle>, like telegram:12345")

    def look(db: sqlite3.Connection) -> tuple[bool, list[UserId]]:
        return people.user(db, UserId(text)) is not None, people.known_as(db, channel, handle)

    known, found = await context.hub.store.read(look)
    if known or (not found and not _is_alias(handle)):
        return UserId(text)
    if len(found) > 1:
        raise Conflict(
            f"{text} was seen as the name of {len(found)} people: {', '.join(found)}",
            fix="names change hands: give the id; `jackfield user show ID` tells who is who",
        )
    if not found:
        raise NotFound(
            f"nobody is known as {text}", fix="a name is no id: let them write once, or give their id on that platform"
        )
    return found[0]


def _is_alias(handle: str) -> bool:
    """Whether it looks like a name and not like an id; ids such as `@ann:example.org` hold more than the name."""
    return handle.startswith("@") and ":" not in handle


@operation("user.list")
async def user_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        folders = {group.id: group.folder for group in groups.agent_groups(db)}
        return [
            user_json(user, people.roles_of(db, user.id))
            | {"member_of": [folders[one.agent_group_id] for one in people.memberships(db, user.id)]}
            for user in people.users(db)
        ]

    return await context.hub.store.read(look)


@operation("user.show")
async def user_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    id = await _user(context, args)

    def look(db: sqlite3.Connection) -> dict[str, Any]:
        user = people.user(db, id)
        if user is None:
            raise NotFound(f"there is no user {id}", fix="see `jackfield user list`")
        folders = {group.id: group.folder for group in groups.agent_groups(db)}
        shown = user_json(user, people.roles_of(db, id))
        for role in shown["roles"]:
            role["group"] = folders.get(role["group"], role["group"])
        return shown | {
            "aliases": people.aliases_of(db, id),
            "member_of": [folders[one.agent_group_id] for one in people.memberships(db, id)],
        }

    return await context.hub.store.read(look)


@operation("user.timezone")
async def user_timezone(context: ServiceContext, args: Args) -> dict[str, Any]:
    """In which zone somebody is told times; without one, in the agent's."""
    id, zone = await _user(context, args), args.optional_text("timezone")
    if zone is not None:
        from jackfield.config.problems import near

        zones = available_timezones()
        if zone not in zones:
            raise UsageError(
                f"{zone!r} is no time zone", fix=near(zone, zones) or "give an IANA name like Europe/Berlin, or UTC"
            )
    user = await context.hub.store.write(people.set_timezone, id, zone)
    return user_json(user, [])


@operation("user.denied")
async def user_denied(context: ServiceContext, args: Args) -> dict[str, Any]:
    """The strangers who were denied, and the chats that are ignored, while that is remembered."""
    now, days = context.hub.clock.now(), context.hub.configuration.approvals.deny_days

    def look(db: sqlite3.Connection) -> dict[str, Any]:
        known = {chat.id: chat for chat in chats.messaging_groups(db)}
        by = chats.denied_by(db)
        return {
            "senders": [
                {
                    "chat": str(known[one.messaging_group_id].address),
                    "name": known[one.messaging_group_id].name,
                    "user": one.user_id,
                    "by": one.denied_by,
                    "at": moment(one.denied_at),
                    "until": moment(one.until),
                }
                for one in denials.denials(db, now)
            ],
            "chats": [
                {
                    "chat": str(chat.address),
                    "name": chat.name,
                    "by": by.get(chat.id),
                    "at": moment(chat.denied_at),
                    "until": moment(UnixMs(chat.denied_at + days * 86_400_000)),
                }
                for chat in known.values()
                if chat.denied_at is not None and chat.denied_at + days * 86_400_000 > now
            ],
        }

    return await context.hub.store.read(look)


@operation("user.forgive")
async def user_forgive(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Take back what was denied in a chat: of one person, or all of it and the chat itself."""
    chat = await context.chat(args.text("chat"))
    if chat is None:
        raise NotFound(f"there is no chat {args.text('chat')!r}", fix="see `jackfield user denied`")
    name = args.optional_text("user")
    user = await _user(context, args) if name is not None and not name.endswith(":") else name

    def forgive(db: sqlite3.Connection) -> int:
        count = denials.forget(db, chat.id, None if user is None else UserId(user))
        if user is None and chat.denied_at is not None:
            chats.deny_chat(db, chat.id, None)
            count += 1
        return count

    return {"chat": str(chat.address), "forgiven": await context.hub.store.write(forgive)}


@operation("owner.claim")
async def owner_claim(context: ServiceContext, args: Args) -> dict[str, Any]:
    """A fresh code by which somebody becomes an owner from a chat.  It is shown here once, and kept as a digest."""
    now, code = context.hub.clock.now(), new_code()
    claim = claims.Claim(digest=digest_of(code), created_at=now, expires_at=UnixMs(now + CLAIM_MINUTES * 60_000))
    await context.hub.store.write(claims.add, claim)
    return {"code": code, "expires_at": moment(claim.expires_at), "running": context.live is not None}


@operation("owner.list")
async def owner_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    roles = await context.hub.store.read(people.all_roles)
    return [role_json(role) for role in roles if role.role is RoleName.OWNER]


@operation("owner.add")
async def owner_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, now = await _user(context, args), context.hub.clock.now()
    role = Role(user_id=user, role=RoleName.OWNER, agent_group_id=None, granted_by=None, granted_at=now)
    name = args.name("name") if args.given("name") else None

    def add(db: sqlite3.Connection) -> bool:
        people.ensure_user(db, user, user.partition(":")[0], name, now)
        if any(known.role is RoleName.OWNER for known in people.roles_of(db, user)):
            return False
        people.grant(db, role)
        return True

    changed = await context.hub.store.write(add)
    await context.reconsider()
    return role_json(role) | {"changed": changed}


@operation("owner.remove")
async def owner_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    user = await _user(context, args)

    def remove(db: sqlite3.Connection) -> None:
        owners = [role for role in people.all_roles(db) if role.role is RoleName.OWNER]
        if user not in {role.user_id for role in owners}:
            raise NotFound(f"{user} is no owner", fix="see `jackfield owner list`")
        if len(owners) == 1:
            raise Conflict(f"{user} is the only owner", fix="add another one first: `jackfield owner add USER`")
        people.revoke(db, user, RoleName.OWNER, None)

    await context.hub.store.write(remove)
    return {"removed": user}


async def _scope(context: ServiceContext, args: Args) -> AgentGroup | None:
    """The agent group that an admin is of; None means all of them."""
    name = args.optional_text("group")
    return await context.group(name) if name else None


@operation("admin.list")
async def admin_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    wanted = await _scope(context, args)
    roles = await context.hub.store.read(people.all_roles, None if wanted is None else wanted.id)
    folders = {group.id: group.folder for group in await context.hub.store.read(groups.agent_groups)}
    return [
        role_json(role) | {"group": None if role.agent_group_id is None else folders.get(role.agent_group_id)}
        for role in roles
        if role.role is RoleName.ADMIN
    ]


@operation("admin.add")
async def admin_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, group, now = await _user(context, args), await _scope(context, args), context.hub.clock.now()
    role = Role(
        user_id=user,
        role=RoleName.ADMIN,
        agent_group_id=None if group is None else group.id,
        granted_by=None,
        granted_at=now,
    )
    name = args.name("name") if args.given("name") else None

    def add(db: sqlite3.Connection) -> bool:
        people.ensure_user(db, user, user.partition(":")[0], name, now)
        return people.grant(db, role)

    changed = await context.hub.store.write(add)
    await context.reconsider()
    return role_json(role) | {"group": None if group is None else group.folder, "changed": changed}


@operation("admin.remove")
async def admin_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, group = await _user(context, args), await _scope(context, args)
    scope = None if group is None else group.id
    if not await context.hub.store.write(people.revoke, user, RoleName.ADMIN, scope):
        where = "of all agent groups" if group is None else f"of {group.folder}"
        raise NotFound(f"{user} is no admin {where}", fix="see `jackfield admin list`")
    return {"removed": user, "group": None if group is None else group.folder}


@operation("member.list")
async def member_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    name = args.optional_text("group")
    wanted = [await context.group(name)] if name else await context.hub.store.read(groups.agent_groups)

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        return [member_json(member, group) for group in wanted for member in people.members(db, group.id)]

    return await context.hub.store.read(look)


@operation("member.add")
async def member_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, group, now = await _user(context, args), await context.group(args.text("group")), context.hub.clock.now()
    member = Member(user_id=user, agent_group_id=AgentGroupId(group.id), added_by=None, added_at=now)
    name = args.name("name") if args.given("name") else None

    def add(db: sqlite3.Connection) -> bool:
        people.ensure_user(db, user, user.partition(":")[0], name, now)
        if people.is_member(db, group.id, user):
            return False
        people.add_member(db, member)
        return True

    changed = await context.hub.store.write(add)
    await context.reconsider()
    return member_json(member, group) | {"changed": changed}


@operation("member.remove")
async def member_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, group = await _user(context, args), await context.group(args.text("group"))

    def remove(db: sqlite3.Connection) -> None:
        if not people.is_member(db, group.id, user):
            raise NotFound(f"{user} is no member of {group.folder}", fix=f"see `jackfield member list {group.folder}`")
        people.remove_member(db, group.id, user)

    await context.hub.store.write(remove)
    return {"removed": user, "group": group.folder}
