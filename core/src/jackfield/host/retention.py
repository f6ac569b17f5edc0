"""Forgetting what has had its end for long enough (architecture 5, rule 2; `host.keep_days`).

First the ledger lets go of events and deliveries, then of messages in, and with each of these its row and files leave
the session's mailbox.  What a runner wrote, only a runner may delete: it is told how far (`Watermark`).  A closed
session goes altogether once the ledger knows nothing of it any more.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jackfield.clock import UnixMs, zone_or_utc
from jackfield.errors import JackfieldError, MailboxDamaged, MailboxError
from jackfield.host.hub import Hub
from jackfield.host.models.days import midnight
from jackfield.host.outgoing_files import remove_files
from jackfield.host.spool import Spool
from jackfield.host.wall_clock import WallClock
from jackfield.ids import AgentGroupId, ApprovalId, InboundId, SessionId
from jackfield.mailbox import HostMailbox, SessionFolder, Watermark
from jackfield.store import activity, approvals, chains, deliveries, events, forgetting, usage, wirings
from jackfield.store.forgetting import EndedMessage

__all__ = ["Retention"]

log = logging.getLogger(__name__)

EVERY = 3600.0
PAUSE = 0.05
"""Seconds between two bites, so that no message waits behind a long row of them."""
DAY = 86_400_000
USAGE_DAYS = 400
"""How long the sums of days stay."""


class Retention:
    """`sweep` may be called each minute; once an hour it begins to forget, beside everything else.

    Not in the hour after the clock was moved: a date that is wrong by months would cost all that ever ended, and leaves
    time to be put right.
    """

    def __init__(self, hub: Hub, spool: Spool) -> None:
        self._hub = hub
        self._spool = spool
        self._last = -EVERY
        self._wall = WallClock(hub.clock)
        self._task: asyncio.Task[None] | None = None

    async def sweep(self) -> None:
        now = self._hub.clock.monotonic()
        if moved := self._wall.jumped():
            self._last = now
            log.warning("the clock was moved by %.0f s; nothing is forgotten within the next hour", moved)
        if now - self._last >= EVERY and (self._task is None or self._task.done()):
            self._last = now
            self._task = self._hub.spawn(self.forget(), "retention")

    async def stop(self) -> None:
        """Break off; the next host goes on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=5)

    async def forget(self) -> None:
        """Forget all that is old enough now."""
        before = UnixMs(self._hub.clock.now() - self._hub.settings.keep_days * DAY)
        await self._ledger(before)
        await self._usage(before)
        await self._messages(before)
        await self._closed_sessions(before)
        await self._files(before)

    async def _ledger(self, before: UnixMs) -> None:
        now = self._hub.clock.now()

        def forget(db: sqlite3.Connection) -> int:
            wirings.expire_sticky(db, now)
            gone = events.prune_events(db, before) + deliveries.prune_deliveries(db, before)
            gone += chains.close_unasked(db, before) + chains.forget_chains(db, before)
            gone += activity.forget_activity(db, before)
            return gone + forgetting.forget_questions(db, before) + forgetting.forget_drops(db, before)

        while await self._hub.store.write(forget):
            await self._hub.clock.sleep(PAUSE)
        while await self._hub.store.write(approvals.forget, before):
            await self._hub.clock.sleep(PAUSE)

    async def _usage(self, before: UnixMs) -> None:
        """What models were used for becomes the sums of days, which stay for over a year."""
        zone = zone_or_utc(self._hub.settings.timezone)
        while await self._hub.store.write(usage.sum_up, before, lambda at: midnight(at, zone)):
            await self._hub.clock.sleep(PAUSE)
        now = self._hub.clock.now()
        await self._hub.store.write(usage.forget_days, UnixMs(now - USAGE_DAYS * DAY))

    async def _messages(self, before: UnixMs) -> None:
        """Each message in leaves its mailbox before the ledger, so that a crash between the two repeats it."""
        while found := await self._hub.store.read(forgetting.ended_messages, before):
            gone: list[InboundId] = []
            for (session_id, group_id), messages in _by_session(found).items():
                if group_id is None or await self._leave_mailbox(session_id, group_id, messages, before):
                    gone += messages
                await self._hub.clock.sleep(PAUSE)
            if not gone or not await self._hub.store.write(forgetting.forget_messages, gone):
                return

    async def _leave_mailbox(
        self, session_id: SessionId, group_id: AgentGroupId, messages: Sequence[InboundId], before: UnixMs
    ) -> bool:
        """Whether the rows are gone, or the mailbox is; else it is tried again at the next sweep."""
        folder = self._folder(group_id, session_id)
        if not folder.inbound_db.exists():
            return True
        mark = await self._hub.store.read(forgetting.forgotten_up_to, session_id)
        watermark = Watermark(seq=mark.seq, change=mark.change, activity=mark.activity, usage=mark.usage, before=before)

        def prune(box: HostMailbox) -> None:
            box.prune(before, messages, watermark)
            for message in messages:
                folder.remove_inbox(message)
            folder.remove_old_outbox(before)

        try:
            await self._hub.mailboxes.run(folder, prune)
        except MailboxDamaged as problem:
            # Whoever uses it next sets it aside, and nothing that is forgotten comes into the fresh one.
            log.info("old messages of session %s can't leave its mailbox: %s", session_id, problem)
        except JackfieldError as problem:
            self._hub.trouble("retention")
            log.warning("old messages of session %s stay for now: %s", session_id, problem)
            return False
        return True

    async def _closed_sessions(self, before: UnixMs) -> None:
        while found := await self._hub.store.read(forgetting.closed_sessions, before):
            gone = 0
            for session_id, group_id in found:
                folder = self._folder(group_id, session_id)
                await self._hub.mailboxes.forget(folder)
                try:
                    await asyncio.to_thread(folder.remove_all)
                except MailboxError as problem:
                    self._hub.trouble("retention")
                    log.warning("the files of closed session %s stay for now: %s", session_id, problem)
                    continue
                gone += await self._hub.store.write(forgetting.forget_session, session_id)
            if not gone:
                return
            await self._hub.clock.sleep(PAUSE)

    async def _files(self, before: UnixMs) -> None:
        """What lies beside the mailboxes: long texts, copies of what was sent, mailboxes set aside, crash reports."""
        home = self._hub.home
        oldest = await self._hub.store.read(forgetting.oldest_open)
        kept_from = before if oldest is None else min(before, oldest)
        await asyncio.to_thread(self._spool.forget_before, kept_from / 1000)
        for place in await asyncio.to_thread(_older, home.root / "outgoing", "*-*", before):
            session_id, _, seq = place.name.rpartition("-")
            number = int(seq) if seq.isdigit() else 0
            if not await self._hub.store.read(deliveries.parts_of, SessionId(session_id), number):
                await asyncio.to_thread(remove_files, place)
        for place in await asyncio.to_thread(_older, home.root / "approvals", "ap_*", before):
            if await self._hub.store.read(approvals.approval, ApprovalId(place.name)) is None:
                await asyncio.to_thread(remove_files, place)
        for place in await asyncio.to_thread(_set_aside, home.sessions, before):
            try:
                await asyncio.to_thread(SessionFolder(place).remove_all)
            except MailboxError as problem:
                self._hub.trouble("retention")
                log.warning("a mailbox that was set aside stays for now: %s", problem)
        for place in await asyncio.to_thread(_older, home.logs, "crash-*.log", before):
            place.unlink(missing_ok=True)

    def _folder(self, group_id: AgentGroupId, session_id: SessionId) -> SessionFolder:
        return SessionFolder(self._hub.home.sessions / group_id / session_id)


def _by_session(found: Iterable[EndedMessage]) -> dict[tuple[SessionId, AgentGroupId | None], list[InboundId]]:
    sorted_out: dict[tuple[SessionId, AgentGroupId | None], list[InboundId]] = {}
    for message in found:
        sorted_out.setdefault((message.session_id, message.group_id), []).append(message.id)
    return sorted_out


def _older(folder: Path, pattern: str, before: UnixMs) -> list[Path]:
    return _chosen(folder.glob(pattern), lambda path: path.lstat().st_mtime * 1000 < before)


def _set_aside(sessions: Path, before: UnixMs) -> list[Path]:
    """`damaged-<milliseconds>-<session>` of each group: the name says when, since moving a folder keeps its time."""

    def old(path: Path) -> bool:
        moment = path.name.split("-")[1]
        return moment.isdigit() and int(moment) < before

    return _chosen(sessions.glob("*/damaged-*-*"), old)


def _chosen(paths: Iterable[Path], old: Callable[[Path], bool]) -> list[Path]:
    chosen = []
    for path in paths:
        try:
            if old(path):
                chosen.append(path)
        except FileNotFoundError:
            continue  # somebody else was faster
    return chosen
