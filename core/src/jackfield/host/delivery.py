"""Everything that leaves: planned, recorded, sent in order, and followed to its end (architecture 5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from jackfield.api import DeliveredPart, Edits, OutboundPart, SendPath
from jackfield.clock import UnixMs
from jackfield.errors import ChannelError, JackfieldError, RateLimited, SendNotAllowed, Transient, Unsupported
from jackfield.host.channels import ChannelDirectory
from jackfield.host.degrade import degrade
from jackfield.host.delivery_worker import Ended, Workers
from jackfield.host.hub import Hub
from jackfield.host.outbound_hooks import Refusal, passed_hooks
from jackfield.host.outgoing import Planner
from jackfield.host.outgoing_files import remove_files
from jackfield.host.pacing import Pacer
from jackfield.host.parts import message_parts
from jackfield.host.secrets.masking import masked
from jackfield.host.sending import Sender
from jackfield.host.streams import Streams
from jackfield.host.undelivered import undelivered
from jackfield.ids import SessionId, derive_id, new_id
from jackfield.mailbox import HostMailbox, SessionFolder
from jackfield.models import (
    Address,
    AgentGroup,
    Delivered,
    DeliveryReport,
    DeliveryState,
    MessageRef,
    OutboundRow,
    OutMessage,
    ReportState,
    Session,
    Support,
)
from jackfield.models import Delivery as DeliveryRow
from jackfield.store import deliveries, sessions

__all__ = ["Delivery"]

log = logging.getLogger(__name__)

TELL_AGAIN = 3_600_000
"""Milliseconds back for which failures are told again at start, in case a crash came between; telling is idempotent."""
SLOW_LOOK = 60.0
EARLY_REPORTS = 1000
NOTES_WAIT = 10.0
"""Seconds in which what became of messages may ride along with the next one, instead of a commit of its own."""
DIRECT_WAIT = 30.0

OnFailed = Callable[[DeliveryRow, str], Awaitable[None]]
OnDegraded = Callable[[Session, OutboundRow, tuple[str, ...]], Coroutine[Any, Any, None]]


class Delivery:
    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        *,
        on_failed: OnFailed,
        streams: Streams | None = None,
        on_settled: Callable[[], None] = lambda: None,
        on_degraded: OnDegraded | None = None,
    ) -> None:
        """`on_failed` puts a notice into the session, once for each row however often it is called.  `on_settled` is
        called whenever a destination has nothing left to do now."""
        self._hub = hub
        self._channels = channels
        self._on_failed = on_failed
        self._on_degraded = on_degraded
        self._streams = streams or Streams(hub, channels)
        self._planner = Planner(hub, channels)
        self._sender = Sender(hub, self._streams)
        self._pacer = Pacer()
        self._workers = Workers(
            hub,
            channels,
            self._sender,
            self._pacer,
            on_end=self._ended,
            on_settled=on_settled,
        )
        self._folders: dict[SessionId, tuple[Session, SessionFolder]] = {}
        self._flushing: asyncio.Task[None] | None = None
        self._notes: dict[SessionId, dict[int, Delivered]] = {}
        self._looked_at = -SLOW_LOOK
        self._early: dict[tuple[str, str, str], DeliveryReport] = {}

    # ---- before the recording transaction

    async def plan(self, session: Session, group: AgentGroup, row: OutboundRow, now: UnixMs) -> list[DeliveryRow]:
        """The parts of a row, for the collector to record with `deliveries.add`.

        Planning the same row again gives the same ids.  A row that is refused comes back as one part in its end state
        with the reason, and the session is told; hostile content never raises.

        Raises:
            StoreError: the store can't be asked; nothing was changed.
        """
        planned = await self._planner.plan(session, group, row, now)
        first = planned.parts[0]
        if first.state in deliveries.ENDS and (text := undelivered(planned.parts)):
            self._hub.spawn(self._tell_failed(first, text), f"failure {row.id}")
        elif row.turn is not None and row.draft_block is not None:
            self._streams.claim(session.id, row.turn, row.draft_block, row.seq)
        if planned.notes and self._on_degraded is not None:
            self._hub.spawn(self._on_degraded(session, row, planned.notes), f"degraded {row.id}")
        elif planned.notes:
            log.info("row %d of session %s was changed for its chat: %s", row.seq, session.id, "; ".join(planned.notes))
        return planned.parts

    # ---- sending

    def begin(self, added: deliveries.Added) -> None:
        """These parts were recorded just now; some of them as being sent."""
        first = {str(part.address): part for part in added.started}
        for destination in added.destinations:
            if not self._workers.deaf(destination):
                self._workers.kick(destination, first.get(destination))

    def forget(self, part: DeliveryRow) -> None:
        """This one is not sent after all: the copies of its files go."""
        if '"files"' in part.content:
            self._hub.spawn(self._clean(part, DeliveryState.SENT), f"outbox {part.out_id}")

    def kick(self, destinations: Iterable[str]) -> None:
        """Something new is recorded for these."""
        for destination in destinations:
            if not self._workers.deaf(destination):
                self._workers.kick(destination)

    async def start(self) -> None:
        """Take up what the last life left: parts whose sending was in doubt, then all that is due."""
        left = await self._hub.store.read(deliveries.left_open)
        self._workers.left.update({part.id: str(part.address) for part in left})
        if left:
            log.info("%d sends were under way when the host ended; each is settled by its channel's rule", len(left))
        await self._planner.forget_files()
        self.kick(dict.fromkeys(str(part.address) for part in left))
        await self.due()
        recent = await self._hub.store.read(deliveries.deliveries, state=DeliveryState.FAILED, limit=50)
        for part in recent:
            young = self._hub.clock.now() - part.updated_at < TELL_AGAIN
            if young:
                parts = await self._hub.store.read(deliveries.parts_of, part.session_id, part.out_seq)
                if not _open(parts) and (text := undelivered(parts)):
                    self._hub.spawn(self._tell_failed(part, text), f"failure {part.out_id}")

    async def stop(self, grace: float) -> None:
        """End within `grace` seconds; what is cut off then is in doubt and settled at the next start."""
        await self._workers.stop(grace)
        await self._streams.close()
        if self._flushing is not None:
            self._flushing.cancel()
        await self._flush()

    async def due(self) -> None:
        """Go on with everything that may be tried now.  Also called by the sweep, so that nothing waits for ever."""
        now = self._hub.clock.now()
        found = await self._hub.store.read(deliveries.destinations_due, now)
        due = dict.fromkeys([*found, *self._workers.left.values(), *self._workers.troubled])
        # What waits for its channel needs no look at every tick, only one now and then for its deadline.
        all_of_them = self._hub.clock.monotonic() - self._looked_at >= SLOW_LOOK
        if all_of_them:
            self._looked_at = self._hub.clock.monotonic()
        self.kick(destination for destination in due if all_of_them or self._is_ready(destination))

    def _is_ready(self, destination: str) -> bool:
        address = Address.parse(destination)
        instance = self._channels.instance(address.channel_type, address.instance)
        return instance is not None and instance.ready.is_set()

    def wake(self, address: Address) -> None:
        """Somebody listens in that chat now (`NobodyListening`)."""
        self._workers.wake(address)

    def channel_ready(self, channel_type: str, instance: str) -> None:
        """That channel can send again (C084)."""
        prefix = str(Address(channel_type, instance, "-"))[:-1]
        self._workers.listening(prefix)
        self._hub.spawn(self._go_on(prefix), f"ready {instance}")

    async def _go_on(self, prefix: str) -> None:
        now = self._hub.clock.now()
        found = await self._hub.store.read(deliveries.destinations_due, now)
        waiting = dict.fromkeys([*found, *self._workers.left.values()])
        self.kick(destination for destination in waiting if destination.startswith(prefix))

    async def send_direct(self, address: Address, message: OutMessage, *, path: SendPath) -> None:
        """The host's own words, through the hooks, in no ledger: sent at once, twice at most, and else given up.

        Never raises for what a channel or a guard says.
        """
        try:
            await self.send_now(address, message, path=path, key=new_id("dl"))
        except ChannelError as problem:
            self._hub.trouble("unsaid")
            log.warning("%s can't be told something: %s", address, problem)

    async def send_now(
        self, address: Address, message: OutMessage, *, path: SendPath, key: str
    ) -> tuple[tuple[str, ...], ...]:
        """As `send_direct`, and how it ended: the platform's ids of each part.  `key` is an id; the same one again is
        the same message.

        Raises:
            ChannelError: what the channel, or a guard, said in the end; parts may have arrived.
        """
        instance = self._channels.instance(address.channel_type, address.instance)
        if instance is None or instance.channel is None or not instance.ready.is_set():
            raise Transient(f"channel {address.instance} is not ready")
        channel = instance.channel
        try:
            part = OutboundPart(path=path, address=address, message=masked(message), session=None)
            message = await passed_hooks(self._hub, part)
        except Refusal as refused:
            raise SendNotAllowed(str(refused)) from None
        can = channel.capabilities(address)
        sent: list[tuple[str, ...]] = []
        for number, piece in enumerate(message_parts(degrade(message, can).message, address, channel, can), 1):
            call = partial(channel.send, address, piece, idempotency_key=derive_id("dl", key, str(number)))
            try:
                result = await self._sender.direct(instance, call)
            except (RateLimited, Transient) as problem:
                wait = problem.retry_after if isinstance(problem, RateLimited) else 1.0
                if wait > DIRECT_WAIT:
                    raise
                await self._hub.clock.sleep(wait)
                result = await self._sender.direct(instance, call)
            sent.append(result.ids)
        return tuple(sent)

    async def edit_now(self, ref: MessageRef, message: OutMessage) -> None:
        """Put something else where the host's own words stand.

        Raises:
            Unsupported: this chat's messages can't be edited.
            ChannelError: what the channel said.
        """
        address = ref.address
        instance = self._channels.instance(address.channel_type, address.instance)
        if instance is None or instance.channel is None or not instance.ready.is_set():
            raise Transient(f"channel {address.instance} is not ready")
        channel = instance.channel
        if not isinstance(channel, Edits) or channel.capabilities(address).edit is Support.NONE:
            raise Unsupported(f"messages in {address} can't be edited")
        try:
            part = OutboundPart(path=SendPath.EDIT, address=address, message=masked(message), session=None)
            message = await passed_hooks(self._hub, part)
        except Refusal as refused:
            raise SendNotAllowed(str(refused)) from None
        await self._sender.direct(instance, partial(channel.edit, ref, message))

    # ---- what came of it

    async def report(self, event: DeliveryReport) -> None:
        """What the platform says later of a message that it had accepted (C009)."""
        for platform_id in event.ref.ids:
            part = await self._hub.store.read(deliveries.by_platform_id, event.address, platform_id)
            if part is None:
                # It may come before the send's own answer is recorded.
                self._early[event.address.channel_type, event.address.instance, platform_id] = event
                while len(self._early) > EARLY_REPORTS:
                    del self._early[next(iter(self._early))]
                continue
            await self._apply(event, part)

    async def _apply(self, event: DeliveryReport, part: DeliveryRow) -> None:
        now = self._hub.clock.now()
        if event.state is not ReportState.FAILED:
            await self._hub.store.write(
                deliveries.reported, part.id, DeliveryState.SENT, now, reason=part.reason, error=part.last_error
            )
            return
        error = event.reason or "the platform reported that it did not arrive"
        changed = await self._hub.store.write(
            deliveries.reported, part.id, DeliveryState.FAILED, now, reason="NotDelivered", error=error
        )
        if changed:
            await self._ended(Ended(part=part, state=DeliveryState.FAILED, reason="NotDelivered", error=error))

    async def _ended(self, ended: Ended) -> None:
        part = ended.part
        failed = ended.state is DeliveryState.FAILED
        if failed:
            stream = await self._streams.take(part.session_id, part.out_seq)
            if stream is not None:
                await self._streams.discard(stream)
        parts: list[DeliveryRow] = []
        if failed or part.parts > 1 or not ended.whole:
            parts = await self._hub.store.read(deliveries.parts_of, part.session_id, part.out_seq)
        over = not _open(parts)
        if over and (text := undelivered(parts)):
            await self._tell_failed(part, text)
        dispatcher = self._hub.plugins.dispatcher
        hook = "message_failed" if failed else "message_delivered"
        if dispatcher.has(hook):
            told = DeliveredPart(
                session_id=part.session_id,
                out_seq=part.out_seq,
                part=part.part,
                parts=part.parts,
                address=part.address,
                platform_ids=ended.platform_ids,
                reason=ended.reason,
            )
            await dispatcher.notify(hook, part=told)
        if ended.degraded:
            log.info("the channel of %s left out: %s", part.address, ", ".join(ended.degraded))
        if not failed and ended.state is DeliveryState.ACCEPTED:
            await self._early_report(part, ended.platform_ids)
        if over:
            one_failed = any(one.state is DeliveryState.FAILED for one in parts)
            self._note(part, DeliveryState.FAILED if one_failed else ended.state, ended.platform_ids)

    async def _early_report(self, part: DeliveryRow, ids: tuple[str, ...]) -> None:
        for platform_id in ids:
            early = self._early.pop((part.address.channel_type, part.address.instance, platform_id), None)
            if early is not None:
                await self._apply(early, part)

    async def _tell_failed(self, part: DeliveryRow, text: str) -> None:
        try:
            await self._on_failed(part, text)
        except JackfieldError as problem:
            self._hub.trouble("failure notice")
            log.warning("session %s could not be told that %s failed: %s", part.session_id, part.out_id, problem)

    # ---- telling the runner, and cleaning up; nothing depends on when

    def _note(self, part: DeliveryRow, state: DeliveryState, ids: tuple[str, ...]) -> None:
        note = Delivered(out_seq=part.out_seq, state=state.value, platform_ids=ids, at=self._hub.clock.now())
        self._notes.setdefault(part.session_id, {})[part.out_seq] = note
        if part.parts > 1 or '"files"' in part.content:
            self._hub.spawn(self._clean(part, state), f"outbox {part.out_id}")
        if (self._flushing is None or self._flushing.done()) and not self._workers.closing:
            self._flushing = self._hub.spawn(self._flush_soon(), "delivered notes")

    def take_notes(self, session_id: SessionId) -> list[Delivered]:
        """What became of the session's messages and its runner was not told: for whoever writes to its inbox next."""
        return list(self._notes.pop(session_id, {}).values())

    async def _flush_soon(self) -> None:
        await self._hub.clock.sleep(NOTES_WAIT)
        await self._flush()

    async def _flush(self) -> None:
        notes, self._notes = self._notes, {}
        for session_id, rows in notes.items():
            try:
                folder = await self._folder(session_id)
                if folder is not None:
                    await self._hub.mailboxes.run(folder, partial(_record, list(rows.values())))
            except JackfieldError as problem:
                log.info("session %s was not told what became of its messages: %s", session_id, problem)

    async def _clean(self, part: DeliveryRow, state: DeliveryState) -> None:
        """The outbox is emptied once all is copied and sent; the copies stay while an operator may send again."""
        folder = await self._folder(part.session_id)
        try:
            if folder is not None:
                await asyncio.to_thread(folder.remove_outbox, part.out_id)
            if state is DeliveryState.SENT:
                await asyncio.to_thread(remove_files, self._planner.files_of(part.session_id, part.out_seq))
        except (JackfieldError, OSError) as problem:
            log.info("files of %s could not be removed: %s", part.out_id, problem)

    async def _folder(self, session_id: SessionId) -> SessionFolder | None:
        known = self._folders.get(session_id)
        if known is None:
            session = await self._hub.store.read(sessions.session, session_id)
            if session is None:
                return None
            if len(self._folders) > 1000:
                self._folders.clear()
            known = self._folders[session_id] = (session, self._hub.folder_of(session))
        return known[1]


def _record(notes: list[Delivered], box: HostMailbox) -> None:
    box.record_delivered(notes)


def _open(parts: Iterable[DeliveryRow]) -> bool:
    return any(one.state not in deliveries.ENDS for one in parts)
