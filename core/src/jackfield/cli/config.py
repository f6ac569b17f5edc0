"""`jackfield config`: check, show and change `jackfield.toml`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from jackfield.cli import output, printable
from jackfield.cli.channel import settings_problems
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.running import reload_if_running
from jackfield.cli.state import current, emit, say
from jackfield.errors import ConfigError, NotFound, PluginBroken

if TYPE_CHECKING:
    from pathlib import Path

    from jackfield.config import AgentSettings, Configuration, Home, Problem
    from jackfield.plugins import PluginRegistry

__all__ = ["all_problems", "config"]


@click.group(cls=Group)
def config() -> None:
    """The configuration: jackfield.toml and each group's agent.toml."""


@config.command("check")
@json_option
def check() -> int:
    """Name everything that is wrong, with file and line.  Nothing is changed.

    Ends with exit code 2 when something is out of use because of it; with --strict, for any remark.
    """
    from jackfield.config import Severity

    state = current()
    problems, starts = all_problems(state.home.require(), safe=state.safe)
    wrong = [problem for problem in problems if problem.severity is Severity.ERROR or state.strict]
    result = {
        "ok": not wrong,
        "starts": starts and not (state.strict and problems),
        "problems": [
            {
                "file": str(problem.file),
                "line": problem.line,
                "key": problem.key,
                "severity": problem.severity,
                "message": problem.message,
                "allowed": problem.allowed,
                "suggestion": problem.suggestion,
            }
            for problem in problems
        ],
    }
    if emit(result):
        return 2 if wrong else 0
    for problem in problems:
        colour = "red" if problem in wrong else "yellow"
        say(click.style(f"{problem.severity}: ", fg=colour) + printable.line(str(problem)))
    if not problems:
        say("The configuration is in order.", fg="green")
    elif not result["starts"]:
        say("The host would not start.")
    else:
        say("The host would start" + (", without what is named above as an error." if wrong else "."))
    return 2 if wrong else 0


def all_problems(home: Home, *, safe: bool = False) -> tuple[list[Problem], bool]:
    """Everything that is wrong with the configuration, also by what the plugins say; and whether a host would start."""
    from jackfield.config import Problem, Severity, read_agent
    from jackfield.config.load import load
    from jackfield.plugins.registry import PluginRegistry

    try:
        found = load(home)
    except ConfigError as error:
        whole = Problem(file=home.jackfield_toml, line=None, key="", message=error.message, severity=Severity.ERROR)
        return [whole], False
    registry = PluginRegistry(state_file=home.plugins / "broken.json", safe=safe)
    problems = list(found.problems)
    problems += _channel_problems(found, registry)
    for folder in sorted(home.groups.iterdir()) if home.groups.is_dir() else ():
        if (folder / "agent.toml").exists():
            agent = read_agent(folder)
            problems += agent.problems
            if agent.settings is not None:
                problems += _plugin_names(agent.file, agent.settings, registry)
    return problems, True


def _channel_problems(found: Configuration, registry: PluginRegistry) -> list[Problem]:
    from jackfield.config import Severity
    from jackfield.config.check import Text

    text = found.text or Text(found.home.jackfield_toml, {})
    problems: list[Problem] = []
    for instance, section in found.channels.items():
        if not section.enabled:
            continue
        try:
            kind = registry.channel_type(section.type)
        except (NotFound, PluginBroken) as error:
            said = f"{error.message}{f' ({error.fix})' if error.fix else ''}"
            problems.append(text.problem(("channels", instance), said, Severity.ERROR))
            continue
        problems += settings_problems(found, instance, kind)
    return problems


def _plugin_names(file: Path, agent: AgentSettings, registry: PluginRegistry) -> list[Problem]:
    """The plugins that a group names and that are not installed.  Metadata only."""
    from jackfield.config import Problem, Severity
    from jackfield.config.problems import near

    known: dict[str, set[str]] = {}
    for info in registry.listing():
        known.setdefault(str(info.kind), set()).add(info.name)
    wanted: Sequence[tuple[str, str, str]] = [
        ("provider", "provider", agent.provider),
        ("runtime", "runtime", agent.runtime),
        *(("tools", "tools", name) for name in agent.tools),
        *(("packs", "pack", name) for name in agent.packs),
    ]
    return [
        Problem(
            file=file,
            line=None,
            key=key,
            message=f"no {kind} {name!r} is installed",
            severity=Severity.ERROR,
            allowed=", ".join(sorted(known.get(kind, ()))) or None,
            suggestion=near(name, known.get(kind, ())),
        )
        for key, kind, name in wanted
        if name not in known.get(kind, ())
    ]


@config.command("show")
@json_option
def show() -> None:
    """Show what takes effect: every setting of the host and every table.  What may be a secret is not shown."""
    from jackfield.config.load import load

    found = load(current().home.require())
    result: dict[str, Any] = {
        "file": str(found.source),
        "host": found.host.model_dump(mode="json"),
        "effective": {"max_runners": found.host.runner_cap},
        "ingress": found.ingress.model_dump(mode="json"),
        "channels": {
            name: {"type": section.type, "enabled": section.enabled, **_masked(section.settings)}
            for name, section in found.channels.items()
        },
        "extensions": {name: _masked(section.settings) for name, section in found.extensions.items()},
        "runtimes": {name: _masked(dict(table)) for name, table in found.runtimes.items()},
    }
    if emit(result):
        return
    say(f"(* is set in {printable.line(result['file'])}, the others are defaults)")
    for table, settings in (("host", found.host), ("ingress", found.ingress)):
        say(f"[{table}]", bold=True)
        facts = {
            f"{'*' if key in settings.model_fields_set else ' '} {key}": value for key, value in result[table].items()
        }
        if table == "host" and not found.host.max_runners:
            facts[next(key for key in facts if key[2:] == "max_runners")] = f"0 ({found.host.runner_cap} here)"
        output.facts(facts)
    for kind in ("channels", "extensions", "runtimes"):
        for name, table in result[kind].items():
            say()
            say(f"[{kind}.{name}]", bold=True)
            output.facts(table, indent=2)


def _masked(table: dict[str, Any]) -> dict[str, Any]:
    from jackfield.config.problems import may_be_secret

    return {
        key: _masked(value) if isinstance(value, dict) else "(not shown)" if may_be_secret(key) else _plain(value)
        for key, value in table.items()
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | list) else str(value)


@config.command("set")
@click.argument("key")
@click.argument("value")
@json_option
def set_value(key: str, value: str) -> None:
    """Change a setting of the host, such as `timezone` or `ingress.port`.  Comments in the file stay."""
    from jackfield.config.edit import set_host_value

    home = current().home.require()
    stored = set_host_value(home, key, value)
    reloaded = reload_if_running()
    if emit({"key": key.removeprefix("host."), "value": stored, "reloaded": reloaded is not None}):
        return
    say(f"{key.removeprefix('host.')} is {output.text_of(stored)}")
