"""`jackfield completion`: tab completion."""

from __future__ import annotations

import click

from jackfield.cli.lazy import Command

__all__ = ["completion"]

_WHERE = {
    "bash": 'source it in ~/.bashrc:  eval "$(jackfield completion bash)"',
    "zsh": 'source it in ~/.zshrc:  eval "$(jackfield completion zsh)"',
    "fish": "jackfield completion fish > ~/.config/fish/completions/jackfield.fish",
}


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your shell."""
    from click.shell_completion import get_completion_class

    from jackfield.cli.app import cli

    kind = get_completion_class(shell)
    assert kind is not None
    text = kind(cli, {}, "jackfield", "_JACKFIELD_COMPLETE").source()
    click.echo(f"# {_WHERE[shell]}\n{text}")
