"""Where approvals were shown, to whom, and what their cards say now."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.clock import UnixMs
from jackfield.ids import ApprovalId
from jackfield.models import Address

__all__ = [
    "Card",
    "add",
    "cards_of",
    "is_covered",
    "named",
    "open_in_chat",
    "remove",
    "sent",
    "shown_as",
    "stale",
    "unshown",
    "waits_in_chat",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One card.  `parts` are the platform's ids of each message that it consists of; None until it was sent."""

    approval_id: ApprovalId
    address: Address
    user_id: str
    parts: tuple[tuple[str, ...], ...] | None
    shown_as: str | None
    """What it says; None when that is what it said when it was sent."""


_COLUMNS = "approval_id, address, user_id, ref, shown_as"


def _card(row: tuple[Any, ...]) -> Card:
    return Card(
        approval_id=ApprovalId(row[0]),
        address=Address.parse(row[1]),
        user_id=row[2],
        parts=None if row[3] is None else tuple(tuple(ids) for ids in json.loads(row[3])),
        shown_as=row[4],
    )


def add(db: sqlite3.Connection, approval_id: ApprovalId, address: Address, user_id: str, now: UnixMs) -> bool:
    """It is about to be sent there.  False when there is no such pending approval any more."""
    row = db.execute("SELECT 1 FROM approvals WHERE id = ? AND state = 'pending'", (approval_id,)).fetchone()
    if row is None:
        return False
    db.execute(
        "INSERT INTO approval_cards (approval_id, address, user_id, created_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (approval_id, address) DO UPDATE SET user_id = excluded.user_id",
        (approval_id, str(address), user_id, now),
    )
    return True


def sent(
    db: sqlite3.Connection, approval_id: ApprovalId, address: Address, parts: Sequence[Sequence[str]], now: UnixMs
) -> None:
    db.execute(
        "UPDATE approval_cards SET ref = ?, sent_at = ? WHERE approval_id = ? AND address = ?",
        (json.dumps([list(ids) for ids in parts]), now, approval_id, str(address)),
    )


def remove(db: sqlite3.Connection, approval_id: ApprovalId, address: Address) -> None:
    """It could not be sent there."""
    db.execute("DELETE FROM approval_cards WHERE approval_id = ? AND address = ?", (approval_id, str(address)))


def shown_as(db: sqlite3.Connection, approval_id: ApprovalId, address: Address, what: str | None) -> None:
    db.execute(
        "UPDATE approval_cards SET shown_as = ? WHERE approval_id = ? AND address = ?",
        (what, approval_id, str(address)),
    )


def cards_of(db: sqlite3.Connection, approval_id: ApprovalId) -> list[Card]:
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM approval_cards WHERE approval_id = ? ORDER BY created_at", (approval_id,)
    )
    return [_card(row) for row in rows]


def waits_in_chat(db: sqlite3.Connection, chat: Address, now: UnixMs) -> bool:
    """Whether a card that waits for a decision lies in a chat, in whatever thread."""
    return bool(open_in_chat(db, chat, now))


def open_in_chat(db: sqlite3.Connection, chat: Address, now: UnixMs) -> list[Card]:
    """The cards that wait for a decision in a chat, in whatever thread; the newest first.

    Asked with each message, so it looks at what is pending only, of which there is little, however many cards the chat
    has seen.
    """
    rows = db.execute(
        "SELECT c.approval_id, c.address, c.user_id, c.ref, c.shown_as FROM approvals a INDEXED BY approvals_due "
        "CROSS JOIN approval_cards c ON c.approval_id = a.id WHERE a.state = 'pending' AND a.expires_at > ?2 "
        "AND c.sent_at IS NOT NULL AND (c.address = ?1 OR c.address >= ?1 || ':' AND c.address < ?1 || ';') "
        "ORDER BY a.id DESC",
        (str(chat.chat), now),
    )
    return [_card(row) for row in rows]


def is_covered(db: sqlite3.Connection, card: Card) -> bool:
    """Whether an agent has written into the card's chat since it was sent there, or was last spoken of (`named`).

    Looks through what was sent, so it is asked only when somebody seems to answer.
    """
    row = db.execute(
        "SELECT 1 FROM deliveries d, approval_cards c WHERE c.approval_id = ?1 AND c.address = ?2 "
        "AND d.state IN ('accepted', 'sent') AND d.updated_at >= c.sent_at "
        "AND (d.destination = ?3 OR d.destination >= ?3 || ':' AND d.destination < ?3 || ';') LIMIT 1",
        (card.approval_id, str(card.address), str(card.address.chat)),
    ).fetchone()
    return row is not None


def named(db: sqlite3.Connection, card: Card, now: UnixMs) -> None:
    """The person was told anew what waits there."""
    db.execute(
        "UPDATE approval_cards SET sent_at = ? WHERE approval_id = ? AND address = ?",
        (now, card.approval_id, str(card.address)),
    )


def unshown(db: sqlite3.Connection) -> list[ApprovalId]:
    """What waits for a decision, and nobody was shown."""
    rows = db.execute(
        "SELECT a.id FROM approvals a WHERE a.state = 'pending' AND NOT EXISTS "
        "(SELECT 1 FROM approval_cards c WHERE c.approval_id = a.id AND c.sent_at IS NOT NULL) ORDER BY a.id"
    )
    return [ApprovalId(row[0]) for row in rows]


def stale(db: sqlite3.Connection, since: UnixMs) -> list[ApprovalId]:
    """What was decided at `since` or later, and has a card that still asks."""
    rows = db.execute(
        "SELECT DISTINCT a.id FROM approvals a INDEXED BY approvals_decided "
        "CROSS JOIN approval_cards c ON c.approval_id = a.id "
        "WHERE a.state <> 'pending' AND a.decided_at >= ? AND c.sent_at IS NOT NULL AND c.shown_as IS NULL",
        (since,),
    )
    return [ApprovalId(row[0]) for row in rows]
