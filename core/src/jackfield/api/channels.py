"""What a channel implements and is handed.

The adapter translates, the core stores (spec/channels.md section 5).  An adapter keeps no message state beyond
connection caches, acknowledges its platform only after `context.accept` has returned, binds no port, installs no signal
handler, blocks nothing and can be cancelled at any await.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jackfield.clock import Clock
from jackfield.models import (
    Address,
    Attachment,
    Capabilities,
    ChannelStatus,
    Event,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "Accepted",
    "ActionReply",
    "Answers",
    "Attaches",
    "Channel",
    "ChannelContext",
    "ChannelInfo",
    "ChannelType",
    "Connection",
    "Cursor",
    "Deletes",
    "Edits",
    "Health",
    "HttpRoute",
    "KeepsHistory",
    "MessageStream",
    "OpensAttachments",
    "OpensDms",
    "RawRequest",
    "RawResponse",
    "Reacts",
    "SendResult",
    "ServesRoutes",
    "Splits",
    "Streams",
    "Types",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelInfo:
    """Static facts.  `type` is the entry point's name and the word used in config."""

    type: str
    title: str
    terminology: str = "chat"
    """What people call one conversation there: room, channel, topic."""
    id_help: str = ""
    """How a platform id looks, for error messages and set-up."""
    local: bool = False
    """It runs on the operator's own machine and may claim `Trust.OPERATOR`; such a channel is never refused for an
    unisolated runtime, and its `answer_to` is honoured."""
    docs_url: str | None = None
    programs: bool = False
    """Programs write there by design, at their own pace: nobody there is taken for a loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The outcome of a check.  `fix` is one line for the operator when it is not ok."""

    ok: bool
    detail: str = ""
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the platform's stream, moved in the same transaction as the event that it follows."""

    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The event is stored, now or before."""

    event_id: str
    """Under which the core keeps it; for a duplicate, the id of the first one."""
    duplicate: bool = False
    """Known already; if it was unfinished, it has been taken up again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """Ids of all platform messages, in order.  `final` is False when a `DeliveryReport` will follow (C009).

    `degraded` names what was lost on the way: `buttons`, `table`, `files`.
    """

    ids: tuple[str, ...] = ()
    final: bool = True
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionReply:
    """How a click ended: `text` replaces the prompt's question, `accepted` False only tells the clicker."""

    text: str
    accepted: bool


class ChannelContext(Protocol):
    """What the host hands to one channel instance for its life."""

    @property
    def instance(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def folder(self) -> Path:
        """A folder of this instance's own, for downloads and login state; made on first use."""
        ...

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        """Store the event and move the cursor, durably, and return.  Only then acknowledge the platform.

        Raises:
            MalformedData: the event can't be one of this instance (wrong address).
            JackfieldError: it could not be stored; do not acknowledge.
        """
        ...

    async def cursor(self, key: str) -> str | None:
        """The stored position, or None."""
        ...

    async def secret(self, name: str) -> str | None:
        """A secret of this instance by the name that its settings give."""
        ...

    def route_url(self, path: str = "") -> str | None:
        """Where the outside reaches the instance's route of that path; None without an HTTP server (`ServesRoutes`).

        Only what the operator has set as the server's public URL can be reached from elsewhere.
        """
        ...

    def report(self, status: ChannelStatus) -> None:
        """Tell how the connection is.  Deliveries wait until it is READY (C084)."""
        ...

    def wake(self, address: Address) -> None:
        """Try the deliveries to this chat again that wait for a listener (`NobodyListening`)."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a background task that ends with the channel.  When it fails, the channel starts anew."""
        ...


@runtime_checkable
class Channel(Protocol):
    """One configured instance."""

    async def start(self, context: ChannelContext) -> None:
        """Connect.  Returns when ready, or after reporting another state with the rest running in `spawn`."""
        ...

    async def stop(self) -> None:
        """End intake and connections within 2 s, also while a poll hangs."""
        ...

    async def check(self, context: ChannelContext) -> Health:
        """Validate settings and credentials without starting intake; also on an instance that runs.

        Of the context only the clock, the folder, cursors and secrets may be used.
        """
        ...

    def capabilities(self, address: Address | None = None) -> Capabilities: ...

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Send one part, all of it or nothing.

        One with files that is refused (`TooLarge`, `BadContent`, `Unsupported`, `SendNotAllowed`) comes again as its
        text and each file alone, under other keys, so nothing of it may stand in the chat then.

        Raises:
            ChannelError: one of its subclasses, by what the platform said.
        """
        ...


@runtime_checkable
class Edits(Protocol):
    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult: ...


@runtime_checkable
class Deletes(Protocol):
    async def delete(self, ref: MessageRef) -> None: ...


@runtime_checkable
class Reacts(Protocol):
    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None: ...


@runtime_checkable
class Types(Protocol):
    async def typing(self, address: Address, on: bool = True) -> None: ...


@runtime_checkable
class OpensDms(Protocol):
    async def open_dm(self, person: Person) -> Address: ...


@runtime_checkable
class Answers(Protocol):
    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        """Bring a clicked prompt into its final state, or tell the clicker why not."""
        ...


class MessageStream(Protocol):
    """A message that grows in front of the reader."""

    async def update(self, text: str) -> None:
        """The whole text so far."""
        ...

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Replace it by the final message."""
        ...

    async def abort(self) -> None:
        """Take it away, or mark it as cut off."""
        ...


@runtime_checkable
class Streams(Protocol):
    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        """Nothing is sent before the first update.  `reply_to` is what the message answers, as in `OutMessage`; the
        first platform message must carry it where an edit can't add it."""
        ...


@runtime_checkable
class OpensAttachments(Protocol):
    def open_attachment(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]: ...


@runtime_checkable
class KeepsHistory(Protocol):
    async def history(
        self, address: Address, *, after: str | None = None, limit: int = 50
    ) -> Sequence[MessageReceived]: ...


@runtime_checkable
class Splits(Protocol):
    """A channel that cuts long messages itself; without it the core cuts by `text_limit` and `text_unit`."""

    def split(self, address: Address, message: OutMessage) -> Sequence[OutMessage]: ...


class Connection(Protocol):
    """A local client on the control socket that was handed over to a channel: JSON objects both ways."""

    @property
    def peer_user(self) -> str:
        """The OS user at the other end, as the kernel says."""
        ...

    async def receive(self) -> dict[str, Any] | None:
        """The next object; None when the client is gone."""
        ...

    async def send(self, message: dict[str, Any]) -> None: ...


@runtime_checkable
class Attaches(Protocol):
    """A channel that local clients attach to through `host.sock` (the terminal)."""

    async def attach(self, connection: Connection, options: dict[str, Any]) -> None:
        """Serve one client until it leaves."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRequest:
    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RawResponse:
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRoute:
    """A path below the instance's own prefix; the core checks size and method, the handler the signature."""

    path: str
    methods: tuple[str, ...]
    handle: Callable[[RawRequest], Coroutine[Any, Any, RawResponse]]
    max_bytes: int = 1_048_576


@runtime_checkable
class ServesRoutes(Protocol):
    """A channel that platforms call; mounted in the host's HTTP server at `/channels/<instance>/<path>`."""

    def http_routes(self) -> Sequence[HttpRoute]:
        """Asked once, before `start`, so by the settings alone; an empty list needs no server.

        A handler answers 2xx only after `context.accept` has returned.  It may be called as soon as `start` has begun;
        what it raises becomes a 503 (`JackfieldError`) or a 500 without details.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelType:
    """What `register_channels` returns.  Importing it must be cheap: load the platform's SDK inside `create`."""

    info: ChannelInfo
    create: Callable[[str, Any], Channel]
    """`create(instance, settings)`; settings is an instance of `settings`, or an empty dict without one."""
    settings: type[BaseModel] | None = None
    secrets: tuple[str, ...] = field(default=())
    """Names of settings whose values are names of secrets."""
