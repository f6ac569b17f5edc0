"""`jackfield activity`: what agents did."""

from __future__ import annotations

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.since import SINCE, moment
from jackfield.cli.state import call, emit

__all__ = ["activity"]

KINDS = ("tool_call", "mcp_call", "cmd_exec", "secret_use")


@click.command(cls=Command)
@click.option("--group", metavar="NAME", help="Only what this agent group did.")
@click.option("--session", metavar="ID", help="Only what was done in this conversation.")
@click.option(
    "--kind", type=click.Choice(KINDS), help="Only tool calls, calls of MCP tools, commands, or uses of secrets."
)
@click.option("--since", metavar="WHEN", help=SINCE)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@json_option
def activity(group: str | None, session: str | None, kind: str | None, since: str | None, limit: int) -> None:
    """Show what agents did, the newest first: tools they called, commands they ran, secrets they used.

    It is kept as long as messages are (`host.keep_days`), the newest 10,000 entries of each conversation.
    """
    found = call("activity.list", group=group, session=session, kind=kind, since=moment(since), limit=limit)
    if emit(found):
        return
    rows = [{**one, "when": output.ago(one.get("at"))} for one in found]
    columns = {"when": "WHEN", "group": "GROUP", "kind": "KIND", "target": "WHAT", "summary": "WITH"}
    if not group and not session:
        columns = {"when": "WHEN", "group": "GROUP", "session": "SESSION", **columns}
    output.table(rows, columns, empty="No agent has done anything yet, as far as it is kept.", wide="summary")
