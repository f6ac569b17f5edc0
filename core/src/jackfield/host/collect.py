"""From a session's outbound file into the ledger, in one transaction.

What a runner committed (rows, acks, activity) is read as the work of a hostile writer, planned (destinations checked,
hooks asked, split into parts), and then recorded together with the cursors: deliveries with the intent to send the
first part, the ends of the inbound messages, the retries that the pure rule decided.  Only after that commit is
anything sent.  Collecting twice changes nothing: deliveries are unique by (session, row, part), cursors only rise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jackfield.api import TurnSummary
from jackfield.clock import UnixMs
from jackfield.errors import ConfigError, JackfieldError, MailboxDamaged, NotFound
from jackfield.host.agents.entering import Entered
from jackfield.host.delivery import Delivery
from jackfield.host.hub import Hub
from jackfield.host.models.gateways import Use
from jackfield.host.parking import Keys, scope_keys
from jackfield.host.recording import Outcome, record, record_early
from jackfield.host.secrets.masking import masked, masked_batch
from jackfield.ids import InboundId, SessionId, TurnId
from jackfield.mailbox import OutboundBatch
from jackfield.models import (
    Ack,
    ActionRequest,
    ActivityKind,
    ActivityRow,
    AgentGroup,
    OutboundKind,
    OutboundRow,
    Session,
    UsageEntry,
)
from jackfield.models import Delivery as DeliveryRow
from jackfield.models.server_states import ServerState, server_of
from jackfield.points import reach
from jackfield.redaction import REDACTOR
from jackfield.store import groups, sessions
from jackfield.store.sessions import OutCursor

__all__ = ["Collector"]

log = logging.getLogger(__name__)

BATCH = 200
HURRIED = 5
"""Batches of one session that a start or a stop of the host waits for."""
IN_HAND = 100
"""Requests of one session that are worked on at the same time; more of them wait in its file."""
IN_HAND_SECONDS = 5.0
"""How long they wait at the most, since one that is worked on may itself wait for what lies behind them."""
EARLY = 1000
"""Messages of one session whose acknowledgements may be ahead of the ledger."""
SERVERS = 100
"""MCP servers of one session whose state is remembered."""
_FAILING = {ServerState.FAILED: "failed", ServerState.OFF: "failed too often and was given up"}


@dataclass(slots=True)
class _Reading:
    """Where the host is in one session's outbound file."""

    session: Session
    group: AgentGroup
    cursor: OutCursor
    """In memory; the stored one is held back while an action is in hand, so that a crash repeats it."""
    held: set[int] = field(default_factory=set)
    early: set[InboundId] = field(default_factory=set)
    """Acknowledged, and not in the ledger then."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when one of `held` was answered."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    servers: dict[str, str] = field(default_factory=dict)
    """How its MCP servers do, by the last that the runner told."""
    dirty: bool = False
    streaming: bool = False


class Collector:
    def __init__(
        self,
        hub: Hub,
        delivery: Delivery,
        *,
        on_action: Callable[[Session, AgentGroup, OutboundRow], Coroutine[Any, Any, None]],
        on_acks: Callable[[SessionId, Sequence[Ack]], None],
        on_tell: Callable[[Session, str], Awaitable[None]],
        on_damaged: Callable[[Session, MailboxDamaged], Awaitable[None]],
        on_parked: Callable[[Session, sessions.Scope | None, Keys], None],
        on_model: Callable[[Keys, tuple[str, str] | None], None],
        on_drafts: Callable[[Session], Awaitable[bool]],
        nudge: Callable[[], None],
        enter: Callable[[sqlite3.Connection, Session, DeliveryRow, TurnId | None, UnixMs], Entered],
        on_refused: Callable[[Session, DeliveryRow, InboundId], Coroutine[Any, Any, None]],
    ) -> None:
        """`enter` records a message for another agent at its reader's end too, in the same transaction.  `on_model`
        hears that what a session uses works, or what about it an owner must be told."""
        self._hub = hub
        self._delivery = delivery
        self._enter = enter
        self._on_refused = on_refused
        self._on_action = on_action
        self._on_acks = on_acks
        self._on_tell = on_tell
        self._on_damaged = on_damaged
        self._on_parked = on_parked
        self._on_model = on_model
        self._on_drafts = on_drafts
        self._nudge = nudge
        self._readings: dict[SessionId, _Reading] = {}
        self.hurry = True
        """While the host starts or stops: a session that wrote very much must not hold that up."""

    def ring(self, session_id: SessionId) -> None:
        """Something may lie in the session's outbound file."""
        reading = self._readings.get(session_id)
        if reading is not None and reading.lock.locked():
            reading.dirty = True
            return
        self._hub.spawn(self._collect_logged(session_id), f"collect {session_id}")

    async def _collect_logged(self, session_id: SessionId) -> None:
        try:
            await self.collect(session_id)
        except MailboxDamaged as problem:
            session = (self._readings.get(session_id) or await self._open(session_id)).session
            await self._on_damaged(session, problem)
        except JackfieldError as problem:
            # The doorbell's next ring, the runner's end or the sweep collects again.
            self._hub.trouble("collect")
            log.warning("session %s could not be collected now: %s", session_id, problem)

    async def collect(self, session_id: SessionId) -> bool:
        """Take over all that the runner committed; False when, in a hurry, the rest was left for later.

        Raises:
            RecoveryNeeded, MailboxDamaged, MailboxBlocked: the file can't be read as it is.
            StoreError: nothing was recorded; collect again.
        """
        reading = self._readings.get(session_id) or await self._open(session_id)
        taken = 0
        async with reading.lock:
            while True:
                reading.dirty = False
                more = await self._collect_batch(reading)
                taken += 1
                if more and not self.hurry:
                    await _room(reading)
                if more and self.hurry and (taken >= HURRIED or len(reading.held) >= IN_HAND):
                    log.warning("session %s left more than the host waits for now; the rest is taken later", session_id)
                    return False
                if not more and not reading.dirty:
                    break
        if reading.dirty:
            self.ring(session_id)
        return True

    def forget(self, session_id: SessionId) -> None:
        """The session's runner is gone, or its files were replaced."""
        reading = self._readings.get(session_id)
        if reading is not None and not reading.lock.locked() and not reading.held:
            del self._readings[session_id]

    async def entered(self, session_id: SessionId, ids: Collection[InboundId], repeated: Collection[InboundId]) -> None:
        """These messages are in the ledger now, or written to it next; `repeated` were in the inbox before that.

        A runner may have taken and ended a message before: it needs the inbox only, and the host may have been killed
        between the two, or had no room for the ledger.  What it said then was passed over, and is heard now.
        """
        reading = self._readings.get(session_id)
        wanted = {*repeated, *(reading.early.intersection(ids) if reading is not None else ())}
        if not wanted:
            return
        try:
            reading = reading or await self._open(session_id)
            async with reading.lock:
                await self._hear_again(reading, wanted)
        except JackfieldError as problem:
            self._hub.trouble("collect")
            log.warning("what became of messages of session %s can't be read: %s", session_id, problem)

    async def _hear_again(self, reading: _Reading, wanted: Collection[InboundId]) -> None:
        session = reading.session
        until = reading.cursor.change
        acks = await self._hub.mailboxes.run(
            self._hub.folder_of(session), lambda box: box.acks_of(sorted(wanted), until=until)
        )
        acks = [masked(ack) for ack in acks]
        if not acks:
            return
        outcome = await self._hub.store.write(
            record_early, session, acks, self._hub.clock.now(), scope_keys(self._hub, reading.group)
        )
        reading.early -= {ack.message_id for ack in acks} - outcome.early
        await self._follow_up(reading, acks, outcome)

    async def action_done(self, session_id: SessionId, seq: int) -> None:
        """The action in row `seq` has its response in the inbox; the stored cursor may pass it."""
        reading = self._readings.get(session_id)
        if reading is not None:
            reading.held.discard(seq)
            reading.room.set()
            self._hub.store.write_soon(sessions.move_cursors, session_id, self._stored_cursor(reading, reading.cursor))

    async def _open(self, session_id: SessionId) -> _Reading:
        def load(db: sqlite3.Connection) -> tuple[Session, AgentGroup, OutCursor]:
            session = sessions.session(db, session_id)
            group = groups.agent_group(db, session.agent_group_id) if session is not None else None
            if session is None or group is None:
                raise NotFound(f"session {session_id} does not exist any more")
            return session, group, sessions.cursors(db, session_id)

        session, group, cursor = await self._hub.store.read(load)
        return self._readings.setdefault(session_id, _Reading(session, group, cursor))

    async def _collect_batch(self, reading: _Reading) -> bool:
        session, cursor = reading.session, reading.cursor
        batch: OutboundBatch = await self._hub.mailboxes.run(
            self._hub.folder_of(session),
            lambda box: box.read_outbound(
                after_seq=cursor.seq,
                after_change=cursor.change,
                after_activity=cursor.activity,
                after_usage=cursor.usage,
                limit=BATCH,
            ),
        )
        batch = masked_batch(batch)
        if not (batch.rows or batch.acks or batch.activity or batch.usage or batch.bad):
            reading.streaming = await self._on_drafts(session)
            return False
        now = self._hub.clock.now()
        for bad in batch.bad:
            self._hub.trouble("malformed row")
            log.warning("row %d of session %s is refused: %s", bad.seq, session.id, bad.problem)
        rows = await self._honest(reading, batch.rows)
        parts: list[DeliveryRow] = []
        for row in rows:
            if row.kind is not OutboundKind.ACTION:
                parts.extend(await self._delivery.plan(session, reading.group, row, now))
        actions = [row for row in rows if row.kind is OutboundKind.ACTION]
        reading.held.update(row.seq for row in actions)
        ahead = OutCursor(
            seq=max(cursor.seq, batch.last_seq),
            change=max(cursor.change, batch.last_change),
            activity=max(cursor.activity, batch.last_activity),
            usage=max(cursor.usage, batch.last_usage),
        )
        did = _told(batch.activity)
        reach("host.collect.before_commit")
        turns = {row.seq: row.turn for row in rows}
        outcome = await self._hub.store.write(
            record,
            session,
            parts,
            batch.acks,
            did,
            self._used(reading.group, batch.usage),
            self._stored_cursor(reading, ahead),
            now,
            scope_keys(self._hub, reading.group),
            lambda db, part: self._enter(db, session, part, turns.get(part.out_seq), now),
        )
        reach("host.collect.after_commit")
        reading.cursor = ahead
        self._delivery.begin(outcome.added)
        for part, notice in outcome.refused:
            self._delivery.forget(part)
            self._hub.spawn(self._on_refused(session, part, notice), f"refused {part.out_id}")
        for row in actions:
            self._hub.spawn(self._on_action(session, reading.group, row), f"action {session.id}")
        await self._follow_up(reading, batch.acks, outcome)
        _warn_of_servers(reading, did)
        dispatcher = self._hub.plugins.dispatcher
        if did and dispatcher.has("activity_recorded"):
            for item in did:
                await dispatcher.notify("activity_recorded", session_id=session.id, activity=item)
        if outcome.early and len(reading.early) < EARLY:
            reading.early |= outcome.early
            await self._hear_again(reading, outcome.early)  # it may have been entered meanwhile
        return batch.more

    @staticmethod
    def _stored_cursor(reading: _Reading, ahead: OutCursor) -> OutCursor:
        seq = min([ahead.seq, *(held - 1 for held in reading.held)])
        return OutCursor(seq=seq, change=ahead.change, activity=ahead.activity, usage=ahead.usage)

    def _used(self, group: AgentGroup, entries: Sequence[UsageEntry]) -> Sequence[UsageEntry]:
        """What the runner says that it used of models; nothing where a gateway counts the same."""
        try:
            metered = entries and self._hub.gateways.use(self._hub.agent_settings(group)) is Use.GATEWAY
        except ConfigError:
            metered = False
        return () if metered else entries

    async def _honest(self, reading: _Reading, rows: Sequence[OutboundRow]) -> list[OutboundRow]:
        """The rows of the launch that is current; a zombie's are refused (architecture, section 10)."""
        newest = max((row.epoch for row in rows), default=reading.session.epoch)
        if newest > reading.session.epoch:
            fresh = await self._hub.store.read(sessions.session, reading.session.id)
            if fresh is not None:
                reading.session = fresh
        accepted = []
        for row in rows:
            if row.epoch != reading.session.epoch:
                self._hub.trouble("row of another epoch")
                log.warning(
                    "row %d of session %s has epoch %d, now is %d: refused",
                    row.seq, reading.session.id, row.epoch, reading.session.epoch,
                )  # fmt: skip
            elif row.kind is OutboundKind.ACTION and not isinstance(row.content, ActionRequest):
                self._hub.trouble("malformed row")
            else:
                accepted.append(row)
        return accepted

    async def _follow_up(self, reading: _Reading, acks: Sequence[Ack], outcome: Outcome) -> None:
        """After the commit."""
        session = reading.session
        self._on_acks(session.id, acks)
        if outcome.parked:
            self._on_parked(session, outcome.shared, outcome.keys)
        if outcome.owner is not None or outcome.worked:
            self._on_model(outcome.keys, outcome.owner)
        if outcome.later:
            self._nudge()
        if outcome.tell is not None:
            await self._on_tell(session, outcome.tell)
        dispatcher = self._hub.plugins.dispatcher
        if outcome.ended and dispatcher.has("turn_ended"):
            for turn in {ack.turn for ack, _ in outcome.ended if ack.turn is not None}:
                ends = [end for ack, end in outcome.ended if ack.turn == turn]
                summary = TurnSummary(session=session, turn=turn, outcome=ends[0], messages=len(ends))
                await dispatcher.notify("turn_ended", turn=summary)


async def _room(reading: _Reading) -> None:
    """Wait until few enough of the session's requests are in hand: one that asks without end must take no time from
    the others, nor hold up the host's stop."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(IN_HAND_SECONDS):
            while len(reading.held) >= IN_HAND:
                reading.room.clear()
                await reading.room.wait()


def _warn_of_servers(reading: _Reading, did: Sequence[ActivityRow]) -> None:
    """Log what the runner tells of MCP servers that fail; its own log is only looked at by who looks for something."""
    for row in did:
        name = server_of(row.target) if row.kind is ActivityKind.MCP_CALL else None
        if name is None or (len(reading.servers) >= SERVERS and name not in reading.servers):
            continue
        state, _, reason = row.summary.partition(": ")
        if state in _FAILING and state != reading.servers.get(name):
            log.warning(
                "session %s: MCP server %s %s: %s", reading.session.id, name, _FAILING[ServerState(state)], reason
            )
        reading.servers[name] = state


def _told(did: Sequence[ActivityRow]) -> list[ActivityRow]:
    """What an agent did, without the secrets that it may have put into a command."""
    return [replace(row, target=REDACTOR(row.target), summary=REDACTOR(row.summary)) for row in did]
