"""Showing a text while it grows, where the channel can (channels.md 5).

The runner replaces its draft at most every 300 ms; each stream passes on the newest text at its channel's own pace.
The row that completes a draft finishes the stream instead of sending anew; a stream that no row completes is taken
away.  Nothing is streamed while a plugin guards or rewrites what leaves, because a draft would pass it by.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from dataclasses import dataclass, field

from jackfield.api import MessageStream
from jackfield.api import Streams as StreamingChannel
from jackfield.errors import ChannelError, JackfieldError
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.outbound_facts import ids_of_inbound
from jackfield.ids import SessionId, TurnId
from jackfield.models import (
    Address,
    Capabilities,
    Draft,
    InboundState,
    MessageRef,
    Session,
    StreamKind,
    Support,
    Threads,
)
from jackfield.models.splitting import measure
from jackfield.redaction import REDACTOR
from jackfield.store import chats, deliveries, inbound, wirings

__all__ = ["Streams"]

log = logging.getLogger(__name__)

CALL_SECONDS = 15.0
_Key = tuple[SessionId, TurnId, int]


@dataclass(slots=True, eq=False)
class _Live:
    key: _Key
    stream: MessageStream
    can: Capabilities
    text: str = ""
    shown: str = ""
    claimed: bool = False
    """A row that completes it is in the ledger; the sender takes it."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class Streams:
    """`show` after each ring, `claim` when a row that completes a draft is planned, `take` when it is sent."""

    def __init__(self, hub: Hub, channels: ChannelDirectory) -> None:
        self._hub = hub
        self._channels = channels
        self._live: dict[_Key, _Live] = {}
        self._completed_by: dict[tuple[SessionId, int], _Key] = {}
        self._refused: set[_Key] = set()

    async def show(self, session: Session) -> bool:
        """Bring the session's drafts to their readers; whether any is being shown."""
        mine = [key for key in self._live if key[0] == session.id]
        if self._guarded() or not any(self._can_stream(item.type, item.name) for item in self._channels.all()):
            return False
        try:
            drafts = await self._hub.mailboxes.run(self._hub.folder_of(session), lambda box: box.read_drafts())
        except JackfieldError as problem:
            log.debug("the drafts of session %s can't be read now: %s", session.id, problem)
            return bool(mine)
        present = set()
        for draft in drafts:
            key = (session.id, draft.turn, draft.block)
            present.add(key)
            if key not in self._refused and draft.text.strip():
                await self._update(session, key, draft)
        for key in mine:
            live = self._live.get(key)
            if key not in present and live is not None and not live.claimed:
                await self.discard(live.stream)
        self._refused = {key for key in self._refused if key[0] != session.id or key in present}
        return any(key[0] == session.id for key in self._live)

    def claim(self, session_id: SessionId, turn: TurnId, block: int, out_seq: int) -> None:
        """The row `out_seq` completes that draft."""
        live = self._live.get((session_id, turn, block))
        if live is not None:
            live.claimed = True
            self._completed_by[session_id, out_seq] = live.key

    async def take(self, session_id: SessionId, out_seq: int) -> MessageStream | None:
        """The stream that the row completes, for the caller to finish; once."""
        key = self._completed_by.pop((session_id, out_seq), None)
        live = self._live.pop(key, None) if key is not None else None
        if live is None:
            return None
        await self._end_task(live)
        return live.stream

    async def discard(self, stream: MessageStream) -> None:
        """Take a stream away that nothing completes."""
        for key, live in list(self._live.items()):
            if live.stream is stream:
                del self._live[key]
                await self._end_task(live)
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await stream.abort()
        except (ChannelError, TimeoutError) as problem:
            log.info("a growing message could not be taken away: %s", problem)
        except Exception:
            self._hub.trouble("stream")
            log.exception("a growing message could not be taken away")

    async def abort(self, session_id: SessionId) -> None:
        """The session's runner is gone: whatever no row completes is taken away."""
        for key, live in list(self._live.items()):
            if key[0] == session_id and not live.claimed:
                await self.discard(live.stream)

    async def close(self) -> None:
        """The host stops."""
        for live in list(self._live.values()):
            await self.discard(live.stream)

    # ---- inside

    def _guarded(self) -> bool:
        dispatcher = self._hub.plugins.dispatcher
        return dispatcher.has("intercept_outbound") or dispatcher.has("compose_outbound")

    def _can_stream(self, channel_type: str, name: str) -> bool:
        instance = self._channels.instance(channel_type, name)
        return instance is not None and instance.ready.is_set() and isinstance(instance.channel, StreamingChannel)

    async def _update(self, session: Session, key: _Key, draft: Draft) -> None:
        live = self._live.get(key)
        if live is None:
            live = await self._open(session, key, draft.address)
            if live is None:
                self._refused.add(key)
                return
        text = REDACTOR.opening(draft.text)
        if text != live.text and text.strip() and not live.claimed:
            live.text = text
            live.changed.set()

    async def _open(self, session: Session, key: _Key, address: Address) -> _Live | None:
        instance = self._channels.instance(address.channel_type, address.instance)
        channel = instance.channel if instance is not None else None
        if instance is None or not instance.ready.is_set() or not isinstance(channel, StreamingChannel):
            return None
        can = channel.capabilities(address)
        if can.stream is StreamKind.NONE or not await self._hub.store.read(_may_show, session, address):
            return None
        answered = await self._hub.store.read(_answered, session, address, can)
        try:
            stream = channel.open_stream(address, reply_to=answered)
        except ChannelError as problem:
            log.info("nothing is streamed to %s: %s", address, problem)
            return None
        live = _Live(key, stream, can)
        self._live[key] = live
        self._hub.loops.say(address, self._hub.clock.monotonic())
        live.task = self._hub.spawn(self._pump(live), f"stream {session.id}")
        return live

    async def _pump(self, live: _Live) -> None:
        """Pass on the newest text, no faster than the channel wants."""
        while True:
            await live.changed.wait()
            live.changed.clear()
            text = live.text
            limit = live.can.text_limit
            if text == live.shown or (limit is not None and measure(text, live.can.text_unit) > limit):
                continue
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    await live.stream.update(text)
                live.shown = text
            except (ChannelError, TimeoutError) as problem:
                log.info("a growing message could not be updated: %s", problem)
            except Exception:
                self._hub.trouble("stream")
                log.exception("a growing message could not be updated")
            await self._hub.clock.sleep(live.can.stream_interval)

    @staticmethod
    async def _end_task(live: _Live) -> None:
        if live.task is not None and live.task is not asyncio.current_task():
            live.task.cancel()
            await asyncio.wait([live.task], timeout=5)


def _may_show(db: sqlite3.Connection, session: Session, address: Address) -> bool:
    """The same permission as a message needs; and nothing of the destination still waits, so that the order is kept."""
    chat = chats.messaging_group_at(db, address.chat)
    allowed = chat is not None and chat.id == session.messaging_group_id
    if not allowed and not wirings.may_send(db, session.agent_group_id, address):
        return False
    return deliveries.next_for(db, str(address), session.created_at) is None


def _answered(db: sqlite3.Connection, session: Session, address: Address, can: Capabilities) -> MessageRef | None:
    """What the growing message answers: the newest that the runner has in hand, where a whole message would say so."""
    chat = chats.messaging_group_at(db, address.chat)
    chain = can.threads is Threads.REPLY_CHAIN
    if chat is None or not (chain or (chat.is_group and can.quote is not Support.NONE)):
        return None
    in_hand = [one.id for one in inbound.open_entries(db, session.id) if one.state is InboundState.CLAIMED]
    ids = ids_of_inbound(db, session, address, in_hand[-1]) if in_hand else ()
    return MessageRef(address, ids) if ids else None
