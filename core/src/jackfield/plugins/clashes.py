"""What a plugin brings that another, or the core, has under the same name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from jackfield.plugins.broken import Broken
from jackfield.plugins.loading import LoadedPlugin, Refused

if TYPE_CHECKING:
    from jackfield.models.commands import ChatCommand

__all__ = ["refuse_clashes"]


def refuse_clashes(
    loaded: LoadedPlugin, actions: Mapping[str, str], commands: Mapping[str, ChatCommand], approvals: Collection[str]
) -> None:
    """Whether a plugin may join those that are loaded: `actions` tells who handles which.

    Raises:
        Refused: what it brings has a meaning already.
    """
    for action in loaded.offers.actions:
        if action.name in actions:
            raise Refused(
                Broken(
                    phase="register",
                    reason=f"the action {action.name!r} is already handled by {actions[action.name]}",
                    fix=f"remove {loaded.found.distribution.name} or {actions[action.name]}",
                )
            )
    for command in loaded.offers.commands:
        _refuse_command(command, commands)
    for kind in loaded.offers.approvals:
        if kind.name in approvals:
            raise Refused(
                Broken(
                    phase="register",
                    reason=f"there is a kind of approval {kind.name!r} already",
                    fix=f"remove {loaded.found.distribution.name}, or the plugin that brings it too",
                )
            )


def _refuse_command(command: ChatCommand, commands: Mapping[str, ChatCommand]) -> None:
    """Raises Refused: the token has a meaning already, or is for the runner alone to judge."""
    from jackfield.models.commands import COMMANDS, CommandAccess

    if command.token in COMMANDS or command.token in commands:
        whose = "the core's" if command.token in COMMANDS else "another plugin's"
        fix = "give the command another name"
        raise Refused(Broken(phase="register", reason=f"the command {command.token} is {whose}", fix=fix))
    if command.access is CommandAccess.OWN_TURN:
        reason = f"the command {command.token} has the access own_turn, which is for the runner's own commands"
        raise Refused(Broken(phase="register", reason=reason, fix="use admin, member or nobody"))
