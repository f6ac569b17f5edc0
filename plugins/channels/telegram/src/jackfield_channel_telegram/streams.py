"""Answers that grow: drafts in private chats, edits elsewhere."""

from __future__ import annotations

import logging
import secrets

from jackfield.api import MessageStream, SendResult
from jackfield.clock import Clock
from jackfield.errors import ChannelError, RateLimited
from jackfield.models import Address, MessageRef, OutMessage
from jackfield_channel_kit.text.render import render
from jackfield_channel_kit.text.stream import EditStream, completed

from jackfield_channel_telegram.api import MissingMethod, is_group
from jackfield_channel_telegram.sending import Sender
from jackfield_channel_telegram.writing import RICH_LIMIT, pieces, reply_fields

__all__ = ["GROUP_SECONDS", "PRIVATE_SECONDS", "DraftStream", "Edited", "edited"]

log = logging.getLogger(__name__)

PRIVATE_SECONDS = 1.1
GROUP_SECONDS = 3.1
"""20 a minute, edits counted."""


class DraftStream:
    """A preview that Telegram shows for 30 seconds after each update; the answer is a message of its own.

    On a server that knows no drafts it goes on by edits.
    """

    def __init__(self, sender: Sender, address: Address, clock: Clock) -> None:
        self._sender = sender
        self._address = address
        self._clock = clock
        self._id = secrets.randbelow(2**31 - 1) + 1
        self._not_before = 0.0
        self._interval = PRIVATE_SECONDS
        self._instead: MessageStream | None = None

    async def update(self, text: str) -> None:
        """Show the whole text so far, unless the last update is younger than the interval."""
        if self._instead is not None:
            await self._instead.update(text)
            return
        if self._clock.monotonic() < self._not_before or not text.strip():
            return
        shown = render(completed(text), "telegram-rich")
        if len(shown) > RICH_LIMIT:
            return
        try:
            await self._sender.bot.call(
                "sendRichMessageDraft",
                {**self._sender.target(self._address), "draft_id": self._id, "rich_message": {"html": shown}},
                idempotent=True,
            )
        except MissingMethod:
            log.info("this Bot API server has no drafts; growing answers are edited instead")
            self._sender.drafts = False
            self._instead = edited(self._sender, self._address, self._clock)
            await self._instead.update(text)
        except RateLimited as problem:
            self._interval *= 2
            self._not_before = self._clock.monotonic() + max(self._interval, problem.retry_after)
        else:
            self._not_before = self._clock.monotonic() + self._interval

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Send the final message, which takes the preview's place."""
        if self._instead is not None:
            return await self._instead.finish(message, idempotency_key=idempotency_key)
        return await self._sender.send(self._address, message)

    async def abort(self) -> None:
        """Nothing is left to take away, unless it went on by edits."""
        if self._instead is not None:
            await self._instead.abort()


class Edited(EditStream):
    """Grows by edits, and ends as everything is sent messages: rich, split, with its files and buttons."""

    sender: Sender
    address: Address

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Bring the final message in place of what was shown."""
        if not self.ids:
            return await self.sender.send(self.address, message)
        return await self.sender.replaced(MessageRef(self.address, self.ids), message)


def edited(sender: Sender, address: Address, clock: Clock, reply_to: MessageRef | None = None) -> Edited:
    """A stream by edits."""

    def render(text: str) -> list[str]:
        return [str(given["text"]) for _, given in pieces(text, rich=False)]

    async def send(text: str, key: str | None) -> str:
        nonlocal reply_to
        made = await sender.say(address, {"text": text, "parse_mode": "HTML"} | reply_fields(reply_to))
        reply_to = None  # what does not fit into the first message follows it
        return made

    async def edit(message_id: str, text: str) -> None:
        await sender.rewrite(address, message_id, {"text": text, "parse_mode": "HTML"})

    async def delete(message_id: str) -> None:
        try:
            await sender.delete(MessageRef(address, (message_id,)))
        except ChannelError as problem:
            log.info("a growing message could not be taken away: %s", problem)

    interval = GROUP_SECONDS if is_group(address.platform_id) else PRIVATE_SECONDS
    stream = Edited(send, edit, delete, interval=interval, clock=clock, render=render)
    stream.sender, stream.address = sender, address
    return stream
