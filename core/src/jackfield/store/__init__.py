"""`state.db`: the host's memory (architecture 3 and 5).

`Store` runs whole units of work; the other modules are aggregates of plain functions that take the connection first::

    store = Store(home.state_db)
    await store.open()
    accepted = await store.write(events.accept, "telegram", "main", "m:42:1", "MessageReceived", body, now)
    waiting = await store.read(deliveries.next_for, "telegram:main:-100123", now)

A unit may call several of them; what it does becomes durable together, or not at all.
"""

from __future__ import annotations

from jackfield.store import (
    chats,
    deliveries,
    due,
    events,
    forgetting,
    groups,
    inbound,
    notes,
    people,
    questions,
    sessions,
    tasks,
    wirings,
)
from jackfield.store.database import Store
from jackfield.store.migrations import Kept, Leftovers, Migration

__all__ = [
    "Kept",
    "Leftovers",
    "Migration",
    "Store",
    "chats",
    "deliveries",
    "due",
    "events",
    "forgetting",
    "groups",
    "inbound",
    "notes",
    "people",
    "questions",
    "sessions",
    "tasks",
    "wirings",
]
