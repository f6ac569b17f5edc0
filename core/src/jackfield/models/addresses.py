"""Who and where: chats, people, messages on a platform."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from urllib.parse import quote, unquote

from jackfield.errors import MalformedData
from jackfield.models.reserved import AGENT_CHANNEL

__all__ = ["Address", "MessageRef", "Person", "Trust"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a conversation lives.  All four are opaque strings of the platform's or the operator's.

    `instance` is the name of the channel's table in `jackfield.toml`: which bot, mailbox or number.
    """

    channel_type: str
    instance: str
    platform_id: str
    thread_id: str | None = None

    def __post_init__(self) -> None:
        if not (self.channel_type and self.instance and self.platform_id.strip()):
            # C126: no session key, and so no address, is ever made from missing parts.
            raise MalformedData(f"an address needs channel type, instance and platform id, got {self!r}")

    @property
    def chat(self) -> Address:
        """The same chat without its thread."""
        return self if self.thread_id is None else replace(self, thread_id=None)

    @property
    def is_agent(self) -> bool:
        """Whether it is another agent's."""
        return self.channel_type == AGENT_CHANNEL

    def __str__(self) -> str:
        """The canonical text, ``channel:instance:platform`` or with a fourth part; parts are percent-quoted."""
        return _written(self)

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read the canonical text.

        Raises:
            MalformedData: it has not three or four parts, or one of the first three is empty.
        """
        return _read(text)


# The same few addresses are written and read several times with each message.


@lru_cache(maxsize=1024)
def _written(address: Address) -> str:
    parts = [address.channel_type, address.instance, address.platform_id]
    if address.thread_id is not None:
        parts.append(address.thread_id)
    return ":".join(quote(part, safe="@!+=,.~-_") for part in parts)


@lru_cache(maxsize=1024)
def _read(text: str) -> Address:
    parts = [unquote(part) for part in text.split(":")]
    if len(parts) not in (3, 4):
        raise MalformedData(f"{text!r} is not an address (channel:instance:chat[:thread])")
    return Address(parts[0], parts[1], parts[2], parts[3] if len(parts) == 4 else None)


class Trust(StrEnum):
    """How sure the channel is of who a person is."""

    OPERATOR = "operator"
    """The operating system said so: the terminal's own user.  Only channels with `info.local` may claim it."""
    PLATFORM = "platform"
    """The platform logged them in."""
    AUTHENTICATED = "authenticated"
    """A signature or an account proves it (signed mail, IRC services)."""
    UNVERIFIED = "unverified"
    """Anyone can use that name: an IRC nick, unsigned mail."""


@dataclass(frozen=True, slots=True)
class Person:
    """A sender as the platform knows them.

    `handle` is the stable id, the permission key on all instances of the channel: where ids are unique within a network
    or a workspace only, it carries that one's name (C141).  `aliases` find a person and permit nothing; the display
    name is for reading.
    """

    handle: str
    display_name: str | None = None
    aliases: tuple[str, ...] = ()
    is_bot: bool = False
    is_self: bool = False
    trust: Trust = Trust.PLATFORM


@dataclass(frozen=True, slots=True)
class MessageRef:
    """One logical message on a platform: all its platform ids, in order (channels.md R8)."""

    address: Address
    ids: tuple[str, ...]
