"""`jackfield group`: agent groups."""

from __future__ import annotations

from pathlib import Path

import click

from jackfield.cli import output
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.printable import block, line
from jackfield.cli.running import reload_if_running
from jackfield.cli.setup import folder_for, group_files, need_plugin
from jackfield.cli.state import Json, call, confirm, current, emit, say, warn
from jackfield.cli.transfer import export_group, import_group
from jackfield.cli.workshop import mcp, packages
from jackfield.errors import Conflict, UsageError

__all__ = ["group"]

WIRINGS = {
    "chat": "CHAT",
    "engage": "ENGAGE",
    "session": "SESSION",
    "scope": "SCOPE",
    "ignored": "IGNORED",
    "priority": "PRIORITY",
}


@click.group(cls=Group)
def group() -> None:
    """Agent groups: who answers, with what, and where they live."""


group.add_command(export_group)
group.add_command(import_group)
group.add_command(packages)
group.add_command(mcp)


@group.command("list")
@json_option
def list_groups() -> None:
    """List the agent groups."""
    found = call("group.list")
    if emit(found):
        return
    rows = [{**one, "created": output.ago(one.get("created_at"))} for one in found]
    columns = {"folder": "FOLDER", "name": "NAME", "created": "CREATED", "id": "ID"}
    output.table(rows, columns, empty="There is no agent group.  Make one with `jackfield group add NAME`.")


@group.command("show")
@click.argument("name")
@json_option
def show(name: str) -> None:
    """Show a group's settings as they take effect, its chats and its people."""
    found = call("group.show", name=name)
    if emit(found):
        return
    say(line(found["name"]), bold=True)
    output.facts({key: found.get(key) for key in ("folder", "id", "created_by", "path", "sessions")}, indent=2)
    if found.get("problem"):
        warn(line(str(found["problem"])))
    if found.get("settings"):
        _show_settings(found["settings"], Path(str(found.get("path", ""))))
    if found.get("wirings"):
        say()
        say("Chats:", bold=True)
        output.table(found["wirings"], WIRINGS, empty="")
    if found.get("destinations"):
        say()
        say("May write to:", bold=True)
        rows = [{**one, "kind": "agent" if one["kind"] == "agent" else "chat"} for one in found["destinations"]]
        output.table(rows, {"name": "NAME", "kind": "KIND", "target": "TARGET"}, empty="")
    if found.get("members"):
        say()
        output.facts({"members": found["members"]})


def _show_settings(settings: Json, folder: Path) -> None:
    """Every setting with its value; those that `agent.toml` says are marked."""
    said = _said_in(folder)
    say()
    say("Settings (* is set in agent.toml, the others are defaults):", bold=True)
    flat = dict(_flat(settings))
    output.facts(
        {f"{'*' if key in said else ' '} {key}": "-" if value is None else value for key, value in flat.items()},
        indent=2,
    )


def _flat(table: Json, prefix: str = "") -> list[tuple[str, Json]]:
    out: list[tuple[str, Json]] = []
    for key, value in table.items():
        if isinstance(value, dict) and value:
            out.extend(_flat(value, f"{prefix}{key}."))
        elif value != {}:
            out.append((f"{prefix}{key}", value))
    return out


def _said_in(folder: Path) -> set[str]:
    import tomllib

    try:
        return {key for key, _ in _flat(tomllib.loads((folder / "agent.toml").read_text(encoding="utf-8-sig")))}
    except (OSError, ValueError, RecursionError):
        return set()


@group.command("prompt")
@click.argument("name")
@click.option("--session", metavar="ID", help="Of this conversation; the group's newest one when left out.")
@json_option
def prompt(name: str, session: str | None) -> None:
    """Show what an agent is told before anything else, layer by layer, and how much of the model's room that takes.

    Tokens are an estimate: four bytes each. To shorten it, see `groups/NAME/AGENTS.md`, `memory/index.md` there, and
    the tool sets and packs in its agent.toml.
    """
    found = call("group.prompt", name=name, session=session)
    if emit(found):
        return
    for layer in found["layers"]:
        say(f"--- {layer['name']}", fg="cyan")
        say(block(str(layer["text"])))
        say()
    rows = [*found["layers"], {"name": "all", "bytes": found["bytes"], "tokens": found["tokens"]}]
    shown = [{**one, "bytes": f"{one['bytes']:,}", "tokens": f"{one['tokens']:,}"} for one in rows]
    output.table(shown, {"name": "LAYER", "bytes": "BYTES", "tokens": "ABOUT TOKENS"}, empty="")
    if not found["channels_known"]:
        warn("no host runs, so what its channels can do is left out")


@group.command("add")
@click.argument("name")
@click.option("--folder", help="Its folder below groups/; made from the name when left out.")
@click.option("--provider", default="mock", show_default=True, help="Which provider plugin answers.")
@click.option("--runtime", default="process", show_default=True, help="Where its processes live.")
@json_option
def add(name: str, folder: str | None, provider: str, runtime: str) -> None:
    """Add an agent group."""
    home = current().home.require()
    chosen = folder_for(name, folder)
    need_plugin("provider", provider)
    need_plugin("runtime", runtime)
    made = call("group.add", name=name, folder=chosen)
    place = home.groups / chosen
    written = group_files(place, name=name, provider=provider, runtime=runtime)
    if "agent.toml" in written:
        call("group.accept", name=chosen)
    else:
        warn(f"{place / 'agent.toml'} was there already and is used as it is")
    if emit({**made, "path": str(place)}):
        return
    say(f"{line(name)} is there: {place}")
    say(f"Talk to it: `jackfield chat {chosen}`.  Tell it who it is in {place / 'AGENTS.md'}.")


@group.command("remove")
@click.argument("name")
@click.option("--force", is_flag=True, help="Also when chats are wired to it.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def remove(name: str, force: bool, yes: bool) -> None:
    """Remove an agent group.  Its folder stays; its conversations end."""
    found = call("group.show", name=name)
    count = found.get("sessions", 0)
    confirm(f"Remove agent group {line(found['name'])} ({found['folder']}) and end its {count} conversations?", yes=yes)
    result = call("group.remove", name=found["id"], force=force)
    if emit(result):
        return
    say(f"{found['folder']} is removed; its folder stays at {result.get('folder', found.get('path'))}")


@group.command("set")
@click.argument("name")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Take the key out, so that its default stands.")
@json_option
def set_value(name: str, key: str, value: str | None, unset: bool) -> None:
    """Change a setting in a group's agent.toml, such as `model` or `limits.turn_seconds`."""
    from jackfield.config import AgentSettings
    from jackfield.config.edit import set_agent_value, values_from_texts

    if unset == (value is not None):
        raise UsageError("give a value, or --unset", fix=f"`jackfield group set {name} {key} VALUE`")
    found = call("group.show", name=name)
    folder = found["folder"]
    if found.get("accepted") is False:
        raise Conflict(
            f"{folder}'s agent.toml was changed by something else than these commands, and is not accepted yet",
            fix=f"look at {found['path']}/agent.toml, then `jackfield group accept {folder}`",
        )
    if key in ("provider", "runtime") and value is not None:
        need_plugin(key, value)
    if key == "tools" and value is not None:
        for one in values_from_texts(AgentSettings, {key: value})[key]:
            need_plugin("tools", str(one))
    stored = set_agent_value(current().home.groups / folder, key, value)
    call("group.accept", name=folder)
    reloaded = reload_if_running()
    if emit({"group": folder, "key": key, "value": stored, "reloaded": reloaded is not None}):
        return
    say(f"{folder}: {key} is {'no longer set' if unset else output.text_of(stored)}")


@group.command("accept")
@click.argument("name")
@json_option
def accept(name: str) -> None:
    """Accept a change of agent.toml that was not made by these commands.

    A process that nothing isolates could change its own settings; so they count only once you have said yes.
    """
    from jackfield.config import read_agent

    settings = read_agent(current().home.groups / call("group.show", name=name)["folder"]).settings
    if settings is not None:  # else the host says what is wrong with the file
        need_plugin("provider", settings.provider)
        need_plugin("runtime", settings.runtime)
        for kind, names in (("tools", settings.tools), ("pack", settings.packs)):
            for one in names:
                need_plugin(kind, one)
    result = call("group.accept", name=name)
    if emit(result):
        return
    say(f"{result['group']}: agent.toml is {'accepted' if result.get('changed') else 'as it was accepted before'}")
