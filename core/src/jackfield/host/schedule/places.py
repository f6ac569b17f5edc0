"""The conversation that a task runs in, and the series that is made for one."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.errors import NotAllowed, NotFound
from jackfield.host.schedule.wishes import Reading
from jackfield.host.session_keys import session_key
from jackfield.ids import AgentGroupId, MessagingGroupId, TaskId, UserId
from jackfield.models import Address, AgentGroup, SessionMode, Task
from jackfield.store import chats, wirings

__all__ = ["Place", "has_own_session", "new_task", "place_in_chat", "require_destination"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The conversation that a task runs in."""

    agent_group_id: AgentGroupId
    session_key: str
    session_mode: SessionMode
    messaging_group_id: MessagingGroupId | None
    thread_id: str | None
    origin: Address | None
    name: str | None = None
    """By which the agent knows it; None for its own conversation."""


def place_in_chat(db: sqlite3.Connection, group: AgentGroup, address: Address) -> Place:
    """The group's conversation in a chat: the one that messages outside of threads come into.

    Raises:
        NotFound: no such chat was seen.
    """
    chat = chats.messaging_group_at(db, address.chat)
    if chat is None:
        raise NotFound(f"no chat is known at {address}", fix="`jackfield channel chats` lists the chats that were seen")
    wired = [one for one in wirings.wirings_of_chat(db, chat.id) if one.agent_group_id == group.id]
    key = session_key(wired[0].session_mode if wired else SessionMode.SHARED, chat.id, address.thread_id)
    return Place(
        agent_group_id=group.id,
        session_key=key.key,
        session_mode=key.mode,
        messaging_group_id=key.messaging_group_id,
        thread_id=key.thread_id,
        origin=address,
        name=chat.name or str(address),
    )


def new_task(
    id: TaskId,
    reading: Reading,
    place: Place,
    now: UnixMs,
    *,
    own_session: bool,
    creator: str | None = None,
    created_by: UserId | None = None,
) -> Task:
    """The series of a wish; with `own_session` its runs have a conversation of their own, and answer at the place."""
    return Task(
        id=id,
        agent_group_id=place.agent_group_id,
        session_key=_own_key(id) if own_session else place.session_key,
        session_mode=SessionMode.SHARED if own_session else place.session_mode,
        messaging_group_id=place.messaging_group_id,
        thread_id=place.thread_id,
        origin=place.origin,
        creator=creator,
        created_by=created_by,
        prompt=reading.prompt,
        script=reading.script,
        cron=reading.cron,
        timezone=reading.timezone,
        catch_up=reading.catch_up,
        stop_after=reading.stop_after,
        next_at=reading.next_at,
        look_at=reading.next_at,
        created_at=now,
        updated_at=now,
    )


def _own_key(id: TaskId) -> str:
    return f"task:{id}"


def has_own_session(task: Task) -> bool:
    return task.session_key == _own_key(task.id)


def require_destination(db: sqlite3.Connection, task: Task) -> None:
    """Whether the conversation that scheduled the series elsewhere may still write there.

    Raises:
        NotAllowed: its destination was removed since.
    """
    if task.creator is None or task.origin is None or has_own_session(task):
        return
    group, _, key = task.creator.partition(" ")
    creator = AgentGroupId(group)
    if (task.agent_group_id, task.session_key) == (creator, key):
        return
    if task.origin.is_agent:
        allowed = wirings.may_write_to(db, creator, task.agent_group_id)
    else:
        allowed = wirings.may_send(db, creator, task.origin)
    if not allowed:
        raise NotAllowed("the agent that scheduled it has no destination there any more")
