"""What somebody wrote, as an event.  Pure but for the counting of equal messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from jackfield.clock import UnixMs, from_datetime
from jackfield.models import (
    Address,
    Addressed,
    ConversationKind,
    MessageReceived,
    MessageRef,
    Person,
    Quote,
    ReactionChanged,
    Trust,
)
from jackfield.models.mentions import mention_in
from jackfield_channel_kit.text.parse import from_irc

from jackfield_channel_irc.identity import Ids
from jackfield_channel_irc.lines import Line, shown
from jackfield_channel_irc.network import Network

__all__ = ["Ctcp", "Reader", "mentioned", "server_time", "without_call"]

_BOT_TAGS = ("bot", "draft/bot", "inspircd.org/bot")
_NICK_MARKS = str.maketrans("[]\\^{}|", "_______")
"""Letters of nicks that are no letters elsewhere: `miso|away` is somebody else than `miso`."""


@dataclass(frozen=True, slots=True)
class Ctcp:
    """A client's question to ours, from that nick."""

    nick: str
    command: str
    text: str


class Reader:
    """Reads the messages of one network; `is_ours` knows the ids of what we sent."""

    def __init__(self, instance: str, is_ours: Callable[[str], bool]) -> None:
        self._instance = instance
        self._is_ours = is_ours
        self._ids = Ids()

    def read(self, line: Line, network: Network, now: UnixMs, replay: str) -> MessageReceived | Ctcp | None:
        """A PRIVMSG; None when it is not for us: our own, a server's, or an unknown client question.

        A NOTICE is never read: by the protocol's rule nobody answers one, which keeps bots from talking for ever.
        """
        place = self._place(line, network)
        if place is None:
            return None
        address, is_group = place
        raw = line.param(-1)
        action = False
        if raw.startswith("\x01"):
            command, _, rest = raw.strip("\x01").partition(" ")
            if command.upper() != "ACTION":
                return None if replay else Ctcp(line.nick, command.upper(), rest)
            raw, action = rest, True
        bare = shown(raw)
        if not bare.strip():
            return None
        if self._is_ours(line.tags.get("msgid", "")):
            return None
        at = server_time(line) or now
        message_id = line.tags.get("msgid") or self._ids.of(
            address.platform_id, network.fold(line.source), raw, at, replay
        )
        reply = line.tags.get("+draft/reply") or line.tags.get("+reply")
        called = raw if action or not is_group else without_call(raw, network)
        text = from_irc(called)
        if action:
            text = f"*{line.nick} {text}*"
        sender = self.person(line, network)
        return MessageReceived(
            address=address,
            dedupe_key=f"message:{message_id}",
            occurred_at=at,
            ref=MessageRef(address, (message_id,)),
            sender=sender,
            text=text,
            kind=ConversationKind.CHANNEL if is_group else ConversationKind.DM,
            is_group=is_group,
            addressed=self._addressed(bare, is_group, None if sender.is_bot else reply, network),  # C228
            reply_to=Quote(platform_id=reply) if reply else None,
            conversation_name=line.param(0) if is_group else line.nick,
            backfill=bool(replay),
        )

    def reaction(self, line: Line, network: Network, now: UnixMs) -> ReactionChanged | None:
        """A TAGMSG that adds or takes a reaction; None for any other."""
        place = self._place(line, network)
        target = line.tags.get("+draft/reply") or line.tags.get("+reply")
        added = line.tags.get("+draft/react")
        emoji = added or line.tags.get("+draft/unreact")
        if place is None or not target or not emoji:
            return None
        at = server_time(line) or now
        sender = self.person(line, network)
        version = line.tags.get("msgid") or self._ids.of(target, sender.handle, f"{emoji} {added}", at)
        return ReactionChanged(
            address=place[0],
            dedupe_key=f"reaction:{version}",
            occurred_at=at,
            ref=MessageRef(place[0], (target,)),
            user=sender,
            emoji=emoji,
            added=added is not None,
        )

    def person(self, line: Line, network: Network) -> Person:
        """The sender: their account where the server vouches for one, else their mask, which anybody may take."""
        bot = any(tag in line.tags for tag in _BOT_TAGS)
        account = line.tags.get("account")
        if account:
            # The same account name is somebody else on another network.
            handle = f"{network.fold(account)}@{self._instance}"
            return Person(handle=handle, display_name=line.nick, is_bot=bot, trust=Trust.AUTHENTICATED)
        return Person(handle=network.fold(line.source), display_name=line.nick, is_bot=bot, trust=Trust.UNVERIFIED)

    def _place(self, line: Line, network: Network) -> tuple[Address, bool] | None:
        """Where it was written, and whether others are there."""
        if (
            "!" not in line.source
            or network.is_me(line.nick)
            or len(line.params) < (1 if line.command == "TAGMSG" else 2)
        ):
            return None
        target = line.param(0)
        if network.is_room(target):
            return Address("irc", self._instance, network.fold(target)), True
        if network.is_me(target):
            return Address("irc", self._instance, network.fold(line.nick)), False
        return None

    def _addressed(self, bare: str, is_group: bool, reply: str | None, network: Network) -> Addressed:
        if not is_group:
            return Addressed.DM
        if mentioned(bare, network):
            return Addressed.MENTION
        return Addressed.REPLY if reply and self._is_ours(reply) else Addressed.NONE


def mentioned(text: str, network: Network) -> bool:
    """Whether our nick stands in it as a nick of its own (C044)."""
    nick = network.fold(network.nick).translate(_NICK_MARKS)
    return mention_in(network.fold(text).translate(_NICK_MARKS), [nick])


def without_call(text: str, network: Network) -> str:
    """The text without our nick before it, as people call somebody: `miso: what now?`."""
    length = len(network.nick)
    head, rest = text[:length], text[length:]
    if network.is_me(head) and rest[:1] in (":", ",") and (stripped := rest[1:].strip()):
        return stripped
    return text


def server_time(line: Line) -> UnixMs | None:
    """When the server says that it was said."""
    try:
        moment = datetime.fromisoformat(line.tags["time"])
    except (KeyError, ValueError):
        return None
    return from_datetime(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
