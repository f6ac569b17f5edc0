"""The session of a provider that asks a model API directly, in the runner's own process."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    InputTaken,
    Notice,
    ProviderEvent,
    ProviderInput,
    ProviderSpec,
    SendReceipt,
    SessionClosed,
    SessionReady,
    TurnEnded,
    TurnOutcome,
    TurnStarted,
    Usage,
)
from jackfield.errors import ProviderError

from jackfield_provider_kit.errors import failure, failure_of
from jackfield_provider_kit.loop.blocks import Block, Text
from jackfield_provider_kit.loop.compacting import folded, size_of, summary_request
from jackfield_provider_kit.loop.history import History
from jackfield_provider_kit.loop.retrying import next_wait
from jackfield_provider_kit.loop.setup import Setup
from jackfield_provider_kit.loop.tools import Toolbelt
from jackfield_provider_kit.loop.turn import LimitReached, Turn
from jackfield_provider_kit.loop.wire import BlockDone, ReplyDone, Request, Tokens, Wire

__all__ = ["LoopSession", "open_session"]

_LOG = logging.getLogger(__name__)


async def open_session(spec: ProviderSpec, setup: Setup, wire: Wire, continuation: Continuation | None) -> LoopSession:
    """Begin, or take up, a conversation; its state lies in `<state_dir>/<provider>/`.

    Raises:
        ProviderError: kind `config`: the folder can't be written.
    """
    folder = Path(spec.state_dir) / setup.provider
    history: History | None = None
    lost: str | None = None
    if continuation is not None and continuation.provider != setup.provider:
        lost = f"the continuation belongs to {continuation.provider!r}"
    elif continuation is not None:
        history = History.load(folder, continuation.token)
        lost = None if history is not None else f"no conversation {continuation.token!r} in {folder}"
    try:
        history = history or History.begin(folder, setup.provider)
    except OSError as problem:
        raise ProviderError(f"the conversation can't be kept in {folder}: {problem}", kind="config") from problem
    usage = dict(continuation.usage) if continuation is not None and lost is None else {}
    return LoopSession(spec, setup, wire, history, usage=usage, lost=lost)


class LoopSession:
    """Everything runs in one event loop and a decision never awaits, so an input that is sent is either taken by the
    running turn or begins one; none falls between."""

    def __init__(
        self,
        spec: ProviderSpec,
        setup: Setup,
        wire: Wire,
        history: History,
        *,
        usage: dict[str, int] | None = None,
        lost: str | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        share: Callable[[], float] = random.random,
    ) -> None:
        self.spec = spec
        self.setup = setup
        self.wire = wire
        self.history = history
        self.pause = pause
        self.share = share
        self.tools = Toolbelt(spec.tools, setup.limits, history.folder / "results", self.emit)
        self.wants_compaction = False
        self._instructions: str | None = None
        self._usage = dict(usage or {})
        self._measured: tuple[int, int] | None = None
        """Tokens of the context after the last reply, and how many blocks the history had then."""
        self._events: asyncio.Queue[ProviderEvent] = asyncio.Queue()
        self._waiting: deque[ProviderInput] = deque()
        self._injected: deque[ProviderInput] = deque()
        self._task: asyncio.Task[None] | None = None
        self._turn: Turn | None = None
        self._interrupting = False
        self._closed = False
        self._preparing = asyncio.create_task(self._prepare(), name=f"{setup.provider}: prepare")
        names = tuple(tool.name for tool in spec.tools)
        warnings = (f"{history.damaged} lines of the conversation can't be read",) if history.damaged else ()
        self.emit(
            SessionReady(
                engine=setup.provider, version=setup.version, model=setup.model, tools=names, warnings=warnings
            )
        )
        if lost is not None:
            self.emit(ContinuationLost(reason=lost))
        self._tell_continuation()

    async def _prepare(self) -> None:
        try:
            await self.wire.prepare()
        except ProviderError as error:
            # Told by the first turn, which asks again.
            self.emit(Notice(level="error", code=error.kind, text=error.message))

    # ---- what the runner calls

    async def events(self) -> AsyncIterator[ProviderEvent]:
        """The stream of this session; to be read by one reader."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionClosed):
                return

    async def send(self, message: ProviderInput) -> SendReceipt:
        """Take a prompt: it starts a turn, joins the running one before its next request, or waits for its end."""
        if self._closed:
            return "rejected"
        if self._task is None:
            self._begin(message)
            return "started"
        if message.when == "after_turn" or self._turn is None:
            self._waiting.append(message)
            return "queued"
        self._injected.append(message)
        return "injected"

    async def interrupt(self, *, grace: float) -> None:
        """Stop the running turn at once; without one, nothing happens."""
        task = self._task
        if task is None:
            return
        self._interrupting = True
        task.cancel()
        await asyncio.wait({task}, timeout=grace)
        if self._task is task and task.cancelled() and self._turn is not None:
            # Cancelled before its first step: the turn never got to run, so it can't have ended itself.
            turn, self._task, self._turn = self._turn, None, None
            self._end(turn, "interrupted", None)

    async def compact(self, instructions: str | None = None) -> None:
        """Fold the conversation: now, or before the next request of the turn that runs."""
        self._instructions = instructions
        if self._task is not None:
            self.wants_compaction = True
            return
        self._task = asyncio.create_task(self._compact_now(), name=f"{self.setup.provider}: compact")
        await asyncio.wait({self._task})

    async def _compact_now(self) -> None:
        try:
            await self.fold(())
        except ProviderError as error:
            self.emit(Notice(level="warning", code="compaction", text=error.message))
        finally:
            self._task = None
            self._next()

    async def close(self, *, deadline: float) -> None:
        """End the turn, then the stream.  May be called again."""
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        self._injected.clear()
        await self.interrupt(grace=deadline)
        self._preparing.cancel()
        await asyncio.wait({self._preparing}, timeout=deadline)
        try:
            async with asyncio.timeout(deadline):
                await self.wire.close()
        except Exception:  # noqa: BLE001 - whatever a client raises here, the session is over
            _LOG.exception("the connection to the model could not be closed")
        self.emit(SessionClosed(reason="closed", exit_code=0))

    # ---- what a turn calls

    def emit(self, event: ProviderEvent) -> None:
        """Put an event into the stream."""
        self._events.put_nowait(event)

    @property
    def has_injected(self) -> bool:
        return bool(self._injected)

    def take_injected(self) -> None:
        """Give the running turn what was sent into it."""
        if not self._injected or self._turn is None:
            return
        taken = list(self._injected)
        self._injected.clear()
        self.emit(InputTaken(inputs=tuple(message.id for message in taken)))
        for message in taken:
            self._turn.hear(message)

    @property
    def context(self) -> int:
        """About how many tokens the next request holds: what the server counted last, and what came since."""
        if self._measured is None or self._measured[1] > len(self.history.said):
            return size_of([Text(self.spec.system_prompt), *(block for _, block in self.history.said)])
        counted, blocks = self._measured
        return counted + size_of([block for _, block in self.history.said[blocks:]])

    def count(self, done: ReplyDone, blocks: Sequence[Block] = (), *, side: bool = False) -> Tokens:
        """Tell the usage of a request; what the server did not say is estimated for the limits, and never told.

        A `side` request (a summary) says nothing about the conversation's size.
        """
        tokens = done.tokens
        if tokens is None:
            if not self._usage.get("unmetered"):
                self.emit(Notice(level="warning", code="no_usage", text="the model's server tells no token counts"))
            self._usage["unmetered"] = self._usage.get("unmetered", 0) + 1
            return Tokens(input=self.context, output=size_of(blocks))
        if not side:
            self._measured = (tokens.context, len(self.history.said) + len(blocks))
        prices = self.setup.prices
        self.emit(
            Usage(
                scope="request",
                model=done.model or self.setup.model,
                input=tokens.input,
                cache_read=tokens.cache_read,
                cache_write=tokens.cache_write,
                output=tokens.output,
                reasoning=tokens.reasoning,
                cost=None if prices is None else prices.of(tokens),
                context_used=None if side else tokens.context,
                context_limit=self.setup.window,
            )
        )
        for name in ("input", "cache_read", "cache_write", "output"):
            self._usage[name] = self._usage.get(name, 0) + getattr(tokens, name)
        self._usage["requests"] = self._usage.get("requests", 0) + 1
        return tokens

    async def fold(self, open_inputs: Sequence[str], *, in_the_middle: bool = False) -> bool:
        """Let the model summarise the conversation, archive it and go on from the summary; whether that worked.

        Raises:
            ProviderError: the credential, the model or the budget is at fault, so that nothing else would work either.
        """
        self.wants_compaction, instructions, self._instructions = False, self._instructions, None
        before = self.context
        self.emit(Compacting(phase="started", before=before))
        ok = False
        try:
            if self.history.said:
                summary = await self._summary(instructions)
                window = self.setup.window
                self.history.replace(folded(summary, open_inputs, in_the_middle=in_the_middle, window=window))
                self._measured = None
            ok = True
        except (ProviderError, OSError) as problem:
            self.emit(Notice(level="warning", code="compaction", text=str(problem)))
            if isinstance(problem, ProviderError) and problem.scope != "turn" and problem.kind != "context_overflow":
                raise
        finally:
            self.emit(Compacting(phase="ended", ok=ok, before=before, after=self.context if ok else None))
        return ok

    async def _summary(self, instructions: str | None) -> str:
        setup = self.setup
        request = summary_request(
            self.history.said, window=setup.window, max_output=setup.max_output, instructions=instructions
        )
        attempt, waited = 0, 0.0
        while True:
            try:
                return await self._summary_once(request)
            except Exception as problem:
                error = failure_of(problem)
                attempt += 1
                delay = next_wait(error, attempt, waited, self.spec.wait_budget / 2, self.share())
                if delay is None:
                    raise error from problem
                waited += delay
                await self.pause(delay)

    async def _summary_once(self, request: Request) -> str:
        texts: dict[int, str] = {}
        done: ReplyDone | None = None
        async with (
            asyncio.timeout(self.setup.limits.idle_seconds or None),
            aclosing(self.wire.stream(request)) as parts,
        ):
            async for part in parts:
                if isinstance(part, BlockDone) and isinstance(part.block, Text):
                    texts[part.index] = part.block.text
                elif isinstance(part, ReplyDone):
                    done = part
        if done is not None:
            self.count(done, side=True)
        summary = "\n\n".join(text for _, text in sorted(texts.items())).strip()
        if done is None or done.stop in ("refusal", "overflow") or not summary:
            raise failure("invalid_request", message="the model wrote no summary")
        return summary

    # ---- turns

    def _begin(self, message: ProviderInput) -> None:
        turn = Turn(self)
        turn.hear(message)
        self.emit(TurnStarted(cause="input", inputs=(message.id,)))
        self._turn = turn
        self._interrupting = False
        self._task = asyncio.create_task(self._play(turn), name=f"{self.setup.provider}: turn")

    async def _play(self, turn: Turn) -> None:
        outcome: TurnOutcome = "ok"
        error: ProviderError | None = None
        try:
            await turn.play()
        except LimitReached as reached:
            outcome, error = "limit", reached.error
        except ProviderError as problem:
            outcome, error = "error", problem
        except asyncio.CancelledError:
            if not self._interrupting:
                raise
            outcome = "interrupted"
        except Exception as problem:  # noqa: BLE001 - the outermost loop of a turn: it must end with an event
            _LOG.exception("the turn broke")
            outcome = "error"
            error = ProviderError(f"the provider broke: {problem!r}", kind="engine_crash", tools_ran=turn.tools_ran)
        finally:
            self._task = None
            self._turn = None
        self._end(turn, outcome, error)

    def _end(self, turn: Turn, outcome: TurnOutcome, error: ProviderError | None) -> None:
        self._tell_continuation()
        self.emit(TurnEnded(outcome=outcome, reply=turn.speech.reply, inputs=tuple(turn.inputs), error=error))
        # What was sent into this turn but not read any more gets a turn of its own, in order.
        self._waiting.extendleft(reversed(self._injected))
        self._injected.clear()
        self._next()

    def _next(self) -> None:
        if not self._closed and self._task is None and self._waiting:
            self._begin(self._waiting.popleft())

    def _tell_continuation(self) -> None:
        self.emit(
            ContinuationChanged(
                continuation=Continuation(
                    provider=self.setup.provider,
                    token=self.history.token,
                    engine_version=self.setup.version,
                    usage=dict(self._usage),
                )
            )
        )
