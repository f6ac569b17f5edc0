"""The people of the fake Telegram: what they do becomes updates, what they see is kept in order."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from jackfield_channel_kit.testing.platform import FakePlatform

__all__ = ["BOT_ID", "BOT_NAME", "Message", "Seen", "TelegramPeople"]

BOT_ID = 700_100
BOT_NAME = "jack_test_bot"
Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Seen:
    """What people see: a new or changed message, one that is gone, a reaction, typing, a draft, an answered click."""

    kind: Literal["message", "edit", "delete", "reaction", "action", "draft", "answer"]
    chat: int
    thread: int | None = None
    message_id: int = 0
    text: str = ""
    """As it reads, without markup."""
    files: tuple[tuple[str, bytes], ...] = ()
    buttons: tuple[tuple[str, str], ...] = ()
    """Label, and data or URL."""
    emoji: str = ""
    message: Mapping[str, Any] = field(default_factory=dict)


class TelegramPeople(FakePlatform):
    """The chats of one bot, what was written there, and the updates that wait for it.

    Private chats have their person's id (positive), groups are negative.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: asyncio.Queue[Seen] = asyncio.Queue()
        self.updates: list[dict[str, Any]] = []
        """What nobody confirmed yet."""
        self.messages: dict[tuple[int, int], Message] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.chats: dict[int, dict[str, Any]] = {}
        self.moved: dict[int, int] = {}
        """Groups that became supergroups."""
        self._next_update = 1000
        self._next_message = 1
        self._news = asyncio.Condition()

    async def say(
        self,
        text: str = "",
        *,
        chat: int = 11,
        sender: int = 11,
        thread: int | None = None,
        file: tuple[str, bytes] | None = None,
        entities: Sequence[Mapping[str, Any]] = (),
        reply_to: int | None = None,
        bot: bool = False,
        kind: str = "message",
        **extra: Any,
    ) -> Message:
        """Somebody writes; the message.  `extra` are further fields of it, such as `sender_chat`."""
        message = self._message(chat, thread)
        if kind == "message":
            message["from"] = self.person(sender, bot=bot)
        if file is not None:
            message["document"] = self.store(*file)
            message |= {"caption": text, "caption_entities": list(entities)} if text else {}
        elif text:
            message |= {"text": text, "entities": list(entities)}
        if reply_to is not None:
            message["reply_to_message"] = {
                key: value for key, value in self.messages[chat, reply_to].items() if key != "reply_to_message"
            }
        message |= extra
        self.messages[chat, message["message_id"]] = message
        await self.push(kind, message)
        return message

    async def album(
        self, names: Sequence[str], *, caption: str = "", chat: int = 11, group: str = "album1"
    ) -> list[int]:
        """Somebody sends several files at once: a message and an update each; the message ids."""
        ids = []
        for number, name in enumerate(names):
            message = await self.say(
                caption if number == 0 else "", chat=chat, file=(name, name.encode()), media_group_id=group
            )
            ids.append(message["message_id"])
        return ids

    async def edit(self, message: Message, text: str) -> None:
        """Somebody edits what they wrote."""
        message |= {"text": text, "entities": [], "edit_date": int(time.time())}
        await self.push("edited_message", message)

    async def click(self, chat: int, message_id: int, data: str, *, by: int = 11) -> str:
        """Somebody presses a button; the id of the query."""
        query = f"query{self._next_update}"
        message = self.messages.get((chat, message_id), {"chat": self._chat(chat), "message_id": message_id, "date": 0})
        await self.push(
            "callback_query",
            {"id": query, "from": self.person(by), "message": message, "chat_instance": "1", "data": data},
        )
        return query

    async def react(self, chat: int, message_id: int, old: Sequence[str], new: Sequence[str], *, by: int = 11) -> None:
        """Somebody's reactions to a message change."""
        await self.push(
            "message_reaction",
            {
                "chat": self._chat(chat),
                "message_id": message_id,
                "user": self.person(by),
                "date": int(time.time()),
                "old_reaction": [{"type": "emoji", "emoji": one} for one in old],
                "new_reaction": [{"type": "emoji", "emoji": one} for one in new],
            },
        )

    async def migrate(self, old: int, new: int) -> None:
        """A group becomes a supergroup; both service messages come."""
        self.moved[old] = new
        self.chats[new] = {**self._chat(old), "id": new, "type": "supergroup"}
        await self.say(chat=old, migrate_to_chat_id=new)
        await self.say(chat=new, migrate_from_chat_id=old)

    async def admit(self, chat: int, status: str = "member", before: str = "left") -> None:
        """The bot is added to a chat, or thrown out of it."""
        us = {"id": BOT_ID, "is_bot": True, "first_name": "Jack", "username": BOT_NAME}
        await self.push(
            "my_chat_member",
            {
                "chat": self._chat(chat),
                "from": self.person(11),
                "date": int(time.time()),
                "old_chat_member": {"user": us, "status": before, "until_date": 0},
                "new_chat_member": {"user": us, "status": status, "until_date": 0},
            },
        )

    def person(self, number: int, *, bot: bool = False) -> dict[str, Any]:
        """A user of that id."""
        if number == BOT_ID:
            return {"id": BOT_ID, "is_bot": True, "first_name": "Jack", "username": BOT_NAME}
        return {"id": number, "is_bot": bot, "first_name": f"P{number}", "username": f"person{number}"}

    def store(self, name: str, data: bytes) -> dict[str, Any]:
        """Keep a file; its description."""
        file_id = f"file{len(self.files)}-{len(data)}"
        self.files[file_id] = (name, data)
        return {
            "file_id": file_id,
            "file_unique_id": f"u{file_id}",
            "file_name": name,
            "file_size": len(data),
            "mime_type": "application/octet-stream",
        }

    async def push(self, kind: str, content: Any) -> int:
        """Queue an update; its id."""
        update_id = self._next_update
        self._next_update += 1
        async with self._news:
            self.updates.append({"update_id": update_id, kind: json.loads(json.dumps(content))})
            self._news.notify_all()
        return update_id

    def _message(self, chat: int, thread: int | None) -> Message:
        number = self._next_message
        self._next_message += 1
        topic = {"message_thread_id": thread, "is_topic_message": True} if thread is not None else {}
        return {"message_id": number, "date": int(time.time()), "chat": self._chat(chat), **topic}

    def _chat(self, number: int) -> dict[str, Any]:
        if number not in self.chats:
            if number > 0:
                made = {"id": number, "type": "private", "first_name": f"P{number}", "username": f"person{number}"}
            else:
                made = {
                    "id": number,
                    "type": "supergroup" if number < -(10**12) else "group",
                    "title": f"Group {number}",
                }
            self.chats[number] = made
        return self.chats[number]

    def _see(self, kind: Any, chat: int, **what: Any) -> None:
        self.seen.put_nowait(Seen(kind, chat, **what))
