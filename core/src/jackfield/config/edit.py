"""Changing `jackfield.toml` and `agent.toml` from commands: comments and order survive, and a file is only ever
replaced by one that is valid.

An edit is refused when the new text has problems, unless it only takes problems away: so a file with several can be
mended one command after another.
"""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import BaseModel
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

from jackfield.config.check import Text, check_table
from jackfield.config.files import one_editor, write_atomically
from jackfield.config.home import Home
from jackfield.config.lines import KeyPath, split_key
from jackfield.config.load import Configuration, check_agent_text, check_text
from jackfield.config.problems import Problem, Severity, near, refuse
from jackfield.config.settings import AgentSettings, AgentsSettings, ApprovalSettings, HostSettings, IngressSettings
from jackfield.config.toml_files import read_text
from jackfield.errors import ConfigError, Conflict, NotFound, UsageError

__all__ = [
    "MoreChecks",
    "add_channel",
    "change_agent",
    "fits",
    "put_channel",
    "remove_channel",
    "set_agent_value",
    "set_host_value",
    "value_from_text",
    "values_from_texts",
]

Json = Any
MoreChecks = Callable[[Configuration], Sequence[Problem]]
"""What only plugins know: called with the configuration as it would be."""


def set_host_value(home: Home, key: str, text: str) -> Json:
    """Set a key of `[host]`, or with `ingress.`, `approvals.` or `agents.` before it of that table; the new value.

    Raises:
        ConfigError: the key is unknown or the value wrong; nothing is changed.
    """
    other: dict[str, type[BaseModel]] = {
        "ingress": IngressSettings,
        "approvals": ApprovalSettings,
        "agents": AgentsSettings,
    }
    table = key.partition(".")[0] if key.partition(".")[0] in other else "host"
    model = other.get(table, HostSettings)
    path = _key(key.removeprefix(f"{table}."), model)
    value = values_from_texts(model, {path[0]: text})[path[0]]

    def change(document: TOMLDocument) -> None:
        _put(document, (table, *path), value)

    _edit_home(home, change, f"`{key}` was not set")
    return value


def add_channel(
    home: Home,
    channel_type: str,
    instance: str,
    settings: Mapping[str, Json],
    *,
    more_checks: MoreChecks | None = None,
) -> None:
    """Add a `[channels.<instance>]` table.

    Raises:
        Conflict: there is one of that name.
        ConfigError: the settings are not usable; nothing is changed.
    """

    def change(document: TOMLDocument) -> None:
        channels = document.get("channels")
        if isinstance(channels, Mapping) and instance in channels:
            raise Conflict(
                f"{home.jackfield_toml} has a channel {instance!r} already",
                fix=f"choose another name, or `jackfield channel remove {instance}` first",
            )
        table: Any = tomlkit.inline_table() if isinstance(channels, InlineTable) else tomlkit.table()
        if channel_type != instance:
            table.add("type", channel_type)
        for key, value in settings.items():
            table.add(key, value)
        if "channels" not in document:
            parent = tomlkit.table(is_super_table=True)
            parent.add(instance, table)
            document.add("channels", parent)
        else:
            found = document["channels"]
            if not isinstance(found, MutableMapping):
                raise ConfigError(f"{home.jackfield_toml}: channels is not a table", fix="mend that line first")
            found[instance] = table

    _edit_home(home, change, f"channel {instance!r} was not added", more_checks)


def put_channel(
    home: Home,
    channel_type: str,
    instance: str,
    settings: Mapping[str, Json],
    *,
    more_checks: MoreChecks | None = None,
) -> bool:
    """Set keys of `[channels.<instance>]`, and make the table where there is none; whether it was there.

    Other keys, comments and the order stay.

    Raises:
        Conflict: there is one of that name and another type.
        ConfigError: the settings are not usable; nothing is changed.
    """
    home.require()
    if instance not in check_text(home, read_text(home.jackfield_toml)).channels:
        add_channel(home, channel_type, instance, settings, more_checks=more_checks)
        return False

    def change(document: TOMLDocument) -> None:
        table: Any = document["channels"][instance]
        if not isinstance(table, Mapping) or table.get("type", instance) != channel_type:
            raise Conflict(
                f"{home.jackfield_toml} has a channel {instance!r} of another type",
                fix="choose another name for this one",
            )
        for key, value in settings.items():
            if table.get(key) != value:
                _put(document, ("channels", instance, key), value)

    _edit_home(home, change, f"channel {instance!r} was not changed", more_checks)
    return True


def remove_channel(home: Home, instance: str) -> None:
    """Take a `[channels.<instance>]` table out.

    Raises:
        NotFound: there is none.
    """

    def change(document: TOMLDocument) -> None:
        channels = document.get("channels")
        if not isinstance(channels, MutableMapping) or instance not in channels:
            names = list(channels) if isinstance(channels, MutableMapping) else []
            guess = near(instance, names)
            raise NotFound(
                f"{home.jackfield_toml} has no channel {instance!r}",
                fix=f"did you mean {guess!r}?" if guess else "`jackfield channel list` shows what there is",
            )
        del channels[instance]

    _edit_home(home, change, f"channel {instance!r} was not removed")


def set_agent_value(folder: Path, key: str, text: str | None) -> Json:
    """Set a key of `agent.toml`, or with None take it out; the value that is there now.

    `key` may be dotted: ``limits.turn_seconds``, ``providers.mock.script``.

    Raises:
        ConfigError: the key is unknown or the value wrong; nothing is changed.
    """
    path = _key(key, AgentSettings)
    value = None if text is None else value_from_text(AgentSettings, path, text)
    file = folder / "agent.toml"

    def change(document: TOMLDocument) -> None:
        if value is None:
            _take(document, path)
        else:
            _put(document, path, value)

    def check(new: str) -> Sequence[Problem]:
        return check_agent_text(folder, new).problems

    with one_editor(folder):
        old = read_text(file, follow_links=False) if file.exists() else ""
        _write(file, old, change, check, f"`{key}` was not set")
    return value


def change_agent(folder: Path, values: Mapping[KeyPath, Json], refused: str) -> None:
    """Set several keys of `agent.toml` at once, tables too; those whose value is None are taken out.

    `refused` begins the message when the file would not be valid, as in ``the packages were not recorded``.

    Raises:
        ConfigError: it would not be; nothing is changed.
    """
    file = folder / "agent.toml"

    def change(document: TOMLDocument) -> None:
        for path, value in values.items():
            if value is None:
                _take(document, path)
                continue
            if len(path) > 1 and path[0] not in document:
                document[path[0]] = tomlkit.table(is_super_table=isinstance(value, Mapping))
            _put(document, path, value)

    def check(new: str) -> Sequence[Problem]:
        return check_agent_text(folder, new).problems

    with one_editor(folder):
        old = read_text(file, follow_links=False) if file.exists() else ""
        _write(file, old, change, check, refused)


def values_from_texts(model: type[BaseModel] | None, texts: Mapping[str, str]) -> dict[str, Json]:
    """Values written on a command line, each as the model wants it: as TOML, as a text, or as a list of words.

    ``8080`` becomes a number where a number is asked for and stays a text where a text is; ``a,b`` becomes a list
    where a list is.  Where nothing fits, the first reading stays, for the model to refuse.
    """
    return {key: value_from_text(model, (key,), text) for key, text in texts.items()}


def value_from_text(model: type[BaseModel] | None, path: KeyPath, text: str) -> Json:
    """One value of `values_from_texts`, which may lie within tables."""
    readings = _readings(text)
    return next((value for value in readings if model is None or fits(model, path, value)), readings[0])


def _readings(text: str) -> list[Json]:
    readings: list[Json] = []
    if "\n" not in text:
        with contextlib.suppress(ValueError, RecursionError):
            readings.append(tomllib.loads(f"value = {text}")["value"])
    readings.append(text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    readings.append(words)
    return readings


def fits(model: type[BaseModel], path: KeyPath, value: Json) -> bool:
    """Whether the model takes this value at this place, whatever it says about other places."""
    table: Json = value
    for part in reversed(path):
        table = {part: table}
    where = ".".join(path)
    found = check_table(model, table, Text(Path(), {}))
    return not any(problem.key == where or problem.key.startswith(f"{where}.") for problem in found.problems)


def _key(text: str, model: type[BaseModel]) -> KeyPath:
    path = split_key(text)
    if not path:
        raise UsageError(f"{text!r} is not a key", fix="write it as in the file, like limits.turn_seconds")
    if path[0] not in model.model_fields:
        guess = near(path[0], model.model_fields)
        raise ConfigError(
            f"there is no setting {path[0]!r}",
            fix=f"did you mean {guess!r}?" if guess else "there are: " + ", ".join(model.model_fields),
        )
    return path


def _put(document: TOMLDocument, path: KeyPath, value: Json) -> None:
    current: Any = document
    for part in path[:-1]:
        if part not in current:
            current[part] = tomlkit.table()
        current = current[part]
        if not isinstance(current, Mapping):
            raise ConfigError(f"{part!r} of {'.'.join(path)} is not a table", fix="mend that line first")
    present = current.get(path[-1])
    item = tomlkit.item(value)
    if present is not None and hasattr(present, "trivia") and not isinstance(present, Table):
        item.trivia.comment_ws = present.trivia.comment_ws
        item.trivia.comment = present.trivia.comment
    current[path[-1]] = item


def _take(document: TOMLDocument, path: KeyPath) -> None:
    current: Any = document
    for part in path[:-1]:
        current = current.get(part)
        if not isinstance(current, Mapping):
            return
    if path[-1] in current:
        del current[path[-1]]


def _edit_home(
    home: Home, change: Callable[[TOMLDocument], None], refused: str, more_checks: MoreChecks | None = None
) -> None:
    home.require()
    file = Path(os.path.realpath(home.jackfield_toml))

    def check(new: str) -> Sequence[Problem]:
        return check_text(home, new).problems

    def check_more(new: str) -> Sequence[Problem]:
        return more_checks(check_text(home, new)) if more_checks is not None else ()

    with one_editor(file.parent):
        _write(file, read_text(file), change, check, refused, check_more)


def _write(
    file: Path,
    old: str,
    change: Callable[[TOMLDocument], None],
    check: Callable[[str], Sequence[Problem]],
    refused: str,
    check_more: Callable[[str], Sequence[Problem]] = lambda new: (),
) -> None:
    before = check(old)
    try:
        document = tomlkit.parse(old)
        change(document)
        new = tomlkit.dumps(document)
    except TOMLKitError as error:
        raise ConfigError(f"{refused}: {file} can't be edited: {error}", fix="mend the file in an editor") from error
    problems = check(new)
    more = check_more(new)
    if more or (problems and not _only_mends(before, problems)):
        fix = None if before else "nothing was changed; the lines are those of the file as it would have become"
        raise refuse((*problems, *more), refused, fix=fix)
    if new != old:
        write_atomically(file, new.encode(), mode=0o600)


def _only_mends(before: Sequence[Problem], after: Sequence[Problem]) -> bool:
    """Whether every problem was there before and at least one is gone.  Lines may have moved."""

    def said(problems: Sequence[Problem]) -> set[tuple[str, str, Severity]]:
        return {(problem.key, problem.message, problem.severity) for problem in problems}

    return said(after) < said(before)
