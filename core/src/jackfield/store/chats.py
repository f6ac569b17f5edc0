"""Messaging groups: the chats that the host has seen."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound
from jackfield.ids import MessagingGroupId, new_id
from jackfield.models import Address, MessagingGroup, UnknownSenderPolicy
from jackfield.store import deliveries
from jackfield.store.text import storable

__all__ = [
    "denied_by",
    "deny_chat",
    "ensure_messaging_group",
    "messaging_group",
    "messaging_group_at",
    "messaging_groups",
    "move_chat",
    "rename_chat",
    "set_policy",
]

_COLUMNS = "id, channel_type, instance, platform_id, name, is_group, unknown_sender_policy, denied_at, created_at"
_AT = "channel_type = ? AND instance = ? AND platform_id = ?"


def _chat(row: tuple[Any, ...]) -> MessagingGroup:
    return MessagingGroup(
        id=MessagingGroupId(row[0]),
        address=Address(row[1], row[2], row[3]),
        name=row[4],
        is_group=bool(row[5]),
        unknown_sender_policy=UnknownSenderPolicy(row[6]),
        denied_at=row[7],
        created_at=UnixMs(row[8]),
    )


def ensure_messaging_group(
    db: sqlite3.Connection,
    address: Address,
    *,
    name: str | None,
    is_group: bool,
    policy: UnknownSenderPolicy,
    now: UnixMs,
) -> MessagingGroup:
    """The chat of an address, made when new; a new name replaces an old one, None does not.

    `policy` counts only for a new chat.  A chat that once was seen as a group stays one, since its platform
    may not say so with every event (pitfall 5 of messaging.md 17.4).
    """
    at = (address.channel_type, address.instance, address.platform_id)
    row = db.execute(f"SELECT {_COLUMNS} FROM messaging_groups WHERE {_AT}", at).fetchone()
    if row is None or (name is not None and row[4] != name) or (is_group and not row[5]):
        row = db.execute(
            f"INSERT INTO messaging_groups ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?) "
            "ON CONFLICT (channel_type, instance, platform_id) DO UPDATE SET "
            "name = coalesce(excluded.name, name), is_group = max(excluded.is_group, is_group) "
            f"RETURNING {_COLUMNS}",
            (new_id("mg", now), *at, storable(name), int(is_group), policy.value, now),
        ).fetchone()
    return _chat(row)


def messaging_group(db: sqlite3.Connection, id: MessagingGroupId) -> MessagingGroup | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM messaging_groups WHERE id = ?", (id,)).fetchone()
    return None if row is None else _chat(row)


def messaging_group_at(db: sqlite3.Connection, address: Address) -> MessagingGroup | None:
    """The chat that the address lies in; its thread does not matter."""
    at = (address.channel_type, address.instance, address.platform_id)
    row = db.execute(f"SELECT {_COLUMNS} FROM messaging_groups WHERE {_AT}", at).fetchone()
    return None if row is None else _chat(row)


def messaging_groups(
    db: sqlite3.Connection, channel_type: str | None = None, instance: str | None = None
) -> list[MessagingGroup]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM messaging_groups WHERE (?1 IS NULL OR channel_type = ?1) "
        "AND (?2 IS NULL OR instance = ?2) ORDER BY channel_type, instance, created_at, id",
        (channel_type, instance),
    )
    return [_chat(row) for row in rows]


def set_policy(db: sqlite3.Connection, id: MessagingGroupId, policy: UnknownSenderPolicy) -> MessagingGroup:
    """What becomes of strangers in this chat.

    Raises:
        NotFound: no such chat.
    """
    return _changed(db, id, "unknown_sender_policy = ?", (policy.value,))


def rename_chat(db: sqlite3.Connection, id: MessagingGroupId, name: str | None) -> MessagingGroup:
    """Change the display name.

    Raises:
        NotFound: no such chat.
    """
    return _changed(db, id, "name = ?", (storable(name),))


def deny_chat(db: sqlite3.Connection, id: MessagingGroupId, at: UnixMs | None, by: str | None = None) -> MessagingGroup:
    """Remember that somebody wants no agent there; None takes that back (messaging.md 1.5).

    Raises:
        NotFound: no such chat.
    """
    return _changed(db, id, "denied_at = ?, denied_by = ?", (at, by))


def denied_by(db: sqlite3.Connection) -> dict[MessagingGroupId, str]:
    """Who denied which chat, as far as it is known."""
    return dict(db.execute("SELECT id, denied_by FROM messaging_groups WHERE denied_by IS NOT NULL"))


def move_chat(db: sqlite3.Connection, id: MessagingGroupId, new_address: Address) -> MessagingGroup:
    """The platform gave the chat a new id: wirings, destinations and sessions follow, since they refer to `id`.

    What waits to be sent to the old address goes to the new one.  A chat that the new address made by itself meanwhile
    makes way, when nothing refers to it yet.

    Raises:
        NotFound: no such chat.
        Conflict: the new address is another chat, wired already.
    """
    old = messaging_group(db, id)
    if old is None:
        raise NotFound(f"there is no chat {id!r}")
    new = new_address.chat
    other = messaging_group_at(db, new)
    if other is not None and other.id != id:
        for table in ("wirings", "destinations", "sessions"):
            if db.execute(f"SELECT 1 FROM {table} WHERE messaging_group_id = ?", (other.id,)).fetchone():
                raise Conflict(f"{id} can't move to {new}: that is the chat {other.id}, which is in use")
        db.execute("DELETE FROM messaging_groups WHERE id = ?", (other.id,))
    deliveries.redirect(db, old.address, new)
    return _changed(
        db,
        id,
        "channel_type = ?, instance = ?, platform_id = ?",
        (new.channel_type, new.instance, new.platform_id),
    )


def _changed(db: sqlite3.Connection, id: MessagingGroupId, what: str, values: tuple[Any, ...]) -> MessagingGroup:
    row = db.execute(f"UPDATE messaging_groups SET {what} WHERE id = ? RETURNING {_COLUMNS}", (*values, id)).fetchone()
    if row is None:
        raise NotFound(f"there is no chat {id!r}")
    return _chat(row)
