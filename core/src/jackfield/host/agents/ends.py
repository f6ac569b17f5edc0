"""The two ends of a message between agents, for who looks at one of them."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.host.agents.entering import arrival_id
from jackfield.host.agents.places import place_of_group
from jackfield.ids import InboundId, SessionId
from jackfield.models import Delivery, InboundEntry
from jackfield.store import chains, deliveries, groups, inbound, sessions

__all__ = ["other_end", "stopped_chains"]


def other_end(db: sqlite3.Connection, message: InboundEntry | Delivery) -> dict[str, Any]:
    """Who wrote a message, and as which delivery it came; or who reads it, and what became of it there.

    Empty for what does not go between agents.
    """
    if isinstance(message, Delivery):
        arrived = inbound.entry(db, arrival_id(message.id)) if message.address.is_agent else None
        if arrived is None:
            return {}
        return {
            "to_agent": _folder(db, arrived.session_id),
            "to_session": arrived.session_id,
            "arrived_as": arrived.id,
            "arrived_state": arrived.state,
        }
    if message.source is None:
        return {}
    reader = sessions.session(db, message.session_id)
    part = None
    if reader is not None:
        part = deliveries.by_platform_id(db, place_of_group(reader.agent_group_id), message.id)
    return {"from_agent": _folder(db, message.source), "from_delivery": part.id if part is not None else None}


def _folder(db: sqlite3.Connection, session_id: SessionId) -> str | None:
    session = sessions.session(db, session_id)
    group = groups.agent_group(db, session.agent_group_id) if session is not None else None
    return group.folder if group is not None else None


def stopped_chains(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """The last requests over which agents wrote too much, for `jackfield status`."""
    found = []
    for chain in chains.stopped(db, 5):
        first = inbound.entry(db, InboundId(chain.id))
        found.append(
            {
                "chain": chain.id,
                "messages": chain.messages,
                "reason": chain.stopped,
                "agent": _folder(db, first.session_id if first is not None else SessionId(chain.id)),
            }
        )
    return found
