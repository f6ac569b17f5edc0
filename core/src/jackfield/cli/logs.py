"""`jackfield logs`: what the host wrote down, for people."""

from __future__ import annotations

import contextlib
import datetime
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from jackfield.cli import printable
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.state import call, current, say, warn
from jackfield.errors import JackfieldError, NotFound, UsageError
from jackfield.host.logs.files import LOG_NAME
from jackfield.host.logs.reading import LEVELS, Follower, Line, Wanted, last, moment_before
from jackfield.host.logs.records import FIELDS

__all__ = ["logs"]

_COLOURS = {"debug": "bright_black", "warning": "yellow", "error": "red", "critical": "red"}


@click.command(cls=Command)
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--session", metavar="ID", help="Only what is about this session.")
@click.option("--group", metavar="NAME", help="Only what is about this agent group and its sessions.")
@click.option("--channel", metavar="NAME", help="Only what is about this channel.")
@click.option("--level", type=click.Choice(LEVELS), default="debug", help="The least important level.")
@click.option("--since", metavar="WHEN", help="10m, 2h, 3d before now; or a moment like 2026-01-31T08:00.")
@click.option("--grep", metavar="REGEX", help="Only lines that hold this, in any letter case.")
@click.option("--lines", "-n", "count", type=click.IntRange(0, 1_000_000), help="How many of the newest; else 50.")
@json_option
def logs(
    follow: bool,
    session: str | None,
    group: str | None,
    channel: str | None,
    level: str,
    since: str | None,
    grep: str | None,
    count: int | None,
) -> None:
    """Show what the host wrote down about its work.

    Works without a host, too.  With --since or --session, all that fits is shown; else the newest 50 lines.  --json
    prints the lines as they are stored, one object each.
    """
    home = current().home.require()
    wanted = Wanted(
        level=level,
        since=moment_before(since, datetime.datetime.now(datetime.UTC)) if since else "",
        session=session.lower() if session else None,
        channel=channel,
        group=_about_group(group) if group else None,
        grep=_pattern(grep) if grep else None,
    )
    if count is None:
        count = 1_000_000 if since or session else 50
    path = home.logs / LOG_NAME
    follower = Follower(path) if follow else None
    try:
        _show(last(path, count, wanted))
        if follower is None and not path.exists():
            warn(f"there is no log yet at {path}; it begins when a host runs")
        if follower is not None:
            with contextlib.suppress(KeyboardInterrupt):
                _follow(follower, path, wanted)
    finally:
        if follower is not None:
            follower.close()


def _follow(follower: Follower, path: Path, wanted: Wanted) -> None:
    """Lines as they come.  A pipe that nobody reads ends it, as it ends every command."""
    for line in follower:
        if wanted(line):
            _show([line])


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as problem:
        raise UsageError(f"--grep {text!r} is no regular expression: {problem}") from None


def _about_group(name: str) -> Callable[[Line], bool]:
    """Whether a line is about that group, or one of its sessions, asked anew for each session that was not seen yet.

    A group that is gone can still be meant by its id.
    """
    try:
        group_id = call("group.show", name=name)["id"]
    except NotFound:
        if not name.lower().startswith("ag_"):
            raise
        group_id = name.lower()
    known: dict[str, bool] = {}

    def about(line: Line) -> bool:
        if line.field("group") == group_id:
            return True
        session = line.field("session")
        if not session:
            return False
        if session not in known:
            known.update((one, True) for one in _sessions_of(name))
            known.setdefault(session, False)
        return known[session]

    return about


def _sessions_of(name: str) -> Iterable[str]:
    try:
        return [str(one["id"]) for one in call("session.list", group=name, limit=10_000)]
    except JackfieldError:
        return []


def _show(lines: Iterable[Line]) -> None:
    as_json = current().json
    for line in lines:
        if as_json:
            if line.fields:
                click.echo(printable.harmless_json(json.dumps(line.fields, ensure_ascii=True)))
        elif not line.fields:
            say(printable.line(line.text))
        else:
            _show_line(line)


def _show_line(line: Line) -> None:
    level, text = line.field("level"), line.field("event")
    about = [f"{name}={printable.line(value)}" for name in FIELDS if (value := line.field(name)) and value not in text]
    head = f"{_local(line.field('time'))} {level:<7} "
    said = printable.line(text)
    name = line.field("logger").removeprefix("jackfield.")
    tail = click.style("  " + " ".join([printable.line(name), *about]), fg="bright_black")
    say(click.style(head, fg=_COLOURS.get(level)) + said + tail)
    for part in ("exception", "stack"):
        if line.field(part):
            say("\n".join(f"    {one}" for one in printable.block(line.field(part)).split("\n")))


def _local(moment: str) -> str:
    """The moment in local time, to the millisecond; as it stands when it is none."""
    try:
        return datetime.datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except ValueError:
        return printable.line(moment)
