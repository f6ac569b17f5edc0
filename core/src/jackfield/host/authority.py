"""Who stands behind what a turn asks for: the least of all the people whose messages it took (C143).

Read from the host's own ledger, and judged by the roles of this moment.  The runner says which turn asks, and nothing
else; it can only make the answer stricter, since every message of the session that is in work counts.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.errors import MalformedData
from jackfield.host import access
from jackfield.host.admission import resolved_sender
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.ids import AgentGroupId, TurnId, UserId
from jackfield.models import Address, InboundEntry, InboundState, MessageReceived, Role, Session, loads
from jackfield.models.commands import SenderRole
from jackfield.store import events, inbound, people

__all__ = ["NOBODY", "Authority", "authority", "least"]

_RANKS: tuple[SenderRole, ...] = ("", "member", "admin", "owner")
LEDGER_WAITS = (0.0, 0.05, 0.1, 0.2, 0.4)
"""Seconds between the looks for a turn that the ledger doesn't know yet: it is written a moment after the inbox."""


@dataclass(frozen=True, slots=True)
class Authority:
    """`role` is empty whenever anything is in doubt; `users` and `origin` are what is known all the same."""

    role: SenderRole = ""
    users: tuple[UserId, ...] = ()
    origin: Address | None = None


NOBODY = Authority()


def least(roles: Sequence[SenderRole]) -> SenderRole:
    """The one that may do least; empty of none."""
    return min(roles, key=_RANKS.index, default="")


@dataclass(frozen=True, slots=True)
class _Message:
    """One message that the turn took; `event` None for a task, a notice or another agent's words."""

    event: MessageReceived | None


async def authority(hub: Hub, channels: ChannelDirectory, session: Session, turn: TurnId | None) -> Authority:
    """What the people behind a running turn are to the session's agent group now."""
    if turn is None:
        return NOBODY
    taken: list[_Message] = []
    for wait in LEDGER_WAITS:
        if wait:
            await hub.clock.sleep(wait)
            await hub.store.write(_nothing)  # what the router handed over before is in the ledger then
        taken = await hub.store.read(_taken, session, turn)
        if taken:
            break
    known = [message.event for message in taken if message.event is not None]
    origins = {event.answer_to or event.address for event in known}
    senders = [await resolved_sender(hub, event) for event in known]
    users = tuple(dict.fromkeys(sender.user_id for sender in senders if sender.user_id is not None))
    origin = origins.pop() if len(origins) == 1 else None
    if not known or len(known) < len(taken):
        return Authority("", users, origin)
    granted = await hub.store.read(_granted, users, session.agent_group_id)
    roles: list[SenderRole] = []
    for event, sender in zip(known, senders, strict=True):
        instance = channels.instance(event.address.channel_type, event.address.instance)
        info = instance.info if instance is not None else None
        if info is None or info.programs or event.sender.is_bot:
            return Authority("", users, origin)
        user_roles, member = granted.get(sender.user_id or UserId(""), ((), False))
        judged = access.can_access(sender.user_id in granted, user_roles, member, session.agent_group_id)
        roles.append(access.role_in(judged, event.sender.trust, info.local))
    return Authority(least(roles), users, origin)


def _nothing(db: sqlite3.Connection) -> None:
    """A write that waits for all writes before it."""


def _taken(db: sqlite3.Connection, session: Session, turn: TurnId) -> list[_Message]:
    """Every message of the session that is in work; none at all unless this turn has one of them."""
    working = [one for one in inbound.open_entries(db, session.id) if one.state is InboundState.CLAIMED]
    if not any(one.turn == turn for one in working):
        return []
    return [_Message(_event(db, one)) for one in working]


def _event(db: sqlite3.Connection, entry: InboundEntry) -> MessageReceived | None:
    stored = events.event(db, entry.event_id) if entry.event_id is not None else None
    if stored is None or stored.type != MessageReceived.__name__:
        return None
    try:
        return loads(MessageReceived, stored.body)
    except MalformedData:
        return None


def _granted(
    db: sqlite3.Connection, users: Sequence[UserId], group: AgentGroupId
) -> dict[UserId, tuple[tuple[Role, ...], bool]]:
    """The roles of those who are known, and whether they are members."""
    return {
        user: (tuple(people.roles_of(db, user)), people.is_member(db, group, user))
        for user in users
        if people.user(db, user) is not None
    }
