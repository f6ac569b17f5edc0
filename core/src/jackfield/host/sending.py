"""One call of a channel: a message, an edit or a reaction, bounded in time, with every failure typed."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from jackfield.api import Channel, Edits, KeepsHistory, Reacts, SendResult
from jackfield.errors import (
    Ambiguous,
    BadContent,
    ChannelError,
    ChatNotFound,
    JackfieldError,
    MailboxError,
    MalformedData,
    SendNotAllowed,
    TooLarge,
    Unsupported,
    WindowClosed,
)
from jackfield.host.channels import ChannelInstance
from jackfield.host.degrade import degrade
from jackfield.host.hub import Hub
from jackfield.host.outgoing import WHOLE
from jackfield.host.parts import message_parts
from jackfield.host.secrets.masking import masked_error
from jackfield.host.streams import Streams
from jackfield.models import (
    Capabilities,
    Delivery,
    DeliveryState,
    EditContent,
    MessageRef,
    OutMessage,
    ReactionContent,
    Support,
    loads,
)
from jackfield.store import deliveries, sessions

__all__ = ["REFUSALS", "SEND_SECONDS", "PartlySent", "Sender"]

log = logging.getLogger(__name__)

T = TypeVar("T")

SEND_SECONDS = 120.0
"""After this a call counts as lost on the way."""
AT_ONCE = 32
"""Calls of one channel instance at the same time."""
HISTORY = 50
REFUSALS = (BadContent, SendNotAllowed, TooLarge, Unsupported)
"""What a platform says of one file, and perhaps not of the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartlySent(SendResult):
    """A part that the platform took without some of its files."""

    refused: tuple[str, ...]
    """For each of these files, its name and the reason."""


def _apart(message: OutMessage) -> list[OutMessage]:
    """The text, each file and the card or question of a message, one by one."""
    bare = replace(message, text="", files=(), prompt=None, card=None)
    out = [replace(bare, text=message.text)] if message.text.strip() else []
    out += [replace(bare, files=(file,)) for file in message.files]
    if message.prompt is not None or message.card is not None:
        out.append(replace(bare, prompt=message.prompt, card=message.card))
    return [piece if number == 0 else replace(piece, reply_to=None) for number, piece in enumerate(out)]


class Sender:
    def __init__(self, hub: Hub, streams: Streams) -> None:
        self._hub = hub
        self._streams = streams
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._tried: dict[str, dict[str, SendResult | ChannelError]] = {}
        """What came of the pieces of a part that is not through yet, by their idempotency keys."""
        self.on_leave: Callable[[Delivery], None] = lambda part: None
        """Told right before a message leaves."""

    async def send(self, part: Delivery, instance: ChannelInstance, *, plain: bool) -> SendResult:
        """Let the channel do what the part says.

        Raises:
            ChannelError: whatever went wrong, also when the adapter raised something else or took too long.
        """
        channel = instance.channel
        if channel is None:
            raise ChannelError("the channel was stopped")
        try:
            content = loads(OutMessage | EditContent | ReactionContent, part.content)
        except MalformedData as problem:
            raise Unsupported(f"the ledger's entry can't be read: {problem}") from None
        match content:
            case OutMessage():
                if (plain, part.maybe_duplicate) != (content.plain, content.maybe_duplicate):
                    content = replace(content, plain=plain, maybe_duplicate=part.maybe_duplicate)
                return await self._message(part, instance, channel, content)
            case EditContent():
                return await self._edit(part, instance, channel, content, plain)
            case ReactionContent():
                return await self._reaction(part, instance, channel, content)
        raise AssertionError("unreachable")

    async def direct(
        self, instance: ChannelInstance, call: Callable[[], Awaitable[T]], part: Delivery | None = None
    ) -> T:
        """A call under the instance's limit and the time limit, its failures typed as `send` does."""
        slot = self._slots.setdefault(instance.name, asyncio.Semaphore(AT_ONCE))
        async with slot:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    if part is not None:
                        self.on_leave(part)
                    return await call()
            except ChannelError as problem:
                masked_error(problem)
                raise
            except TimeoutError as problem:
                raise Ambiguous(f"no answer within {SEND_SECONDS:g} s") from problem
            except Exception as problem:
                # A fault of the adapter's: whether the request left is unknown.
                self._hub.trouble(f"channel {instance.name}")
                log.exception("channel %s raised an untyped error", instance.name)
                raise masked_error(Ambiguous(f"{type(problem).__name__}: {problem}")) from problem

    # ---- kinds

    async def _message(
        self, part: Delivery, instance: ChannelInstance, channel: Channel, message: OutMessage
    ) -> SendResult:
        if part.kind == WHOLE:
            can = channel.capabilities(part.address)
            degraded = degrade(message, can)
            pieces = message_parts(degraded.message, part.address, channel, can)
            result = await self._pieces(part, instance, channel, _keyed(part.id, pieces))
            return replace(result, degraded=degraded.lost)
        return await self._pieces(part, instance, channel, [(part.id, message)])

    async def _pieces(
        self, part: Delivery, instance: ChannelInstance, channel: Channel, pieces: Sequence[tuple[str, OutMessage]]
    ) -> SendResult:
        """Send messages one after the other; a later try goes on behind the last one that arrived.

        One with files that is refused goes again as its text and each file alone, so that only what the platform does
        not take is missing (C075).  A text that is refused ends it.
        """
        tried = self._tried.pop(part.id, {})
        try:
            return await self._pieces_left(part, instance, channel, pieces, tried)
        except ChannelError:
            if any(isinstance(one, SendResult) for one in tried.values()):
                self._tried[part.id] = tried
            raise

    async def _pieces_left(
        self,
        part: Delivery,
        instance: ChannelInstance,
        channel: Channel,
        pieces: Sequence[tuple[str, OutMessage]],
        tried: dict[str, SendResult | ChannelError],
    ) -> SendResult:
        results: list[SendResult] = []
        refused: list[tuple[OutMessage, ChannelError]] = []
        todo = deque(pieces)
        while todo:
            key, piece = todo.popleft()
            if key not in tried:
                try:
                    tried[key] = await self._piece(part, instance, channel, piece, key)
                except REFUSALS as problem:
                    if not piece.files:
                        raise
                    tried[key] = problem
            match tried[key]:
                case SendResult() as result:
                    results.append(result)
                case ChannelError() as refusal:
                    smaller = _apart(piece)
                    if len(smaller) > 1:
                        todo.extendleft(reversed(_keyed(key, smaller)))
                    else:
                        refused.append((piece, refusal))
        if refused and not results:
            raise refused[0][1]
        ids = tuple(id for result in results for id in result.ids)
        lost = tuple(dict.fromkeys(what for result in results for what in result.degraded))
        final = all(result.final for result in results)
        if not refused:
            return SendResult(ids=ids, final=final, degraded=lost)
        told = tuple(f"{piece.files[0].name!r}: {problem.code}: {problem}" for piece, problem in refused)
        return PartlySent(ids=ids, final=final, degraded=lost, refused=told)

    async def _piece(
        self, part: Delivery, instance: ChannelInstance, channel: Channel, message: OutMessage, key: str
    ) -> SendResult:
        whole = key == part.id
        stream = await self._streams.take(part.session_id, part.out_seq) if whole and part.part == 1 else None
        if stream is not None:
            try:
                return await self.direct(instance, lambda: stream.finish(message, idempotency_key=key), part)
            except ChannelError:
                await self._streams.discard(stream)
                raise
        leaving = part if whole else None
        return await self.direct(instance, lambda: channel.send(part.address, message, idempotency_key=key), leaving)

    async def _edit(
        self, part: Delivery, instance: ChannelInstance, channel: Channel, content: EditContent, plain: bool
    ) -> SendResult:
        target = await self._hub.store.read(deliveries.parts_of, part.session_id, content.target_seq)
        ids = tuple(id for one in target for id in one.platform_ids)
        if not ids or any(one.address.chat != part.address.chat for one in target):
            raise ChatNotFound(f"message #{content.target_seq} was not delivered there, so it can't be edited")
        can = channel.capabilities(part.address)
        age = (self._hub.clock.now() - target[-1].updated_at) / 1000
        if isinstance(channel, Edits) and (can.edit_max_age is None or age <= can.edit_max_age):
            ref = MessageRef(target[0].address, ids)
            try:
                result = await self.direct(
                    instance, lambda: channel.edit(ref, OutMessage(text=content.text, plain=plain))
                )
            except (ChatNotFound, Unsupported, WindowClosed, TooLarge) as problem:
                log.info("an edit in %s is sent as a new message: %s", part.address, problem.code)
            else:
                await self._keep_ids(target, ids, result.ids)
                return replace(result, ids=())
        again = OutMessage(text=f"*(edited)* {content.text}", plain=plain, maybe_duplicate=part.maybe_duplicate)
        result = await self.direct(instance, lambda: channel.send(part.address, again, idempotency_key=part.id))
        return replace(result, degraded=(*result.degraded, "edit"))

    async def _keep_ids(self, target: list[Delivery], old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """An edit may have added or taken away platform messages; the next one must name all of them (R8)."""
        if not new or new == old:
            return
        now = self._hub.clock.now()

        def keep(db: sqlite3.Connection) -> None:
            for index, one in enumerate(target):
                deliveries.sent(db, one.id, new if index == 0 else (), DeliveryState.SENT, now, start_next=False)

        await self._hub.store.write(keep)

    async def _reaction(
        self, part: Delivery, instance: ChannelInstance, channel: Channel, content: ReactionContent
    ) -> SendResult:
        if not isinstance(channel, Reacts):
            raise Unsupported("this channel has no reactions")
        ref = await self._reaction_target(part, content.target_seq)
        await self.direct(instance, lambda: channel.react(ref, content.emoji, content.added))
        return SendResult()

    async def _reaction_target(self, part: Delivery, seq: int) -> MessageRef:
        """The platform's message behind a number of the agent's, of this chat only (C052)."""
        if seq % 2:
            target = await self._hub.store.read(deliveries.parts_of, part.session_id, seq)
            for one in target:
                if one.platform_ids and one.address.chat == part.address.chat:
                    return MessageRef(one.address, one.platform_ids[:1])
        else:
            session = await self._hub.store.read(sessions.session, part.session_id)
            if session is not None:
                try:
                    row = await self._hub.mailboxes.run(self._hub.folder_of(session), lambda box: box.message_at(seq))
                except MailboxError as problem:
                    raise ChatNotFound(f"message #{seq} can't be looked up: {problem}") from None
                origin = row.origin if row is not None else None
                if row is not None and row.platform_message_id and origin and origin.chat == part.address.chat:
                    return MessageRef(origin, (row.platform_message_id,))
        raise ChatNotFound(f"there is no message #{seq} in that chat")

    # ---- looking up

    def has_history(self, part: Delivery, instance: ChannelInstance, can: Capabilities) -> bool:
        return part.kind == "message" and can.history is not Support.NONE and isinstance(instance.channel, KeepsHistory)

    async def find(self, part: Delivery, instance: ChannelInstance) -> tuple[str, ...] | None:
        """The platform ids of a part whose sending is in doubt, if it stands in the chat's history."""
        channel = instance.channel
        if not isinstance(channel, KeepsHistory):
            return None
        try:
            content = loads(OutMessage, part.content)
            wanted = _letters(content.text)
            if not wanted:
                return None
            messages = await self.direct(instance, lambda: channel.history(part.address, limit=HISTORY))
            since = (part.first_try_at or part.created_at) - 60_000
            for message in reversed(messages):
                own = message.sender.is_self and message.occurred_at >= since
                if own and message.ref.ids and _letters(message.text) == wanted:
                    known = await self._hub.store.read(deliveries.by_platform_id, part.address, message.ref.ids[0])
                    if known is None:
                        return message.ref.ids
        except JackfieldError as problem:
            log.info("the history of %s can't be asked: %s", part.address, problem)
        return None


def _keyed(key: str, pieces: Sequence[OutMessage]) -> list[tuple[str, OutMessage]]:
    return [(f"{key}.{number}", piece) for number, piece in enumerate(pieces, 1)]


def _letters(text: str) -> str:
    """A text without markup, white space and case: what stays of it on every platform."""
    return "".join(char for char in text if char.isalnum()).casefold()
