"""`jackfield help`: of commands, and of a few topics."""

from __future__ import annotations

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, did_you_mean, json_option
from jackfield.cli.state import emit, say
from jackfield.errors import EXIT_CODES, NotFound

__all__ = ["help_command"]

MORE_CODES = {130: "stopped by Ctrl-C", 141: "the reader of the output went away"}
TOPICS = ("exit-codes",)


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@json_option
@click.pass_context
def help_command(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or `help exit-codes`."""
    if words == ("exit-codes",):
        _exit_codes()
        return
    here = context.find_root()
    command: click.Command = here.command
    path = "jackfield"
    with click.Context(command, info_name="jackfield", obj=context.obj, help_option_names=["-h", "--help"]) as root:
        shown = root
        for word in words:
            known = command.list_commands(shown) if isinstance(command, click.Group) else []
            found = command.get_command(shown, word) if isinstance(command, click.Group) else None
            if found is None:
                raise NotFound(
                    f"there is no help on {' '.join(words)!r}{did_you_mean(word, [*known, *TOPICS])}",
                    fix=f"`{path} --help` lists what there is",
                )
            command, path = found, f"{path} {word}"
            shown = click.Context(command, info_name=word, parent=shown)
        text = command.get_help(shown)
        if not emit({"command": path, "help": text}):
            click.echo(text)


def _exit_codes() -> None:
    table = {**EXIT_CODES, **MORE_CODES}
    if emit({str(code): meaning for code, meaning in table.items()}):
        return
    say("Exit codes:", bold=True)
    output.facts({str(code): meaning for code, meaning in table.items()}, indent=2)
