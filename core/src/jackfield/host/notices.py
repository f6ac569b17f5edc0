"""The host's own words: to the people of a session, and to its agent about what became of its messages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from jackfield.api import SendPath
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import SessionId, derive_id
from jackfield.models import (
    Address,
    Delivery,
    MessageReceived,
    MessagingGroup,
    OutboundRow,
    OutMessage,
    Session,
    SessionStatus,
    loads,
)
from jackfield.store import chats, events, inbound, sessions

__all__ = ["Notices", "answer_address"]

log = logging.getLogger(__name__)


def answer_address(session: Session, chat: MessagingGroup | None) -> Address | None:
    """Where a session's answers go that follow no message."""
    return None if chat is None else replace(chat.address, thread_id=session.thread_id)


class Notices:
    def __init__(
        self,
        hub: Hub,
        inbox: Inbox,
        *,
        say: Callable[[Address, OutMessage, SendPath], Awaitable[object]],
        ring: Callable[[SessionId], object],
        tell_agent: Callable[[Session, str], Awaitable[bool]],
        undelivered: Callable[[Delivery], Awaitable[bool]],
    ) -> None:
        """`tell_agent` tells the agent that asks a session; False when none does.  `undelivered` tells the writer
        of a message to an agent that was on its way; False for one that never was."""
        self._hub = hub
        self._inbox = inbox
        self._say = say
        self._ring = ring
        self._tell_agent = tell_agent
        self._undelivered = undelivered

    async def tell(self, session: Session, text: str) -> None:
        """Tell people where the session's newest message came from, or the agent that wrote it."""
        if await self._tell_agent(session, text):
            return
        address = await self._newest_origin(session)
        if address is not None:
            await self._say(address, OutMessage(text=text), SendPath.NOTICE)

    async def cannot_start(self, session: Session, reason: str) -> None:
        await self.tell(session, f"The agent can't be started at the moment: {reason}. Your message is kept.")

    async def delivery_failed(self, row: Delivery, text: str) -> None:
        """Tell the agent's session once that something it sent did not arrive (C001)."""
        session = await self._hub.store.read(sessions.session, row.session_id)
        if session is None or session.status is SessionStatus.CLOSED:
            log.warning("message %s of a closed session was not delivered: %s", row.out_id, row.reason)
            return
        if row.address.is_agent and await self._undelivered(row):
            return
        row_id = derive_id("in", row.out_id, "failed")
        # What goes to an agent belongs to no conversation of this one's, so it rides along with whatever comes.
        origin = None if row.address.is_agent else row.address
        await self._inbox.notify(session, text, subject="delivery failed", origin=origin, row_id=row_id)
        self._ring(session.id)

    async def delivery_changed(self, session: Session, row: OutboundRow, notes: tuple[str, ...]) -> None:
        """Tell the agent once what of its message could not be sent as it was (C075)."""
        text = f"Your message #{row.seq} was sent with changes: {'; '.join(notes)}."
        row_id = derive_id("in", row.id, "changed")
        await self._inbox.notify(session, text, subject="delivery changed", origin=row.address, row_id=row_id)

    async def _newest_origin(self, session: Session) -> Address | None:
        newest = await self._hub.store.read(inbound.entries, session_id=session.id, limit=1)
        if newest and newest[0].event_id is not None:
            stored = await self._hub.store.read(events.event, newest[0].event_id)
            if stored is not None:
                event = loads(MessageReceived, stored.body)
                return event.answer_to or event.address
        if session.messaging_group_id is None:
            return None
        chat = await self._hub.store.read(chats.messaging_group, session.messaging_group_id)
        return answer_address(session, chat)
