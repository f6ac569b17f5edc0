"""Updates as events.  Pure: from what Telegram sent to what the core is told.

Keys are of the message, not of the update, so that an update that comes again, or over the webhook instead of a poll,
is the same event (channels.md R4).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.clock import UnixMs
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    Event,
    MessageEdited,
    MessageReceived,
    MessageRef,
    Person,
    ReactionChanged,
)
from jackfield.models.commands import COMMANDS
from jackfield_channel_kit.prompt import PromptBook, decode

from jackfield_channel_telegram.content import (
    Message,
    attachment_of,
    author,
    command_of,
    entities_of,
    person,
    quote_of,
    text_of,
)

__all__ = ["ALLOWED_UPDATES", "Reader", "album_of"]

ALLOWED_UPDATES = (
    "message", "edited_message", "channel_post", "edited_channel_post", "callback_query", "message_reaction",
    "my_chat_member",
)  # fmt: skip
"""Said explicitly, because reactions and memberships don't come otherwise."""
_WRITTEN = ("message", "channel_post")
_EDITED = ("edited_message", "edited_channel_post")
_IN = frozenset({"creator", "administrator", "member", "restricted"})

Update = Mapping[str, Any]


def album_of(update: Update) -> tuple[int, str] | None:
    """Chat and album of a file that came with others."""
    for kind in _WRITTEN:
        message = update.get(kind)
        if isinstance(message, Mapping) and message.get("media_group_id"):
            return message["chat"]["id"], str(message["media_group_id"])
    return None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads for one bot: its instance's name, its id, its @name without the @."""

    instance: str
    us: int
    username: str
    prompts: PromptBook

    def events(self, updates: Sequence[Update]) -> list[Event]:
        """The events of one update, or the one of an album's updates in their order.

        Raises:
            KeyError, TypeError, ValueError: it is not as the Bot API says.
        """
        update = updates[0]
        for kind in _WRITTEN:
            if kind in update:
                return self._message([one[kind] for one in updates if kind in one], kind == "channel_post")
        for kind in _EDITED:
            if kind in update:
                return self._edited(update[kind])
        if "callback_query" in update:
            return self._clicked(update["callback_query"])
        if "message_reaction" in update:
            return self._reacted(update["message_reaction"], int(update["update_id"]))
        if "my_chat_member" in update:
            return self._member(update["my_chat_member"])
        return []

    def address(self, message: Message) -> Address:
        """Where it was written.  Outside of topics a `message_thread_id` only marks a chain of replies."""
        thread = message.get("message_thread_id") if message.get("is_topic_message") else None
        return Address("telegram", self.instance, str(message["chat"]["id"]), str(thread) if thread else None)

    def _message(self, messages: Sequence[Message], post: bool) -> list[Event]:
        first = messages[0]
        if (changed := self._service(first)) is not None:
            return [changed]
        sender = author(first, self.us)
        texts = [text for one in messages if (text := text_of(one, self.username))]
        attachments = tuple(found for one in messages if (found := attachment_of(one)) is not None)
        if sender is None or not (texts or attachments):
            return []
        address, chat = self.address(first), first["chat"]
        private = chat.get("type") == "private"
        return [
            MessageReceived(
                address=address,
                dedupe_key=f"m:{chat['id']}:{first['message_id']}",
                occurred_at=_moment(first["date"]),
                ref=MessageRef(address, tuple(str(one["message_id"]) for one in messages)),
                sender=sender,
                text="\n\n".join(texts),
                kind=ConversationKind.CHANNEL if post else ConversationKind.DM if private else ConversationKind.GROUP,
                is_group=not private,
                addressed=Addressed.DM if private else self._addressed(messages, sender),
                mentions=tuple(name for one in messages for name in _mentions(one)),
                reply_to=quote_of(first, self.us),
                attachments=attachments,
                conversation_name=_title(chat),
            )
        ]

    def _addressed(self, messages: Sequence[Message], sender: Person) -> Addressed:
        """How a group's message addresses us; a bot's reply never does (C228)."""
        mine = {f"@{self.username}".lower(), str(self.us)}
        if any(name.lower() in mine for one in messages for name in _mentions(one)):
            return Addressed.MENTION
        for one in messages:
            if (command := command_of(one)) is not None:
                token, to = command
                if to.lower() == self.username.lower() or (not to and token.lower() in COMMANDS):
                    return Addressed.COMMAND
        replied = messages[0].get("reply_to_message")
        ours = isinstance(replied, Mapping) and (replied.get("from") or {}).get("id") == self.us
        if ours and quote_of(messages[0], self.us) is not None and not sender.is_bot:
            return Addressed.REPLY
        return Addressed.NONE

    def _service(self, message: Message) -> Event | None:
        chat = message["chat"]["id"]
        old = chat if "migrate_to_chat_id" in message else message.get("migrate_from_chat_id")
        if old is not None:
            new = message.get("migrate_to_chat_id", chat)
            return self._changed(
                old, f"migrated:{old}:{new}", message["date"], ConversationChange.MIGRATED,
                new_address=Address("telegram", self.instance, str(new)),
            )  # fmt: skip
        if "new_chat_title" in message:
            key = f"title:{chat}:{message['message_id']}"
            name = str(message["new_chat_title"])
            return self._changed(chat, key, message["date"], ConversationChange.RENAMED, name=name)
        return None

    def _changed(
        self,
        chat: int,
        key: str,
        date: int,
        change: ConversationChange,
        *,
        name: str | None = None,
        new_address: Address | None = None,
    ) -> ConversationChanged:
        return ConversationChanged(
            address=Address("telegram", self.instance, str(chat)),
            dedupe_key=key,
            occurred_at=_moment(date),
            change=change,
            name=name,
            new_address=new_address,
        )

    def _edited(self, message: Message) -> list[Event]:
        sender = author(message, self.us)
        if sender is None:
            return []
        address, text = self.address(message), text_of(message, self.username)
        # Two edits may fall into one second.
        version = f"{message.get('edit_date', 0)}-{zlib.crc32(text.encode(errors='surrogatepass')):08x}"
        return [
            MessageEdited(
                address=address,
                dedupe_key=f"e:{message['chat']['id']}:{message['message_id']}:{version}",
                occurred_at=_moment(message.get("edit_date") or message["date"]),
                ref=MessageRef(address, (str(message["message_id"]),)),
                sender=sender,
                text=text,
                version=version,
            )
        ]

    def _clicked(self, query: Mapping[str, Any]) -> list[Event]:
        found = decode(str(query.get("data") or ""))
        message = query.get("message")
        if found is None or not isinstance(message, Mapping):
            return []
        prompt_id, index = found
        address = self.address(message)
        return [
            ActionInvoked(
                address=address,
                dedupe_key=f"c:{query['id']}",
                occurred_at=_moment(max(int(message.get("date") or 0), 1)),
                prompt_id=prompt_id,
                value=self.prompts.value(prompt_id, index),
                user=person(query["from"], self.us),
                source=MessageRef(address, (str(message["message_id"]),)),
                responder=str(query["id"]),
            )
        ]

    def _reacted(self, change: Mapping[str, Any], update_id: int) -> list[Event]:
        actor = change.get("user") or change.get("actor_chat")
        if not isinstance(actor, Mapping):
            return []
        user = person(actor, self.us) if "user" in change else author({"sender_chat": actor}, self.us)
        assert user is not None
        address = Address("telegram", self.instance, str(change["chat"]["id"]))
        before, after = _emoji(change.get("old_reaction")), _emoji(change.get("new_reaction"))
        changes = [(one, False) for one in before if one not in after]
        changes += [(one, True) for one in after if one not in before]
        # One person may add and remove the same one in a second; the update's number tells it apart.
        key = f"r:{change['chat']['id']}:{change['message_id']}:{update_id}"
        return [
            ReactionChanged(
                address=address,
                dedupe_key=f"{key}:{'+' if added else '-'}{emoji}",
                occurred_at=_moment(change["date"]),
                ref=MessageRef(address, (str(change["message_id"]),)),
                user=user,
                emoji=emoji,
                added=added,
            )
            for emoji, added in changes
        ]

    def _member(self, change: Mapping[str, Any]) -> list[Event]:
        chat = change["chat"]["id"]
        was, now = (change[name]["status"] in _IN for name in ("old_chat_member", "new_chat_member"))
        if was == now:
            return []
        what = ConversationChange.ADDED if now else ConversationChange.REMOVED
        key = f"member:{chat}:{change['date']}:{what.value}"
        return [self._changed(chat, key, change["date"], what, name=_title(change["chat"]))]


def _mentions(message: Message) -> list[str]:
    """The people that it names: `@name`, or the number of those without a name."""
    text = str(message.get("text") or message.get("caption") or "").encode("utf-16-le", "surrogatepass")
    found = []
    for entity in entities_of(message):
        if entity.get("type") == "text_mention":
            found.append(str(entity["user"]["id"]))
        elif entity.get("type") == "mention":
            start, end = 2 * int(entity["offset"]), 2 * (int(entity["offset"]) + int(entity["length"]))
            found.append(text[start:end].decode("utf-16-le", "replace"))
    return found


def _emoji(reactions: Any) -> list[str]:
    named = {"emoji": "emoji", "custom_emoji": "custom_emoji_id"}
    return [
        str(one[named[one["type"]]]) if one.get("type") in named else "⭐"
        for one in reactions or ()
        if isinstance(one, Mapping)
    ]


def _title(chat: Mapping[str, Any]) -> str | None:
    name = chat.get("title") or " ".join(str(chat[part]) for part in ("first_name", "last_name") if chat.get(part))
    return str(name) if name else None


def _moment(seconds: Any) -> UnixMs:
    return UnixMs(int(seconds) * 1000)
