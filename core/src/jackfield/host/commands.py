"""The host's gate for chat commands (messaging.md 1.7).

The table is `jackfield.models.commands`; plugins add rows with `register_commands`, and never change one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jackfield.models.commands import COMMANDS, ChatCommand, CommandAccess, SenderRole, command_token

__all__ = ["Command", "Denied", "Filtered", "Gate", "Pass", "gate"]


@dataclass(frozen=True, slots=True)
class Pass:
    """No command of ours: text for the agent."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that this sender may use; `token` goes into `ChatContent.command`."""

    token: str


@dataclass(frozen=True, slots=True)
class Denied:
    """Not for this sender.  `text` is told in the chat, through the channel; the session gets nothing."""

    token: str
    text: str


@dataclass(frozen=True, slots=True)
class Filtered:
    """Of another program: dropped in silence, also where messages accumulate."""

    token: str


Gate = Pass | Command | Denied | Filtered


def gate(text: str, role: SenderRole, added: Mapping[str, ChatCommand] = COMMANDS) -> Gate:
    """What becomes of a text.  `role` is the sender's in that agent group, from our own tables; `added` are the rows of
    plugins."""
    token = command_token(text)
    if token is None:
        return Pass()
    rule = COMMANDS.get(token) or added.get(token)
    if rule is None:
        return Pass()
    match rule.access:
        case CommandAccess.NOBODY:
            return Filtered(token)
        case CommandAccess.ADMIN if role not in ("owner", "admin"):
            return Denied(token, f"{token} is for admins of this agent.")
        case CommandAccess.MEMBER if role == "":
            return Denied(token, f"{token} is for members of this agent.")
        case _ if token not in COMMANDS:
            return Pass()
        case _:
            return Command(token)
