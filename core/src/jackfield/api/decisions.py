"""What the deciding hooks on the message path are asked, and answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jackfield.ids import UserId
from jackfield.models import (
    Address,
    AgentGroup,
    MessageReceived,
    MessagingGroup,
    OutMessage,
    Person,
    Session,
    Wiring,
)

__all__ = [
    "AccessDecision",
    "AccessRequest",
    "DeliveredPart",
    "EngageDecision",
    "EngageRequest",
    "EnqueuedMessage",
    "InboundVerdict",
    "OutboundPart",
    "OutboundVerdict",
    "PromptRequest",
    "ResolvedSender",
    "SendPath",
    "TurnSummary",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSender:
    """Who a message is from, as permissions see it.  `user_id` None means unknown."""

    user_id: UserId | None
    person: Person


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRequest:
    sender: ResolvedSender
    messaging_group: MessagingGroup
    agent_group: AgentGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """`reason` is a stable code such as `owner`, `member`, `not_member`."""

    allowed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngageRequest:
    event: MessageReceived
    wiring: Wiring
    sticky: bool
    """An earlier engagement of this wiring and thread has not expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngageDecision:
    engage: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundVerdict:
    """`consume` ends the event here: it goes to no agent."""

    consume: bool
    reason: str = ""


class SendPath(StrEnum):
    """Every way out; each passes the outbound hooks exactly once (C189)."""

    ANSWER = "answer"
    TOOL = "tool"
    CARD = "card"
    FILE = "file"
    QUESTION = "question"
    EDIT = "edit"
    REACTION = "reaction"
    NOTICE = "notice"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundPart:
    """A message about to leave, before it is split."""

    path: SendPath
    address: Address
    message: OutMessage
    session: Session | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundVerdict:
    allow: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueuedMessage:
    session: Session
    message_id: str
    trigger: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSummary:
    session: Session
    turn: str
    outcome: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredPart:
    session_id: str
    out_seq: int
    part: int
    parts: int
    address: Address
    platform_ids: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptRequest:
    """What the host composes into a group's system prompt at launch."""

    agent_group: AgentGroup
    session: Session
    tools: tuple[str, ...]
