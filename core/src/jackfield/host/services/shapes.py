"""Entities as the JSON of the control socket and of `--json`.  Keys are stable; times are ISO 8601, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.clock import UnixMs, to_datetime
from jackfield.ids import AgentGroupId
from jackfield.models import (
    AgentGroup,
    Delivery,
    Destination,
    InboundEntry,
    InboundState,
    Member,
    MessagingGroup,
    Role,
    Session,
    User,
    Wiring,
)
from jackfield.store.events import Drop, StoredEvent

__all__ = [
    "chat_json",
    "delivery_json",
    "destination_json",
    "drop_json",
    "group_json",
    "inbound_json",
    "member_json",
    "moment",
    "refused_json",
    "role_json",
    "session_json",
    "user_json",
    "wiring_json",
]


def moment(at: UnixMs | None) -> str | None:
    return None if at is None else to_datetime(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def group_json(group: AgentGroup) -> dict[str, Any]:
    return {"id": group.id, "name": group.name, "folder": group.folder, "created_at": moment(group.created_at)}


def chat_json(chat: MessagingGroup) -> dict[str, Any]:
    return {
        "id": chat.id,
        "address": str(chat.address),
        "channel": chat.address.channel_type,
        "instance": chat.address.instance,
        "platform_id": chat.address.platform_id,
        "name": chat.name,
        "is_group": chat.is_group,
        "policy": chat.unknown_sender_policy,
        "created_at": moment(chat.created_at),
    }


def wiring_json(wiring: Wiring, chat: MessagingGroup | None, group: AgentGroup) -> dict[str, Any]:
    return {
        "id": wiring.id,
        "chat": str(chat.address) if chat is not None else None,
        "chat_id": wiring.messaging_group_id,
        "group": group.folder,
        "engage": wiring.engage_mode,
        "pattern": wiring.engage_pattern,
        "scope": wiring.sender_scope,
        "ignored": wiring.ignored_policy,
        "session": wiring.session_mode,
        "priority": wiring.priority,
        "origin": wiring.origin,
        "created_at": moment(wiring.created_at),
    }


def destination_json(destination: Destination, known: Mapping[AgentGroupId, AgentGroup]) -> dict[str, Any]:
    """`known` are the home's groups: an agent is told by its folder."""
    agent = known.get(destination.agent_group_id) if destination.agent_group_id is not None else None
    target = agent.folder if agent is not None else destination.agent_group_id
    return {
        "name": destination.name,
        "kind": destination.kind,
        "display_name": destination.display_name,
        "target": str(destination.address) if destination.address is not None else target,
    }


def session_json(session: Session, group: AgentGroup | None) -> dict[str, Any]:
    return {
        "id": session.id,
        "group": group.folder if group is not None else session.agent_group_id,
        "mode": session.mode,
        "key": session.key,
        "thread": session.thread_id,
        "status": session.status,
        "epoch": session.epoch,
        "parked_until": moment(session.parked_until),
        "parked_reason": session.parked_reason,
        "created_at": moment(session.created_at),
        "last_active_at": moment(session.last_active_at),
    }


def inbound_json(entry: InboundEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "direction": "in",
        "session": entry.session_id,
        "event": entry.event_id,
        "wiring": entry.wiring_id,
        "state": entry.state,
        "attempts": entry.attempts,
        "next_try_at": moment(entry.next_try_at),
        "reason": entry.reason,
        "text": entry.preview,
        "turn": entry.turn,
        "from_session": entry.source,
        "hops": entry.hops,
        "chain": entry.chain,
        "created_at": moment(entry.created_at),
        "updated_at": moment(entry.updated_at),
    }


def refused_json(event: StoredEvent) -> dict[str, Any]:
    """A message that its sender may not write to the agents of that chat; its words are not kept."""
    return {
        "id": event.id,
        "direction": "in",
        "session": None,
        "event": event.id,
        "wiring": None,
        "state": InboundState.REFUSED,
        "attempts": 0,
        "next_try_at": None,
        "reason": event.reason,
        "text": "",
        "channel": f"{event.channel_type}:{event.instance}",
        "created_at": moment(event.received_at),
        "updated_at": moment(event.finished_at),
    }


def delivery_json(delivery: Delivery, text: str) -> dict[str, Any]:
    return {
        "id": delivery.id,
        "direction": "out",
        "session": delivery.session_id,
        "seq": delivery.out_seq,
        "part": delivery.part,
        "parts": delivery.parts,
        "kind": delivery.kind,
        "to": str(delivery.address),
        "state": delivery.state,
        "attempts": delivery.attempts,
        "next_try_at": moment(delivery.next_try_at),
        "platform_ids": list(delivery.platform_ids),
        "reason": delivery.reason,
        "error": delivery.last_error,
        "maybe_duplicate": delivery.maybe_duplicate,
        "text": text,
        "created_at": moment(delivery.created_at),
        "updated_at": moment(delivery.updated_at),
    }


def drop_json(drop: Drop, group: AgentGroup | None) -> dict[str, Any]:
    return {
        "chat": str(drop.address),
        "sender": drop.sender,
        "name": drop.sender_name,
        "reason": drop.reason,
        "group": group.folder if group is not None else drop.agent_group_id,
        "count": drop.count,
        "first_at": moment(drop.first_at),
        "last_at": moment(drop.last_at),
    }


def user_json(user: User, roles: list[Role]) -> dict[str, Any]:
    return {
        "id": user.id,
        "channel": user.channel_type,
        "name": user.display_name,
        "timezone": user.timezone,
        "roles": [role_json(role) for role in roles],
        "created_at": moment(user.created_at),
    }


def role_json(role: Role) -> dict[str, Any]:
    return {
        "user": role.user_id,
        "role": role.role,
        "group": role.agent_group_id,
        "granted_by": role.granted_by,
        "granted_at": moment(role.granted_at),
    }


def member_json(member: Member, group: AgentGroup | None) -> dict[str, Any]:
    return {
        "user": member.user_id,
        "group": group.folder if group is not None else member.agent_group_id,
        "added_by": member.added_by,
        "added_at": moment(member.added_at),
    }
