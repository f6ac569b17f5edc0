"""`jackfield session`: conversations."""

from __future__ import annotations

import json
import sys
import time

import click

from jackfield.cli import output, printable
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.state import Json, call, confirm, current, emit, say
from jackfield.errors import UsageError

__all__ = ["session"]

FOLLOW_SECONDS = 1.0


@click.group(cls=Group)
def session() -> None:
    """Conversations: read them, write into them, stop them."""


@session.command("list")
@click.option("--group", help="Only those of one agent group.")
@click.option("--status", type=click.Choice(["active", "closed"]), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@json_option
def list_sessions(group: str | None, status: str | None, limit: int) -> None:
    """List conversations, the newest first."""
    found = call("session.list", group=group, status=status, limit=limit)
    if emit(found):
        return
    rows = [
        {**one, "active": output.ago(one.get("last_active_at")), "parked": output.ago(one.get("parked_until"))}
        for one in found
    ]
    columns = {"id": "ID", "group": "GROUP", "status": "STATUS", "runner": "RUNNER", "active": "ACTIVE"}
    columns |= {"parked": "PARKED"} if any(row["parked"] for row in rows) else {}
    output.table(rows, {**columns, "key": "KEY"}, empty="There is no conversation.", wide="key")


@session.command("show")
@click.argument("session_id", metavar="ID")
@json_option
def show(session_id: str) -> None:
    """Show one conversation and what is still open in it."""
    found = call("session.show", id=session_id)
    if emit(found):
        return
    simple = {key: value for key, value in found.items() if not isinstance(value, list | dict)}
    output.facts({_word(key): _time(key, value) for key, value in simple.items()})
    if found.get("open"):
        say()
        say("Open:", bold=True)
        _messages(found["open"])


@session.command("tail")
@click.argument("session_id", metavar="ID")
@click.option("--follow", "-f", is_flag=True, help="Go on until Ctrl-C.")
@click.option(
    "--limit", "-n", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many to begin with."
)
@json_option
def tail(session_id: str, follow: bool, limit: int) -> None:
    """Read what was said.  With --json and --follow, one object a line."""
    items: list[Json] = call("session.tail", id=session_id, limit=limit)
    if not follow:
        if not emit(items):
            for item in items:
                _say_item(item)
        return
    seen: set[str] = set()
    after = None
    while True:
        for item in items:
            # Items of one moment may come in two answers, so ids tell what is new.
            if item.get("id") not in seen:
                seen.add(str(item.get("id")))
                _say_item(item)
        if items:
            after = str(items[-1].get("at") or after or "")
        time.sleep(FOLLOW_SECONDS)
        items = call("session.tail", id=session_id, after=after, limit=1000)


def _say_item(item: Json) -> None:
    if current().json:
        click.echo(printable.harmless_json(json.dumps(item, ensure_ascii=False)))
        return
    inward = item.get("direction") == "in"
    at = str(output.ago(item.get("at") or item.get("created_at")) or "")
    who = "in " if inward else "out"
    head = click.style(f"{who} {at}", fg="cyan" if inward else "magenta")
    state = str(item.get("state", ""))
    if state not in ("completed", "sent"):
        head += " " + click.style(f"[{state}]", fg=output.state_colour(state))
    say(head)
    for one in printable.block(str(item.get("text") or "")).split("\n"):
        say(f"  {one}")


@session.command("stop")
@click.argument("session_id", metavar="ID")
@json_option
def stop(session_id: str) -> None:
    """End the process that works on a conversation.  The next message starts another one."""
    result = call("session.stop", id=session_id)
    if emit(result):
        return
    say("stopped" if result.get("stopped") else "nothing was running")


@session.command("clear")
@click.argument("session_id", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def clear(session_id: str, yes: bool) -> None:
    """Close a conversation: the next message begins a new one that remembers nothing of it."""
    confirm(f"Close {session_id} for good?", yes=yes)
    result = call("session.clear", id=session_id)
    if emit(result):
        return
    say(f"closed; messages that waited and were dropped: {result.get('dropped', 0)}")


@session.command("send")
@click.argument("session_id", metavar="ID")
@click.argument("text", required=False)
@json_option
def send(session_id: str, text: str | None) -> None:
    """Write into a conversation as its operator; the answer goes to its chat.  Without TEXT, read stdin."""
    if text is None:
        if sys.stdin.isatty():
            raise UsageError("the text is missing", fix="give it as an argument, or pipe it in")
        # Some programs begin what they write with a byte order mark.
        text = sys.stdin.buffer.read().decode("utf-8", "replace").removeprefix("\ufeff").strip("\n")
    if not text.strip():
        raise UsageError("the text is empty", fix="say something")
    result = call("session.send", id=session_id, text=text)
    if emit(result):
        return
    say(f"sent as {result['message']}")


def _messages(rows: list[Json]) -> None:
    shown = [{**row, "at": output.ago(row.get("created_at"))} for row in rows]
    output.table(
        shown, {"id": "ID", "state": "STATE", "attempts": "TRIES", "at": "SINCE", "text": "TEXT"}, empty="", wide="text"
    )


def _word(key: str) -> str:
    return key.removesuffix("_at").replace("_", " ")


def _time(key: str, value: Json) -> Json:
    return output.ago(value) if key.endswith(("_at", "_until")) and isinstance(value, str) else value
