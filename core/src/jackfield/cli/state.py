"""What the options in front of a command said, and the way from a command to the host."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import click

from jackfield.config.home import Home
from jackfield.errors import UsageError

__all__ = ["Json", "State", "call", "confirm", "current", "emit", "run_async", "say", "warn"]

T = TypeVar("T")
Json = Any


@dataclass
class State:
    """One for each run of the program."""

    home_option: str | None = None
    json: bool = False
    safe: bool = False
    strict: bool = False
    verbose: int = 0
    color: bool | None = None
    """False with `--no-color`; None leaves it to the terminal."""
    plugin: tuple[str, str] | None = None
    """Distribution and name of the plugin's command that runs, if one does."""
    _found: Home | None = field(default=None, repr=False)

    @property
    def home(self) -> Home:
        """The home that is meant; it need not exist."""
        if self._found is None:
            self._found = Home.find(self.home_option)
        return self._found

    @property
    def plugins_folder(self) -> Path | None:
        """The home's `plugins/`; None while there is no home, so that looking at plugins makes none."""
        return self.home.plugins if self.home.initialised else None

    def use_home(self, path: str) -> None:
        self.home_option, self._found = path, None


def current() -> State:
    """The state of the command that runs."""
    state = click.get_current_context().find_object(State)
    assert state is not None
    return state


def call(op: str, /, **args: Json) -> Json:
    """One operation of the host: by the running one, else directly under its lock.  None arguments are left out.

    Raises:
        NotInitialised: there is no home.
        JackfieldError: as the operation says.
    """
    from jackfield.host.control import perform

    home = current().home.require()
    return run_async(perform(home, op, {key: value for key, value in args.items() if value is not None}))


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; Ctrl-C cancels it."""
    import asyncio

    return asyncio.run(work)


def emit(result: Json) -> bool:
    """With `--json`, print the result and return True; else do nothing and return False."""
    if not current().json:
        return False
    from jackfield.cli.printable import json_text

    click.echo(json_text(result))
    return True


def say(text: str = "", **style: Any) -> None:
    """Print something for people; the caller has made foreign text harmless."""
    click.echo(click.style(text, **style) if style else text, color=current().color)


def warn(text: str) -> None:
    """A remark on stderr that changes nothing about the outcome."""
    click.echo(click.style("warning:", fg="yellow") + " " + text, err=True, color=current().color)


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that can't be taken back.

    Raises:
        UsageError: there is nobody to ask.
        click.Abort: the answer is no.
    """
    if yes:
        return
    if current().json or not sys.stdin.isatty():
        raise UsageError(f"nobody is there to answer: {question}", fix="add --yes when you are sure")
    click.confirm(question, abort=True, err=True)
