"""What the host and the runner hand to a plugin, as doubles that take notes and can be told to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackfield.api import Accepted, Cursor, Sent, ToolFailed
from jackfield.clock import Clock, SystemClock
from jackfield.errors import MalformedData
from jackfield.models import (
    Address,
    Card,
    ChannelState,
    ChannelStatus,
    Destination,
    DestinationKind,
    Event,
    Prompt,
    codec,
)
from jackfield.testing.waiting import BOUND, Changes

__all__ = ["ChannelMemory", "ChannelRecorder", "SentMessage", "ToolRecorder"]


@dataclass
class ChannelMemory:
    """What outlives a channel: hand the same one to the next `ChannelRecorder` to start a channel again."""

    texts: dict[str, str] = field(default_factory=dict)
    """The stored events as JSON, as a database would have them, by dedupe key."""
    cursors: dict[str, str] = field(default_factory=dict)

    @property
    def events(self) -> list[Event]:
        """In the order in which they came."""
        return [codec.loads(Event, text) for text in self.texts.values()]


class ChannelRecorder:
    """A `ChannelContext`.  It stores accepted events by their dedupe key, and can be slow or refuse."""

    def __init__(
        self,
        channel_type: str,
        instance: str,
        folder: Path,
        *,
        secrets: Mapping[str, str] | None = None,
        memory: ChannelMemory | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.channel_type = channel_type
        self.secrets = dict(secrets or {})
        self.memory = memory if memory is not None else ChannelMemory()
        self.offered: list[Event] = []
        """Every event that `accept` was called with, stored or not."""
        self.statuses: list[ChannelStatus] = []
        self.woken: list[Address] = []
        self.secrets_read: list[str] = []
        self.refused = 0
        self.waiting = 0
        """How many calls of `accept` are held."""
        self.failed: list[tuple[str, BaseException]] = []
        """Names and exceptions of spawned tasks that broke."""
        self.on_wake: Callable[[Address], None] | None = None
        self.server_url: str | None = None
        """Where the routes are reached, for a channel that asks; without a path."""
        self._instance = instance
        self._folder = folder
        self._clock = clock if clock is not None else SystemClock()
        self._error: Exception | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changes = Changes()

    # ---- the context

    @property
    def instance(self) -> str:
        return self._instance

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def folder(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def route_url(self, path: str = "") -> str | None:
        return (
            None if self.server_url is None else "/".join((self.server_url, *filter(None, path.strip("/").split("/"))))
        )

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        """Store it, as a host would: checked, encoded, once."""
        self.offered.append(event)
        self.waiting += 1
        self._changes.tell()
        try:
            await self._gate.wait()
        finally:
            self.waiting -= 1
        if (event.address.channel_type, event.address.instance) != (self.channel_type, self._instance):
            raise MalformedData(f"{event.address} is no address of {self.channel_type}:{self._instance}")
        if self._error is not None:
            self.refused += 1
            self._changes.tell()
            raise self._error
        known = event.dedupe_key in self.memory.texts
        self.memory.texts.setdefault(event.dedupe_key, codec.dumps(event))
        if cursor is not None:
            self.memory.cursors[cursor.key] = cursor.value
        self._changes.tell()
        number = list(self.memory.texts).index(event.dedupe_key) + 1
        return Accepted(event_id=f"ev_{number}", duplicate=known)

    async def cursor(self, key: str) -> str | None:
        return self.memory.cursors.get(key)

    async def secret(self, name: str) -> str | None:
        self.secrets_read.append(name)
        return self.secrets.get(name)

    def report(self, status: ChannelStatus) -> None:
        self.statuses.append(status)
        self._changes.tell()

    def wake(self, address: Address) -> None:
        self.woken.append(address)
        self._changes.tell()
        if self.on_wake is not None:
            self.on_wake(address)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    # ---- the test's side

    @property
    def events(self) -> list[Event]:
        """What is stored, each event once, decoded from what was stored."""
        return self.memory.events

    @property
    def state(self) -> ChannelState | None:
        """What the channel reported last."""
        return self.statuses[-1].state if self.statuses else None

    def fail(self, error: Exception) -> None:
        """From now on `accept` raises this."""
        self._error = error

    def mend(self) -> None:
        self._error = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Calls of `accept` wait inside, as with a slow disk, until the block ends."""
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()

    async def until(self, condition: Callable[[], bool], what: str, bound: float | None = None) -> None:
        """Wait for something that this context sees.

        Raises:
            AssertionError: it did not come within `bound` seconds.
        """
        await self._changes.until(condition, what, bound)

    async def until_ready(self) -> None:
        """Wait until the channel is ready.  One that reported nothing became so when `start` came back."""
        good = (None, ChannelState.STARTING, ChannelState.READY, ChannelState.DEGRADED)
        try:
            await self.until(lambda: self.state in good, "the channel to be ready")
        except AssertionError as problem:
            raise AssertionError(f"{problem}; it reported {self.statuses[-3:]}") from None

    async def close(self) -> None:
        """End what was spawned, as a host does after `stop`.

        Raises:
            AssertionError: a task goes on although it was cancelled.
        """
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            _, stubborn = await asyncio.wait(set(self._tasks), timeout=BOUND)
            assert not stubborn, f"spawned tasks go on after they were cancelled: {[t.get_name() for t in stubborn]}"

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self.failed.append((task.get_name(), problem))
            self._changes.tell()


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """What a tool sent.  The files' contents were read when it did."""

    seq: int
    to: str | None
    text: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    card: Card | None = None


Answer = Callable[[dict[str, Any]], Any | Awaitable[Any]]


class ToolRecorder:
    """A `ToolContext`.

    Args:
        workspace: the agent's folder; made when it is not there.
        answers: what `act` answers by the action's name: a value, or a function of the arguments.
        choose: what `ask` answers; without it the first choice.
        secrets: what `secret` gives by name; `secrets_read` tells which were taken.
    """

    def __init__(
        self,
        workspace: Path,
        *,
        settings: Mapping[str, Any] | None = None,
        destinations: Sequence[str] = ("home", "family"),
        answers: Mapping[str, Any] | None = None,
        choose: Callable[[Prompt], str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        workspace.mkdir(parents=True, exist_ok=True)
        self.sent: list[SentMessage] = []
        self.edits: list[tuple[int, str]] = []
        self.reactions: list[tuple[int, str, bool]] = []
        self.questions: list[tuple[Prompt, str | None, float]] = []
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.entered = asyncio.Event()
        """Set when a call waits because of `hang`."""
        self.hang = False
        """Whatever a tool asks of the context never comes back."""
        self._workspace = workspace
        self._settings = dict(settings or {})
        self._answers = dict(answers or {})
        self._choose = choose
        self.secrets = dict(secrets or {})
        self.secrets_read: list[str] = []
        self._known = {name: Address("terminal", "terminal", name) for name in destinations}

    @property
    def agent_name(self) -> str:
        return "Ada"

    @property
    def workspace(self) -> Path:
        return self._workspace

    @property
    def origin(self) -> Address | None:
        return next(iter(self._known.values()), None)

    @property
    def settings(self) -> dict[str, Any]:
        return self._settings

    async def destinations(self) -> Sequence[Destination]:
        await self._reach()
        return [
            Destination(name=name, kind=DestinationKind.CHANNEL, display_name=name.title(), address=address)
            for name, address in self._known.items()
        ]

    async def send(
        self, *, text: str = "", to: str | None = None, files: Sequence[Path] = (), card: Card | None = None
    ) -> Sent:
        await self._reach(to)
        if not (text.strip() or files or card is not None):
            raise ToolFailed("text is required")
        contents = tuple((path.name, path.read_bytes()) for path in files)
        seq = 2 * len(self.sent) + 1
        self.sent.append(SentMessage(seq=seq, to=to, text=text, files=contents, card=card))
        return Sent(seq=seq, name=to or "(current conversation)")

    async def edit(self, seq: int, text: str) -> None:
        await self._reach()
        self.edits.append((seq, text))

    async def react(self, seq: int, emoji: str, *, added: bool = True) -> None:
        await self._reach()
        self.reactions.append((seq, emoji, added))

    async def ask(self, prompt: Prompt, *, to: str | None = None, timeout: float) -> str:
        await self._reach(to)
        self.questions.append((prompt, to, timeout))
        if self._choose is not None:
            return self._choose(prompt)
        return prompt.choices[0].value if prompt.choices else "in my own words"

    async def act(self, name: str, arguments: dict[str, Any], *, timeout: float = 30.0) -> Any:
        await self._reach()
        self.requests.append((name, arguments))
        if name not in self._answers:
            raise ToolFailed(f"the host knows no action {name!r}")
        answer = self._answers[name]
        if not callable(answer):
            return answer
        found = answer(arguments)
        return await found if isinstance(found, Awaitable) else found

    async def secret(self, name: str) -> str:
        await self._reach()
        if name not in self.secrets:
            raise ToolFailed(f"there is no secret {name!r} for this agent")
        self.secrets_read.append(name)
        return self.secrets[name]

    async def _reach(self, to: str | None = None) -> None:
        if self.hang:
            self.entered.set()
            await asyncio.Event().wait()
        if to is not None and to not in self._known:
            raise ToolFailed(f"unknown destination {to!r}; you can write to: {', '.join(self._known) or 'nobody'}")
