"""Operations on users, owners, admins and members."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.errors import Conflict, NotFound, UsageError
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import member_json, role_json, user_json
from jackfield.ids import AgentGroupId, UserId
from jackfield.models import AgentGroup, Member, Role, RoleName
from jackfield.store import groups, people

__all__: list[str] = []


def _user(args: Args) -> UserId:
    text = args.text("user")
    channel, separator, handle = text.partition(":")
    if not (channel and separator and handle):
        raise UsageError(f"{text!r} is not a user", fix="write it as <channel type>:<handle>, like telegram:12345")
    return UserId(text)


@operation("user.list")
async def user_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        return [user_json(user, people.roles_of(db, user.id)) for user in people.users(db)]

    return await context.hub.store.read(look)


@operation("owner.list")
async def owner_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    roles = await context.hub.store.read(people.all_roles)
    return [role_json(role) for role in roles if role.role is RoleName.OWNER]


@operation("owner.add")
async def owner_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, now = _user(args), context.hub.clock.now()
    role = Role(user_id=user, role=RoleName.OWNER, agent_group_id=None, granted_by=None, granted_at=now)

    def add(db: sqlite3.Connection) -> bool:
        people.ensure_user(db, user, user.partition(":")[0], args.optional_text("name"), now)
        if any(known.role is RoleName.OWNER for known in people.roles_of(db, user)):
            return False
        people.grant(db, role)
        return True

    return role_json(role) | {"changed": await context.hub.store.write(add)}


@operation("owner.remove")
async def owner_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    user = _user(args)

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
    user, group, now = _user(args), await _scope(context, args), context.hub.clock.now()
    role = Role(
        user_id=user,
        role=RoleName.ADMIN,
        agent_group_id=None if group is None else group.id,
        granted_by=None,
        granted_at=now,
    )

    def add(db: sqlite3.Connection) -> bool:
        people.ensure_user(db, user, user.partition(":")[0], args.optional_text("name"), now)
        return people.grant(db, role)

    changed = await context.hub.store.write(add)
    return role_json(role) | {"group": None if group is None else group.folder, "changed": changed}


@operation("admin.remove")
async def admin_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, group = _user(args), await _scope(context, args)
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
    user, group, now = _user(args), await context.group(args.text("group")), context.hub.clock.now()
    member = Member(user_id=user, agent_group_id=AgentGroupId(group.id), added_by=None, added_at=now)

    def add(db: sqlite3.Connection) -> bool:
        people.ensure_user(db, user, user.partition(":")[0], args.optional_text("name"), now)
        if people.is_member(db, group.id, user):
            return False
        people.add_member(db, member)
        return True

    return member_json(member, group) | {"changed": await context.hub.store.write(add)}


@operation("member.remove")
async def member_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    user, group = _user(args), await context.group(args.text("group"))

    def remove(db: sqlite3.Connection) -> None:
        if not people.is_member(db, group.id, user):
            raise NotFound(f"{user} is no member of {group.folder}", fix=f"see `jackfield member list {group.folder}`")
        people.remove_member(db, group.id, user)

    await context.hub.store.write(remove)
    return {"removed": user, "group": group.folder}
