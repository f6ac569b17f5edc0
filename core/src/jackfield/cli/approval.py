"""`jackfield approval`: what agents wait for a person to decide."""

from __future__ import annotations

import click

from jackfield.cli import output, printable
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.state import Json, call, emit, say

__all__ = ["approval"]

STATES = ("pending", "approved", "rejected", "expired", "cancelled")


@click.group(cls=Group)
def approval() -> None:
    """What agents may do only after a person has said yes."""


@approval.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that were decided.")
@click.option("--state", type=click.Choice(STATES), help="Only those in one state; by default pending.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@json_option
def list_approvals(everything: bool, state: str | None, limit: int) -> None:
    """List what waits for a decision, the newest first."""
    found = call("approval.list", all=everything and state is None, state=state, limit=limit)
    if emit(found):
        return
    rows = [
        {
            **one,
            "asked": output.ago(one.get("created_at")),
            "ends": output.ago(one.get("expires_at")),
            "what": f"{one['title']}: {one['about']}" if one["about"] else one["title"],
        }
        for one in found
    ]
    columns = {"id": "ID", "state": "STATE", "group": "AGENT", "kind": "KIND", "asked": "ASKED"}
    columns |= {"ends": "ENDS"} if any(row["state"] == "pending" for row in rows) else {}
    columns |= {"outcome": "OUTCOME"} if any(row["outcome"] for row in rows) else {}
    output.table(rows, {**columns, "what": "WHAT"}, empty="Nothing waits for a decision.", wide="what")


@approval.command("show")
@click.argument("approval_id", metavar="ID")
@json_option
def show(approval_id: str) -> None:
    """Show everything that would be done."""
    found = call("approval.show", id=approval_id)
    if not emit(found):
        _show(found)


def _show(found: Json) -> None:
    from jackfield.host.approvals.cards import quoted  # takes time to import

    hidden = {"fields", "choices", "payload", "files", "digest", "reason", "title", "about", "expires_at"}
    output.facts(
        {
            key.removesuffix("_at").removesuffix("_local").replace("_", " "): output.ago(value)
            if key.endswith("_at") and value
            else value
            for key, value in found.items()
            if key not in hidden and value is not None
        }
    )
    say()
    say(printable.line(str(found["title"])), bold=True)
    for one in found["fields"]:
        say()
        say(f"{printable.line(one['label'])}:")
        say(quoted(one["value"]))
    for one in found["files"]:
        say()
        say(f"File {printable.line(one['name'])}, {one['size']:,} bytes; what was handed in lies in {one['path']}")
    if found["reason"]:
        say()
        say("The agent's reason:")
        say(quoted(found["reason"]))
    if found["state"] == "pending":
        say()
        say(f"`jackfield approval approve {found['id']}` or `jackfield approval reject {found['id']}`")
        if [one["value"] for one in found["choices"]] != ["approve", "reject"]:
            labels = ", ".join(f"'{printable.line(one['label'])}'" for one in found["choices"])
            say(f"Its choices, for --choice: {labels}")


@approval.command("approve")
@click.argument("approval_id", metavar="ID")
@click.option("--choice", help="Which of its choices, by its words; needed where several say yes.")
@click.option("--note", help="A word to the agent.")
@json_option
def approve(approval_id: str, choice: str | None, note: str | None) -> None:
    """Say yes.  The host then does it, once."""
    result = call("approval.decide", id=approval_id, value=choice, note=note)
    if emit(result):
        return
    say(f"{result['id']} is {result['state']}; `jackfield approval show {result['id']}` tells what came of it")


@approval.command("reject")
@click.argument("approval_id", metavar="ID")
@click.option("--note", help="Why, for the agent.")
@json_option
def reject(approval_id: str, note: str | None) -> None:
    """Say no."""
    result = call("approval.decide", id=approval_id, reject=True, note=note)
    if emit(result):
        return
    say(f"{result['id']} is {result['state']}")


@approval.command("cancel")
@click.argument("approval_id", metavar="ID")
@click.option("--note", help="Why, for the agent.")
@json_option
def cancel(approval_id: str, note: str | None) -> None:
    """Take the question away: neither yes nor no."""
    result = call("approval.cancel", id=approval_id, note=note)
    if emit(result):
        return
    say(f"{result['id']} is {result['state']}")
