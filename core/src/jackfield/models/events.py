"""What a channel tells the core.  Every event carries the dedupe key under which it is stored at most once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jackfield.clock import UnixMs
from jackfield.models.addresses import Address, MessageRef, Person
from jackfield.models.content import Attachment, Quote

__all__ = [
    "ActionInvoked",
    "Addressed",
    "ChannelState",
    "ChannelStatus",
    "ConversationChange",
    "ConversationChanged",
    "ConversationKind",
    "DeliveryReport",
    "Event",
    "MessageDeleted",
    "MessageEdited",
    "MessageReceived",
    "ReactionChanged",
    "ReportState",
]


class ConversationKind(StrEnum):
    DM = "dm"
    GROUP = "group"
    CHANNEL = "channel"
    ISSUE = "issue"
    MAILBOX = "mailbox"
    CONSOLE = "console"


class Addressed(StrEnum):
    """How the bot was addressed, as the platform itself says."""

    DM = "dm"
    MENTION = "mention"
    REPLY = "reply"
    COMMAND = "command"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceived:
    """Somebody wrote.  `dedupe_key` is message identity + kind + version, not the delivery's id (channels.md R4)."""

    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    ref: MessageRef
    sender: Person
    text: str
    kind: ConversationKind = ConversationKind.DM
    is_group: bool = False
    addressed: Addressed = Addressed.NONE
    mentions: tuple[str, ...] = ()
    reply_to: Quote | None = None
    attachments: tuple[Attachment, ...] = ()
    conversation_name: str | None = None
    answer_to: Address | None = None
    """Where the agent's answer shall go instead; honoured from local channels only (messaging.md 2.1)."""
    redelivered: bool = False
    backfill: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEdited:
    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    ref: MessageRef
    sender: Person
    text: str
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeleted:
    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    ref: MessageRef
    by: Person | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionChanged:
    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    ref: MessageRef
    user: Person
    emoji: str
    added: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInvoked:
    """Somebody chose an answer of a prompt.  Who may is decided by the core, from its own table."""

    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    prompt_id: str
    value: str
    """Of the choice; or `#` and its place, from 0, when the adapter has forgotten the values (a restart)."""
    user: Person
    source: MessageRef | None = None
    responder: str | None = None
    """The adapter's own token to answer the click with; opaque."""


class ConversationChange(StrEnum):
    RENAMED = "renamed"
    JOINED = "joined"
    LEFT = "left"
    ADDED = "added"
    REMOVED = "removed"
    MIGRATED = "migrated"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationChanged:
    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    change: ConversationChange
    name: str | None = None
    new_address: Address | None = None


class ReportState(StrEnum):
    SENT = "sent"
    DELIVERED = "delivered"
    READ = "read"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReport:
    """What became of a message that the platform had only accepted (C009)."""

    address: Address
    dedupe_key: str
    occurred_at: UnixMs
    ref: MessageRef
    state: ReportState
    reason: str | None = None


Event = (
    MessageReceived
    | MessageEdited
    | MessageDeleted
    | ReactionChanged
    | ActionInvoked
    | ConversationChanged
    | DeliveryReport
)


class ChannelState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    RECONNECTING = "reconnecting"
    AUTH_FAILED = "auth_failed"
    NEEDS_LOGIN = "needs_login"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    state: ChannelState
    detail: str = ""
    qr: str | None = None
