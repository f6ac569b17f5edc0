"""`jackfield secret`: what only channels and chosen agents may know."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import click

from jackfield.cli import output
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import call, confirm, emit, say, warn
from jackfield.errors import ConfigError, UsageError
from jackfield.redaction import LEAST

__all__ = ["secret"]

KINDS = ("generic", "api-key", "channel-token")
FILE_LIMIT = 1_048_576
_ORDINARY = re.compile(r"[a-z]{1,16}|[A-Z][a-z]{1,15}|[0-9]{1,8}")
_COLUMNS = {"name": "NAME", "kind": "KIND", "scope": "SCOPE", "assigned": "ASSIGNED TO", "changed": "CHANGED"}

group_option = click.option("--group", metavar="GROUP", help="The secret of that agent group, instead of a global one.")


@click.group(cls=Group)
def secret() -> None:
    """Secrets lie encrypted in the store.  Nothing ever shows a value again: not this command, no log, no chat."""


def _refuse_value(context: click.Context, parameter: click.Parameter, value: object) -> None:
    if value:
        _refuse(str(context.params.get("name") or "NAME"))


def _refuse(name: str) -> NoReturn:
    raise UsageError(
        "a value on a command line can be seen by others, and is kept by shells",
        fix=f"`jackfield secret set {line(name) if name.isidentifier() else 'NAME'}` asks for it, or pipe it in, "
        "or use --file; one that was shown already should be replaced at its service",
    )


@secret.command("set")
@click.argument("name")
@click.argument("words", nargs=-1, metavar="", expose_value=False, callback=_refuse_value)
@group_option
@click.option("--kind", type=click.Choice(KINDS), help="What it is; a channel-token never reaches an agent.")
@click.option("--file", "path", type=click.Path(path_type=Path), help='Take the value from a file, "-" for stdin.')
@click.option("--value", hidden=True, expose_value=False, callback=_refuse_value)
@json_option
def set_secret(name: str, group: str | None, kind: str | None, path: Path | None) -> None:
    """Store a secret, or give one a new value.

    The value is asked for twice and not shown, or read from a pipe or a file (one line end at its end is left out).
    Agents of its group, or that it is assigned to, get the new one with their next runner.
    """
    if "=" in name:
        _refuse(name.partition("=")[0])
    value = _value(name, path)
    result = call("secret.set", name=name, value=value, group=group, kind=kind)
    if emit(result):
        return
    where = f" of group {line(str(result['group']))}" if result["group"] else ""
    say(f"secret {line(name)}{where} is {'stored' if result['created'] else 'changed'}")
    if not result["masked"]:
        warn("it is shorter than 8 characters, so it is not masked in logs and chats: it would take words out of them")
    _warn_of_words({name: value})
    _warn_of_environment(name)
    if result["created"] and not result["group"] and result["kind"] != "channel-token":
        say(f"No agent has it yet: `jackfield secret assign {line(name)} GROUP`")
    elif result["kind"] == "channel-token":
        say("Channels read it when they start; `jackfield reload` starts one again that had given up.")


def _value(name: str, path: Path | None) -> str:
    if path is None and sys.stdin.isatty():
        return str(click.prompt(f"{line(name)} (not shown)", hide_input=True, confirmation_prompt="Again", err=True))
    data = sys.stdin.buffer.read(FILE_LIMIT + 1) if path is None or str(path) == "-" else _content(path)
    value = _text(data, "the value")
    return value.removesuffix("\n").removesuffix("\r")


def _content(path: Path) -> bytes:
    """Raises:
    ConfigError: it can't be read.
    """
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_mode & (stat.S_IRGRP | stat.S_IROTH):
                warn(f"others may read {line(str(path))}; remove it, or `chmod 600` it")
            return stream.read(FILE_LIMIT + 1)
    except OSError as problem:
        raise ConfigError(f"{path} can't be read: {problem.strerror}", fix=f"look at `ls -l {path}`") from None


def _text(data: bytes, what: str) -> str:
    if len(data) > FILE_LIMIT:
        raise UsageError(f"{what} is over {FILE_LIMIT:,} bytes", fix="secrets are short texts")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{what} is no UTF-8 text", fix="encode it, with base64 for example") from None


def _warn_of_words(values: Mapping[str, str]) -> None:
    """A file of settings holds more than secrets."""
    common = [line(name) for name, value in values.items() if len(value) >= LEAST and _ORDINARY.fullmatch(value)]
    if common:
        warn(
            f"{', '.join(common)}: an ordinary word, which is masked in every chat and log from now on; "
            "`jackfield secret remove` it if it is no secret"
        )


def _warn_of_environment(name: str) -> None:
    from jackfield.host.secrets.held import variable

    if variable(name) in os.environ:
        warn(f"{variable(name)} is set, and goes before the stored one where a channel asks for it")


@secret.command("list")
@click.option("--group", metavar="GROUP", help="Those that agents of the group get, and why.")
@json_option
def list_secrets(group: str | None) -> None:
    """List the secrets: names, kinds, who gets them; never values."""
    found = call("secret.list", group=group)
    if emit(found):
        return
    rows = [
        {
            **one,
            "scope": one["group"] or "global",
            "assigned": [name for name in one["assigned"] if name != one["group"]],
            "changed": output.ago(one["updated_at"]),
            "state": "" if one["readable"] else "unreadable",
        }
        for one in found
    ]
    columns = dict(_COLUMNS)
    if group is not None:
        columns["why"] = "BECAUSE"
    if any(row["state"] for row in rows):
        columns["state"] = "STATE"
    output.table(rows, columns, empty="There is no secret." if group is None else "Its agents get no secret.")
    if any(row["state"] for row in rows):
        warn("unreadable ones were sealed with another master key; they are kept, see `jackfield doctor`")


@secret.command("show")
@click.argument("name")
@group_option
@json_option
def show_secret(name: str, group: str | None) -> None:
    """Show what is known of a secret, and whose agents get it; not its value."""
    found = call("secret.show", name=name, group=group)
    if emit(found):
        return
    shown = {key: found[key] for key in ("name", "id", "kind", "readable")}
    shown["masked in logs and chats"] = found["masked"]
    shown["scope"] = found["group"] or "global"
    shown["assigned to"] = found["assigned"]
    shown["reaches agents of"] = [f"{one['group']} ({one['why']})" for one in found["reaches"]]
    shown["stored"] = output.ago(found["created_at"])
    shown["changed"] = output.ago(found["updated_at"])
    output.facts(shown)


@secret.command("remove")
@click.argument("name")
@group_option
@click.option("--force", is_flag=True, help="Also one that can't be read now, but could with its own master key.")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def remove_secret(name: str, group: str | None, force: bool, yes: bool) -> None:
    """Forget a secret.  Agents that had it lose it with their next runner."""
    confirm(f"Forget the secret {line(name)}?", yes=yes)
    if emit(call("secret.remove", name=name, group=group, force=force)):
        return
    say(f"secret {line(name)} is gone; at its service it is as good as before, until you withdraw it there")


@secret.command("assign")
@click.argument("name")
@click.argument("group")
@json_option
def assign_secret(name: str, group: str) -> None:
    """Give a global secret to the agents of GROUP."""
    result = call("secret.assign", name=name, group=group)
    if emit(result):
        return
    said = "get" if result["changed"] else "had"
    say(f"agents of {line(str(result['group']))} {said} {line(name)}{'' if result['changed'] else ' already'}")


@secret.command("unassign")
@click.argument("name")
@click.argument("group")
@json_option
def unassign_secret(name: str, group: str) -> None:
    """Take it from them again."""
    result = call("secret.unassign", name=name, group=group)
    if emit(result):
        return
    group = line(str(result["group"]))
    say(
        f"agents of {group} get {line(name)} no more"
        if result["changed"]
        else f"agents of {group} did not have {line(name)}"
    )
    if result["gets_all"]:
        warn(f'agent.toml of {line(str(result["group"]))} says secrets = "all", so its agents get it all the same')


@secret.command("rotate")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def rotate_key(yes: bool) -> None:
    """Make a new master key, and seal every secret with it.

    Values stay; to replace one, set it again.  Backups made before hold the old key, or need it if made --without-key.
    """
    confirm("Replace the master key?", yes=yes)
    result = call("secret.rotate")
    if emit(result):
        return
    say(f"{result['rotated']} secrets are sealed with a new master key; the old one is gone")
    if result["unreadable"]:
        warn(f"{result['unreadable']} secrets could not be read and stay as they are")


@secret.command("accept-key")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def accept_key(yes: bool) -> None:
    """Go on with the master.key that lies there, although secrets were sealed with another; make one if none does.

    For when the right key is lost.  Secrets that can't be read stay as they are, until you remove them: put their key
    back and accept it, and they are readable again.
    """
    confirm("Go on without the secrets that this key can't read?", yes=yes)
    result = call("secret.accept_key")
    if emit(result):
        return
    say(f"the key is accepted: it reads {result['readable']} secrets, and {result['unreadable']} not")


@secret.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@group_option
@click.option("--kind", type=click.Choice(KINDS), help="Of all of them; without it, as `set` does it.")
@json_option
def import_secrets(file: Path, group: str | None, kind: str | None) -> None:
    """Store all secrets of a file: NAME=value lines as in .env, or name = "value" in a .toml.

    All are stored or none.  Those of a secrets.toml are channels', unless --kind says otherwise.
    """
    from jackfield.host.secrets.importing import from_dotenv, from_toml

    text = _text(_content(file), str(file))
    toml = file.suffix == ".toml"
    try:
        values = from_toml(text) if toml else from_dotenv(text)
    except ConfigError as problem:
        raise ConfigError(f"{file}: {problem.message}; nothing was stored", fix=problem.fix) from None
    if not values:
        raise UsageError(f"there is no secret in {file}", fix="it holds lines like NAME=value")
    if kind is None and file.name == "secrets.toml" and group is None:
        kind = "channel-token"
    found = call("secret.import", values=values, group=group, kind=kind)
    if emit(found):
        return
    say(f"{len(found)} secrets are stored: {', '.join(line(one['name']) for one in found)}")
    short = [line(one["name"]) for one in found if not one["masked"]]
    if short:
        warn(f"shorter than 8 characters, and so not masked in logs and chats: {', '.join(short)}")
    _warn_of_words(values)
    say(f"Remove {line(str(file))} now: `shred -u`, or `rm`.")
