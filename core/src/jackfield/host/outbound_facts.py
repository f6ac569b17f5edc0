"""What the store says of the place that a message goes to, and of the message that it answers."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from jackfield.errors import MalformedData
from jackfield.ids import InboundId
from jackfield.models import Address, AgentGroup, MessageReceived, Session, loads
from jackfield.store import chats, events, inbound, wirings

__all__ = ["Facts", "facts_of", "ids_of_inbound"]


@dataclass(frozen=True, slots=True)
class Facts:
    """Whether an agent may write there at all, and whether several people read it."""

    allowed: bool
    is_group: bool


def facts_of(db: sqlite3.Connection, session: Session, group: AgentGroup, address: Address) -> Facts:
    chat = chats.messaging_group_at(db, address.chat)
    own = chat is not None and chat.id == session.messaging_group_id
    allowed = own or wirings.may_send(db, group.id, address)
    return Facts(allowed, chat is not None and chat.is_group)


def ids_of_inbound(
    db: sqlite3.Connection, session: Session, address: Address, inbound_id: InboundId
) -> tuple[str, ...]:
    """The platform's ids of the message that is answered, only if it was written in this very place (C052)."""
    entry = inbound.entry(db, inbound_id)
    if entry is None or entry.session_id != session.id or entry.event_id is None:
        return ()
    stored = events.event(db, entry.event_id)
    if stored is None or stored.type != MessageReceived.__name__:
        return ()
    try:
        event = loads(MessageReceived, stored.body)
    except MalformedData:
        return ()
    return event.ref.ids if event.address == address else ()
