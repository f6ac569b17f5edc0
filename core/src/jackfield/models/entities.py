"""The things that the host keeps in `state.db`: groups, chats, wirings, sessions, people."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from jackfield.clock import UnixMs
from jackfield.errors import MalformedData
from jackfield.ids import AgentGroupId, MessagingGroupId, SessionId, UserId, WiringId
from jackfield.models.addresses import Address

__all__ = [
    "AgentGroup",
    "Destination",
    "DestinationKind",
    "EngageMode",
    "IgnoredPolicy",
    "Member",
    "MessagingGroup",
    "Role",
    "RoleName",
    "SenderScope",
    "Session",
    "SessionMode",
    "SessionStatus",
    "UnknownSenderPolicy",
    "User",
    "Wiring",
    "WiringOrigin",
    "destination_name",
    "valid_folder",
]


class EngageMode(StrEnum):
    """When a message in a wired chat starts a turn."""

    ALWAYS = "always"
    PATTERN = "pattern"
    MENTION = "mention"
    MENTION_STICKY = "mention-sticky"


class SenderScope(StrEnum):
    ALL = "all"
    KNOWN = "known"


class IgnoredPolicy(StrEnum):
    """What becomes of a message that does not engage."""

    DROP = "drop"
    ACCUMULATE = "accumulate"


class SessionMode(StrEnum):
    SHARED = "shared"
    PER_THREAD = "per-thread"
    AGENT_SHARED = "agent-shared"


class UnknownSenderPolicy(StrEnum):
    STRICT = "strict"
    REQUEST_APPROVAL = "request_approval"
    PUBLIC = "public"


class WiringOrigin(StrEnum):
    """Who made the wiring: the operator, or the approval of a stranger's chat."""

    TRUSTED = "trusted"
    CAUTIOUS = "cautious"


class SessionStatus(StrEnum):
    ACTIVE = "active"
    CLOSED = "closed"


class RoleName(StrEnum):
    OWNER = "owner"
    ADMIN = "admin"


class DestinationKind(StrEnum):
    CHANNEL = "channel"
    AGENT = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentGroup:
    """An agent's identity and workspace.  `folder` never changes; `name` is for reading."""

    id: AgentGroupId
    name: str
    folder: str
    created_at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagingGroup:
    """One chat on one platform."""

    id: MessagingGroupId
    address: Address
    """Without a thread."""
    name: str | None
    is_group: bool
    unknown_sender_policy: UnknownSenderPolicy
    denied_at: UnixMs | None
    created_at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """Joins a chat to an agent group.  Higher `priority` comes first; it only orders (messaging.md 2.2)."""

    id: WiringId
    messaging_group_id: MessagingGroupId
    agent_group_id: AgentGroupId
    engage_mode: EngageMode
    engage_pattern: str | None
    sender_scope: SenderScope
    ignored_policy: IgnoredPolicy
    session_mode: SessionMode
    priority: int
    origin: WiringOrigin
    created_at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation of one agent group.  `key` is unique in its group; see `jackfield.host.session_keys`."""

    id: SessionId
    agent_group_id: AgentGroupId
    key: str
    mode: SessionMode
    messaging_group_id: MessagingGroupId | None
    thread_id: str | None
    status: SessionStatus
    epoch: int
    """Of the newest launch; rows of an older one are refused."""
    parked_until: UnixMs | None
    parked_reason: str | None
    created_at: UnixMs
    last_active_at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    id: UserId
    channel_type: str
    display_name: str | None
    created_at: UnixMs
    timezone: str | None = None
    """IANA name of the zone in which this person is told times; the agent's or the host's when None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """`agent_group_id` None is global; an owner always is."""

    user_id: UserId
    role: RoleName
    agent_group_id: AgentGroupId | None
    granted_by: UserId | None
    granted_at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    user_id: UserId
    agent_group_id: AgentGroupId
    added_by: UserId | None
    added_at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A name by which an agent may address a chat or another agent; also its permission to (architecture 2)."""

    name: str
    kind: DestinationKind
    display_name: str
    address: Address | None = None
    """Set when `kind` is channel."""
    agent_group_id: AgentGroupId | None = None
    """Set when `kind` is agent."""


_FOLDER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


def valid_folder(name: str) -> str:
    """The name, if it can be an agent group's folder (messaging.md 4.4).

    Raises:
        MalformedData: it can't; the message tells the rule.
    """
    if not _FOLDER.match(name) or name.lower() == "global":
        raise MalformedData(
            f"{name!r} can't be a group's folder: letters, digits, '_' and '-', at most 64, first a letter or digit"
        )
    return name


def destination_name(text: str) -> str:
    """A name as agents see it: lower case, runs of anything but letters and digits become '-' (messaging.md 1.2)."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unnamed"
