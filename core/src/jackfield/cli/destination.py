"""`jackfield destination`: to whom an agent may write, people's chats and other agents."""

from __future__ import annotations

import click

from jackfield.cli import output
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import call, emit, say

__all__ = ["destination"]

COLUMNS = {"group": "GROUP", "name": "NAME", "kind": "KIND", "target": "TARGET", "display_name": "SHOWN AS"}


@click.group(cls=Group)
def destination() -> None:
    """Destinations: to whom an agent may write.

    A chat that an agent is wired to is one of its destinations already.  Other chats, and other agents, are added here.
    """


@destination.command("list")
@click.argument("group", required=False)
@json_option
def list_destinations(group: str | None) -> None:
    """List to whom agents may write, and by which names."""
    found = call("destination.list", group=group)
    if emit(found):
        return
    rows = [{**one, "kind": "agent" if one.get("kind") == "agent" else "chat"} for one in found]
    output.table(rows, COLUMNS, empty="No agent may write to anybody of its own accord.")


@destination.command("add")
@click.argument("group")
@click.argument("target")
@click.option("--name", help="How the agent calls it; made from the target's name when left out.")
@click.option("--both", is_flag=True, help="Let the agent there write to this one, too.")
@json_option
def add(group: str, target: str, name: str | None, both: bool) -> None:
    """Let an agent write to a chat, or to another agent.

    TARGET is another agent group, or a chat: an id (mg_...) from `jackfield channel chats`, or channel:instance:chat.
    Agents that run know of it at once.
    """
    result = call("destination.add", group=group, target=target, name=name, both=both or None)
    if emit(result):
        return
    for one in result["added"]:
        say(f"{one['group']} may write to {line(str(one['target']))}, and calls it {one['name']}")


@destination.command("remove")
@click.argument("group")
@click.argument("name")
@click.option("--both", is_flag=True, help="Forbid the agent there to write to this one, too.")
@json_option
def remove(group: str, name: str, both: bool) -> None:
    """Forbid it again.  An agent may still answer what another one asks it."""
    result = call("destination.remove", group=group, name=name, both=both or None)
    if emit(result):
        return
    for one in result["removed"]:
        say(f"{one['group']} may no longer write to {line(str(one['target']))}")
