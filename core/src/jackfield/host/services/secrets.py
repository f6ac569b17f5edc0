"""Operations on secrets.  A value comes in by `secret.set` and `secret.import`; none ever goes out."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from jackfield.errors import ConfigError, UsageError
from jackfield.host.secrets.held import HeldSecret
from jackfield.host.secrets.vault import NewSecret
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import moment
from jackfield.ids import AgentGroupId
from jackfield.models import AgentGroup
from jackfield.redaction import LEAST, REDACTOR
from jackfield.store import groups
from jackfield.store.secrets import SecretKind

__all__: list[str] = []

log = logging.getLogger(__name__)


async def _scope(context: ServiceContext, args: Args) -> AgentGroup | None:
    name = args.optional_text("group")
    return await context.group(name) if name else None


async def _secret(context: ServiceContext, args: Args) -> tuple[HeldSecret, AgentGroup | None]:
    group = await _scope(context, args)
    return context.hub.vault.at(args.text("name"), None if group is None else group.id), group


async def _folders(context: ServiceContext) -> dict[AgentGroupId, str]:
    return {group.id: group.folder for group in await context.hub.store.read(groups.agent_groups)}


def _json(secret: HeldSecret, folders: dict[AgentGroupId, str]) -> dict[str, Any]:
    """All but the value.  `masked`: whether it is long enough to be taken out of logs and chats; None when unknown."""
    row = secret.row
    return {
        "id": row.id,
        "name": row.name,
        "kind": row.kind.value,
        "group": None if row.agent_group_id is None else folders.get(row.agent_group_id, row.agent_group_id),
        "assigned": sorted(folders.get(group, group) for group in secret.groups),
        "readable": secret.value is not None,
        "masked": None if secret.value is None else len(secret.value) >= LEAST,
        "created_at": moment(row.created_at),
        "updated_at": moment(row.updated_at),
    }


def _used_by_channels(context: ServiceContext) -> set[str]:
    """Every text in the tables of channels: the names of their secrets are among them."""
    found: set[str] = set()
    waiting: list[Any] = [section.settings for section in context.hub.configuration.channels.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.add(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
    return found


async def _put(
    context: ServiceContext, values: Sequence[tuple[str, str]], kind: SecretKind | None, group: AgentGroup | None
) -> list[dict[str, Any]]:
    """Store them; one that a channel names becomes that channel's unless a kind is given or known."""
    vault, scope = context.hub.vault, None if group is None else group.id
    known = {one.row.name for one in vault.held if one.row.agent_group_id == scope}
    of_channels = _used_by_channels(context) if scope is None else set()
    new = []
    for name, value in values:
        implied = SecretKind.CHANNEL_TOKEN if name in of_channels and name not in known else None
        new.append(NewSecret(name=name, value=value, kind=kind or implied, group=scope))
    fresh = await vault.put(new)
    folders = await _folders(context)
    out = []
    for one, created in zip(new, fresh, strict=True):
        where = "" if group is None else f" of group {group.folder}"
        log.info("secret %s%s was %s", one.name, where, "stored" if created else "given a new value")
        out.append(_json(vault.at(one.name, scope), folders) | {"created": created})
    _renew(context)
    if context.live is not None:
        for one in new:
            await context.live.secret_changed(one.name)
    return out


def _renew(context: ServiceContext) -> None:
    """Runners that have other secrets than they would be given now are replaced, each after its turn."""
    if context.live is not None:
        context.live.renew()


@operation("secret.set")
async def secret_set(context: ServiceContext, args: Args) -> dict[str, Any]:
    kind = args.choice("kind", SecretKind, SecretKind.GENERIC) if args.optional_text("kind") else None
    name, value = args.text("name"), args.optional_text("value", empty=True) or ""
    if REDACTOR(name) != name:
        raise UsageError(
            "what should be the name looks like a secret itself", fix="give a name; the value is asked for"
        )
    done = await _put(context, [(name, value)], kind, await _scope(context, args))
    return done[0]


@operation("secret.import")
async def secret_import(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """`values` is a table of texts by name: all of them are stored, or none."""
    kind = args.choice("kind", SecretKind, SecretKind.GENERIC) if args.optional_text("kind") else None
    return await _put(context, list(args.texts("values").items()), kind, await _scope(context, args))


@operation("secret.list")
async def secret_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """All secrets; with a group, those that its agents get, and why (`scoped`, `assigned`, `all`)."""
    await context.hub.vault.refresh()
    folders = await _folders(context)
    group = await _scope(context, args)
    if group is None:
        return [_json(one, folders) for one in context.hub.vault.held]
    given = context.hub.vault.visible_to(group.id, context.hub.agent_settings(group).secrets)
    return [_json(one.secret, folders) | {"why": one.why} for _, one in sorted(given.items())]


@operation("secret.show")
async def secret_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    """One secret, and which groups' agents get it under the settings of now."""
    secret, _ = await _secret(context, args)
    known = await context.hub.store.read(groups.agent_groups)
    reaches = []
    for group in known:
        try:
            mode = context.hub.agent_settings(group).secrets
        except ConfigError:
            continue
        given = context.hub.vault.visible_to(group.id, mode).get(secret.row.name)
        if given is not None and given.secret.row.id == secret.row.id:
            reaches.append({"group": group.folder, "why": given.why})
    return _json(secret, {group.id: group.folder for group in known}) | {"reaches": reaches}


@operation("secret.remove")
async def secret_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    secret, group = await _secret(context, args)
    await context.hub.vault.remove(secret, force=args.flag("force"))
    log.info("secret %s was removed", secret.row.name)
    _renew(context)
    return {"removed": secret.row.name, "group": None if group is None else group.folder}


@operation("secret.assign")
async def secret_assign(context: ServiceContext, args: Args) -> dict[str, Any]:
    return await _change_assignment(context, args, assign=True)


@operation("secret.unassign")
async def secret_unassign(context: ServiceContext, args: Args) -> dict[str, Any]:
    return await _change_assignment(context, args, assign=False)


async def _change_assignment(context: ServiceContext, args: Args, *, assign: bool) -> dict[str, Any]:
    """The global secret of that name, else the group's own."""
    vault, group, name = context.hub.vault, await context.group(args.text("group")), args.text("name")
    own = any(one.row.name == name and one.row.agent_group_id == group.id for one in vault.held)
    shared = any(one.row.name == name and one.row.agent_group_id is None for one in vault.held)
    secret = vault.at(name, group.id if own and not shared else None)
    done = await (vault.assign if assign else vault.unassign)(secret, group.id)
    if done:
        log.info("secret %s was %s group %s", name, "assigned to" if assign else "taken from", group.folder)
        _renew(context)
    kept = context.hub.agent_settings(group).secrets == "all"
    return {"name": name, "group": group.folder, "assigned": assign, "changed": done, "gets_all": kept}


@operation("secret.rotate")
async def secret_rotate(context: ServiceContext, args: Args) -> dict[str, Any]:
    """A new master key."""
    count = await context.hub.vault.rotate()
    log.warning("the master key was replaced, and %d secrets were sealed with the new one", count)
    return {"rotated": count, "unreadable": sum(one.value is None for one in context.hub.vault.held)}


@operation("secret.accept_key")
async def secret_accept_key(context: ServiceContext, args: Args) -> dict[str, Any]:
    readable, unreadable = await context.hub.vault.accept_key()
    log.warning("the master key was accepted: %d secrets can be read, %d can't", readable, unreadable)
    _renew(context)
    return {"readable": readable, "unreadable": unreadable}
