"""Operations on what a group has besides what its runtime gives: packages and MCP servers."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.errors import UsageError
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import moment
from jackfield.host.workshop.requests import checked_packages
from jackfield.models.packages import MANAGERS, Packages
from jackfield.models.server_states import server_target
from jackfield.store import activity

__all__: list[str] = []


def _packages(args: Args) -> Packages:
    return checked_packages({manager: args.words(manager) for manager in MANAGERS})


def _json(packages: Packages) -> dict[str, list[str]]:
    return {manager: list(packages.of(manager)) for manager in MANAGERS}


@operation("group.packages.list")
async def packages_list(context: ServiceContext, args: Args) -> dict[str, Any]:
    """What is recorded for a group, and what of it is missing."""
    group = await context.group(args.text("group"))
    recorded, missing = await context.workshop.packages(group.id)
    return {"group": group.folder, "packages": _json(recorded), "missing": _json(missing)}


@operation("group.packages.add")
async def packages_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Install packages for a group, and record them."""
    group = await context.group(args.text("group"))
    return {"group": group.folder, "done": await context.workshop.install(group.id, _packages(args))}


@operation("group.packages.remove")
async def packages_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Remove packages of a group."""
    group = await context.group(args.text("group"))
    return {"group": group.folder, "done": await context.workshop.remove(group.id, _packages(args))}


@operation("group.packages.rebuild")
async def packages_rebuild(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Install everything anew that is recorded for a group."""
    group = await context.group(args.text("group"))
    return {"group": group.folder, "done": await context.workshop.rebuild(group.id)}


@operation("group.mcp.list")
async def mcp_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """A group's MCP servers as its `agent.toml` has them, and how each did when a runner last told."""
    group = await context.group(args.text("group"))
    found = await context.workshop.servers(group.id)

    def look(db: sqlite3.Connection) -> dict[str, activity.Activity | None]:
        return {name: activity.newest_of(db, group.id, server_target(name)) for name in found}

    last = await context.hub.store.read(look)
    return [{"name": name, **settings, "last": _last(last[name])} for name, settings in sorted(found.items())]


def _last(one: activity.Activity | None) -> dict[str, Any] | None:
    if one is None:
        return None
    state, _, detail = one.summary.partition(": ")
    return {"state": state, "detail": detail, "at": moment(one.at)}


@operation("group.mcp.add")
async def mcp_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Give a group an MCP server."""
    group = await context.group(args.text("group"))
    settings = args.table("settings")
    if not settings:
        raise UsageError(
            "say how the server is reached", fix="give its command, after `--`, or its address, with --url"
        )
    return {"group": group.folder, "done": await context.workshop.add_server(group.id, args.text("name"), settings)}


@operation("group.mcp.remove")
async def mcp_remove(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Take an MCP server from a group."""
    group = await context.group(args.text("group"))
    return {"group": group.folder, "done": await context.workshop.remove_server(group.id, args.text("name"))}
