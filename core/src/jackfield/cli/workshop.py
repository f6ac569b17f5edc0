"""`jackfield group packages` and `jackfield group mcp`: what an agent has besides what its runtime gives."""

from __future__ import annotations

import click

from jackfield.cli import output
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import Json, call, emit, say, warn
from jackfield.errors import UsageError

__all__ = ["mcp", "packages"]

_pip = click.option("--pip", multiple=True, metavar="NAME", help="A package of Python: a name, or name==version.")
_npm = click.option("--npm", multiple=True, metavar="NAME", help="A package of Node.js, by name.")


@click.group(cls=Group)
def packages() -> None:
    """Packages that are installed for one agent group alone."""


@packages.command("list")
@click.argument("group")
@json_option
def list_packages(group: str) -> None:
    """List what is recorded in the group's agent.toml, and what of it is missing."""
    found = call("group.packages.list", group=group)
    if emit(found):
        return
    rows = [
        {
            "package": name,
            "manager": manager,
            "state": "missing" if name in found["missing"][manager] else "installed",
        }
        for manager, names in found["packages"].items()
        for name in names
    ]
    columns = {"package": "PACKAGE", "manager": "BY", "state": "STATE"}
    output.table(rows, columns, empty=f"{line(found['group'])} has no packages of its own.")
    if any(found["missing"].values()):
        warn(f"some are missing: `jackfield group packages rebuild {line(found['group'])}`")


@packages.command("add")
@click.argument("group")
@_pip
@_npm
@json_option
def add_packages(group: str, pip: tuple[str, ...], npm: tuple[str, ...]) -> None:
    """Install packages for a group, in its sandbox, and record them in its agent.toml."""
    _done(call("group.packages.add", group=group, **_named(pip, npm)))


@packages.command("remove")
@click.argument("group")
@_pip
@_npm
@json_option
def remove_packages(group: str, pip: tuple[str, ...], npm: tuple[str, ...]) -> None:
    """Remove packages of a group, and what only they needed."""
    _done(call("group.packages.remove", group=group, **_named(pip, npm)))


@packages.command("rebuild")
@click.argument("group")
@json_option
def rebuild(group: str) -> None:
    """Install everything anew that is recorded for a group, such as after an update of Python."""
    _done(call("group.packages.rebuild", group=group))


def _named(pip: tuple[str, ...], npm: tuple[str, ...]) -> dict[str, list[str]]:
    if not pip and not npm:
        raise UsageError("name at least one package", fix="with --pip NAME or --npm NAME")
    return {"pip": list(pip), "npm": list(npm)}


@click.group(cls=Group)
def mcp() -> None:
    """MCP servers whose tools one agent group has."""


@mcp.command("list")
@click.argument("group")
@json_option
def list_servers(group: str) -> None:
    """List the group's MCP servers, and how each did when a runner last started it."""
    found = call("group.mcp.list", group=group)
    if emit(found):
        return
    rows = [
        {
            "name": one["name"],
            "what": one.get("url") or " ".join([one.get("command", ""), *one.get("args", [])]),
            "enabled": "on" if one.get("enabled", True) else "off",
            "state": (last := one.get("last") or {}).get("state"),
            "when": output.ago(last.get("at")),
            "detail": last.get("detail"),
        }
        for one in found
    ]
    columns = {"name": "NAME", "enabled": "IS", "what": "WHAT"}
    columns |= {"state": "LAST STATE", "when": "WHEN", "detail": "WHY"} if any(row["state"] for row in rows) else {}
    wide = "detail" if "detail" in columns else None
    output.table(rows, columns, empty="The group has no MCP server.", wide=wide)


@mcp.command("add", context_settings={"ignore_unknown_options": True})
@click.argument("group")
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", help="The address of a server that runs elsewhere, instead of a command.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable; VALUE may be secret:NAME.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="An HTTP header; VALUE may be Bearer secret:NAME.")
@click.option("--cwd", help="Where the command starts; the workspace when left out.")
@click.option("--timeout", type=float, help="Seconds that a call may take.")
@json_option
def add_server(
    group: str,
    name: str,
    command: tuple[str, ...],
    url: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    cwd: str | None,
    timeout: float | None,
) -> None:
    """Give a group an MCP server: `jackfield group mcp add andy files -- npx -y some-server /data`."""
    settings: dict[str, Json] = {
        "command": command[0] if command else None,
        "args": list(command[1:]) or None,
        "url": url,
        "env": _pairs(env, "--env") or None,
        "headers": _pairs(header, "--header") or None,
        "cwd": cwd,
        "timeout": timeout,
    }
    given = {key: value for key, value in settings.items() if value is not None}
    _done(call("group.mcp.add", group=group, name=name, settings=given))


@mcp.command("remove")
@click.argument("group")
@click.argument("name")
@json_option
def remove_server(group: str, name: str) -> None:
    """Take an MCP server from a group."""
    _done(call("group.mcp.remove", group=group, name=name))


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {key} has no value", fix=f"write it as {option} NAME=VALUE")
        found[key] = value
    return found


def _done(result: Json) -> None:
    if not emit(result):
        say(line(str(result["done"])))
