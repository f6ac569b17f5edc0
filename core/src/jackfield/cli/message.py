"""`jackfield message`: every message in, every part out, and what became of it."""

from __future__ import annotations

import datetime

import click

from jackfield.cli import output, printable
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.state import Json, call, confirm, emit, say

__all__ = ["message"]

STATES = (
    "queued", "claimed", "retrying", "parked", "context", "completed", "failed", "dropped", "refused", "pending",
    "sending", "waiting", "accepted", "sent", "blocked",
)  # fmt: skip


UNFINISHED = ("queued", "retrying", "parked", "pending", "waiting")
"""States in which a message waits for its next try."""


@click.group(cls=Group)
def message() -> None:
    """Messages: nothing is lost without a trace."""


@message.command("list")
@click.option("--session", help="Only those of one conversation.")
@click.option("--state", type=click.Choice(STATES), help="Only those in one state.")
@click.option("--direction", type=click.Choice(["in", "out"]), help="Only those to the agent, or from it.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@json_option
def list_messages(session: str | None, state: str | None, direction: str | None, limit: int) -> None:
    """List messages, the newest first."""
    found = call("message.list", session=session, state=state, direction=direction, limit=limit)
    if emit(found):
        return
    rows = [{**one, "at": output.ago(one.get("created_at")), "why": _kind(one.get("reason"))} for one in found]
    columns = {"id": "ID", "direction": "", "state": "STATE", "at": "WHEN"}
    columns |= {"why": "WHY"} if any(row["why"] for row in rows) else {}
    output.table(rows, {**columns, "text": "TEXT"}, empty="There is no such message.", wide="text")


@message.command("show")
@click.argument("message_id", metavar="ID")
@json_option
def show(message_id: str) -> None:
    """Show one message."""
    found = call("message.show", id=message_id)
    if not emit(found):
        _show(found)


def _kind(reason: str | None) -> str | None:
    """The word in front of a reason's sentence: a list has room for no more."""
    return None if reason is None else reason.partition(": ")[0]


def _next_try(found: Json, now: datetime.datetime) -> str | None:
    """When it will be tried, as people say it; None when it will not be, or nobody knows."""
    at = found.get("next_try_at")
    if at is None or found.get("state") not in UNFINISHED:
        return None
    return "now" if datetime.datetime.fromisoformat(at) <= now else output.ago(at, now=now)


def _show(found: Json) -> None:
    simple = {key: value for key, value in found.items() if key != "text" and not isinstance(value, dict)}
    simple["next_try"] = _next_try(found, datetime.datetime.now(datetime.UTC))
    simple.pop("next_try_at", None)
    output.facts(
        {
            key.removesuffix("_at").replace("_", " "): output.ago(value) if key.endswith("_at") and value else value
            for key, value in simple.items()
        }
    )
    if found.get("text"):
        say()
        say(printable.block(str(found["text"])))


@message.command("retry")
@click.argument("message_id", metavar="ID")
@json_option
def retry(message_id: str) -> None:
    """Try a failed message again."""
    result = call("message.retry", id=message_id)
    if emit(result):
        return
    say(f"{message_id} is {output.text_of(result.get('state'))} again")


@message.command("drop")
@click.argument("message_id", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def drop(message_id: str, yes: bool) -> None:
    """Give up on a message that still waits."""
    confirm(f"Give up on {message_id}?", yes=yes)
    result = call("message.drop", id=message_id)
    if emit(result):
        return
    say(f"{message_id} is {output.text_of(result.get('state'))}")
