"""Accepting events: durable before acknowledged, and nothing else before that (architecture 5, rule 1).

`accept` commits and returns.  What was accepted is then routed in the order of its chat, each chat on its own, so that
one slow chat delays no other; what has come to wait in one chat is routed together.  At start and every 60 s,
everything that is still unfinished is taken up again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from jackfield.api import Accepted, Cursor
from jackfield.errors import JackfieldError, MalformedData
from jackfield.host.channels import ChannelInstance
from jackfield.host.hub import Hub
from jackfield.host.secrets.masking import masked
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
TOGETHER = 20
"""Events of one chat that are routed at once at the most: what two turns take."""
LANES = 3
"""Chats that are routed at the same time; what waits for its turn meanwhile gathers, and costs less together."""
LANE_SECONDS = 0.1
"""How long a chat keeps its lane from the others: a slow one goes on beside them (architecture 5, rule 6)."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An accepted event on its way to be routed."""

    id: EventId
    event: Event
    foreseen: object = None
    """What `Routing.foresee` said of it."""


class Routing(Protocol):
    """Who brings events to their ends; the order is that of the chat."""

    def foresee(self, event: Event) -> object:
        """What routing will have to know of an event that is on its way to the disk, handed back with it; or None.

        Never raises, and changes nothing.
        """
        ...

    def together(self, waiting: Sequence[StoredEvent]) -> int:
        """How many of these, from the first on, may be handed to `route` at once: at least one."""
        ...

    async def route(self, waiting: Sequence[StoredEvent]) -> int:
        """Bring at least the first of these to its end; how many.  When it raises, all of them may be routed again."""
        ...


class _Lanes:
    """Lets `LANES` at a time do their work, and the next one as soon as one takes longer than `LANE_SECONDS`."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(LANES)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        await self._free.acquire()
        left = False

        def leave() -> None:
            nonlocal left
            if not left:
                left = True
                self._free.release()

        timer = asyncio.get_running_loop().call_later(LANE_SECONDS, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()


class Intake:
    """`accept` for every channel, and the per-chat queues behind it."""

    def __init__(self, hub: Hub, routing: Routing, spool: Spool) -> None:
        self._hub = hub
        self._routing = routing
        self._spool = spool
        self._lanes = _Lanes()
        self._queues: dict[str, deque[StoredEvent]] = {}
        self._in_hand: set[str] = set()
        self._closed = False
        self._opened = False
        self._idle = asyncio.Event()
        self._idle.set()

    async def accept(self, instance: ChannelInstance, event: Event, cursor: Cursor | None = None) -> Accepted:
        """See `ChannelContext.accept`."""
        if self._closed:
            raise JackfieldError("the host is stopping; do not acknowledge")
        self._check(instance, event)
        if isinstance(event, MessageReceived):
            event = self._with_honest_sender(instance, event)
            event = await self._spool.shorten(masked(event))
        body = dumps(event)
        reach("host.accept.before_commit")
        quiet = self._hub.store.quiet
        accepting = self._hub.store.begin(
            events.accept,
            channel_type=event.address.channel_type,
            instance=event.address.instance,
            dedupe_key=event.dedupe_key,
            type_name=type(event).__name__,
            body=body,
            now=self._hub.clock.now(),
            cursor=cursor,
        )
        foreseen = None
        if quiet:
            # A host that has nothing else to do uses the time that the disk takes.
            handed_in = self._hub.store.handed_in
            await asyncio.sleep(0)  # lets the thread that writes begin
            if self._hub.store.handed_in == handed_in:
                foreseen = self._routing.foresee(event)
        accepted = await accepting
        reach("host.accept.after_commit")
        if not accepted.duplicate or accepted.state is EventState.RECEIVED:
            self._enqueue(StoredEvent(accepted.event_id, event, foreseen))
        if not accepted.duplicate and self._hub.plugins.dispatcher.has("event_accepted"):
            self._hub.spawn(self._hub.plugins.dispatcher.notify("event_accepted", event=event), "hook event_accepted")
        return Accepted(event_id=accepted.event_id, duplicate=accepted.duplicate)

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
                async with self._lanes.one():
                    waiting = list(islice(queue, TOGETHER))
                    routed = await self._route(waiting[: self._routing.together(waiting)])
                for _ in range(routed):
                    self._in_hand.discard(queue.popleft().id)
        finally:
            del self._queues[chat]
            for left in queue:
                self._in_hand.discard(left.id)
            if not self._in_hand:
                self._idle.set()

    async def _route(self, together: Sequence[StoredEvent]) -> int:
        """How many of these are done with, be it for now."""
        try:
            return await self._routing.route(together)
        except Exception:
            if len(together) == 1:
                # It stays `received`: the sweep takes it up again.
                self._hub.trouble("routing")
                log.exception("event %s could not be routed; it is tried again within a minute", together[0].id)
                return 1
            log.info("%d events could not be routed together and are routed one by one", len(together), exc_info=True)
        # One that can't be routed must not keep its neighbours back; for those that were, nothing changes.
        for stored in together:
            await self._route([stored])
        return len(together)
