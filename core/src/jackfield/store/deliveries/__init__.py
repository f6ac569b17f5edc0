"""The ledger of messages out: one entry per part of an outbound row, in order within each destination.

A destination is `str(address)`.  Its *head* is its oldest unfinished part; nothing behind the head is sent before the
head has an end (architecture 5, rule 6).  `head_at` says when the head may be tried next and is NULL everywhere else,
so that what is due is found without looking at queues.  Each function here that ends or adds parts keeps that true.

Unfinished states move freely among each other.  An end is left by `revive` only; `reported` corrects `accepted`.
"""

from __future__ import annotations

from jackfield.store.deliveries.heads import destinations_due, left_open, next_for
from jackfield.store.deliveries.moves import (
    Added,
    add,
    drop,
    drop_of_group,
    failed,
    intent,
    redirect,
    reported,
    retry_at,
    revive,
    sent,
    waiting,
)
from jackfield.store.deliveries.reading import (
    by_platform_id,
    counts,
    deliveries,
    delivery,
    is_own_message,
    open_in_chat,
    parts_of,
    platform_ids_of,
    prune_deliveries,
)
from jackfield.store.deliveries.rows import ENDS, FILES_REFUSED

__all__ = [
    "ENDS",
    "FILES_REFUSED",
    "Added",
    "add",
    "by_platform_id",
    "counts",
    "deliveries",
    "delivery",
    "destinations_due",
    "drop",
    "drop_of_group",
    "failed",
    "intent",
    "is_own_message",
    "left_open",
    "next_for",
    "open_in_chat",
    "parts_of",
    "platform_ids_of",
    "prune_deliveries",
    "redirect",
    "reported",
    "retry_at",
    "revive",
    "sent",
    "waiting",
]
