"""The rows that host and runner exchange.  See architecture, section 6, for who writes which."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jackfield.clock import UnixMs
from jackfield.errors import ProviderErrorKind, ProviderScope
from jackfield.ids import AgentGroupId, InboundId, OutboundId, RequestId, TurnId
from jackfield.models.addresses import Address
from jackfield.models.content import Card, Prompt, Quote, StoredFile

__all__ = [
    "SCRIPT_FAILED",
    "Ack",
    "AckStatus",
    "ActionRequest",
    "ActivityKind",
    "ActivityRow",
    "ChatContent",
    "Delivered",
    "Draft",
    "EditContent",
    "EventContent",
    "InboundContent",
    "InboundKind",
    "InboundRow",
    "MessageContent",
    "NoticeContent",
    "OutboundContent",
    "OutboundKind",
    "OutboundRow",
    "ReactionContent",
    "Response",
    "ResponseStatus",
    "RunnerState",
    "TaskContent",
    "TurnError",
    "WebhookContent",
]


_AT_ONCE = UnixMs(0)
SCRIPT_FAILED = "the task's script failed"
"""How the sentence of a turn error begins when a task's script failed, and not the agent."""


class InboundKind(StrEnum):
    CHAT = "chat"
    TASK = "task"
    WEBHOOK = "webhook"
    NOTICE = "notice"
    EVENT = "event"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatContent:
    """What a person, or another agent, said.  All of it is untrusted text."""

    text: str
    sender: str = "Unknown"
    sender_id: str = ""
    sender_role: str = ""
    """`owner`, `admin`, `member` or empty, as the host found it; for commands (C128)."""
    quote: Quote | None = None
    files: tuple[StoredFile, ...] = ()
    command: str | None = None
    """The exact command token, like `/clear`, when the host's gate let one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContent:
    """`series_id` is the task's id, by which the agent may change it; the row's `at` is the moment that it was due."""

    prompt: str
    script: str | None = None
    series_id: str | None = None
    missed_from: UnixMs | None = None
    """The first of the occurrences that could not run and for which this one stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookContent:
    source: str
    event: str
    payload: str
    """The body as text; JSON when the sender sent JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeContent:
    """The host tells the agent something: a failed delivery, a crash, an expired question."""

    text: str
    subject: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventContent:
    """An object of the graph published something; see spec/canvas.md."""

    level: str
    source: str
    text: str


InboundContent = ChatContent | TaskContent | WebhookContent | NoticeContent | EventContent


@dataclass(frozen=True, slots=True, kw_only=True)
class InboundRow:
    """A row of `messages_in`.  `seq` is even, given by the host's side on insert (0 before).

    `origin` is the chat and thread that it came from; None for what has no chat.  A batch never mixes origins.
    """

    id: InboundId
    kind: InboundKind
    content: InboundContent
    at: UnixMs
    origin: Address | None = None
    due_at: UnixMs = _AT_ONCE
    trigger: bool = True
    attempt: int = 1
    """Raised by the host with each retry; the runner takes a row again when it is above the acked attempt."""
    platform_message_id: str | None = None
    source_session_id: str | None = None
    hops: int = 0
    seq: int = 0


class AckStatus(StrEnum):
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    RELEASED = "released"
    """Given back unread, for another origin's turn or at a clean stop; costs no try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError:
    """A `ProviderError` as it crosses the mailbox."""

    kind: ProviderErrorKind
    message: str
    retryable: bool = False
    retry_after: float | None = None
    scope: ProviderScope = "turn"
    tools_ran: bool = False
    message_for_user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """How far the runner is with an inbound row.  `change` grows with every change; it is the host's cursor."""

    message_id: InboundId
    status: AckStatus
    attempt: int
    epoch: int
    at: UnixMs
    turn: TurnId | None = None
    error: TurnError | None = None
    change: int = 0


class ResponseStatus(StrEnum):
    OK = "ok"
    ERROR = "error"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The one answer to an action or a question.  `body` is JSON text: the result, or `{"message", "code"}`."""

    request_id: RequestId
    status: ResponseStatus
    body: str
    at: UnixMs


class OutboundKind(StrEnum):
    MESSAGE = "message"
    EDIT = "edit"
    REACTION = "reaction"
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """Text, and names of files that lie in `outbox/<row id>/`."""

    text: str = ""
    files: tuple[str, ...] = ()
    card: Card | None = None
    prompt: Prompt | None = None
    command: bool = False
    """It answers a runner command such as /clear, not the model's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditContent:
    """`target_seq` is the message number that the agent saw: odd is its own, even is somebody's."""

    target_seq: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionContent:
    target_seq: int
    emoji: str
    added: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRequest:
    """What only the host can do.  `arguments` is JSON text of an object."""

    request_id: RequestId
    name: str
    arguments: str


OutboundContent = MessageContent | EditContent | ReactionContent | ActionRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundRow:
    """A row of `messages_out`.  `seq` is odd, given by the runner's side on insert (0 before).

    Exactly one of `address` and `agent_group_id` is set for message, edit and reaction; neither for an action.
    """

    id: OutboundId
    kind: OutboundKind
    content: OutboundContent
    at: UnixMs
    epoch: int
    turn: TurnId | None = None
    destination: str | None = None
    """The name that the agent used; None means the batch's origin."""
    address: Address | None = None
    agent_group_id: AgentGroupId | None = None
    in_reply_to: InboundId | None = None
    draft_block: int | None = None
    """The block of this turn's draft that this row completes."""
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Text that is still growing.  Replaced, never appended, at most every 300 ms."""

    turn: TurnId
    block: int
    address: Address
    text: str
    at: UnixMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What became of an outbound row: shown to the runner so that it can tell the agent."""

    out_seq: int
    state: str
    platform_ids: tuple[str, ...]
    at: UnixMs


class ActivityKind(StrEnum):
    TOOL_CALL = "tool_call"
    MCP_CALL = "mcp_call"
    CMD_EXEC = "cmd_exec"
    SECRET_USE = "secret_use"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityRow:
    kind: ActivityKind
    target: str
    summary: str
    at: UnixMs
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerState:
    """What the runner says of itself in `session_state`; the stuck rule reads it."""

    tool: str | None = None
    tool_started_at: UnixMs | None = None
    tool_deadline_at: UnixMs | None = None
    waiting_until: UnixMs | None = None
    """It waits on purpose: provider back-off, a person's answer (C097)."""
    waiting_for: str | None = None
