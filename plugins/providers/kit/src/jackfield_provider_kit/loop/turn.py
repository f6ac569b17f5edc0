"""One turn: requests and tool calls by turns, until the model has nothing more to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jackfield.api import Notice, ProviderInput, RateLimitedUntil, Retrying
from jackfield.api import Thinking as Thought
from jackfield.errors import ProviderError

from jackfield_provider_kit.errors import failure, failure_of
from jackfield_provider_kit.loop.blocks import Block, Text, ToolCall, ToolOutput
from jackfield_provider_kit.loop.compacting import size_of
from jackfield_provider_kit.loop.mending import lighten
from jackfield_provider_kit.loop.retrying import TRIES, next_wait
from jackfield_provider_kit.loop.speech import Speech
from jackfield_provider_kit.loop.wire import BlockDone, ReplyDone, Request, TextPart, ThinkingPart

if TYPE_CHECKING:
    from jackfield_provider_kit.loop.session import LoopSession

__all__ = ["LimitReached", "Turn"]

_CONTINUES = 3
"""How often a reply that was cut at the output limit is asked to go on."""
_GO_ON = "(Your answer was cut at the output limit. Go on exactly where it stopped; repeat nothing.)"
_CUT_CALL = "(Your answer was cut at the output limit, in the middle of a tool call. Go on, with shorter arguments.)"
_FULL = 0.8
"""The share of the window above which room is made before the next request."""
_WORTHWHILE = 0.2
"""The share of the window that must be foldable for a compaction to help."""


class LimitReached(Exception):
    """The turn has used up what it may."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(slots=True)
class _Reply:
    blocks: dict[int, Block] = field(default_factory=dict)
    done: ReplyDone | None = None
    growing: dict[int, str] = field(default_factory=dict)
    """Texts that are not complete, by index."""

    @property
    def calls(self) -> list[ToolCall]:
        return [block for _, block in sorted(self.blocks.items()) if isinstance(block, ToolCall)]

    @property
    def texts(self) -> dict[int, str]:
        return {index: block.text for index, block in self.blocks.items() if isinstance(block, Text)}


class Turn:
    """Raises `ProviderError` when it fails and `LimitReached` at a hard stop; cancelled, it leaves a sound history."""

    def __init__(self, session: LoopSession) -> None:
        self.inputs: list[str] = []
        self.texts: list[str] = []
        """What those inputs said."""
        self.tools_ran = False
        self.speech = Speech(session.emit)
        self._session = session
        self._mark = session.history.mark()
        self._began = asyncio.get_running_loop().time()
        self._requests = 0
        self._tokens = 0
        self._waited = 0.0
        self._compactions = 0
        self._in_vain = 0
        self._gave_up = False
        """A compaction failed: no other one before it must be."""
        self._overflowed = False
        self._lightened = 0
        self._continued = 0
        self._reply = _Reply()

    def hear(self, message: ProviderInput) -> None:
        """Take an input into the conversation."""
        history = self._session.history
        self.inputs.append(message.id)
        self.texts.append(message.text)
        if not history.ends_with(message.text):
            history.add("user", Text(message.text))

    async def play(self) -> None:
        """See it through.  `speech.reply` is what it said."""
        try:
            while True:
                self._session.take_injected()
                self._stop_at_limits()
                await self._make_room()
                reply = await self._ask()
                if not await self._after(reply) and not self._session.has_injected:
                    return
        except asyncio.CancelledError:
            self._keep_partial()
            raise
        except ProviderError as error:
            error.tools_ran = error.tools_ran or self.tools_ran
            if not error.tools_ran:
                # Whoever tries again sends the prompt again; and a prompt that no API takes must not stay for ever.
                self._session.history.back_to(self._mark)
            raise
        finally:
            self.speech.release()

    # ---- after a reply

    async def _after(self, reply: _Reply) -> bool:
        """Do what the reply asks for; whether the model is to be asked again."""
        done = reply.done
        assert done is not None
        calls, history = reply.calls, self._session.history
        if done.stop == "refusal" and not calls:
            self.speech.take_back()
            raise failure("refusal", message=done.detail or "the model refused to answer")
        history.add("assistant", *(block for _, block in sorted(reply.blocks.items())))
        cut = done.stop == "max_output"
        self.speech.said(reply.texts, final=not calls, goes_on=cut and not calls)
        if cut and self._continued >= _CONTINUES:
            limit = self._session.setup.max_output
            raise failure("output_limit", message=f"the answer is longer than {_CONTINUES + 1} x {limit} tokens")
        self._continued += cut
        if calls:
            await self._call(calls)
            return True
        if cut:
            history.add("user", Text(_CUT_CALL if done.detail == "call" else _GO_ON))
        return cut or done.stop == "pause"

    async def _call(self, calls: Sequence[ToolCall]) -> None:
        outputs: dict[str, ToolOutput] = {}
        self.tools_ran = True
        try:
            await self._session.tools.run(calls, outputs)
        finally:
            self._session.history.add("user", *(outputs[call.id] for call in calls if call.id in outputs))

    def _keep_partial(self) -> None:
        """What was said before an interruption stays in the conversation; a call that was not made does not."""
        reply, self._reply = self._reply, _Reply()
        texts = {**reply.growing, **reply.texts}
        kept = [Text(text) for _, text in sorted(texts.items()) if text.strip()]
        if kept:
            self._session.history.add("assistant", *kept)

    # ---- asking

    async def _ask(self) -> _Reply:
        """A whole reply, whatever it takes inside the turn's budget."""
        attempt = 0
        while True:
            try:
                return await self._once()
            except ProviderError as error:
                self.speech.take_back()
                if error.kind == "context_overflow":
                    await self._overflow(error)
                    continue
                if self._lighten(error):
                    continue
                attempt += 1
                await self._wait(error, attempt)

    async def _once(self) -> _Reply:
        session = self._session
        request = Request(
            system=session.spec.system_prompt,
            messages=session.history.messages(),
            tools=session.tools.specs(),
            max_output=session.setup.max_output,
        )
        self._requests += 1
        self._reply = reply = _Reply()
        idle = session.setup.limits.idle_seconds or None
        try:
            async with aclosing(session.wire.stream(request)) as parts:
                async with asyncio.timeout(idle) as timer:
                    async for part in parts:
                        if idle is not None:
                            timer.reschedule(asyncio.get_running_loop().time() + idle)
                        self._take(reply, part)
        except TimeoutError as problem:
            raise failure("stalled", message=f"the model said nothing for {idle:g} seconds") from problem
        except Exception as problem:
            raise failure_of(problem) from problem
        if reply.done is None:
            raise failure("network", message="the stream ended before the reply did")
        self._reply = _Reply()
        self._count(reply.done, reply)
        if reply.done.stop == "overflow":
            raise failure("context_overflow", message="the conversation has filled the model's context window")
        return reply

    def _take(self, reply: _Reply, part: object) -> None:
        match part:
            case TextPart():
                reply.growing[part.index] = reply.growing.get(part.index, "") + part.text
                self.speech.grow(part.index, part.text)
            case ThinkingPart():
                self._session.emit(Thought(text=part.text))
            case BlockDone():
                reply.growing.pop(part.index, None)
                reply.blocks[part.index] = _told_apart(part.block, reply)
            case ReplyDone():
                reply.done = part

    def _count(self, done: ReplyDone, reply: _Reply) -> None:
        tokens = self._session.count(done, list(reply.blocks.values()))
        self._tokens += tokens.input + tokens.cache_write + tokens.output

    # ---- trouble

    async def _wait(self, error: ProviderError, attempt: int) -> None:
        session = self._session
        delay = next_wait(error, attempt, self._waited, session.spec.wait_budget, session.share())
        if delay is None:
            if error.kind == "rate_limited" and error.retry_after is not None:
                session.emit(RateLimitedUntil(seconds=error.retry_after))
            raise error
        session.emit(Retrying(attempt=attempt, of=TRIES, delay=delay, kind=error.kind, status=error.status))
        self._waited += delay
        await session.pause(delay)
        self._stop_at_limits()

    async def _overflow(self, error: ProviderError) -> None:
        """Fold the conversation and try again, once in a turn; with nothing to fold there is no hope."""
        if self._overflowed or not self._foldable:
            raise error
        self._overflowed = True
        if not await self._compact():
            raise error

    def _lighten(self, error: ProviderError) -> bool:
        """Leave out what made the request too large or unreadable, twice at most; whether there was anything."""
        if error.kind != "invalid_request" or self._lightened >= 2:
            return False
        history = self._session.history
        lighter = lighten(history.said, error)
        if lighter is None:
            return False
        self._lightened += 1
        history.replace(lighter)
        self._session.emit(
            Notice(level="warning", code="history_lightened", text=f"left out what could not be sent: {error.message}")
        )
        return True

    # ---- room

    @property
    def _foldable(self) -> int:
        """About how many tokens a compaction could fold: all but what this turn was asked."""
        return size_of([block for _, block in self._session.history.said]) - size_of([Text(t) for t in self.texts])

    async def _make_room(self) -> None:
        session = self._session
        window = session.setup.window
        full = session.context > window * _FULL and self._foldable > window * _WORTHWHILE
        if session.wants_compaction or (full and not self._gave_up):
            self._gave_up = not await self._compact()

    async def _compact(self) -> bool:
        """Raises `ProviderError` of kind livelock when it comes too often or is in vain (spec 7, hard stops)."""
        session = self._session
        limit = session.setup.limits.compactions
        if (limit and self._compactions >= limit) or self._in_vain >= 2:
            raise failure("livelock", message=f"compacted {self._compactions} times in one turn without end")
        self._compactions += 1
        before = session.context
        done = await session.fold(self.texts, in_the_middle=self.tools_ran)
        self._in_vain += done and session.context > before * 0.8
        return done

    def _stop_at_limits(self) -> None:
        limits = self._session.setup.limits
        seconds = asyncio.get_running_loop().time() - self._began
        used = (
            ("requests", self._requests, limits.requests),
            ("tokens", self._tokens, limits.tokens),
            ("seconds", seconds, limits.seconds),
        )
        for name, count, limit in used:
            if limit and count >= limit:
                words = f"the turn was stopped at its limit of {limit:g} {name}"
                raise LimitReached(failure("budget", message=words, tools_ran=self.tools_ran))


def _told_apart(block: Block, reply: _Reply) -> Block:
    """Some servers give two calls of one reply the same id, or none."""
    if not isinstance(block, ToolCall):
        return block
    taken = {call.id for call in reply.calls}
    wanted = block.id or "call"
    free = wanted
    number = 1
    while not free or free in taken:
        number += 1
        free = f"{wanted}_{number}"
    return block if free == block.id else ToolCall(free, block.name, block.arguments, block.broken)
