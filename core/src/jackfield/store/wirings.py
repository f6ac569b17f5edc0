"""Wirings, what sticks to them, and the destinations that agents may write to (messaging.md 1.2)."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import Conflict, MalformedData, NotFound
from jackfield.ids import AgentGroupId, MessagingGroupId, WiringId
from jackfield.models import (
    Address,
    Destination,
    DestinationKind,
    EngageMode,
    IgnoredPolicy,
    SenderScope,
    SessionMode,
    Wiring,
    WiringOrigin,
    destination_name,
)

__all__ = [
    "add_destination",
    "add_wiring",
    "destinations",
    "expire_sticky",
    "free_name",
    "groups_that_reach",
    "is_stuck",
    "may_send",
    "may_write_to",
    "remove_destination",
    "remove_wiring",
    "stick",
    "unstick",
    "update_wiring",
    "wiring",
    "wirings_of_chat",
    "wirings_of_group",
]

NAME_LENGTH = 64
"""Characters of a name that is made for a destination, before its number."""
_COLUMNS = (
    "id, messaging_group_id, agent_group_id, engage_mode, engage_pattern, sender_scope, ignored_policy, session_mode, "
    "priority, origin, created_at"
)
_ORDER = "ORDER BY priority DESC, created_at, id"


def _wiring(row: tuple[Any, ...]) -> Wiring:
    return Wiring(
        id=WiringId(row[0]),
        messaging_group_id=MessagingGroupId(row[1]),
        agent_group_id=AgentGroupId(row[2]),
        engage_mode=EngageMode(row[3]),
        engage_pattern=row[4],
        sender_scope=SenderScope(row[5]),
        ignored_policy=IgnoredPolicy(row[6]),
        session_mode=SessionMode(row[7]),
        priority=row[8],
        origin=WiringOrigin(row[9]),
        created_at=UnixMs(row[10]),
    )


def add_wiring(db: sqlite3.Connection, wiring: Wiring) -> bool:
    """Join a chat to an agent group, and let the agent write there.  False when this very id is there already.

    The agent gets a destination for the chat unless it has one: named after the chat, or `<channel>-<short id>`, with
    -2, -3 and so on when the name is taken.

    Raises:
        Conflict: the two are joined already by another wiring.
        NotFound: no such chat or agent group.
    """
    chat = db.execute(
        "SELECT channel_type, name FROM messaging_groups WHERE id = ?", (wiring.messaging_group_id,)
    ).fetchone()
    if chat is None:
        raise NotFound(f"there is no chat {wiring.messaging_group_id!r} to wire")
    if db.execute("SELECT 1 FROM agent_groups WHERE id = ?", (wiring.agent_group_id,)).fetchone() is None:
        raise NotFound(f"there is no agent group {wiring.agent_group_id!r} to wire")
    joined = db.execute(
        "SELECT id FROM wirings WHERE messaging_group_id = ? AND agent_group_id = ?",
        (wiring.messaging_group_id, wiring.agent_group_id),
    ).fetchone()
    if joined is not None:
        if joined[0] == wiring.id:
            return False
        raise Conflict(f"chat {wiring.messaging_group_id} is wired to {wiring.agent_group_id} already ({joined[0]})")
    db.execute(
        f"INSERT INTO wirings ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (wiring.id, wiring.messaging_group_id, wiring.agent_group_id, *_settings(wiring), wiring.created_at),
    )
    known = db.execute(
        "SELECT 1 FROM destinations WHERE messaging_group_id = ? AND agent_group_id = ?",
        (wiring.messaging_group_id, wiring.agent_group_id),
    ).fetchone()
    if known is None:
        channel_type, name = chat
        # The end of an id is its random part; the beginning is a moment that chats made together share.
        wanted = destination_name(name or f"{channel_type}-{wiring.messaging_group_id[-8:]}")
        db.execute(
            "INSERT INTO destinations (agent_group_id, name, messaging_group_id, created_at) VALUES (?, ?, ?, ?)",
            (
                wiring.agent_group_id,
                _free_name(db, wiring.agent_group_id, wanted),
                wiring.messaging_group_id,
                wiring.created_at,
            ),
        )
    return True


def _settings(wiring: Wiring) -> tuple[Any, ...]:
    return (
        wiring.engage_mode.value,
        wiring.engage_pattern,
        wiring.sender_scope.value,
        wiring.ignored_policy.value,
        wiring.session_mode.value,
        wiring.priority,
        wiring.origin.value,
    )


def _free_name(db: sqlite3.Connection, agent_group_id: AgentGroupId, wanted: str) -> str:
    taken = {
        name
        for (name,) in db.execute(
            "SELECT name FROM destinations WHERE agent_group_id = ? AND name >= ? AND name < ? || '.'",
            (agent_group_id, wanted, wanted),
        )
    }
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


def update_wiring(db: sqlite3.Connection, wiring: Wiring) -> Wiring:
    """Replace a wiring's settings; which two it joins stays.

    Raises:
        NotFound: no such wiring.
    """
    row = db.execute(
        "UPDATE wirings SET engage_mode = ?, engage_pattern = ?, sender_scope = ?, ignored_policy = ?, "
        f"session_mode = ?, priority = ?, origin = ? WHERE id = ? RETURNING {_COLUMNS}",
        (*_settings(wiring), wiring.id),
    ).fetchone()
    if row is None:
        raise NotFound(f"there is no wiring {wiring.id!r}")
    return _wiring(row)


def remove_wiring(db: sqlite3.Connection, id: WiringId) -> bool:
    """Part the two.  The agent's destination stays; `remove_destination` takes it away."""
    return db.execute("DELETE FROM wirings WHERE id = ?", (id,)).rowcount == 1


def wiring(db: sqlite3.Connection, id: WiringId) -> Wiring | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM wirings WHERE id = ?", (id,)).fetchone()
    return None if row is None else _wiring(row)


def wirings_of_chat(db: sqlite3.Connection, messaging_group_id: MessagingGroupId) -> list[Wiring]:
    """Higher priority first, then the older one."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM wirings WHERE messaging_group_id = ? {_ORDER}", (messaging_group_id,))
    return [_wiring(row) for row in rows]


def wirings_of_group(db: sqlite3.Connection, agent_group_id: AgentGroupId) -> list[Wiring]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM wirings WHERE agent_group_id = ? {_ORDER}", (agent_group_id,))
    return [_wiring(row) for row in rows]


# What sticks: after a mention, a wiring answers in that thread without one until a moment (pitfall 4 of 17.4).


def _thread_key(thread_id: str | None) -> str:
    return "" if thread_id is None else f"={thread_id}"


def stick(db: sqlite3.Connection, wiring_id: WiringId, thread_id: str | None, until: UnixMs, now: UnixMs) -> None:
    """Let a wiring answer in a thread (None: in the chat itself) without a mention until `until`; never shortens."""
    db.execute(
        "INSERT INTO sticky (wiring_id, thread_key, since, until) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (wiring_id, thread_key) DO UPDATE SET "
        "since = CASE WHEN until < excluded.since THEN excluded.since ELSE since END, "
        "until = max(until, excluded.until)",
        (wiring_id, _thread_key(thread_id), now, until),
    )


def is_stuck(db: sqlite3.Connection, wiring_id: WiringId, thread_id: str | None, now: UnixMs) -> bool:
    row = db.execute(
        "SELECT until > ? FROM sticky WHERE wiring_id = ? AND thread_key = ?", (now, wiring_id, _thread_key(thread_id))
    ).fetchone()
    return row is not None and bool(row[0])


def unstick(db: sqlite3.Connection, wiring_id: WiringId, thread_id: str | None) -> bool:
    done = db.execute("DELETE FROM sticky WHERE wiring_id = ? AND thread_key = ?", (wiring_id, _thread_key(thread_id)))
    return done.rowcount == 1


def expire_sticky(db: sqlite3.Connection, now: UnixMs) -> int:
    """Forget what does not stick any more; `is_stuck` is right without this too."""
    return db.execute("DELETE FROM sticky WHERE until <= ?", (now,)).rowcount


# Destinations


def destinations(db: sqlite3.Connection, agent_group_id: AgentGroupId) -> list[Destination]:
    """Where the agent may write, by name."""
    rows = db.execute(
        "SELECT d.name, m.channel_type, m.instance, m.platform_id, m.name, d.target_group_id, g.name "
        "FROM destinations d LEFT JOIN messaging_groups m ON m.id = d.messaging_group_id "
        "LEFT JOIN agent_groups g ON g.id = d.target_group_id WHERE d.agent_group_id = ? ORDER BY d.name",
        (agent_group_id,),
    )
    found = []
    for name, channel_type, instance, platform_id, chat_name, target, group_name in rows:
        if target is None:
            address = Address(channel_type, instance, platform_id)
            found.append(
                Destination(
                    name=name, kind=DestinationKind.CHANNEL, display_name=chat_name or str(address), address=address
                )
            )
        else:
            found.append(
                Destination(
                    name=name,
                    kind=DestinationKind.AGENT,
                    display_name=group_name,
                    agent_group_id=AgentGroupId(target),
                )
            )
    return found


def add_destination(
    db: sqlite3.Connection, agent_group_id: AgentGroupId, destination: Destination, now: UnixMs
) -> Destination:
    """Let an agent write to a chat (by `address`) or to another agent (by `agent_group_id`).

    The name is normalised.  Adding the same again is fine.

    Raises:
        Conflict: the name stands for something else already.
        NotFound: no such chat or agent group.
        MalformedData: it names neither a chat nor an agent.
    """
    name = destination_name(destination.name)
    chat: str | None = None
    if destination.kind is DestinationKind.CHANNEL and destination.address is not None:
        at = destination.address
        row = db.execute(
            "SELECT id FROM messaging_groups WHERE channel_type = ? AND instance = ? AND platform_id = ?",
            (at.channel_type, at.instance, at.platform_id),
        ).fetchone()
        if row is None:
            raise NotFound(f"no chat is known at {at.chat}")
        chat = row[0]
    elif destination.kind is DestinationKind.AGENT and destination.agent_group_id is not None:
        _require_group(db, destination.agent_group_id)
    else:
        raise MalformedData(f"the destination {name!r} needs an address, or the id of an agent group")
    _require_group(db, agent_group_id)
    target = None if chat is not None else destination.agent_group_id
    held = db.execute(
        "SELECT messaging_group_id, target_group_id FROM destinations WHERE agent_group_id = ? AND name = ?",
        (agent_group_id, name),
    ).fetchone()
    if held is None:
        db.execute(
            "INSERT INTO destinations (agent_group_id, name, messaging_group_id, target_group_id, created_at) "
            "VALUES (?, ?, ?, ?, ?)",
            (agent_group_id, name, chat, target, now),
        )
    elif held != (chat, target):
        raise Conflict(f"{agent_group_id} has another destination named {name!r} already ({held[0] or held[1]})")
    return next(found for found in destinations(db, agent_group_id) if found.name == name)


def remove_destination(db: sqlite3.Connection, agent_group_id: AgentGroupId, name: str) -> bool:
    done = db.execute("DELETE FROM destinations WHERE agent_group_id = ? AND name = ?", (agent_group_id, name))
    return done.rowcount == 1


def may_send(db: sqlite3.Connection, agent_group_id: AgentGroupId, address: Address) -> bool:
    """Whether one of the agent's destinations is the chat of this address; the thread does not matter."""
    row = db.execute(
        "SELECT 1 FROM messaging_groups m JOIN destinations d ON d.messaging_group_id = m.id "
        "WHERE m.channel_type = ? AND m.instance = ? AND m.platform_id = ? AND d.agent_group_id = ?",
        (address.channel_type, address.instance, address.platform_id, agent_group_id),
    ).fetchone()
    return row is not None


def may_write_to(db: sqlite3.Connection, agent_group_id: AgentGroupId, target: AgentGroupId) -> bool:
    """Whether one of the agent's destinations is that agent; itself is no exception."""
    row = db.execute(
        "SELECT 1 FROM destinations WHERE target_group_id = ? AND agent_group_id = ?", (target, agent_group_id)
    ).fetchone()
    return row is not None


def groups_that_reach(db: sqlite3.Connection, target: AgentGroupId) -> list[AgentGroupId]:
    """The agents that have that one as a destination."""
    rows = db.execute("SELECT DISTINCT agent_group_id FROM destinations WHERE target_group_id = ?", (target,))
    return [AgentGroupId(row[0]) for row in rows]


def free_name(db: sqlite3.Connection, agent_group_id: AgentGroupId, text: str) -> str:
    """A destination's name made of a text, with -2, -3 and so on when the agent has another one called so."""
    return _free_name(db, agent_group_id, destination_name(text)[:NAME_LENGTH].strip("-"))


def _require_group(db: sqlite3.Connection, agent_group_id: AgentGroupId) -> None:
    if db.execute("SELECT 1 FROM agent_groups WHERE id = ?", (agent_group_id,)).fetchone() is None:
        raise NotFound(f"there is no agent group {agent_group_id!r}")
