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
from jackfield.host.models.gateways import Use, provider_secrets
from jackfield.host.retry import WAIT_TEXT
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import AgentGroup, InboundState, Session
from jackfield.store import groups, inbound, sessions

__all__ = ["GATEWAY", "SCOPES", "Keys", "Parking", "scope_keys"]

log = logging.getLogger(__name__)

_END_OF_TIME = UnixMs(2**62)
_ALL = 100_000
SCOPES: tuple[sessions.Scope, ...] = ("credential", "provider")
Keys = dict[sessions.Scope, str]
"""By scope, what a group's sessions share with others."""
GATEWAY = "gateway:"
"""How keys of the gateway's credentials begin."""


def scope_keys(hub: Hub, group: AgentGroup) -> Keys:
    """What the group's sessions share: the provider, and the credential by which they use it.

    That is the gateway's upstream, or the secret that the provider's settings name; a provider without either, as one
    that was signed in by hand, is its own credential.
    """
    try:
        agent = hub.agent_settings(group)
    except ConfigError:
        return {"credential": "", "provider": ""}
    gateway = hub.gateways.offered if hub.gateways.use(agent) is Use.GATEWAY else None
    if gateway is not None:
        return {"credential": GATEWAY + gateway.credential(agent.provider), "provider": agent.provider}
    given = hub.vault.visible_to(group.id, agent.secrets)
    names = [
        f"{name}@{group.folder}" if name in given and given[name].why == "scoped" else name
        for name in provider_secrets(agent)
    ]
    return {"credential": ":".join([agent.provider, *names]), "provider": agent.provider}


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
        keys: Keys = scope_keys(self._hub, group) if group is not None else {"credential": "", "provider": ""}

        def look(db: sqlite3.Connection) -> tuple[Session | None, list[sessions.ParkedScope]]:
            found = (sessions.parked_scope(db, scope, keys[scope]) for scope in SCOPES)
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

    async def sharing(
        self, scope: sessions.Scope, key: str, live: Iterable[tuple[SessionId, AgentGroupId]]
    ) -> list[SessionId]:
        """Those of the live sessions that use it."""
        found = await self._groups_with(lambda its, value: (its, value) == (scope, key))
        return [session_id for session_id, group_id in live if group_id in found]

    async def _groups_with(self, wanted: Callable[[sessions.Scope, str], bool]) -> set[AgentGroupId]:
        """The groups that use something of that kind."""
        return {
            group.id
            for group in await self._hub.store.read(groups.agent_groups)
            if any(wanted(scope, key) for scope, key in scope_keys(self._hub, group).items())
        }

    async def free(self, wanted: Callable[[sessions.Scope, str], bool]) -> bool:
        """Something that sessions share was mended: what rests because of it may be tried now.  False when nothing
        did."""
        now = self._hub.clock.now()
        mended = await self._groups_with(wanted)

        def free(db: sqlite3.Connection) -> int:
            freed = 0
            for parked in sessions.parked_scopes(db):
                if wanted(parked.scope, parked.key):
                    freed += sessions.unpark_scope(db, parked.scope, parked.key)
            for session in sessions.parked_due(db, _END_OF_TIME):
                if session.agent_group_id in mended:
                    freed += sessions.unpark(db, session.id)
            for entry in inbound.entries(db, state=InboundState.PARKED, limit=_ALL):
                its = sessions.session(db, entry.session_id)
                if its is not None and its.agent_group_id in mended:
                    inbound.set_state(db, entry.id, entry.state, now, next_try_at=now, reason=entry.reason)
            return freed

        freed = await self._hub.store.write(free)
        self._told.clear()
        return freed > 0

    async def forgive(self) -> None:
        """Something was mended: everything that rests may be tried now."""
        now = self._hub.clock.now()

        def free(db: sqlite3.Connection) -> None:
            sessions.unpark_due(db, _END_OF_TIME)
            for entry in inbound.entries(db, state=InboundState.PARKED, limit=_ALL):
                inbound.set_state(db, entry.id, entry.state, now, next_try_at=now, reason=entry.reason)

        await self._hub.store.write(free)
        self._told.clear()
