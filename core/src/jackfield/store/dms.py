"""Where a person can be written to alone: one chat for each person and channel instance (messaging.md 1.6)."""

from __future__ import annotations

import sqlite3

from jackfield.clock import UnixMs
from jackfield.errors import MalformedData
from jackfield.ids import UserId
from jackfield.models import Address, MessageReceived, Trust, UnknownSenderPolicy, loads
from jackfield.store import chats, people

__all__ = ["find", "forget", "remember", "seen"]

LOOKED_AT = 20_000
"""So many of the newest events are searched for a chat with somebody."""


def find(db: sqlite3.Connection, user: UserId, channel_type: str, instance: str) -> Address | None:
    """The chat that was found before."""
    row = db.execute(
        "SELECT m.channel_type, m.instance, m.platform_id FROM user_dms d "
        "JOIN messaging_groups m ON m.id = d.messaging_group_id "
        "WHERE d.user_id = ? AND d.channel_type = ? AND d.instance = ?",
        (user, channel_type, instance),
    ).fetchone()
    return None if row is None else Address(*row)


def remember(db: sqlite3.Connection, user: UserId, address: Address, now: UnixMs) -> None:
    """Keep the chat with that person; it becomes a chat that the host knows."""
    known = people.ensure_user(db, user, address.channel_type, None, now)
    chat = chats.ensure_messaging_group(
        db, address.chat, name=known.display_name, is_group=False, policy=UnknownSenderPolicy.STRICT, now=now
    )
    db.execute(
        "INSERT INTO user_dms (user_id, channel_type, instance, messaging_group_id, resolved_at) "
        "VALUES (?, ?, ?, ?, ?) ON CONFLICT (user_id, channel_type, instance) DO UPDATE SET "
        "messaging_group_id = excluded.messaging_group_id, resolved_at = excluded.resolved_at",
        (user, address.channel_type, address.instance, chat.id, now),
    )


def forget(db: sqlite3.Connection, user: UserId, channel_type: str, instance: str) -> None:
    """The platform says that this is no chat with them any more."""
    db.execute(
        "DELETE FROM user_dms WHERE user_id = ? AND channel_type = ? AND instance = ?", (user, channel_type, instance)
    )


def seen(db: sqlite3.Connection, handle: str, channel_type: str, instance: str) -> Address | None:
    """The chat from which that person wrote last, alone with the bot, as far as the events are kept."""
    rows = db.execute(
        "SELECT body FROM events WHERE ord > (SELECT coalesce(max(ord), 0) FROM events) - ?1 "
        "AND channel_type = ?2 AND instance = ?3 AND type = 'MessageReceived' "
        # Of what was ignored nothing is kept, and an empty text is no JSON.
        "AND CASE WHEN body = '' THEN 0 ELSE json_extract(body, '$.sender.handle') = ?4 "
        "AND coalesce(json_extract(body, '$.is_group'), 0) = 0 END "
        "ORDER BY ord DESC LIMIT 5",
        (LOOKED_AT, channel_type, instance, handle),
    )
    for (body,) in rows:
        try:
            event = loads(MessageReceived, body)
        except MalformedData:
            continue
        chat = chats.messaging_group_at(db, event.address.chat)
        if event.sender.trust is not Trust.UNVERIFIED and not (chat is not None and chat.is_group):
            return event.address.chat
    return None
