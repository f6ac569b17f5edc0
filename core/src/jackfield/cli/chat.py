"""`jackfield chat` while no installed plugin provides it: the terminal channel does."""

from __future__ import annotations

import click

from jackfield.cli.lazy import Command
from jackfield.cli.state import current
from jackfield.errors import NotFound

__all__ = ["chat"]


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def chat() -> None:
    """Talk to an agent."""
    if current().safe:
        raise NotFound("`chat` belongs to the terminal channel, and --safe leaves plugins out", fix="leave --safe out")
    raise NotFound(
        "`chat` belongs to the terminal channel, which is not installed",
        fix="install jackfield-channel-terminal into the same environment",
    )
