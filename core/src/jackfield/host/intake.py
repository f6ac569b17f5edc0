"""Accepting events: durable before acknowledged, and nothing else before that (architecture 5, rule 1).

`accept` commits and returns.  What was accepted is then routed in the order of its chat, each chat on its own, so that
one slow chat delays no other.  At start and every 60 s, everything that is still unfinished is taken up again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from jackfield.api import AcceptOutcome, Cursor
from jackfield.errors import JackfieldError, MalformedData
from jackfield.host.channels import ChannelInstance
from jackfield.host.hub import Hub
from jackfield.host.spool import Spool
from jackfield.ids import EventId
from jackfield.models import Event, EventState, MessageReceived, Person, Trust, dumps, loads
from jackfield.points import reach
from jackfield.store import events

__all__ = ["Intake", "StoredEvent"]

log = logging.getLogger(__name__)

MAX_ATTACHMENTS = 64
"""Of one event; the rest is named in a note (C219)."""
RETAKE_BATCH = 500


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An accepted event on its way to be routed."""

    id: EventId
    event: Event


Router = Callable[[StoredEvent], Awaitable[None]]


class Intake:
    """`accept` for every channel, and the per-chat queues behind it."""

    def __init__(self, hub: Hub, route: Router, spool: Spool) -> None:
        self._hub = hub
        self._route = route
        self._spool = spool
        self._queues: dict[str, deque[StoredEvent]] = {}
        self._in_hand: set[str] = set()
        self._closed = False
        self._opened = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def accept(self, instance: ChannelInstance, event: Event, cursor: Cursor | None = None) -> AcceptOutcome:
        """See `ChannelContext.accept`."""
        if self._closed:
            raise JackfieldError("the host is stopping; do not acknowledge")
        self._check(instance, event)
        if isinstance(event, MessageReceived):
            event = self._with_honest_sender(instance, event)
            event = await self._spool.shorten(event)
        body = dumps(event)
        reach("host.accept.before_commit")
        accepted = await self._hub.store.write(
            events.accept,
            channel_type=event.address.channel_type,
            instance=event.address.instance,
            dedupe_key=event.dedupe_key,
            type_name=type(event).__name__,
            body=body,
            now=self._hub.clock.now(),
            cursor=cursor,
        )
        reach("host.accept.after_commit")
        if not accepted.duplicate or accepted.state is EventState.RECEIVED:
            self._enqueue(StoredEvent(accepted.event_id, event))
        if accepted.duplicate:
            return AcceptOutcome.DUPLICATE
        if self._hub.plugins.dispatcher.has("event_accepted"):
            self._hub.spawn(self._hub.plugins.dispatcher.notify("event_accepted", event=event), "hook event_accepted")
        return AcceptOutcome.STORED

    async def retake(self) -> None:
        """Take up every event that is stored and not routed yet; at start, and by the sweep."""
        after: EventId | None = None
        while True:
            found = await self._hub.store.read(events.unfinished, RETAKE_BATCH, after)
            for stored in found:
                after = stored.id
                if stored.id in self._in_hand:
                    continue
                try:
                    event = loads(Event, stored.body)
                except MalformedData as problem:
                    log.error("event %s can't be read any more and is set aside: %s", stored.id, problem)
                    self._hub.trouble("malformed event")
                    await self._hub.store.write(
                        events.finish, stored.id, EventState.FAILED, now=self._hub.clock.now(), reason="malformed"
                    )
                    continue
                self._enqueue(StoredEvent(EventId(stored.id), event))
            if len(found) < RETAKE_BATCH:
                return

    async def close(self, grace: float) -> None:
        """Accept no more; wait for what is being routed.  The rest stays stored and is taken up at the next start."""
        self._closed = True
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            log.info("%d events are left for the next start", len(self._in_hand))

    def _check(self, instance: ChannelInstance, event: Event) -> None:
        address = event.address
        if (address.channel_type, address.instance) != (instance.type, instance.name):
            raise MalformedData(f"channel {instance.name} handed in an event of {address}")
        if not event.dedupe_key:
            raise MalformedData(f"channel {instance.name} handed in an event without a dedupe key")

    @staticmethod
    def _with_honest_sender(instance: ChannelInstance, event: MessageReceived) -> MessageReceived:
        """Only a channel on the operator's own machine may say that it is the operator, or redirect the answer."""
        local = instance.info is not None and instance.info.local
        sender: Person = event.sender
        if sender.trust is Trust.OPERATOR and not local:
            event = replace(event, sender=replace(sender, trust=Trust.PLATFORM))
        if event.answer_to is not None and not local:
            event = replace(event, answer_to=None)
        if len(event.attachments) > MAX_ATTACHMENTS:
            left_out = len(event.attachments) - MAX_ATTACHMENTS
            event = replace(
                event,
                attachments=event.attachments[:MAX_ATTACHMENTS],
                text=f"{event.text}\n\n[{left_out} more attachments were left out]",
            )
        return event

    def _enqueue(self, stored: StoredEvent) -> None:
        if stored.id in self._in_hand or self._closed:
            return
        self._in_hand.add(stored.id)
        self._idle.clear()
        chat = str(stored.event.address.chat)
        queue = self._queues.get(chat)
        if queue is not None:
            queue.append(stored)
            return
        self._queues[chat] = queue = deque([stored])
        if self._opened:
            self._hub.spawn(self._drain(chat, queue), f"route {chat}")

    def open(self) -> None:
        """Begin to route; what was taken up before comes first, so that no new message overtakes an old one."""
        self._opened = True
        for chat, queue in self._queues.items():
            self._hub.spawn(self._drain(chat, queue), f"route {chat}")

    async def _drain(self, chat: str, queue: deque[StoredEvent]) -> None:
        try:
            while queue:
                stored = queue.popleft()
                try:
                    await self._route(stored)
                except Exception:
                    # It stays `received`: the sweep takes it up again.
                    self._hub.trouble("routing")
                    log.exception("event %s could not be routed; it is tried again within a minute", stored.id)
                finally:
                    self._in_hand.discard(stored.id)
        finally:
            del self._queues[chat]
            for left in queue:
                self._in_hand.discard(left.id)
            if not self._in_hand:
                self._idle.set()
