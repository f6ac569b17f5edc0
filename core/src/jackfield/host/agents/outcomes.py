"""Who asked another agent learns what became of it, when no answer will come.

A person is told in their chat when an agent can't work; an agent has no eyes there, so its conversation gets a notice
that starts a turn.  The notice belongs to the chain of what failed, so that asking again and failing again comes to an
end like any other loop (C170).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError
from jackfield.host.agents.entering import arrival_id
from jackfield.host.agents.places import asker_of, where_asked
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import InboundId, derive_id
from jackfield.models import (
    Address,
    Delivery,
    InboundEntry,
    InboundKind,
    InboundRow,
    InboundState,
    NoticeContent,
    Session,
    SessionStatus,
)
from jackfield.store import chains, groups, inbound, sessions

__all__ = ["Outcomes"]

log = logging.getLogger(__name__)

LOOK_BACK = 86_400_000
"""Milliseconds before the start of the host for which ends are looked at again; telling is idempotent."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A message that an agent wrote, its reader's name, and the session that is told, with where its words go then."""

    entry: InboundEntry
    reader: str
    asking: Session
    origin: Address | None
    hops: int


class Outcomes:
    def __init__(self, hub: Hub, inbox: Inbox, *, wake: Callable[[Session], None]) -> None:
        self._hub = hub
        self._inbox = inbox
        self._wake = wake
        self._looked_at: UnixMs | None = None

    async def tell(self, session: Session, text: str) -> bool:
        """What people would be told of this session: to the agent that asks it.  False when no agent does."""
        if asker_of(session) is None:
            return False
        found = await self._hub.store.read(_asked_last, session)
        if found is not None:
            await self._notify(found, text, "ended" if found.entry.state in inbound.ENDS else "waits")
        return True

    async def undelivered(self, part: Delivery) -> bool:
        """A message did not get into its reader's inbox: its entry there has its end too, and who asked is told.

        False for what was never entered there, and for an answer, which nobody waits to be answered.
        """
        id, now = arrival_id(part.id), self._hub.clock.now()
        await self._hub.store.write(
            inbound.set_state, id, InboundState.DROPPED, now, reason="it could not be delivered"
        )
        asked = await self._hub.store.read(_case, id) is not None
        if asked:
            await self.look()
        return asked

    async def look(self) -> None:
        """Tell of questions that failed or were dropped since the last look, each once."""
        now = self._hub.clock.now()
        since = self._looked_at if self._looked_at is not None else UnixMs(now - LOOK_BACK)
        for entry_id in await self._hub.store.read(chains.bad_ends, since):
            found = await self._hub.store.read(_case, entry_id)
            if found is None:
                continue
            try:
                why = f": {found.entry.reason}" if found.entry.reason else ""
                await self._notify(found, f"Your message was not answered ({found.entry.state}{why}).", "ended")
            except JackfieldError as problem:
                self._hub.trouble("agent outcome")
                log.warning("session %s can't be told what became of %s: %s", found.asking.id, entry_id, problem)
                return  # the next look begins where this one did
        self._looked_at = now

    async def _notify(self, case: _Case, text: str, what: str) -> None:
        """Put the notice into the inbox of who asked, once for each message and `what`."""
        now = self._hub.clock.now()
        notice_id = InboundId(derive_id("in", case.entry.id, what))
        if case.hops > self._hub.configuration.agents.max_hops:
            log.warning("session %s is not told that %s was not answered: too many hops", case.asking.id, case.entry.id)
            return
        known = await self._hub.store.read(inbound.entry, notice_id)
        if known is not None and known.state is not InboundState.QUEUED:
            return
        await self._hub.store.write(
            inbound.record,
            id=notice_id,
            event_id=None,
            wiring_id=None,
            session_id=case.asking.id,
            state=InboundState.QUEUED,
            preview=text[:200],
            now=now,
            hops=case.hops,
            chain=case.entry.chain,
        )
        row = InboundRow(
            id=notice_id,
            kind=InboundKind.NOTICE,
            content=NoticeContent(text=f"{case.reader}: {text} It said: {case.entry.preview}", subject="agent"),
            at=now,
            origin=case.origin,
            hops=case.hops,
        )
        await self._inbox.deliver(case.asking, [row])
        self._wake(case.asking)


def _asked_last(db: sqlite3.Connection, session: Session) -> _Case | None:
    """The newest message of the agent that asks the session."""
    asker = asker_of(session)
    newest = next((one for one in inbound.entries(db, session_id=session.id) if one.source == asker), None)
    return None if newest is None else _case(db, newest.id)


def _case(db: sqlite3.Connection, entry_id: InboundId) -> _Case | None:
    """None for what no agent wrote that could be told, and for an answer."""
    entry = inbound.entry(db, entry_id)
    asking = sessions.session(db, entry.source) if entry is not None and entry.source is not None else None
    if entry is None or asking is None or asking.status is SessionStatus.CLOSED:
        return None
    if asker_of(asking) == entry.session_id:
        return None
    reader = sessions.session(db, entry.session_id)
    group = groups.agent_group(db, reader.agent_group_id) if reader is not None else None
    name = "an agent that does not exist any more"
    if group is not None:
        name = group.name
    return _Case(entry, name, asking, where_asked(db, asking, entry.chain), entry.hops + 1)
