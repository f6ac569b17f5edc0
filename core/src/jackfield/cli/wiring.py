"""`jackfield wire` and `jackfield unwire`: which agent answers in which chat."""

from __future__ import annotations

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import call, emit, say, warn
from jackfield.errors import UsageError

__all__ = ["unwire", "wire"]

COLUMNS = {
    "chat": "CHAT",
    "group": "GROUP",
    "engage": "ENGAGE",
    "pattern": "PATTERN",
    "scope": "SCOPE",
    "ignored": "IGNORED",
    "session": "SESSION",
    "priority": "PRIORITY",
    "origin": "ORIGIN",
}


@click.command(cls=Command)
@click.argument("chat", required=False)
@click.argument("group", required=False)
@click.option(
    "--engage",
    type=click.Choice(["always", "pattern", "mention", "mention-sticky"]),
    help="When a message starts a turn.",
)
@click.option("--pattern", metavar="RE", help="With --engage pattern: a message that matches starts a turn.")
@click.option("--scope", type=click.Choice(["all", "known"]), help="Whose messages count.")
@click.option(
    "--ignored", type=click.Choice(["drop", "accumulate"]), help="What becomes of messages that start no turn."
)
@click.option(
    "--session", type=click.Choice(["shared", "per-thread", "agent-shared"]), help="What shares one conversation."
)
@click.option("--priority", type=int, help="Order among several agents of a chat; higher comes first.")
@click.option(
    "--policy", type=click.Choice(["strict", "request_approval", "public"]), help="What happens to strangers there."
)
@click.option("--is-group", is_flag=True, help="The chat has several people; matters only while it was never seen.")
@json_option
def wire(
    chat: str | None,
    group: str | None,
    engage: str | None,
    pattern: str | None,
    scope: str | None,
    ignored: str | None,
    session: str | None,
    priority: int | None,
    policy: str | None,
    is_group: bool,
) -> None:
    """Join a chat to an agent group.  Without arguments, list what is joined.

    CHAT is an id (mg_...) from `jackfield channel chats`, or an address: channel:instance:chat.
    """
    if chat is None:
        _list()
        return
    if group is None:
        raise UsageError("the agent group is missing", fix=f"`jackfield wire {chat} GROUP`")
    result = call(
        "wire.add",
        chat=chat,
        group=group,
        engage=engage,
        pattern=pattern,
        scope=scope,
        ignored=ignored,
        session=session,
        priority=priority,
        policy=policy,
        is_group=is_group or None,
    )
    if emit(result):
        return
    for warning in result.get("warnings", []):
        warn(line(warning))
    made = result["wiring"]
    say(f"{made['group']} answers in {line(str(made['chat']))}: {made['engage']}, sessions {made['session']}")


def _list() -> None:
    found = call("wire.list")
    if emit(found):
        return
    output.table(found, COLUMNS, empty="Nothing is wired.")


@click.command(cls=Command)
@click.argument("chat")
@click.argument("group")
@json_option
def unwire(chat: str, group: str) -> None:
    """Part a chat from an agent group.  Its conversations and its permission to write there stay."""
    result = call("wire.remove", chat=chat, group=group)
    if emit(result):
        return
    say(f"{group} no longer answers in {line(chat)}")
