"""Reading `jackfield.toml` and `agent.toml`.

A start is forgiving and says so: an unknown key is a warning, a wrong value puts only its own section out of use
(C198).  Commands that write, and `--strict`, are not: any problem is a `ConfigError` that lists all of them (C200).
Both go through the same function, so they can't disagree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

from pydantic import BaseModel

from jackfield.config.check import Checked, Text, check_table
from jackfield.config.files import write_atomically
from jackfield.config.home import Home
from jackfield.config.lines import KeyPath, find_lines
from jackfield.config.problems import Problem, Severity, near, refuse, shown
from jackfield.config.settings import AgentSettings, AgentsSettings, ApprovalSettings, HostSettings, IngressSettings
from jackfield.config.toml_files import Table, about_whole, parse, read_text
from jackfield.errors import ConfigError
from jackfield.models import AGENT_CHANNEL

__all__ = [
    "AgentFile",
    "ChannelSection",
    "Configuration",
    "ExtensionSection",
    "agent_digest",
    "check_agent_text",
    "check_text",
    "load",
    "load_agent",
    "read_agent",
    "remember_good",
]

M = TypeVar("M", bound=BaseModel)
BotPolicy = Literal["none", "mentions", "all"]

_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
_NAME_RULE = "letters, digits, '_' and '-', at most 64, first a letter or digit"
_TABLES = ("host", "ingress", "approvals", "agents", "channels", "extensions", "runtimes")


@dataclass(frozen=True)
class ChannelSection:
    """One `[channels.<instance>]` table."""

    instance: str
    type: str
    """The channel's entry point; the instance's name when the table doesn't say."""
    settings: Table = field(default_factory=dict)
    """Everything else in the table; `Configuration.settings_of` validates it by the plugin's model."""
    enabled: bool = True
    """False when the table says so, and when something in it is wrong; such a channel isn't started."""
    bots: BotPolicy = "none"
    """Which messages of those that the platform calls bots are taken (C228): none, those that mention our bot (a reply
    is no mention), or all."""


@dataclass(frozen=True)
class ExtensionSection:
    """One `[extensions.<name>]` table."""

    name: str
    settings: Table = field(default_factory=dict)


@dataclass(frozen=True)
class Configuration:
    """All that `jackfield.toml` says.  Never changed; a reload makes a new one."""

    home: Home
    host: HostSettings = field(default_factory=HostSettings)
    channels: Mapping[str, ChannelSection] = field(default_factory=dict)
    """By instance; also those that are not enabled."""
    extensions: Mapping[str, ExtensionSection] = field(default_factory=dict)
    runtimes: Mapping[str, Table] = field(default_factory=dict)
    """Settings of each runtime, by its name."""
    ingress: IngressSettings = field(default_factory=IngressSettings)
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings)
    agents: AgentsSettings = field(default_factory=AgentsSettings)
    problems: tuple[Problem, ...] = ()
    source: Path | None = None
    """The file that was read: `jackfield.toml`, or its last good copy."""
    text: Text | None = None

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)

    def settings_of(self, section: str, table: Table, model: type[M]) -> Checked[M]:
        """A plugin's table by the plugin's own model; `section` is like ``channels.work``.

        Problems carry file and line as the core's do.  With an error, `settings` is None and the section is to be
        left out.
        """
        text = self.text or Text(self.home.jackfield_toml, {})
        return check_table(model, table, text, tuple(section.split(".", 1)))


@dataclass(frozen=True)
class AgentFile:
    """What became of reading one `agent.toml`.  `settings` is None when a value is wrong: the group can't be used."""

    file: Path
    settings: AgentSettings | None
    problems: tuple[Problem, ...]
    digest: str
    """Of the file's bytes; empty when there is no file."""


def load(home: Home, *, strict: bool = False, fall_back: bool = True) -> Configuration:
    """Read `jackfield.toml`.

    With `fall_back`, a file that can't be read at all is replaced by the last good copy, and an error in `problems`
    says so (C181, C198).

    Raises:
        NotInitialised: there is no such file.
        ConfigError: it can't be read and there is no good copy to start from; or `strict`, and there is any problem.
    """
    home.require()
    file = home.jackfield_toml
    try:
        found = check_text(home, read_text(file))
    except ConfigError as error:
        if strict or not fall_back:
            raise
        found = _last_good(home, error)
    if strict and found.problems:
        raise refuse(found.problems, f"{file} is not accepted as it is")
    return found


def check_text(home: Home, text: str, file: Path | None = None) -> Configuration:
    """What a text would mean as `jackfield.toml`.

    Raises:
        ConfigError: it is not TOML.
    """
    file = file or home.jackfield_toml
    table = parse(text, file)
    places = Text(file, find_lines(text))
    problems = [
        places.problem(
            (key,),
            "unknown table" if isinstance(value, dict) else "unknown key",
            Severity.WARNING,
            suggestion=_meant(key),
            allowed=None if _meant(key) else "the tables " + ", ".join(f"[{name}]" for name in _TABLES),
        )
        for key, value in table.items()
        if key not in _TABLES
    ]
    host = check_table(HostSettings, _table(table, ("host",), places, problems), places, ("host",), fall_back=True)
    problems.extend(host.problems)
    ingress = check_table(
        IngressSettings, _table(table, ("ingress",), places, problems), places, ("ingress",), fall_back=True
    )
    problems.extend(ingress.problems)
    approvals = check_table(
        ApprovalSettings, _table(table, ("approvals",), places, problems), places, ("approvals",), fall_back=True
    )
    problems.extend(approvals.problems)
    agents = check_table(
        AgentsSettings, _table(table, ("agents",), places, problems), places, ("agents",), fall_back=True
    )
    problems.extend(agents.problems)
    channels = _channels(_table(table, ("channels",), places, problems), places, problems)
    extensions = {
        name: ExtensionSection(name, settings)
        for name, settings in _named_tables(table, "extensions", places, problems).items()
        if _enabled(settings, ("extensions", name), places, problems)
    }
    runtimes = _named_tables(table, "runtimes", places, problems)
    problems.sort(key=lambda problem: (problem.line or 0, problem.key))
    return Configuration(
        home,
        host.settings or HostSettings(),
        channels,
        extensions,
        runtimes,
        ingress.settings or IngressSettings(),
        approvals.settings or ApprovalSettings(),
        agents.settings or AgentsSettings(),
        tuple(problems),
        file,
        places,
    )


def remember_good(configuration: Configuration) -> None:
    """Keep a copy of a configuration without errors that a host has started with, to fall back on."""
    home = configuration.home
    if configuration.errors or configuration.source != home.jackfield_toml:
        return
    data = home.jackfield_toml.read_bytes()
    if not home.last_good.is_file() or home.last_good.read_bytes() != data:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        write_atomically(home.last_good, data, mode=0o600)


def load_agent(folder: Path, *, strict: bool = False) -> AgentSettings:
    """The settings of the agent group in `folder`.  Without an `agent.toml`, the defaults.

    Raises:
        ConfigError: a value is wrong, so this group can't be used (others can); or `strict` and there is any problem.
    """
    found = read_agent(folder)
    if found.settings is None or (strict and found.problems):
        raise refuse(found.problems, f"agent group {folder.name!r} can't be used")
    return found.settings


def read_agent(folder: Path) -> AgentFile:
    """Read `agent.toml` and say all that is wrong with it; never raises for what the file says."""
    file = folder / "agent.toml"
    if not file.is_file() and not file.is_symlink():
        return AgentFile(file, AgentSettings(name=folder.name), (), "")
    try:
        text = read_text(file, follow_links=False)
    except ConfigError as error:
        return AgentFile(file, None, (about_whole(file, error),), "")
    found = check_agent_text(folder, text)
    return AgentFile(file, found.settings, found.problems, agent_digest(folder))


def check_agent_text(folder: Path, text: str) -> Checked[AgentSettings]:
    """What a text would mean as the `agent.toml` of `folder`."""
    file = folder / "agent.toml"
    try:
        table = parse(text, file)
    except ConfigError as error:
        return Checked(None, (about_whole(file, error),))
    found = check_table(AgentSettings, table, Text(file, find_lines(text)))
    if found.settings is not None and not found.settings.name:
        return Checked(found.settings.model_copy(update={"name": folder.name}), found.problems)
    return found


def agent_digest(folder: Path) -> str:
    """SHA-256 of `agent.toml` as it lies there; empty when there is none.  It tells whether the file was changed."""
    try:
        return hashlib.sha256((folder / "agent.toml").read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _last_good(home: Home, error: ConfigError) -> Configuration:
    if not home.last_good.is_file():
        raise ConfigError(error.message, fix=error.fix) from error
    good = check_text(home, read_text(home.last_good), home.last_good)
    broken = about_whole(home.jackfield_toml, error, f"; the last good copy is used instead: {home.last_good}")
    return replace(good, problems=(broken, *good.problems))


def _meant(key: str) -> str | None:
    """A top-level name that was probably meant: a table, or a setting that belongs into `[host]`."""
    if key in HostSettings.model_fields:
        return f"host.{key}"
    return near(key, _TABLES)


def _table(table: Table, path: KeyPath, places: Text, problems: list[Problem]) -> Table:
    """The table called by the last part of `path`; anything else there is an error and counts as empty."""
    value = table.get(path[-1], {})
    if isinstance(value, dict):
        return value
    name = ".".join(path)
    problems.append(
        places.problem(path, f"{shown(path[-1], value)} is not a table", Severity.ERROR, allowed=f"a table, [{name}]")
    )
    return {}


def _named_tables(table: Table, kind: str, places: Text, problems: list[Problem]) -> dict[str, Table]:
    """The sub-tables of `[kind.*]` that have a usable name."""
    out: dict[str, Table] = {}
    parent = _table(table, (kind,), places, problems)
    for name, value in parent.items():
        path = (kind, name)
        if not isinstance(value, dict):
            _table(parent, path, places, problems)
        elif not _NAME.match(name):
            problems.append(places.problem(path, f"{name!r} can't be a name here", Severity.ERROR, allowed=_NAME_RULE))
        else:
            out[name] = dict(value)
    return out


def _enabled(settings: Table, path: KeyPath, places: Text, problems: list[Problem]) -> bool:
    """Take `enabled` out of the table; a wrong value means no."""
    value = settings.pop("enabled", True)
    if not isinstance(value, bool):
        problems.append(
            places.problem(
                (*path, "enabled"), f"{shown('enabled', value)} can't be used", Severity.ERROR, allowed="true or false"
            )
        )
        return False
    return value


def _bots(settings: Table, path: KeyPath, places: Text, problems: list[Problem]) -> BotPolicy:
    """Take `bots` out of the table; a wrong value means none."""
    value = settings.pop("bots", "none")
    for policy in get_args(BotPolicy):
        if value == policy:
            return cast("BotPolicy", policy)
    problems.append(
        places.problem(
            (*path, "bots"),
            f"{shown('bots', value)} can't be used",
            Severity.ERROR,
            allowed='"none", "mentions" or "all"',
        )
    )
    return "none"


def _channels(tables: Table, places: Text, problems: list[Problem]) -> dict[str, ChannelSection]:
    out: dict[str, ChannelSection] = {}
    for instance, settings in _named_tables({"channels": tables}, "channels", places, problems).items():
        path = ("channels", instance)
        enabled = _enabled(settings, path, places, problems)
        bots = _bots(settings, path, places, problems)
        kind = settings.pop("type", instance)
        if not isinstance(kind, str) or not _NAME.match(kind):
            problems.append(
                places.problem(
                    (*path, "type"),
                    f"{shown('type', kind)} is not a channel's name",
                    Severity.ERROR,
                    allowed='the name of an installed channel, such as "terminal"',
                )
            )
            enabled = False
        for key, name in (("type", kind), ("", instance)):
            if name == AGENT_CHANNEL:
                # Addresses between agents have that type and that instance: a channel of the name could forge them.
                reserved = (
                    f"{AGENT_CHANNEL!r} can't be the {key or 'name'} of a channel: agents write to each other there"
                )
                problems.append(places.problem((*path, *filter(None, (key,))), reserved, Severity.ERROR))
                enabled = False
        out[instance] = ChannelSection(instance, str(kind), settings, enabled, bots)
    return out
