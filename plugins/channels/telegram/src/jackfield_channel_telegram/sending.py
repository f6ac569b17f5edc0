"""Sending, rewriting and deleting: the plans of `writing` as calls, with what to do when Telegram refuses one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from pathlib import Path
from typing import Any

from jackfield.api import SendResult
from jackfield.errors import BadContent, ChannelError, ChatNotFound, SendNotAllowed, TooLarge
from jackfield.models import Address, MessageRef, OutFile, OutMessage
from jackfield_channel_kit.prompt import PromptBook

from jackfield_channel_telegram.api import UPLOAD_LIMIT, Bot, MissingMethod
from jackfield_channel_telegram.writing import (
    CAPTION_LIMIT,
    Request,
    as_documents,
    html,
    keyboard,
    ordinary,
    pieces,
    requests,
    shown_text,
)

__all__ = ["Sender", "number"]

log = logging.getLogger(__name__)


class Sender:
    """Sends by one bot."""

    def __init__(self, bot: Bot, instance: str, prompts: PromptBook, *, rich: bool) -> None:
        self.rich = rich
        """Whether rich messages are sent; off once the server turned out not to know them."""
        self.drafts = rich
        """Whether answers grow as drafts; likewise."""
        self.bot = bot
        self._instance = instance
        self._prompts = prompts

    async def send(self, address: Address, message: OutMessage) -> SendResult:
        """Send a message; a rich one that is refused goes as ordinary ones.

        Raises:
            ChannelError: as Telegram refused it.
        """
        ids: list[str] = []
        todo = deque(requests(message, rich=self.rich))
        if not todo:
            raise BadContent("there is nothing in it that Telegram can show")
        while todo:
            request = todo.popleft()
            try:
                ids += await self._bring(address, request)
            except (BadContent, TooLarge, MissingMethod) as problem:
                todo.extendleft(reversed(self._instead(request, problem)))
        if message.prompt is not None:
            self._prompts.sent(message.prompt.id, [choice.value for choice in message.prompt.choices])
        return SendResult(ids=tuple(ids))

    def _instead(self, request: Request, problem: ChannelError) -> list[Request]:
        """What to send for a refused request.

        Raises:
            ChannelError: the problem, when there is nothing else.
        """
        if request.method == "sendRichMessage":
            self._refused(problem)
            return ordinary(request)
        if request.method == "sendPhoto" and any(
            word in problem.message for word in ("PHOTO_", "IMAGE_", "wrong type")
        ):
            return [as_documents(request)]
        raise problem

    def _refused(self, problem: ChannelError) -> None:
        if isinstance(problem, MissingMethod):
            self.rich = False
        log.info("channel %s: a rich message was refused and goes as an ordinary one: %s", self._instance, problem)

    async def _bring(self, address: Address, request: Request) -> list[str]:
        arguments = {**self.target(address), **request.arguments}
        files: dict[str, tuple[str, bytes]] = {}
        for number, (file, kind) in enumerate(zip(request.files, request.kinds, strict=True)):
            field = f"file{number}" if request.method == "sendMediaGroup" else kind
            files[field] = (file.name, await asyncio.to_thread(_read, file))
        made = await self.bot.call(request.method, arguments, chat=address.platform_id, files=files)
        return [str(one["message_id"]) for one in (made if isinstance(made, list) else [made])]

    def target(self, address: Address) -> dict[str, Any]:
        """The arguments that say where to."""
        chat, thread = address.platform_id, address.thread_id
        given: dict[str, Any] = {"chat_id": int(chat) if chat.lstrip("-").isdecimal() else chat}
        if thread is not None:
            if not thread.isdecimal():
                raise ChatNotFound(f"{thread!r} is no topic of Telegram's")
            given["message_thread_id"] = int(thread)
        return given

    async def say(self, address: Address, given: dict[str, Any]) -> str:
        """Send one ordinary or rich message; its id."""
        method = "sendRichMessage" if "rich_message" in given else "sendMessage"
        (made,) = await self._bring(address, Request(method, given))
        return made

    async def rewrite(self, address: Address, message_id: str, given: dict[str, Any]) -> None:
        """Edit one message; what it shows already is fine (C058).

        Raises:
            BadContent: it has no text, because it is a file.
        """
        await self._change("editMessageText", address, message_id, given)

    async def _change(self, method: str, address: Address, message_id: str, given: dict[str, Any]) -> None:
        arguments = {"chat_id": self.target(address.chat)["chat_id"], "message_id": number(message_id), **given}
        try:
            await self.bot.call(method, arguments, chat=address.platform_id, idempotent=True)
        except BadContent as problem:
            if "not modified" not in problem.message:
                raise

    async def replaced(self, ref: MessageRef, message: OutMessage) -> SendResult:
        """Bring the message in place of what `ref` shows: texts are edited, added and deleted, files stay (R8)."""
        left, kept = deque(ref.ids), list[str]()
        todo = deque(pieces(shown_text(message), rich=self.rich, plainly=message.plain))
        markup = keyboard(message)
        first = True
        while todo:
            text, given = todo.popleft()
            if markup and not todo:
                given = {**given, "reply_markup": markup}
            try:
                await self._place(ref.address, given, left, kept, text if first else None)
            except (BadContent, TooLarge, MissingMethod) as problem:
                if "rich_message" not in given:
                    raise
                self._refused(problem)
                todo.extendleft(reversed(pieces(text, rich=False)))
                continue
            first = False
        for message_id in left:
            if await self._is_text(ref.address, message_id):
                await self.delete(MessageRef(ref.address, (message_id,)))
            else:
                kept.append(message_id)
        if message.prompt is not None:
            self._prompts.sent(message.prompt.id, [choice.value for choice in message.prompt.choices])
        if message.files:
            files = OutMessage(files=message.files, silent=message.silent)
            kept += (await self.send(ref.address, files)).ids
        return SendResult(ids=tuple(kept))

    async def _place(
        self, address: Address, given: dict[str, Any], left: deque[str], kept: list[str], caption: str | None
    ) -> None:
        """Put a piece into the next message that has a text, or behind all of them.  `caption` may be a file's, too."""
        while left:
            message_id = left[0]
            try:
                await self.rewrite(address, message_id, given)
            except BadContent as problem:
                if "no text in the message" not in problem.message:
                    raise
                if caption is not None and len(caption) <= CAPTION_LIMIT:
                    shown = html(caption)
                    changed = {"caption": shown["text"], "parse_mode": "HTML"}
                    await self._change("editMessageCaption", address, message_id, changed)
                    kept.append(left.popleft())
                    return
                kept.append(left.popleft())
                continue
            kept.append(left.popleft())
            return
        kept.append(await self.say(address, given))

    async def _is_text(self, address: Address, message_id: str) -> bool:
        try:
            await self.rewrite(address, message_id, {"text": "…"})
        except BadContent:
            return False
        return True

    async def delete(self, ref: MessageRef) -> None:
        """Take messages away; those that are gone already are fine."""
        chat = self.target(ref.address.chat)["chat_id"]
        for message_id in ref.ids:
            with contextlib.suppress(ChatNotFound):  # it is gone already
                await self.bot.read("deleteMessage", {"chat_id": chat, "message_id": number(message_id)})


def _read(file: OutFile) -> bytes:
    try:
        with Path(file.path).open("rb") as stream:
            data = stream.read(UPLOAD_LIMIT + 1)
    except OSError as problem:
        raise SendNotAllowed(f"the file {file.name!r} can't be read: {problem.strerror}") from None
    if len(data) > UPLOAD_LIMIT:
        raise TooLarge(f"the file {file.name!r} is over {UPLOAD_LIMIT} bytes", limit=UPLOAD_LIMIT)
    return data


def number(message_id: str) -> int:
    """A message's id as Telegram wants it.

    Raises:
        ChatNotFound: it is none.
    """
    if not message_id.isdecimal():
        raise ChatNotFound(f"{message_id!r} is no message of Telegram's")
    return int(message_id)
