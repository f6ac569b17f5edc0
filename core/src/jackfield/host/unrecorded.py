"""A session that is nowhere on record, for trying what one would be given."""

from __future__ import annotations

from jackfield.clock import UnixMs
from jackfield.ids import SessionId, new_id
from jackfield.models import AgentGroup, Session, SessionMode, SessionStatus

__all__ = ["made_up_session"]


def made_up_session(group: AgentGroup, key: str, now: UnixMs) -> Session:
    """One of the group's, with an id of its own and no chat."""
    return Session(
        id=SessionId(new_id("ses")),
        agent_group_id=group.id,
        messaging_group_id=None,
        thread_id=None,
        key=key,
        mode=SessionMode.SHARED,
        status=SessionStatus.ACTIVE,
        epoch=1,
        parked_until=None,
        parked_reason=None,
        created_at=now,
        last_active_at=now,
    )
