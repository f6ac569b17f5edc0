"""Matrix events as the core's: with what has to be looked up (who is in the room, what a relation refers to)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jackfield.api import ChannelContext
from jackfield.errors import ChatNotFound, SendNotAllowed
from jackfield.models import (
    Address,
    Addressed,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    Event,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    MessageRef,
    Person,
    Quote,
    ReactionChanged,
)

from jackfield_channel_matrix.homeserver import CLIENT, Homeserver, quoted
from jackfield_channel_matrix.reading import (
    attachments,
    content_of,
    in_reply_to,
    mentioned,
    occurred_at,
    relation,
    text_of,
    thread_of,
)
from jackfield_channel_matrix.rooms import Room, Rooms
from jackfield_channel_matrix.seen import SHOWN, Seen, SeenEvents

__all__ = ["Translator"]

Raw = Mapping[str, Any]


class Translator:
    """For one account.  `decrypt(room, event)` reads what is fetched from an encrypted room; None where it can't."""

    def __init__(
        self,
        homeserver: Homeserver,
        rooms: Rooms,
        seen: SeenEvents,
        context: ChannelContext,
        decrypt: Callable[[str, Raw], Raw | None],
    ) -> None:
        self._homeserver = homeserver
        self._rooms = rooms
        self._seen = seen
        self._context = context
        self._decrypt = decrypt

    async def events(self, room_id: str, event: Raw, *, backfill: bool = False) -> Sequence[Event]:
        """What the core is to know of an event: nothing or one thing.

        Raises:
            ChannelError: something had to be looked up and could not.
        """
        event_id, sender, kind = event.get("event_id"), event.get("sender"), event.get("type")
        if not isinstance(event_id, str) or not isinstance(sender, str) or not event_id or not sender:
            return ()
        if "state_key" in event:
            found = self._state(room_id, event)
            return () if found is None else (found,)
        content = content_of(event)
        rel, target, key = relation(content)
        if kind == "m.reaction" and rel == "m.annotation" and target and key:
            thread = await self._thread(room_id, target)
            self._seen.add(room_id, event_id, Seen(sender, thread, target=target, emoji=key))
            return () if self._own(sender) else (self._reaction(room_id, event, thread, target, key, True),)
        if kind == "m.room.redaction":
            return await self._redaction(room_id, event)
        if not content or kind not in ("m.room.message", "m.sticker"):
            return ()
        if rel == "m.replace" and target:
            return await self._edit(room_id, event, target)
        self._seen.add(room_id, event_id, _seen(event, content), newest=not backfill)
        if self._own(sender):
            return ()
        return (await self._message(room_id, event, content, backfill=backfill),)

    async def lookup(self, room_id: str, event_id: str) -> Seen | None:
        """An event by its id; the homeserver is asked for one that did not pass by."""
        known = self._seen.get(room_id, event_id)
        if known is None:
            path = f"{CLIENT}/rooms/{quoted(room_id)}/event/{quoted(event_id)}"
            try:
                event: Raw | None = await self._homeserver.request("GET", path)
            except (ChatNotFound, SendNotAllowed):
                return None
            if event is not None and event.get("type") == "m.room.encrypted":
                event = self._decrypt(room_id, event) or {**event, "content": _outside(event)}
            assert event is not None
            known = _seen(event, content_of(event))
            self._seen.add(room_id, event_id, known, newest=False)
        return known

    # ----

    async def _message(self, room_id: str, event: Raw, content: Raw, *, backfill: bool) -> MessageReceived:
        room = await self._rooms.get(room_id)
        event_id, sender = str(event["event_id"]), str(event["sender"])
        is_group = self._rooms.is_group(room)
        people, meant = mentioned(content, self._homeserver.user_id, self._names(room))
        quote, to_us = await self._quote(room_id, content)
        is_bot = content.get("msgtype") == "m.notice"
        addressed = Addressed.NONE
        if not is_group:
            addressed = Addressed.DM
        elif meant:
            addressed = Addressed.MENTION
        elif to_us and not is_bot:  # C228
            addressed = Addressed.REPLY
        address = self._address(room_id, thread_of(content))
        return MessageReceived(
            address=address,
            dedupe_key=event_id,
            occurred_at=occurred_at(event, self._context.clock.now()),
            ref=MessageRef(address, (event_id,)),
            sender=self._person(room, sender, is_bot=is_bot),
            text=text_of(content),
            kind=ConversationKind.GROUP if is_group else ConversationKind.DM,
            is_group=is_group,
            addressed=addressed,
            mentions=people,
            reply_to=quote,
            attachments=attachments(event, content),
            conversation_name=room.name if is_group else room.members.get(sender) or room.name,
            backfill=backfill,
        )

    async def _quote(self, room_id: str, content: Raw) -> tuple[Quote | None, bool]:
        """What was replied to, and whether it was ours."""
        target = in_reply_to(content)
        if target is None:
            return None, False
        found = await self.lookup(room_id, target)
        if found is None:
            return Quote(platform_id=target), False
        return Quote(platform_id=target, sender=found.sender, text=found.text or None), self._own(found.sender)

    async def _edit(self, room_id: str, event: Raw, target: str) -> Sequence[Event]:
        sender = str(event["sender"])
        new = content_of(event).get("m.new_content")
        original = await self.lookup(room_id, target)
        if original is not None and original.sender != sender:
            return ()  # only who wrote a message may edit it
        if not isinstance(new, dict):
            return ()
        text = text_of(new)
        if original is not None:
            self._seen.add(room_id, target, Seen(sender, original.thread, text[:SHOWN]), newest=False)
        if self._own(sender):
            return ()
        address = self._address(room_id, original.thread if original is not None else None)
        room = await self._rooms.get(room_id)
        return (
            MessageEdited(
                address=address,
                dedupe_key=str(event["event_id"]),
                occurred_at=occurred_at(event, self._context.clock.now()),
                ref=MessageRef(address, (target,)),
                sender=self._person(room, sender),
                text=text,
                version=str(event["event_id"]),
            ),
        )

    async def _redaction(self, room_id: str, event: Raw) -> Sequence[Event]:
        """Something was taken away: a reaction or a message."""
        target = event.get("redacts") or content_of(event).get("redacts")
        if not isinstance(target, str):
            return ()
        known = self._seen.get(room_id, target)
        if known is not None and known.target:
            if self._own(known.sender):
                return ()
            removed = {**event, "sender": known.sender}
            return (self._reaction(room_id, removed, known.thread, known.target, known.emoji, False),)
        if self._own(str(event["sender"])):
            return ()
        address = self._address(room_id, known.thread if known is not None else None)
        room = await self._rooms.get(room_id)
        return (
            MessageDeleted(
                address=address,
                dedupe_key=str(event["event_id"]),
                occurred_at=occurred_at(event, self._context.clock.now()),
                ref=MessageRef(address, (target,)),
                by=self._person(room, str(event["sender"])),
            ),
        )

    def _reaction(
        self, room_id: str, event: Raw, thread: str | None, target: str, emoji: str, added: bool
    ) -> ReactionChanged:
        address = self._address(room_id, thread)
        return ReactionChanged(
            address=address,
            dedupe_key=str(event["event_id"]),
            occurred_at=occurred_at(event, self._context.clock.now()),
            ref=MessageRef(address, (target,)),
            user=self._person(self._rooms.known(room_id), str(event["sender"])),
            emoji=emoji,
            added=added,
        )

    def _state(self, room_id: str, event: Raw) -> ConversationChanged | None:
        """A new name, or that we came in."""
        content = content_of(event)
        before = event.get("unsigned")
        before = before.get("prev_content") if isinstance(before, dict) else None
        before = before if isinstance(before, dict) else {}
        change: ConversationChange | None = None
        name: str | None = None
        if event.get("type") == "m.room.name":
            said = content.get("name")
            if isinstance(said, str) and said.strip() and said != before.get("name"):
                change, name = ConversationChange.RENAMED, said
        elif (event.get("type"), event.get("state_key")) == ("m.room.member", self._homeserver.user_id) and (
            content.get("membership") == "join" and before.get("membership") != "join"
        ):
            change = ConversationChange.JOINED
        if change is None:
            return None
        return ConversationChanged(
            address=self._address(room_id, None),
            dedupe_key=str(event["event_id"]),
            occurred_at=occurred_at(event, self._context.clock.now()),
            change=change,
            name=name,
        )

    async def _thread(self, room_id: str, event_id: str) -> str | None:
        found = await self.lookup(room_id, event_id)
        return found.thread if found is not None else None

    def _names(self, room: Room) -> list[str]:
        own = self._homeserver.user_id
        name = room.members.get(own)
        return [one for one in (name, own[1:].partition(":")[0]) if one]

    def _own(self, sender: str) -> bool:
        return sender == self._homeserver.user_id

    def _person(self, room: Room | None, user: str, *, is_bot: bool = False) -> Person:
        return Person(user, display_name=room.members.get(user) if room is not None else None, is_bot=is_bot)

    def _address(self, room_id: str, thread: str | None) -> Address:
        return Address("matrix", self._context.instance, room_id, thread)


def _seen(event: Raw, content: Raw) -> Seen:
    sender = event.get("sender")
    return Seen(sender if isinstance(sender, str) else "", thread_of(content), text_of(content)[:SHOWN])


def _outside(event: Raw) -> Raw:
    """Of an encrypted content what anybody can read: what it relates to."""
    content = content_of(event)
    return {"m.relates_to": content["m.relates_to"]} if "m.relates_to" in content else {}
