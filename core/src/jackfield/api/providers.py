"""What an agent provider implements (spec/providers.md section 8).  It runs inside the runner.

`open` gives one `ProviderSession` for the life of the runner; `events()` is its only way out.  Import your SDK inside
`open`, never at module level.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from jackfield.errors import ProviderError
from jackfield.ids import TurnId

if TYPE_CHECKING:
    from pydantic import BaseModel

    from jackfield.api.tools import BoundTool

__all__ = [
    "Compacting",
    "Continuation",
    "ContinuationChanged",
    "ContinuationLost",
    "InputTaken",
    "McpEndpoint",
    "Notice",
    "Probe",
    "Provider",
    "ProviderCapabilities",
    "ProviderEvent",
    "ProviderInput",
    "ProviderSession",
    "ProviderSpec",
    "ProviderType",
    "RateLimitedUntil",
    "Retrying",
    "SendReceipt",
    "SessionClosed",
    "SessionReady",
    "TextDelta",
    "TextDiscarded",
    "TextDone",
    "Thinking",
    "ToolEnded",
    "ToolProgress",
    "ToolStarted",
    "TurnEnded",
    "TurnOutcome",
    "TurnStarted",
    "Usage",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCapabilities:
    """Honest, static claims; the contract suite tests each as declared."""

    text_deltas: bool = False
    inject: Literal["no", "queue", "next_step", "immediate"] = "no"
    """What becomes of input that is sent during a turn."""
    consumed_input_ids: bool = False
    unsolicited_turns: bool = False
    compaction: bool = False
    interrupt: bool = False
    retry_events: bool = False
    usage: bool = False
    resume: bool = False
    in_process_tools: bool = False
    """It calls the runner's tools directly; otherwise it is given `McpEndpoint`s."""
    native_commands: tuple[str, ...] = ()
    """Slash commands that the engine itself understands, like `/compact`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpEndpoint:
    """One server for an engine to connect to: over HTTP, or by starting `command`."""

    name: str
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """Where a conversation can be taken up again.  Opaque outside its provider; stored whenever it changes."""

    provider: str
    token: str
    engine_version: str = ""
    usage: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """What a session is opened with.  `env` is complete: nothing is inherited."""

    session_id: str
    cwd: str
    state_dir: str
    system_prompt: str
    model: str | None = None
    settings: Any = None
    """An instance of the provider's settings model.  Where the group's `agent.toml` says `secret:NAME`, the secret
    itself is in it: keep it out of logs, errors and command lines."""
    tools: Sequence[BoundTool] = ()
    endpoints: Sequence[McpEndpoint] = ()
    extra_dirs: Sequence[str] = ()
    env: dict[str, str] = field(default_factory=dict)
    gateway_url: str | None = None
    """The model gateway's address for this session, its token included: the base URL to use (an SDK may want ``/v1``
    behind it), with the constant key ``gateway``.  None: the model is reached with a key of the settings."""
    wait_budget: float = 60.0
    """Seconds of waiting that one turn may spend on retries; longer waits end it with a `ProviderError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInput:
    id: str
    text: str
    when: Literal["now", "next_boundary", "after_turn"] = "after_turn"


SendReceipt = Literal["started", "injected", "queued", "rejected"]
TurnOutcome = Literal["ok", "interrupted", "limit", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReady:
    engine: str = ""
    version: str = ""
    model: str = ""
    pid: int | None = None
    tools: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationChanged:
    continuation: Continuation


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationLost:
    """The stored conversation is unknown to the engine; a new one was begun (C124)."""

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    cause: Literal["input", "engine"] = "input"
    inputs: tuple[str, ...] = ()
    turn: TurnId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTaken:
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    block: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDone:
    """The authoritative text of a block; deltas may have been missing."""

    block: int
    text: str
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDiscarded:
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Never relayed to a chat."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    call: str
    name: str
    source: Literal["builtin", "mcp"] = "mcp"
    summary: str = ""
    deadline: float | None = None
    """Seconds that the call may take, when the engine declares it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress:
    call: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    call: str
    ok: bool
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one request or turn, never cumulative."""

    scope: Literal["request", "turn"]
    model: str = ""
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars, only when the basis is known."""
    context_used: int | None = None
    context_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    attempt: int
    delay: float
    """Seconds until the next try; the runner reports itself as waiting until then (C097)."""
    kind: str
    of: int | None = None
    status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitedUntil:
    seconds: float
    window: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacting:
    phase: Literal["started", "ended"]
    ok: bool = True
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Chatter of the engine; never part of a reply."""

    level: Literal["debug", "info", "warning", "error"]
    text: str
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """`reply` is the whole final text.  With outcome `error`, `error` says what the host may do."""

    outcome: TurnOutcome
    reply: str | None = None
    inputs: tuple[str, ...] = ()
    error: ProviderError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    reason: str
    exit_code: int | None = None
    stderr_tail: str = ""


ProviderEvent = (
    SessionReady
    | ContinuationChanged
    | ContinuationLost
    | TurnStarted
    | InputTaken
    | TextDelta
    | TextDone
    | TextDiscarded
    | Thinking
    | ToolStarted
    | ToolProgress
    | ToolEnded
    | Usage
    | Retrying
    | RateLimitedUntil
    | Compacting
    | Notice
    | TurnEnded
    | SessionClosed
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What is installed: no model call is made for it."""

    ok: bool
    engine: str = ""
    version: str = ""
    detail: str = ""
    fix: str | None = None


@runtime_checkable
class ProviderSession(Protocol):
    def events(self) -> AsyncIterator[ProviderEvent]:
        """One stream for the session's life; ends after `SessionClosed`."""
        ...

    async def send(self, message: ProviderInput) -> SendReceipt:
        """Hand in a prompt; returns at once."""
        ...

    async def interrupt(self, *, grace: float) -> None:
        """End the running turn; it ends as `TurnEnded(outcome="interrupted")`."""
        ...

    async def compact(self, instructions: str | None = None) -> None: ...

    async def close(self, *, deadline: float) -> None:
        """Leave no process behind within `deadline` seconds."""
        ...


@runtime_checkable
class Provider(Protocol):
    def capabilities(self) -> ProviderCapabilities: ...

    async def probe(self) -> Probe: ...

    async def open(self, spec: ProviderSpec, continuation: Continuation | None) -> ProviderSession:
        """Begin, or take up, a conversation.

        Raises:
            ProviderError: it can't be opened.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderType:
    """What `register_providers` returns.  `name` is the entry point's name."""

    name: str
    title: str
    create: Callable[[Any], Provider]
    """`create(settings)`; an instance of the settings model, or an empty dict without one.  A model that was given by
    its place is not loaded when a group sets nothing; then `create` gets an empty dict, too."""
    settings: type[BaseModel] | str | None = None
    """The settings model, or where it is (`module:Class`), so that a runner may start without loading pydantic."""

    def settings_model(self) -> type[BaseModel] | None:
        """The settings model itself."""
        if not isinstance(self.settings, str):
            return self.settings
        from importlib import import_module

        module, _, name = self.settings.partition(":")
        found: type[BaseModel] = getattr(import_module(module), name)
        return found
