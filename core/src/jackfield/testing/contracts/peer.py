"""The other end of a channel, as its author drives it: people on the platform, or a fake of the platform itself."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from jackfield.api import Channel
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    NobodyListening,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    WindowClosed,
)
from jackfield.models import Address
from jackfield.testing.contracts.checks import skip
from jackfield.testing.recorders import ChannelRecorder

__all__ = ["FAILURES", "Arrived", "FailureKind", "Peer", "Said"]

FailureKind = Literal[
    "rate_limited", "transient", "ambiguous", "auth", "not_allowed", "not_found", "too_large", "bad_content", "window",
    "nobody",
]  # fmt: skip
"""What a platform may say to a send."""

FAILURES: dict[FailureKind, type[ChannelError]] = {
    "rate_limited": RateLimited,
    "transient": Transient,
    "ambiguous": Ambiguous,
    "auth": AuthFailed,
    "not_allowed": SendNotAllowed,
    "not_found": ChatNotFound,
    "too_large": TooLarge,
    "bad_content": BadContent,
    "window": WindowClosed,
    "nobody": NobodyListening,
}
"""And what the channel must make of it."""

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What somebody writes on the platform.  `chat` and `thread` are the suite's names; the peer maps them."""

    text: str
    id: str = field(default_factory=lambda: f"said-{next(_numbers)}")
    """The platform's own id of the message."""
    chat: str = "one"
    thread: str | None = None
    sender: str = "ann"
    group: bool = False
    mention: bool = False
    """The bot is mentioned the way the platform does it, besides what `text` says."""
    own: bool = False
    """The bot's own account wrote it."""
    bot: bool = False
    """Another bot wrote it."""
    files: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What people see on the platform."""

    kind: Literal["message", "edit", "delete", "reaction", "typing", "prompt_done"]
    ids: tuple[str, ...] = ()
    text: str = ""
    """As a person reads it, without markup."""
    address: Address | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    choices: tuple[str, ...] = ()
    """The values of a question's answers."""
    prompt_id: str = ""
    emoji: str = ""
    on: bool = True
    """Whether a reaction was added, or typing begun."""


class Peer(ABC):
    """One platform with people on it, for one instance of the channel.

    `address`, `write` and `arrived` are needed.  Override of the rest what your platform has; a check that needs
    something else is skipped, and says so.
    """

    failures: frozenset[FailureKind] = frozenset()
    """What `fail_next` can play."""

    def __init__(self, instance: str) -> None:
        self.instance = instance

    def refuse(self, what: str) -> NoReturn:
        """Have the check skipped that asks for something which the platform doesn't have."""
        skip(f"this peer can't {what}")

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the channel needs to reach it, such as the port of a fake server; added to the suite's own."""
        return {}

    @property
    def secrets(self) -> Mapping[str, str]:
        """What `context.secret` answers, by name."""
        return {}

    async def open(self) -> None:
        """Begin to be there; before the channel starts."""
        return None

    async def close(self) -> None:
        """The end; after the channel has stopped."""
        return None

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        """The channel has just started, and reports to this context.  Called again when it is started again."""
        return None

    async def leave(self) -> None:
        """The channel is about to be stopped by the suite."""
        return None

    @abstractmethod
    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        """Where the suite's chat of that name lives."""

    @abstractmethod
    async def write(self, said: Said) -> None:
        """Hand a message in, as the platform does.  Returns at once, not when it is acknowledged."""

    @abstractmethod
    async def arrived(self) -> Arrived:
        """The next thing that people see, in order; waits for it."""

    async def redeliver(self, said: Said) -> None:
        """The platform delivers the same message once more, as it does when it saw no acknowledgement."""
        await self.write(said)

    async def acknowledged(self, said: Said) -> bool:
        """Wait until the platform sees the message acknowledged (True) or refused (False)."""
        self.refuse("see acknowledgements")

    async def fail_next(self, failure: FailureKind) -> None:
        """The platform will answer the next send like that."""
        self.refuse(f"play {failure}")

    async def recover(self) -> None:
        """Be as before, after `fail_next` and the send that it concerned."""
        return None

    async def click(self, question: Arrived, value: str, *, by: str = "ann") -> None:
        """Somebody chooses that answer."""
        self.refuse("answer questions")

    async def edit(self, said: Said, text: str) -> None:
        """Somebody edits their message."""
        self.refuse("edit what people wrote")

    async def hang(self) -> None:
        """From now on the platform leaves the channel's poll or connection without any answer."""
        return None
