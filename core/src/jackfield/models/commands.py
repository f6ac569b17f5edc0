"""The one table of chat commands, read by the host's gate and by the runner (messaging.md 1.7, architecture 7).

A command is an exact token: the first word of a text that starts with `/`, in lower case.  `/clearx` is no command, and
`/clear@bot` is one only after its channel took the suffix off (messaging.md 17.4, pitfall 13).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from jackfield.errors import MalformedData

__all__ = ["COMMANDS", "ChatCommand", "CommandAccess", "SenderRole", "command_token"]

SenderRole = Literal["owner", "admin", "member", ""]
"""What a sender is to one agent group, as `ChatContent.sender_role` carries it; empty for everyone else."""


class CommandAccess(StrEnum):
    """Who may use a command."""

    ADMIN = "admin"
    """Owners, global admins, and admins of that agent group."""
    OWN_TURN = "own_turn"
    """Whoever started the running turn, and admins; the runner knows whose turn it is (C128)."""
    MEMBER = "member"
    """These, and members of that agent group."""
    NOBODY = "nobody"
    """It means something to another program only: dropped without an answer, also from what accumulates."""


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """A row of the table; also what `register_commands` returns.  `help` is one line for people.

    What a plugin adds is text for the agent, from those who may use it; `own_turn` is for the runner's own commands.
    """

    token: str
    access: CommandAccess = CommandAccess.ADMIN
    help: str = ""

    def __post_init__(self) -> None:
        if not _TOKEN.match(self.token):
            raise MalformedData(
                f"{self.token!r} is no command: a '/', then lower-case letters, digits, '_' and '-', at most 64"
            )


_TOKEN = re.compile(r"^/[a-z0-9][a-z0-9_-]{0,62}$")


def _table(*rows: ChatCommand) -> Mapping[str, ChatCommand]:
    return MappingProxyType({row.token: row for row in rows})


COMMANDS: Mapping[str, ChatCommand] = _table(
    ChatCommand("/clear", CommandAccess.ADMIN, "Forget this conversation and start a new one."),
    ChatCommand("/compact", CommandAccess.ADMIN, "Shorten this conversation's history to a summary."),
    ChatCommand("/context", CommandAccess.ADMIN, "Show how full the model's context is."),
    ChatCommand("/cost", CommandAccess.ADMIN, "Show what this conversation has cost."),
    ChatCommand("/files", CommandAccess.ADMIN, "List the files that the agent has at hand."),
    ChatCommand("/stop", CommandAccess.OWN_TURN, "Stop the turn that is running."),
    ChatCommand("/claim", CommandAccess.NOBODY, "Of the host: `jackfield owner claim` tells what it does."),
    ChatCommand("/help", CommandAccess.NOBODY, "Of the chat program."),
    ChatCommand("/start", CommandAccess.NOBODY, "Of the chat program."),
    ChatCommand("/login", CommandAccess.NOBODY, "Of the engine's own terminal."),
    ChatCommand("/logout", CommandAccess.NOBODY, "Of the engine's own terminal."),
    ChatCommand("/doctor", CommandAccess.NOBODY, "Of the engine's own terminal."),
    ChatCommand("/config", CommandAccess.NOBODY, "Of the engine's own terminal."),
    ChatCommand("/remote-control", CommandAccess.NOBODY, "Of the engine's own terminal."),
)
"""By token.  Whatever else starts with `/`, and no plugin registers, is text for the agent."""


def command_token(text: str) -> str | None:
    """The token of `text` in lower case, or None when it starts with anything but `/`."""
    words = text.split(maxsplit=1)
    return words[0].lower() if words and words[0].startswith("/") else None
