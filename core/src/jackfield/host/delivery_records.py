"""What a worker records about more than the one part that it sends, each in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from jackfield.clock import UnixMs
from jackfield.errors import Ambiguous
from jackfield.host.sending import REFUSALS
from jackfield.host.undelivered import EARLIER_PART_FAILED, files_alone
from jackfield.ids import DeliveryId
from jackfield.models import Address, Delivery
from jackfield.store import chats, deliveries

__all__ = ["fail_row", "follow", "give_back", "once_more"]

_OF_FILES = {error.__name__ for error in (*REFUSALS, Ambiguous)}
"""Reasons for which one file does not arrive, while the next one may."""


def once_more(db: sqlite3.Connection, id: DeliveryId, problem: str, now: UnixMs) -> None:
    """Record that a part in doubt is sent again, before it is."""
    deliveries.retry_at(db, id, now, "Ambiguous", problem, now, counts=True, maybe_duplicate=True)
    deliveries.intent(db, id, now)


def fail_row(db: sqlite3.Connection, part: Delivery, reason: str, error: str, now: UnixMs) -> None:
    """End a part and, with it, what is left of its row, except where files alone were refused (C075)."""
    deliveries.failed(db, part.id, reason, error, now)
    if part.parts > 1 and not (reason in _OF_FILES and files_alone(part)):
        for other in deliveries.parts_of(db, part.session_id, part.out_seq):
            if other.part > part.part and other.state not in deliveries.ENDS:
                deliveries.failed(db, other.id, EARLIER_PART_FAILED, f"part {part.part} failed: {reason}", now)


def give_back(db: sqlite3.Connection, doubtful: Collection[str], left: Collection[DeliveryId], now: UnixMs) -> None:
    """What was promised but not begun waits again; not what is `left` in doubt or goes to a `doubtful` destination."""
    for part in deliveries.left_open(db):
        if str(part.address) not in doubtful and part.id not in left:
            deliveries.retry_at(db, part.id, now, "HostStopped", None, now, counts=False)


def follow(db: sqlite3.Connection, before: Address, after: Address) -> None:
    """Let what is wired to a chat follow it to where it moved.

    Raises:
        Conflict, NotFound: it can't.
    """
    chat = chats.messaging_group_at(db, before)
    if chat is not None:
        chats.move_chat(db, chat.id, after)
