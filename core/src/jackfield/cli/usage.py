"""`jackfield usage`: what models were used for, and what that cost."""

from __future__ import annotations

from typing import Any

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.since import SINCE, moment
from jackfield.cli.state import call, emit, say

__all__ = ["usage"]

BY = ("group", "model", "provider", "day", "session")
COLUMNS = {
    "requests": "REQUESTS",
    "input": "INPUT",
    "cached": "CACHED",
    "output": "OUTPUT",
    "cost": "COST",
}


@click.command(cls=Command)
@click.option("--group", metavar="NAME", help="Only what this agent group used.")
@click.option("--session", metavar="ID", help="Only what was used in this conversation.")
@click.option("--since", metavar="WHEN", help=SINCE)
@click.option("--by", type=click.Choice(BY), default="group", show_default=True, help="What sums are shown for.")
@json_option
def usage(group: str | None, session: str | None, since: str | None, by: str) -> None:
    """Show how many tokens models were asked with, and what that cost, as far as prices are known.

    Counted by the model gateway, or by an agent's provider where it does without. Each request is kept as long as
    messages are (`host.keep_days`), the sums of days for over a year; by conversation only the former is known.
    """
    found = call("usage.sums", group=group, session=session, since=moment(since), by=by)
    if emit(found):
        return
    rows = [_row(one, one.get(by) or "(older)") for one in found["rows"]]
    if len(rows) > 1:
        rows.append(_row(found["total"], "all"))
    output.table(rows, {"name": by.upper(), **COLUMNS}, empty="No model was used yet, as far as it is kept.")
    if found["total"]["unpriced"]:
        say(f"+ {found['total']['unpriced']:,} of the requests have no known price, and are not in the cost")


def _row(sums: dict[str, Any], name: str) -> dict[str, Any]:
    unknown = sums["unpriced"]
    cost = "-" if unknown and unknown >= sums["requests"] else f"${sums['cost']:,.4f}{'+' if unknown else ''}"
    return {
        "name": name,
        "requests": f"{sums['requests']:,}",
        "input": f"{sums['input'] + sums['cache_write']:,}",
        "cached": f"{sums['cache_read']:,}",
        "output": f"{sums['output']:,}",
        "cost": cost,
    }
