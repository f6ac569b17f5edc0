"""The contract of providers (providers.md 8): each claim of the capability table is tried, as it is declared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from jackfield.api import (
    Continuation,
    ContinuationChanged,
    McpEndpoint,
    Provider,
    ProviderCapabilities,
    ProviderEvent,
    ProviderInput,
    ProviderSession,
    ProviderSpec,
    ProviderType,
    SendReceipt,
    SessionClosed,
    ToolContext,
    ToolFailed,
    TurnEnded,
    tool,
)
from jackfield.models import codec
from jackfield.plugins.kinds import Kind
from jackfield.runner.endpoint import Endpoint
from jackfield.testing.contracts.plugin import PluginContract
from jackfield.testing.contracts.stage import Stage
from jackfield.testing.recorders import ToolRecorder
from jackfield.testing.tools import bind_tools
from jackfield.testing.waiting import Changes, soon

__all__ = ["SECRET", "Hands", "ProviderBench", "Talk"]

E = TypeVar("E")

SECRET = "contract-secret-5b1f0c"
"""A variable of every session's environment; it must be seen nowhere."""


class Hands:
    """The tools that a provider gets, and what became of their calls."""

    def __init__(self, folder: Path) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.cancelled = 0
        self.entered = asyncio.Event()
        """A call of `wait_for_ever` has begun."""
        self.bound = bind_tools(self._tools(), ToolRecorder(folder), limit=0)

    def _tools(self) -> list[Any]:
        @tool
        async def add_numbers(context: ToolContext, a: int, b: int) -> str:
            """Add two whole numbers."""
            self.calls.append(("add_numbers", {"a": a, "b": b}))
            return str(a + b)

        @tool
        async def refuse_it(context: ToolContext) -> str:
            """Refuse whatever is asked."""
            self.calls.append(("refuse_it", {}))
            raise ToolFailed("not today")

        @tool
        async def wait_for_ever(context: ToolContext) -> str:
            """Wait until somebody interrupts."""
            self.calls.append(("wait_for_ever", {}))
            self.entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            return "never"

        return [add_numbers, refuse_it, wait_for_ever]


@dataclass
class Talk:
    """One session and all that it has told.  Its stream is read to the end by one reader, as the runner does."""

    session: ProviderSession
    hands: Hands
    seen: list[ProviderEvent] = field(default_factory=list)
    ended: bool = False
    _changes: Changes = field(default_factory=Changes)
    _number: int = 0
    _reader: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._reader = asyncio.create_task(self._read(), name="contract: reader")

    async def _read(self) -> None:
        async for event in self.session.events():
            self.seen.append(event)
            self._changes.tell()
        self.ended = True
        self._changes.tell()

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]

    async def until(self, kind: type[E], count: int = 1) -> E:
        """The `count`th event of a kind."""
        await self.wait(lambda: len(self.of(kind)) >= count, f"{kind.__name__} number {count}")
        return self.of(kind)[count - 1]

    async def wait(self, condition: Callable[[], bool], what: str) -> None:
        def look() -> bool:
            broken = self._reader is not None and self._reader.done() and not self.ended
            return condition() or self.ended or broken

        await self._changes.until(look, f"{what}; what came is {self.seen[-8:]}")
        assert condition(), f"the stream ended before {what}; what came is {self.seen[-8:]}"

    async def send(self, text: str, when: Literal["now", "next_boundary", "after_turn"] = "after_turn") -> SendReceipt:
        self._number += 1
        return await soon(self.session.send(ProviderInput(id=f"m{self._number}", text=text, when=when)), "send")

    async def ask(self, text: str) -> TurnEnded:
        """Send, and wait for the end of the turn."""
        before = len(self.of(TurnEnded))
        await self.send(text)
        return await self.until(TurnEnded, before + 1)

    @property
    def continuation(self) -> Continuation:
        """Where it can be taken up again, as the mailbox would have stored it."""
        changed = self.of(ContinuationChanged)
        assert changed, "it never told a continuation"
        return codec.loads(Continuation, codec.dumps(changed[-1].continuation))


class ProviderBench(PluginContract):
    """What the checks of a provider stand on."""

    kind: ClassVar[Kind] = Kind.PROVIDER
    close_deadline: ClassVar[float] = 10.0

    def make_stage(self) -> Stage:
        """How to make it do things; a plain one takes what comes."""
        return Stage()

    def make(self, extra: Mapping[str, Any] | None = None) -> Provider:
        item = self.item()
        assert isinstance(item, ProviderType), f"register_providers gave {item!r}"
        made = item.create(self.validated({**self.settings, **(extra or {})}))
        assert isinstance(made, Provider), f"create gave {made!r}, which is no Provider"
        return made

    def claims(self) -> ProviderCapabilities:
        return self.make().capabilities()

    @asynccontextmanager
    async def stage(self) -> AsyncIterator[Stage]:
        stage = self.make_stage()
        await stage.open()
        try:
            yield stage
        finally:
            await stage.close()

    def spec(
        self, folder: Path, stage: Stage, hands: Hands, endpoints: Sequence[McpEndpoint], name: str
    ) -> ProviderSpec:
        work, state = folder / "workspace", folder / "state" / name
        for made in (work, state):
            made.mkdir(parents=True, exist_ok=True)
        return ProviderSpec(
            session_id=f"ses_{name}",
            cwd=str(work),
            state_dir=str(state),
            system_prompt="You are Ada, who answers briefly.",
            model=stage.model,
            settings=self.validated({**self.settings, **stage.settings}),
            tools=list(hands.bound.values()),
            endpoints=endpoints,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(work), "CONTRACT_SECRET": SECRET},
            gateway_url=stage.gateway_url,
        )

    @asynccontextmanager
    async def talk(
        self,
        folder: Path,
        stage: Stage,
        continuation: Continuation | None = None,
        name: str = "one",
    ) -> AsyncIterator[Talk]:
        """An open session, closed at the end."""
        provider = self.make(stage.settings)
        hands = Hands(folder / "hands")
        endpoint = None if provider.capabilities().in_process_tools else Endpoint(list(hands.bound.values()))
        if endpoint is not None:
            await endpoint.start()
        try:
            endpoints = [endpoint.address] if endpoint is not None else []
            spec = self.spec(folder, stage, hands, endpoints, name)
            session = await soon(provider.open(spec, continuation), "open to come back")
            assert isinstance(session, ProviderSession), f"open gave {session!r}, which is no ProviderSession"
            talk = Talk(session, hands)
            talk.start()
            try:
                yield talk
            finally:
                await soon(session.close(deadline=self.close_deadline), "close to come back")
                await talk.stop()
        finally:
            if endpoint is not None:
                await endpoint.close()

    async def closed(self, talk: Talk) -> None:
        """Close the session and see its stream through to the end."""
        await soon(talk.session.close(deadline=self.close_deadline), "close to come back")
        await talk.wait(lambda: talk.ended, "the end of the stream")
        assert isinstance(talk.seen[-1], SessionClosed), f"the stream ended with {talk.seen[-1]}, not SessionClosed"
