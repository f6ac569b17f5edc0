"""The ledger: the visible state of every message in and every part out (architecture 5, rule 2)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jackfield.clock import UnixMs
from jackfield.ids import DeliveryId, EventId, InboundId, SessionId, TurnId, WiringId
from jackfield.models.addresses import Address

__all__ = ["Delivery", "DeliveryState", "EventState", "InboundEntry", "InboundState"]


class EventState(StrEnum):
    """How far routing is with an accepted event.  RECEIVED is taken up again at start and every 60 s."""

    RECEIVED = "received"
    ROUTED = "routed"
    IGNORED = "ignored"
    """No wiring took it; the audit says why."""
    FAILED = "failed"


class InboundState(StrEnum):
    """One message for one wiring.  The last four are ends."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    RETRYING = "retrying"
    PARKED = "parked"
    CONTEXT = "context"
    """Accumulated: it rides along with the next message that starts a turn."""
    COMPLETED = "completed"
    FAILED = "failed"
    DROPPED = "dropped"
    REFUSED = "refused"


class DeliveryState(StrEnum):
    """One part of one outbound row.  The last five are ends."""

    PENDING = "pending"
    SENDING = "sending"
    """The intent is recorded; a crash leaves it here and makes it ambiguous."""
    RETRYING = "retrying"
    WAITING = "waiting"
    """Its channel is not ready, or nobody is attached (C084)."""
    ACCEPTED = "accepted"
    """The platform took it and will report later (C009)."""
    SENT = "sent"
    FAILED = "failed"
    DROPPED = "dropped"
    BLOCKED = "blocked"
    """A guard hook, or a destination that is not allowed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundEntry:
    id: InboundId
    event_id: EventId | None
    wiring_id: WiringId | None
    session_id: SessionId
    state: InboundState
    attempts: int
    next_try_at: UnixMs | None
    reason: str | None
    preview: str
    created_at: UnixMs
    updated_at: UnixMs
    turn: TurnId | None = None
    """The turn that took it last."""
    hops: int = 0
    """How many agents handed it on."""
    chain: str | None = None
    """The message that it follows from, by whatever way through agents; None for one that follows from none."""
    source: SessionId | None = None
    """The session of the agent that wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: DeliveryId
    session_id: SessionId
    out_seq: int
    out_id: str
    part: int
    """From 1."""
    parts: int
    kind: str
    address: Address
    content: str
    """JSON of the part: an `OutMessage`, `EditContent` or `ReactionContent`."""
    state: DeliveryState
    attempts: int
    next_try_at: UnixMs
    first_try_at: UnixMs | None
    platform_ids: tuple[str, ...]
    reason: str | None
    """The class of what went wrong, like `RateLimited`; None while nothing did."""
    last_error: str | None
    maybe_duplicate: bool
    created_at: UnixMs
    updated_at: UnixMs
