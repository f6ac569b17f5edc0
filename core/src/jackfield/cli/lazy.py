"""Command groups whose commands are imported only when they run, and the options that all commands share."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from jackfield.cli.state import State

__all__ = ["Command", "Entry", "Group", "LazyGroup", "MayBeEmpty", "did_you_mean", "json_option"]


def _shared(name: str, take: str) -> Any:
    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        state = context.find_object(State)
        if state is None or value in (None, False, 0):
            return
        if take == "home":
            _refuse_empty(context, parameter, value)
            state.use_home(str(value))
        elif take == "color":
            state.color = False
            context.find_root().color = False
        elif take == "verbose":
            state.verbose = max(state.verbose, int(value))
        else:
            setattr(state, take, True)

    callback.__name__ = name
    return callback


def shared_options(*, hidden: bool) -> list[click.Parameter]:
    """The options that may stand in front of a command and behind it."""
    return [
        click.Option(
            ["--home"],
            metavar="PATH",
            expose_value=False,
            callback=_shared("home", "home"),
            hidden=hidden,
            help="Where everything lies; else $JACKFIELD_HOME, else ~/.jackfield.",
        ),
        click.Option(
            ["--safe"],
            is_flag=True,
            expose_value=False,
            callback=_shared("safe", "safe"),
            hidden=hidden,
            help="Use no plugins but the built-in ones.",
        ),
        click.Option(
            ["--strict"],
            is_flag=True,
            expose_value=False,
            callback=_shared("strict", "strict"),
            hidden=hidden,
            help="Refuse where a warning would do.",
        ),
        click.Option(
            ["-v", "--verbose"],
            count=True,
            expose_value=False,
            callback=_shared("verbose", "verbose"),
            hidden=hidden,
            help="Say more; twice, say everything.",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            callback=_shared("no_color", "color"),
            hidden=hidden,
            help="No colours.",
        ),
    ]


def _refuse_empty(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    """An empty text is mostly a variable that was not set, and would mean something else than what was asked for."""
    texts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(one, str) and not one.strip() for one in texts):
        raise click.BadParameter("it is empty", context, parameter)


class MayBeEmpty(click.Option):
    """An option with which `''` means something."""


def _take_json(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    state = context.find_object(State)
    if state is not None and value:
        state.json = True


json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    expose_value=False,
    callback=_take_json,
    is_eager=True,
    help="Print JSON, for programs.",
)
"""For commands that have something to show."""


class Command(click.Command):
    """A command of our own: the shared options may stand behind it too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        taken = {option for parameter in self.params for option in parameter.opts}
        self.params.extend(one for one in shared_options(hidden=True) if not taken.intersection(one.opts))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click does; then refuse options that were given an empty value."""
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            if isinstance(parameter, click.Option) and not isinstance(parameter, MayBeEmpty):
                _refuse_empty(ctx, parameter, ctx.params.get(parameter.name or ""))
        return rest

    def get_short_help_str(self, limit: int = 45) -> str:
        """The whole first sentence: lists break it over lines, and cut nothing off."""
        return super().get_short_help_str(limit=1000)


class Group(click.Group):
    """A group of our own commands: near names are offered, and plural spellings work."""

    command_class: type[click.Command] | None = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            if name.startswith("-"):
                ctx.fail(f"no such option: {name}")
            ctx.fail(f"no such command: {name!r}{did_you_mean(name, self.list_commands(ctx))}")
        return (name if command is not None else None), command, args[1:]


@dataclass(frozen=True, slots=True)
class Entry:
    """One command that is not imported yet."""

    target: str
    """``module:object`` below `jackfield.cli`."""
    help: str
    section: str
    aliases: tuple[str, ...] = ()


class LazyGroup(Group):
    """The root: knows its commands by name and one line each.  What plugins add comes from their manifests."""

    entries: Mapping[str, Entry]

    def __init__(self, *args: Any, entries: Mapping[str, Entry], sections: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.entries = entries
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All visible names; hidden aliases are left out."""
        return sorted({*self.entries, *self.added(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name
        if name not in self.entries:
            name = next((real for real, entry in self.entries.items() if cmd_name in entry.aliases), name)
        if name in self.entries:
            module, _, attribute = self.entries[name].target.partition(":")
            return cast(click.Command, getattr(importlib.import_module(f"jackfield.cli.{module}"), attribute))
        return self.added_command(ctx, cmd_name)

    def added(self, ctx: click.Context) -> dict[str, str]:
        """Names and helps of commands from elsewhere."""
        return {}

    def added_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {name: (entry.section, entry.help) for name, entry in self.entries.items()}
        rows |= {name: (self.sections[-1], text) for name, text in self.added(ctx).items() if name not in rows}
        longest = max(len(name) for name in rows)
        for section in self.sections:
            inside = [(name.ljust(longest), text) for name, (where, text) in rows.items() if where == section]
            if inside:
                with formatter.section(section):
                    formatter.write_dl(inside)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        rows = {name: entry.help for name, entry in self.entries.items()} | self.added(ctx)
        found = [CompletionItem(name, help=text) for name, text in sorted(rows.items()) if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`` - did you mean 'group'?``, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
