"""`jackfield chat [GROUP]`."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
from jackfield.errors import NotFound, UsageError

if TYPE_CHECKING:
    from jackfield.api.client import LocalClient

__all__ = ["Options", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said."""

    group: str | None = None
    thread: str | None = None
    message: str | None = None
    files: tuple[str, ...] = ()
    machine: bool = False
    plain: bool = False
    color: bool = True
    lines: bool = False
    timeout: float = 600.0
    home: str | None = None
    instance: str = "terminal"


@click.command("chat")
@click.argument("group", required=False)
@click.option("--thread", help="A conversation beside the main one, by a name of yours.")
@click.option("-m", "--message", metavar="TEXT", help="Send this, print the answers, and leave.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Send a file too. May be given again.",
)
@click.option("--lines", is_flag=True, help="Each line of standard input is a message, answered before the next.")
@click.option("--timeout", type=click.FloatRange(1, 86_400), default=600.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "machine", is_flag=True, help="Print what happens as lines of JSON.")
@click.option("--plain", is_flag=True, help="No Markdown, no redrawing.")
@click.option("--no-color", is_flag=True, help="No colours; NO_COLOR does the same.")
@click.option("--instance", default="terminal", hidden=True)
@click.option("--home", type=click.Path(file_okay=False), help="The home directory to use.")
def command(
    group: str | None,
    thread: str | None,
    message: str | None,
    files: tuple[str, ...],
    lines: bool,
    timeout: float,
    machine: bool,
    plain: bool,
    no_color: bool,
    instance: str,
    home: str | None,
) -> None:
    """Talk to an agent.

    With a terminal it is a conversation. With a pipe, or with --message, the whole of standard input is one message:
    the answers go to standard output, and the command ends when everything is answered. It exits with 1 when the turn
    failed or time ran out.
    """
    if thread is not None and not thread.strip():
        raise UsageError("--thread is empty", fix="leave it out, or name the conversation")
    options = Options(
        group=group,
        thread=thread,
        message=message,
        files=files,
        machine=machine,
        plain=plain or os.environ.get("TERM") == "dumb",
        color=not (no_color or os.environ.get("NO_COLOR")),
        lines=lines,
        timeout=timeout,
        home=home,
        instance=instance,
    )
    if message is not None and lines:
        raise UsageError("--lines reads standard input, --message does not: give one of them")
    try:
        try:
            code = asyncio.run(_main(options))
        except _Several as several:
            code = asyncio.run(_main(replace(options, group=_ask_which(several.groups))))
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # Whoever read our output is gone; what was not confirmed waits for the next client.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    raise click.exceptions.Exit(code)


async def _main(options: Options) -> int:
    from jackfield.api.client import connect

    async with connect(options.home) as client:
        groups: list[dict[str, Any]] = await client.call("group.list", {})
        group, name = _pick(groups, options.group)
        try:
            return await _talk(client, options, group, name)
        except UsageError as problem:
            if group is not None or problem.fix is not None:
                raise
            # The channel has no group of its own to offer.
            if options.message is None and not options.files and not options.machine and sys.stdin.isatty():
                raise _Several(groups) from None
            known = ", ".join(str(each["folder"]) for each in groups)
            raise UsageError(problem.message, fix=f"the groups are: {known}") from None


async def _talk(client: LocalClient, options: Options, group: str | None, name: str) -> int:
    """The right way for what standard input and output are."""
    if options.message is not None or options.files or not sys.stdin.isatty():
        from jackfield_channel_terminal.piped import send_and_wait

        return await send_and_wait(client, options, group)
    if sys.stdout.isatty() and not options.plain and not options.machine:
        from jackfield_channel_terminal.interactive import talk

        return await talk(client, options, group, name)
    from jackfield_channel_terminal.piped import talk_plainly

    return await talk_plainly(client, options, group)


class _Several(Exception):
    """The person at the terminal must say to which agent they talk; that is asked where Ctrl-C works."""

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        self.groups = groups


def _ask_which(groups: list[dict[str, Any]]) -> str:
    """Offer the groups by number; the folder of the one that is chosen."""
    from jackfield_channel_terminal.cleaning import clean_name

    for number, group in enumerate(groups, 1):
        click.echo(f"{number:>3}. {clean_name(str(group['name']))} ({group['folder']})", err=True)
    return str(groups[click.prompt("Talk to", type=click.IntRange(1, len(groups)), err=True) - 1]["folder"])


def _pick(groups: list[dict[str, Any]], wanted: str | None) -> tuple[str | None, str]:
    """The folder and the name of the group to talk to; the folder is None when the channel shall choose.

    Raises:
        NotFound: there is no group of that name, or none at all.
    """
    if not groups:
        raise NotFound("there is no agent group yet", fix="make one with `jackfield group add NAME`")
    if wanted is None:
        if len(groups) == 1:
            return str(groups[0]["folder"]), str(groups[0]["name"])
        return None, "the agent"
    for key in ("folder", "id", "name"):
        for group in groups:
            if str(group[key]).casefold() == wanted.casefold():
                return str(group["folder"]), str(group["name"])
    from difflib import get_close_matches

    known = [str(group["folder"]) for group in groups]
    near = get_close_matches(wanted, known, n=3)
    raise NotFound(
        f"there is no agent group {wanted!r}",
        fix=f"did you mean {', '.join(near)}?" if near else f"the groups are: {', '.join(known)}",
    )
