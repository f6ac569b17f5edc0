"""Where agents write to each other: the addresses, and the conversations behind them.

An agent that writes to another one has a conversation of its own with it: the session of that other agent whose key
names the session that asked.  So what two people ask of one agent never meets in a third.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from jackfield.clock import UnixMs
from jackfield.errors import MalformedData
from jackfield.ids import AgentGroupId, EventId, InboundId, SessionId, TaskRunId
from jackfield.models import (
    AGENT_CHANNEL,
    Address,
    MessageReceived,
    MessagingGroup,
    Session,
    SessionMode,
    SessionStatus,
    loads,
)
from jackfield.store import chats, events, groups, inbound, sessions, tasks, wirings

__all__ = [
    "Refused",
    "address_of",
    "asker_of",
    "conversation",
    "home_of",
    "place_of_group",
    "reader_of",
    "root_chat",
    "where_asked",
]

_KEY = f"{AGENT_CHANNEL}:"
DEEPEST = 1000
"""Conversations that may lie between a person and an agent; more than any hop limit allows."""


class Refused(Exception):
    """A message to an agent is not delivered; `reason` goes into the ledger, the sentence to who wrote it."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


def place_of_group(group_id: AgentGroupId) -> Address:
    """The agent, whatever the conversation."""
    return Address(AGENT_CHANNEL, AGENT_CHANNEL, group_id)


def address_of(session: Session) -> Address:
    """The agent's end of a conversation."""
    return Address(AGENT_CHANNEL, AGENT_CHANNEL, session.agent_group_id, session.id)


def asker_of(session: Session) -> SessionId | None:
    """The session whose questions this one answers; None for one that belongs to a chat."""
    return SessionId(session.key.removeprefix(_KEY)) if session.key.startswith(_KEY) else None


def conversation(db: sqlite3.Connection, group_id: AgentGroupId, asker: SessionId, now: UnixMs) -> Session:
    """The agent group's conversation with that session; made when there is none.

    Raises:
        NotFound: no such agent group.
    """
    session, _ = sessions.session_for(
        db,
        group_id,
        f"{_KEY}{asker}",
        mode=SessionMode.AGENT_SHARED,
        messaging_group_id=None,
        thread_id=None,
        now=now,
    )
    return session


def home_of(db: sqlite3.Connection, session: Session) -> Address | None:
    """Where the session's words go when nothing else says so: its chat, or the agent that asks it."""
    if session.messaging_group_id is not None:
        chat = chats.messaging_group(db, session.messaging_group_id)
        return replace(chat.address, thread_id=session.thread_id) if chat is not None else None
    asker = asker_of(session)
    asking = sessions.session(db, asker) if asker is not None else None
    return address_of(asking) if asking is not None else None


def root_chat(db: sqlite3.Connection, session: Session) -> MessagingGroup | None:
    """The chat from which all of it came: the session's own, or that of the agent that asks, however far away."""
    for _ in range(DEEPEST):
        if session.messaging_group_id is not None:
            return chats.messaging_group(db, session.messaging_group_id)
        asker = asker_of(session)
        asking = sessions.session(db, asker) if asker is not None else None
        if asking is None:
            break
        session = asking
    return None


def where_asked(db: sqlite3.Connection, session: Session, chain: str | None) -> Address | None:
    """Where the session was when it asked another agent: the conversation that the answer is wanted in.

    That is where the message came from with which all began, or where the task's answers go whose run it was, when that
    lies in this very session; else its home.
    """
    first = inbound.entry(db, InboundId(chain)) if chain is not None else None
    if first is None or first.session_id != session.id:
        return home_of(db, session)
    begun = _place_of_task(db, first.id) if first.event_id is None else _place_of_event(db, first.event_id)
    return begun or home_of(db, session)


def _place_of_event(db: sqlite3.Connection, event_id: EventId) -> Address | None:
    stored = events.event(db, event_id)
    if stored is None or stored.type != MessageReceived.__name__:
        return None
    try:
        event = loads(MessageReceived, stored.body)
    except MalformedData:
        return None
    return event.answer_to or event.address


def _place_of_task(db: sqlite3.Connection, message_id: InboundId) -> Address | None:
    run = tasks.run(db, TaskRunId(f"run_{message_id.removeprefix('in_')}"))
    series = tasks.task(db, run.task_id) if run is not None else None
    return series.origin if series is not None else None


def reader_of(db: sqlite3.Connection, writer: Session, address: Address) -> Session | None:
    """The session that a message of `writer` to another agent is for; None when it is to be made.

    The one that asked is answered, whoever may write to whom.  Everything else needs a destination, and goes into the
    conversation that `writer` has with that agent (C147).

    Raises:
        Refused: the agent has no destination there, names a conversation that is not its own, or one that was ended.
    """
    group_id, named, asker = AgentGroupId(address.platform_id), address.thread_id, asker_of(writer)
    asking = sessions.session(db, asker) if asker is not None else None
    if asking is not None and asking.agent_group_id == group_id and named in (None, asking.id):
        if asking.status is SessionStatus.ACTIVE:
            return asking
        if named is not None:
            raise Refused("ConversationEnded", "the conversation that asked was ended")
    if groups.agent_group(db, group_id) is None:
        raise Refused("AgentGone", "there is no such agent any more")
    if not wirings.may_write_to(db, writer.agent_group_id, group_id):
        raise Refused("DestinationNotAllowed", "that agent is no destination of yours")
    mine = sessions.active_session(db, group_id, f"{_KEY}{writer.id}")
    if named is None or (mine is not None and named == mine.id):
        return mine
    was = sessions.session(db, SessionId(named))
    if was is not None and asker_of(was) == writer.id and was.agent_group_id == group_id:
        raise Refused(
            "ConversationEnded", "that conversation was ended; address the agent by its name to begin another"
        )
    raise Refused("DestinationNotAllowed", "that is a conversation of others")
