"""Work that was begun and not ended: claims of dead runners, retries that are due, mailboxes that were replaced.

Everything here starts from the ledger, so that it works the same after a runner's crash and after the host's.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, MailboxError
from jackfield.host import retry
from jackfield.host.agents.entering import send_again
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import InboundId, SessionId
from jackfield.mailbox import HostMailbox
from jackfield.models import InboundEntry, InboundState, Session
from jackfield.store import events, inbound, sessions, tasks

__all__ = ["OPERATOR", "Released", "Unfinished"]

log = logging.getLogger(__name__)

DUE_BATCH = 200
OPERATOR = "operator"
"""Reason of a retry that a person asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """`ready` tells that something in the session can be worked on now, `held` that the dead runner had begun work."""

    ready: bool
    held: bool


class Unfinished:
    def __init__(
        self,
        hub: Hub,
        inbox: Inbox,
        *,
        wake: Callable[[Session], None],
        tell: Callable[[Session, str], Awaitable[None]],
        retake: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._hub = hub
        self._inbox = inbox
        self._wake = wake
        self._tell = tell
        self._retake = retake

    async def release_claims(self, session: Session) -> Released:
        """After a runner's end, its rows collected: what it still held gets another try, or fails for good (C088).

        A row waits in the mailbox, too, so that a runner which is started for something else does not take it early;
        one that failed is taken out of it.
        """
        now = self._hub.clock.now()
        told: list[str] = []
        later: list[tuple[InboundId, int, UnixMs]] = []
        gone: list[InboundId] = []

        def release(db: sqlite3.Connection) -> bool:
            ready = False
            left = inbound.open_entries(db, session.id)
            of_task = any(one.state is InboundState.CLAIMED and tasks.is_run(db, one.id) for one in left)
            for entry in left:
                if entry.state is InboundState.QUEUED:
                    ready = True
                if entry.state is not InboundState.CLAIMED:
                    continue
                match retry.after_crash(entry.attempts, now):
                    case retry.RetryAt(at=at, reason=reason):
                        inbound.set_state(db, entry.id, InboundState.RETRYING, now, next_try_at=at, reason=reason)
                        later.append((entry.id, entry.attempts + 1, at))
                    case retry.Fail(reason=reason, tell=tell):
                        inbound.set_state(db, entry.id, InboundState.FAILED, now, reason=reason)
                        gone.append(entry.id)
                        if entry.event_id is not None or not of_task:
                            told.append(tell)  # what people are told of a series, the schedule tells once
            return ready

        # Through the writer, also when there is nothing to release: a message that came while the runner died may be on
        # its way into the ledger, and its wake found a runner that seemed to live.
        ready = await self._hub.store.write(release)

        def hold_back(box: HostMailbox) -> None:
            for row_id, attempt, at in later:
                box.retry(row_id, attempt, at)
            box.withdraw(gone)

        if later or gone:
            try:
                await self._inbox.use(session, hold_back)
            except MailboxError as problem:
                # Then the next runner takes them at once, which costs a try and loses nothing.
                self._hub.trouble("retry")
                log.warning("what the runner of session %s held is not held back: %s", session.id, problem)
        if told:
            await self._tell(session, told[0])
        return Released(ready=ready, held=bool(later or gone))

    async def due(self) -> None:
        """Give every message whose next try has come to its session again."""
        now = self._hub.clock.now()
        for entry in await self._hub.store.read(inbound.due_entries, now, DUE_BATCH):
            try:
                await self._again(entry, now)
            except (MailboxError, JackfieldError) as problem:
                self._hub.trouble("retry")
                log.warning("message %s could not be handed out again, next try in a minute: %s", entry.id, problem)
                later = UnixMs(now + 60_000)
                await self._hub.store.write(
                    inbound.set_state, entry.id, entry.state, now, next_try_at=later, reason=entry.reason
                )
        if await self._hub.store.write(sessions.unpark_due, now):
            # What came while they rested, and what shares what was parked.
            for session in await self.sessions_with_work():
                self._wake(session)

    async def _again(self, entry: InboundEntry, now: UnixMs) -> None:
        session = await self._hub.store.read(sessions.session, entry.session_id)
        if session is None:
            await self._hub.store.write(
                inbound.set_state, entry.id, InboundState.DROPPED, now, reason="its session is gone"
            )
            return
        attempt = entry.attempts + 1
        revive = entry.reason == OPERATOR
        known = await self._inbox.use(session, lambda box: box.retry(entry.id, attempt, now, revive=revive))
        if not known:
            if await self._hub.store.write(send_again, session, entry, now):
                await self._hub.store.write(inbound.set_state, entry.id, InboundState.QUEUED, now)
                return
            if entry.event_id is None:
                # Nothing can make it again: it was taken back, or its mailbox was replaced.
                why = "it is not in the mailbox any more"
                await self._hub.store.write(inbound.set_state, entry.id, InboundState.DROPPED, now, reason=why)
                return
            await self._hub.store.write(events.reopen, entry.event_id)
            await self._retake()

        def queue(db: sqlite3.Connection) -> None:
            if session.parked_until is not None and session.parked_until <= now:
                sessions.unpark(db, session.id)
            inbound.set_state(db, entry.id, InboundState.QUEUED, now)

        await self._hub.store.write(queue)
        self._wake(session)

    async def refill(self, session: Session, reason: str) -> None:
        """The session has a fresh mailbox: put every message that is still open into it again."""
        now = self._hub.clock.now()

        def reopen(db: sqlite3.Connection) -> int:
            lost = 0
            sessions.reset_cursors(db, session.id)
            for entry in inbound.open_entries(db, session.id):
                if send_again(db, session, entry, now):
                    inbound.set_state(db, entry.id, InboundState.QUEUED, now)
                elif entry.event_id is None:
                    inbound.set_state(db, entry.id, InboundState.FAILED, now, reason="mailbox damaged")
                    lost += 1
                else:
                    inbound.set_state(db, entry.id, InboundState.QUEUED, now)
                    events.reopen(db, entry.event_id)
            return lost

        lost = await self._hub.store.write(reopen)
        if lost:
            log.error("%d messages of session %s went with its damaged mailbox", lost, session.id)
        await self._inbox.notify(
            session,
            "The files of this conversation were damaged and had to be set aside; earlier messages can't be looked up.",
            subject="mailbox",
        )
        self._hub.spawn(self._retake(), f"refill {session.id}")

    async def send_on(self, session: Session) -> int:
        """Have what came for a session while it was being closed routed again, to the one that follows it; how many.

        What no event can be made from again ends here.
        """
        now = self._hub.clock.now()

        def give_back(db: sqlite3.Connection) -> int:
            sent_on = 0
            for entry in inbound.open_entries(db, session.id):
                if entry.event_id is not None and events.reopen(db, entry.event_id):
                    inbound.take_back(db, entry.id)
                    sent_on += 1
                else:
                    inbound.set_state(db, entry.id, InboundState.DROPPED, now, reason="session cleared")
            return sent_on

        sent_on = await self._hub.store.write(give_back)
        if sent_on:
            self._hub.spawn(self._retake(), f"send on {session.id}")
        return sent_on

    async def sessions_with_work(self) -> list[Session]:
        """Active sessions that have an open message: what a new host begins with."""

        def look(db: sqlite3.Connection) -> list[Session]:
            found = (sessions.session(db, SessionId(session_id)) for session_id in inbound.sessions_with_open(db))
            return [session for session in found if session is not None]

        return await self._hub.store.read(look)
