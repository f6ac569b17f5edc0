"""Sessions that rest: after a long wait that a provider asked for, or because what they share is parked.

A parked session starts no turn before its time, also not for a message that comes meanwhile; the people who write then
are told once (architecture 5, rule 5).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable

from jackfield.clock import UnixMs
from jackfield.errors import ConfigError
from jackfield.host.hub import Hub
from jackfield.host.retry import WAIT_TEXT
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import AgentGroup, InboundState, Session
from jackfield.store import groups, inbound, sessions

__all__ = ["SCOPES", "Parking", "scope_key"]

log = logging.getLogger(__name__)

_END_OF_TIME = UnixMs(2**62)
_ALL = 100_000
SCOPES: tuple[sessions.Scope, ...] = ("credential", "provider")


def scope_key(hub: Hub, group: AgentGroup) -> str:
    """What sessions share that use the same provider; with a model gateway it will be the credential."""
    try:
        return hub.agent_settings(group).provider
    except ConfigError:
        return ""


class Parking:
    def __init__(self, hub: Hub, *, tell: Callable[[Session, str], Awaitable[None]]) -> None:
        self._hub = hub
        self._tell = tell
        self._told: dict[SessionId, UnixMs] = {}

    async def holds(self, session: Session) -> bool:
        """Whether no runner may be started for the session now.

        Its people are told when that is not for a message of theirs, which was told already.
        """
        group = await self._hub.store.read(groups.agent_group, session.agent_group_id)
        key = scope_key(self._hub, group) if group is not None else ""

        def look(db: sqlite3.Connection) -> tuple[Session | None, list[sessions.ParkedScope]]:
            found = (sessions.parked_scope(db, scope, key) for scope in SCOPES)
            return sessions.session(db, session.id), [scope for scope in found if scope is not None]

        fresh, scopes = await self._hub.store.read(look)
        now = self._hub.clock.now()
        if fresh is not None and fresh.parked_until is not None and fresh.parked_until > now:
            return True
        until = max((scope.until for scope in scopes), default=0)
        if until <= now:
            self._told.pop(session.id, None)
            return False
        if session.id not in self._told:
            self._told[session.id] = UnixMs(until)
            log.info("session %s waits: its %s is parked (%s)", session.id, scopes[0].scope, scopes[0].reason)
            await self._tell(session, WAIT_TEXT)
        return True

    async def sharing(self, group: AgentGroup, live: Iterable[tuple[SessionId, AgentGroupId]]) -> list[SessionId]:
        """Those of the live sessions that use what this group uses."""
        known = {other.id: scope_key(self._hub, other) for other in await self._hub.store.read(groups.agent_groups)}
        key = scope_key(self._hub, group)
        return [session_id for session_id, group_id in live if known.get(group_id) == key]

    async def forgive(self) -> None:
        """Something was mended: everything that rests may be tried now."""
        now = self._hub.clock.now()

        def free(db: sqlite3.Connection) -> None:
            sessions.unpark_due(db, _END_OF_TIME)
            for entry in inbound.entries(db, state=InboundState.PARKED, limit=_ALL):
                inbound.set_state(db, entry.id, entry.state, now, next_try_at=now, reason=entry.reason)

        await self._hub.store.write(free)
        self._told.clear()
