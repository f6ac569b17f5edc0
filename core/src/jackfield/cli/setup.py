"""`jackfield init`: a home, a first agent, its owner."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import Json, call, current, emit, say
from jackfield.config.home import Home
from jackfield.errors import Conflict, JackfieldError, MalformedData, NotFound, UsageError

__all__ = ["group_files", "init", "need_plugin"]

_OURS = {
    "groups", "sessions", "plugins", "logs", "backups", "jackfield.toml", "master.key", "host.lock", "host.sock",
    "state.db", "state.db-wal", "state.db-shm",
}  # fmt: skip


@click.command(cls=Command)
@click.option("--name", default="Andy", show_default=True, help="What people call the first agent.")
@click.option("--folder", help="Its folder below groups/; made from the name when left out.")
@click.option("--provider", default="mock", show_default=True, help="Which provider plugin answers.")
@json_option
def init(name: str, folder: str | None, provider: str) -> None:
    """Make a home with a first agent.

    Run again it says what is there and changes nothing.
    """
    home = current().home
    existing: list[Json] = call("group.list") if home.initialised else []
    if existing:
        _show_existing(home, existing)
        return
    folder = folder_for(name, folder)
    need_plugin("provider", provider)
    _make(home)
    group_files(home.groups / folder, name=name, provider=provider, runtime="process")
    if not home.initialised:
        from jackfield.config import template

        _write_new(home.jackfield_toml, template.jackfield_toml(timezone=_machine_zone()))
    done = call("home.setup", name=name, folder=folder, user=_user())
    result = {"home": str(home.root), "created": True, "group": done["group"], "owner": done["owner"]}
    if emit(result):
        return
    say(f"A new home: {home.root}", bold=True)
    output.facts(
        {
            "agent": f"{name} (groups/{folder}, provider {provider})",
            "owner": done["owner"],
            "configuration": str(home.jackfield_toml),
        },
        indent=2,
    )
    option = "" if Home.find(None).root == home.root else f" --home {home.root}"
    say()
    say("Next:", bold=True)
    steps = {
        f"jackfield{option} chat": f"talk to {line(name)}",
        f"$EDITOR {home.groups / folder / 'AGENTS.md'}": f"tell {line(name)} who it is",
        f"jackfield{option} group set {folder} provider NAME": "give it a real model (see `jackfield plugin list`)",
        f"jackfield{option} channel setup TYPE": "let it be reached from a chat platform",
        f"jackfield{option} owner claim": "become its owner there, too: the code goes into a chat with the bot",
    }
    longest = max(map(len, steps))
    for command, meaning in steps.items():
        say(f"  {command.ljust(longest)}   {meaning}")


def _show_existing(home: Home, groups: list[Json]) -> None:
    if emit({"home": str(home.root), "created": False, "groups": groups}):
        return
    say(f"There is a home at {home.root} already; nothing was changed.")
    output.facts(
        {"agents": ", ".join(group["folder"] for group in groups), "configuration": str(home.jackfield_toml)}, indent=2
    )
    say("Another agent: `jackfield group add NAME`.  What is going on: `jackfield status`.")


def _make(home: Home) -> None:
    """The folders, unless something else lives there."""
    try:
        strangers = sorted(entry.name for entry in home.root.iterdir() if entry.name not in _OURS)
    except FileNotFoundError:
        strangers = []
    except OSError as error:
        raise JackfieldError(
            f"{home.root} can't be a home: {error.strerror}", fix="choose another with --home"
        ) from error
    if strangers:
        raise Conflict(
            f"{home.root} holds other things, {strangers[0]!r} for one, and is no Jackfield home",
            fix="choose an empty or a new folder with --home",
        )
    try:
        home.create()
    except OSError as error:
        raise JackfieldError(
            f"{home.root} can't be made: {error.strerror}", fix="choose another with --home"
        ) from error


def folder_for(name: str, folder: str | None) -> str:
    """The folder that was given, or one made from the name.

    Raises:
        UsageError: it can't be a folder's name.
    """
    from jackfield.models import valid_folder

    if not name.strip() or len(name) > 100:
        raise UsageError(f"{name!r} can't be a name", fix="give 1 to 100 characters")
    chosen = folder if folder is not None else re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")[:64]
    try:
        return valid_folder(chosen)
    except MalformedData as error:
        raise UsageError(error.message, fix="name one with --folder") from error


def group_files(folder: Path, *, name: str, provider: str, runtime: str) -> list[str]:
    """Write what an agent group's folder needs; what is there already stays.  The names that were written."""
    from jackfield.config import template
    from jackfield.config.load import check_agent_text
    from jackfield.config.problems import refuse

    settings = template.agent_toml(name=name, provider=provider, runtime=runtime)
    checked = check_agent_text(folder, settings)
    if checked.problems:
        raise refuse(checked.problems, f"agent group {folder.name!r} was not made")
    for part in (folder, folder / "memory", folder / "skills", folder / "packages", folder / "workspace"):
        part.mkdir(mode=0o700, exist_ok=True)
    files = {"agent.toml": settings, "AGENTS.md": template.agents_md(name=name)}
    return [file for file, text in files.items() if _write_new(folder / file, text)]


def _write_new(file: Path, text: str) -> bool:
    """Write a file that is not there yet; whether it was written."""
    from jackfield.config.files import write_atomically

    if file.exists() or file.is_symlink():
        return False
    write_atomically(file, text.encode(), mode=0o600)
    return True


def need_plugin(kind: str, name: str) -> None:
    """Refuse a name that no installed plugin has.  Looks at metadata only.

    Raises:
        NotFound: with the near names.
    """
    from jackfield.cli.lazy import did_you_mean
    from jackfield.plugins.discovery import discover

    found = discover(current().plugins_folder).found()
    names = sorted({one.name for one in found if one.kind == kind})
    if name not in names:
        raise NotFound(
            f"no {kind} {name!r} is installed{did_you_mean(name, names)}",
            fix=f"installed are: {', '.join(names)}" if names else "`jackfield plugin list` shows what is installed",
        )


def _user() -> str:
    """The operating system's user, as the host will see them at its socket."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _machine_zone() -> str:
    """The machine's IANA zone where it can be known, else UTC."""
    from jackfield.clock import zone_or_utc

    chosen = os.environ.get("TZ", "").removeprefix(":")
    if not chosen:
        chosen = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2].removeprefix("posix/")
    return str(zone_or_utc(chosen or None))
