"""Sending: what a message becomes, event by event, each under a transaction id of its own."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jackfield.api import SendResult
from jackfield.errors import BadContent, ChatNotFound, SendNotAllowed, TooLarge
from jackfield.models import Address, MessageRef, OutFile, OutMessage
from jackfield_channel_kit.emoji import bare_emoji, literal_emoji
from jackfield_channel_kit.media import sniff

from jackfield_channel_matrix.content import (
    attachment_content,
    edited,
    pieces,
    reaction,
    related,
    text_content,
)
from jackfield_channel_matrix.crypto import Crypto, encrypted_file
from jackfield_channel_matrix.homeserver import CLIENT, Homeserver, quoted
from jackfield_channel_matrix.rooms import Rooms
from jackfield_channel_matrix.seen import Seen, SeenEvents

__all__ = ["CAPTION", "Outgoing", "event_of", "pieces_of", "with_text"]

CAPTION = 1000
"""Characters of a text that goes with a file as its caption; a longer one is a message before it."""
_LONGEST = 600_000
"""Characters of a text that are cut into messages.  The core makes a file of a longer one before it comes here."""
_EMPTY = "…"


class Outgoing:
    """What the agent does in rooms."""

    def __init__(self, homeserver: Homeserver, rooms: Rooms, seen: SeenEvents, crypto: Crypto | None) -> None:
        self._homeserver = homeserver
        self._rooms = rooms
        self._seen = seen
        self._crypto = crypto

    async def send(self, address: Address, message: OutMessage, key: str) -> SendResult:
        """Text as messages, files after it; the ids of all.

        A text of one message goes with the first file as its caption.  All files are uploaded before the first message
        is sent: what a refusal is about has not arrived.
        """
        reply = event_of(message.reply_to)
        texts = pieces_of(message)
        files = list(message.files)
        ids: list[str] = []
        caption = ""
        if files and len(texts) == 1 and len(texts[0]) <= CAPTION:
            caption = texts.pop()
        if not texts and not files:
            raise BadContent("there is nothing to send")
        contents = [text_content(text, plain=message.plain) for text in texts]
        for number, file in enumerate(files):
            contents.append(await self._upload(address, file, caption if number == 0 else ""))
        for content in contents:
            ids.append(await self.post(address, content, _part(key, len(ids)), reply=None if ids else reply))
        return SendResult(ids=tuple(ids))

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        """Each message of the text anew: changed, added or taken away (channels.md R8)."""
        texts = pieces_of(message) or [_EMPTY]
        kept: list[str] = []
        for index, text in enumerate(texts):
            content = text_content(text, plain=message.plain)
            if index < len(ref.ids):
                await self.replace(ref.address, ref.ids[index], content)
                kept.append(ref.ids[index])
            else:
                mark = hashlib.sha256(f"{ref.ids[0]}\0{index}\0{text}".encode()).hexdigest()[:32]
                kept.append(await self.post(ref.address, content, f"edit-{mark}"))
        await self.delete(MessageRef(ref.address, ref.ids[len(texts) :]))
        return SendResult(ids=tuple(kept))

    async def post(self, address: Address, content: dict[str, Any], key: str, *, reply: str | None = None) -> str:
        """Send a message's content to the address, in its thread; the event's id."""
        room, thread = address.platform_id, address.thread_id
        latest = self._seen.latest(room, thread) if thread is not None else None
        content = related(content, thread=thread, reply_to=reply, latest=latest)
        event_id = await self._event(room, "m.room.message", content, key)
        self._seen.add(room, event_id, Seen(self._homeserver.user_id, thread, str(content["body"])[:500]))
        return event_id

    async def replace(self, address: Address, event_id: str, content: dict[str, Any]) -> None:
        """Edit one message of ours."""
        _real(event_id)
        await self._event(address.platform_id, "m.room.message", edited(content, event_id), f"r-{uuid.uuid4().hex}")

    async def delete(self, ref: MessageRef) -> None:
        """Redact all of a message."""
        for event_id in ref.ids:
            await self._redact(ref.address.platform_id, event_id)

    async def react(self, ref: MessageRef, emoji: str, on: bool) -> None:
        """Set or take away a reaction of ours; what is so already is fine.

        Raises:
            Unsupported: it is no emoji.
        """
        emoji = literal_emoji(emoji)
        target = _real(ref.ids[0])
        room = ref.address.platform_id
        there = await self._own_reactions(room, target, emoji)
        if not on:
            for event_id in there:
                await self._redact(room, event_id)
        elif not there:
            event_id = await self._event(room, "m.reaction", reaction(target, emoji), f"x-{uuid.uuid4().hex}")
            self._seen.add(room, event_id, Seen(self._homeserver.user_id, None, target=target, emoji=emoji))

    async def typing(self, room: str, on: bool, ttl: float) -> None:
        path = f"{CLIENT}/rooms/{quoted(room)}/typing/{quoted(self._homeserver.user_id)}"
        body = {"typing": True, "timeout": int(ttl * 1000) + 5000} if on else {"typing": False}
        await self._homeserver.request("PUT", path, body)

    async def open_dm(self, user: str) -> str:
        """The room for a direct message with a person; made, and they invited, when there is none."""
        if not user.startswith("@") or ":" not in user:
            raise ChatNotFound(f"{user!r} is no user id such as @ann:example.org")
        found = await self._rooms.direct_with(user)
        if found is not None:
            return found
        body: dict[str, Any] = {"preset": "trusted_private_chat", "is_direct": True, "invite": [user]}
        if self._crypto is not None:
            body["initial_state"] = [
                {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}
            ]
        made = await self._homeserver.request("POST", f"{CLIENT}/createRoom", body, idempotent=False)
        room = str(made["room_id"])
        await self._rooms.direct.add(user, room)
        return room

    # ----

    async def _event(self, room: str, kind: str, content: dict[str, Any], key: str) -> str:
        if (await self._rooms.get(room)).encrypted:
            if self._crypto is None:
                raise SendNotAllowed(
                    f"the room {room} is encrypted", fix="set encryption = true, or use a room without encryption"
                )
            relates = content.get("m.relates_to")
            kind, hidden = await self._crypto.encrypt(room, kind, content)
            content = hidden if relates is None else {**hidden, "m.relates_to": relates}
        return await self._homeserver.send(room, kind, content, key)

    async def _redact(self, room: str, event_id: str) -> None:
        key = hashlib.sha256(_real(event_id).encode()).hexdigest()[:32]
        path = f"{CLIENT}/rooms/{quoted(room)}/redact/{quoted(event_id)}/d-{key}"
        await self._homeserver.request("PUT", path, {})

    async def _own_reactions(self, room: str, target: str, emoji: str) -> list[str]:
        """The ids of our reactions with that emoji (C062: whatever variation selector it has)."""
        path = f"/_matrix/client/v1/rooms/{quoted(room)}/relations/{quoted(target)}/m.annotation/m.reaction"
        found: list[str] = []
        query: dict[str, Any] = {"limit": 100}
        for _ in range(10):
            answer = await self._homeserver.request("GET", path, query=query)
            for event in answer.get("chunk", ()):
                if event.get("sender") == self._homeserver.user_id:
                    key = event.get("content", {}).get("m.relates_to", {}).get("key", "")
                    if bare_emoji(key) == bare_emoji(emoji):
                        found.append(event["event_id"])
            if not answer.get("next_batch"):
                break
            query["from"] = answer["next_batch"]
        return found

    async def _upload(self, address: Address, file: OutFile, caption: str) -> dict[str, Any]:
        try:
            return await self._uploaded(address, file, caption)
        except OSError as problem:
            raise SendNotAllowed(f"the file {file.name!r} can't be read: {problem.strerror}") from None

    async def _uploaded(self, address: Address, file: OutFile, caption: str) -> dict[str, Any]:
        encrypted = (await self._rooms.get(address.platform_id)).encrypted
        path = Path(file.path)
        head = await asyncio.to_thread(_head, path)
        mime = file.mime or sniff(head, file.name) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if not encrypted:
            url = await self._homeserver.upload(_chunks(path), name=file.name, mime=mime, size=file.size)
            where: dict[str, Any] = {"url": url}
        else:
            hidden, keys = await encrypted_file(await asyncio.to_thread(path.read_bytes))
            url = await self._homeserver.upload(hidden, name="", mime="application/octet-stream", size=len(hidden))
            where = {"file": {**keys, "url": url}}
        return attachment_content(file.name, mime, file.size, where, caption)


def pieces_of(message: OutMessage) -> list[str]:
    """The texts of a message's events.

    Raises:
        TooLarge: nobody would read so many.
    """
    if len(message.text) > _LONGEST:
        raise TooLarge(f"a text of {len(message.text)} characters; send it as a file", limit=_LONGEST)
    return pieces(message.text)


def _part(key: str, index: int) -> str:
    return key if index == 0 else f"{key}:{index + 1}"


def event_of(ref: MessageRef | None) -> str | None:
    """The event that is replied to; None for an id that is none of Matrix (C052)."""
    return next((one for one in ref.ids if one.startswith("$")), None) if ref is not None else None


def _real(event_id: str) -> str:
    if not event_id.startswith("$"):
        raise ChatNotFound(f"{event_id!r} is no message of Matrix")
    return event_id


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(512)


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while data := await asyncio.to_thread(file.read, 262_144):
            yield data
    finally:
        file.close()


def with_text(message: OutMessage, texts: Sequence[str]) -> list[OutMessage]:
    """The message cut into several: files go with the last text."""
    bare = replace(message, text="", files=(), prompt=None, card=None)
    parts = [replace(bare, text=text) for text in texts] or [bare]
    parts[-1] = replace(parts[-1], files=message.files, prompt=message.prompt, card=message.card)
    return [part if number == 0 else replace(part, reply_to=None) for number, part in enumerate(parts)]
