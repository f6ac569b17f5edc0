"""The host's gate for chat commands (messaging.md 1.7).  The table is `jackfield.models.commands`."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.models.commands import COMMANDS, CommandAccess, SenderRole, command_token

__all__ = ["Command", "Denied", "Filtered", "Gate", "Pass", "gate"]


@dataclass(frozen=True, slots=True)
class Pass:
    """No command: text for the agent."""


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


def gate(text: str, role: SenderRole) -> Gate:
    """What becomes of a text.  `role` is the sender's in that agent group, from our own tables."""
    token = command_token(text)
    rule = COMMANDS.get(token) if token is not None else None
    if token is None or rule is None:
        return Pass()
    match rule.access:
        case CommandAccess.NOBODY:
            return Filtered(token)
        case CommandAccess.ADMIN if role not in ("owner", "admin"):
            return Denied(token, f"{token} is for admins of this agent.")
        case _:
            return Command(token)
