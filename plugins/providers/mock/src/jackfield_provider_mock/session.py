"""One session: its queue of inputs, its turns, its one stream of events."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING

from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    InputTaken,
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

from jackfield_provider_mock.memory import Memory
from jackfield_provider_mock.prompt import Heard, read_prompt
from jackfield_provider_mock.say import Say
from jackfield_provider_mock.turn import Stopped, Turn

if TYPE_CHECKING:
    from jackfield_provider_mock.actions import Action
    from jackfield_provider_mock.defaults import Defaults
    from jackfield_provider_mock.script import Step
    from jackfield_provider_mock.settings import MockSettings

__all__ = ["MockSession"]

_LOG = logging.getLogger(__name__)
_CONTEXT_LIMIT = 200_000
_COMMAND = "mock:"


class MockSession:
    """A conversation that is played rather than thought.

    Everything runs in one event loop and a decision never awaits, so an input that is sent is either taken by the
    running turn or begins one; none falls between.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        settings: MockSettings | Defaults,
        steps: Sequence[Step],
        memory: Memory,
        *,
        version: str = "",
        lost: str | None = None,
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._steps = steps
        self._memory = memory
        self._version = version
        self._events: asyncio.Queue[ProviderEvent] = asyncio.Queue()
        self._waiting: deque[ProviderInput] = deque()
        self._injected: deque[ProviderInput] = deque()
        self._timers: set[asyncio.Task[None]] = set()
        self._spontaneous: deque[str] = deque()
        self._task: asyncio.Task[None] | None = None
        self._turn: Turn | None = None
        self._interrupting = False
        self._closed = False
        self._emit(
            SessionReady(
                engine="mock",
                version=version,
                model=spec.model or "mock",
                tools=tuple(tool.name for tool in spec.tools),
            )
        )
        if lost is not None:
            self._emit(ContinuationLost(reason=lost))
        memory.save()
        self._emit(ContinuationChanged(continuation=self._continuation()))

    # ---- what the runner calls

    async def events(self) -> AsyncIterator[ProviderEvent]:
        """The stream of this session; to be read by one reader."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionClosed):
                return

    async def send(self, message: ProviderInput) -> SendReceipt:
        """Take a prompt: it starts a turn, joins the running one at its next action, or waits for its end."""
        if self._closed:
            return "rejected"
        if self._task is None:
            self._begin(message)
            return "started"
        if message.when == "after_turn":
            self._waiting.append(message)
            return "queued"
        self._injected.append(message)
        if message.when == "now" and self._turn is not None:
            self._turn.hurry.set()
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
        """Fold what was said into one line, as an engine does between turns."""
        before = self._tokens(*self._memory.lines)
        self._emit(Compacting(phase="started", before=before))
        folded = f"* {len(self._memory.lines)} lines, compacted"
        self._memory.fold(f"{folded}: {instructions}" if instructions else folded)
        self._memory.save()
        self._emit(Compacting(phase="ended", before=before, after=self._tokens(*self._memory.lines)))

    async def close(self, *, deadline: float) -> None:
        """End the turn and every timer, then the stream.  May be called again."""
        if self._closed and self._task is None:
            return
        said = self._closed
        self._closed = True
        self._waiting.clear()
        self._injected.clear()
        self._spontaneous.clear()
        await self.interrupt(grace=deadline)
        for timer in self._timers:
            timer.cancel()
        if self._timers:
            await asyncio.wait(set(self._timers), timeout=deadline)
        if not said:
            self._emit(SessionClosed(reason="closed", exit_code=0))

    # ---- what a turn calls

    def emit(self, event: ProviderEvent) -> None:
        """Put an event into the stream."""
        self._emit(event)

    @property
    def spec(self) -> ProviderSpec:
        return self._spec

    @property
    def settings(self) -> MockSettings | Defaults:
        return self._settings

    @property
    def memory(self) -> Memory:
        return self._memory

    def lose(self, when: str) -> None:
        """Forget the conversation, now or once somebody wants to resume it."""
        self._memory.doomed = True
        self._memory.save()
        if when == "now":
            self._memory = Memory.begin(self._memory.folder)
            self._memory.save()
            self._emit(ContinuationLost(reason="the script lost it"))
            self._emit(ContinuationChanged(continuation=self._continuation()))

    def die(self, reason: str) -> None:
        """The engine ends in the middle of its turn."""
        self._closed = True
        self._emit(SessionClosed(reason=reason, exit_code=1, stderr_tail="mock: told to die"))

    def later(self, seconds: float, text: str) -> None:
        """Say `text` in a turn of its own once the seconds have passed and no other turn runs."""

        async def wake() -> None:
            await asyncio.sleep(seconds)
            self._spontaneous.append(text)
            self._next()

        self._spawn(wake())

    def take_injected(self) -> list[tuple[str, Action]]:
        """The actions of what was sent into the running turn, named by place."""
        if not self._injected:
            return []
        taken = list(self._injected)
        self._injected.clear()
        self._emit(InputTaken(inputs=tuple(message.id for message in taken)))
        found: list[tuple[str, Action]] = []
        for message in taken:
            heard = read_prompt(message.text)
            if self._turn is not None:
                self._turn.hear(message, heard)
            found.extend(self._actions(heard))
        return found

    # ---- turns

    def _begin(self, message: ProviderInput) -> None:
        heard = read_prompt(message.text)
        turn = Turn(self)
        turn.hear(message, heard)
        self._emit(TurnStarted(cause="input", inputs=(message.id,)))
        self._run(turn, lambda: self._actions(heard))

    def _run(self, turn: Turn, plan: Callable[[], list[tuple[str, Action]]]) -> None:
        self._turn = turn
        self._interrupting = False
        self._task = asyncio.create_task(self._play(turn, plan), name="mock turn")

    async def _play(self, turn: Turn, plan: Callable[[], list[tuple[str, Action]]]) -> None:
        outcome: TurnOutcome = "ok"
        error: ProviderError | None = None
        self._memory.turns += 1
        try:
            await turn.play(plan())
        except ProviderError as problem:
            outcome, error = "error", problem
        except Stopped:
            outcome = "limit"
        except asyncio.CancelledError:
            if not self._interrupting:
                raise
            outcome = "interrupted"
        except Exception as problem:  # noqa: BLE001 - the outermost loop of a turn: it must end with an event
            _LOG.exception("the mock's turn broke")
            outcome = "error"
            error = ProviderError(f"the mock broke: {problem!r}", kind="engine_crash", tools_ran=turn.tools_ran)
        finally:
            self._task = None
            self._turn = None
        self._end(turn, outcome, error)

    def _end(self, turn: Turn, outcome: TurnOutcome, error: ProviderError | None) -> None:
        reply = turn.reply
        if reply is not None:
            self._memory.remember(">", reply)
        if error is None or not error.retryable or error.tools_ran:
            self._memory.used.extend(turn.steps)
        self._memory.save()
        heard, said = self._tokens(turn.prompt), self._tokens(reply or "")
        if not turn.metered:
            self._emit(
                Usage(
                    scope="turn",
                    model=self._spec.model or "mock",
                    input=heard,
                    output=said,
                    context_used=self._tokens(*self._memory.lines),
                    context_limit=_CONTEXT_LIMIT,
                )
            )
        self._emit(ContinuationChanged(continuation=self._continuation()))
        self._emit(TurnEnded(outcome=outcome, reply=reply, inputs=tuple(turn.inputs), error=error))
        # What was sent into this turn but not read any more gets a turn of its own, in order.
        self._waiting.extendleft(reversed(self._injected))
        self._injected.clear()
        self._next()

    def _next(self) -> None:
        if self._closed or self._task is not None:
            return
        if self._waiting:
            self._begin(self._waiting.popleft())
        elif self._spontaneous:
            text = self._spontaneous.popleft()
            self._emit(TurnStarted(cause="engine"))
            self._run(Turn(self), lambda: [("later", Say(say=text))])

    def _actions(self, heard: Sequence[Heard]) -> list[tuple[str, Action]]:
        """What to do about these messages: a step of the script, else their commands, else the default reply."""
        if self._steps:
            from jackfield_provider_mock.script import choose

            used = [*self._memory.used, *(self._turn.steps if self._turn is not None else ())]
            index = choose(self._steps, used, heard[-1].text)
            if index is not None:
                step = self._steps[index]
                if self._turn is not None and (step.match is None or step.once):
                    self._turn.steps.append(index)
                return [(f"step {index}.{place}", action) for place, action in enumerate(step.actions)]
        if self._settings.commands and any(_COMMAND in item.text.lower() for item in heard):
            from jackfield_provider_mock.commands import read_commands

            found = [(item.text[:200], action) for item in heard for action in read_commands(item.text)]
            if found:
                return [(f"{place}: {text}", action) for place, (text, action) in enumerate(found)]
        return [("reply", Say(say=self._settings.reply))]

    # ---- small things

    def _emit(self, event: ProviderEvent) -> None:
        self._events.put_nowait(event)

    def _continuation(self) -> Continuation:
        return Continuation(
            provider="mock",
            token=self._memory.token,
            engine_version=self._version,
            usage={"turns": self._memory.turns},
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="mock timer")
        self._timers.add(task)
        task.add_done_callback(self._timers.discard)

    @staticmethod
    def _tokens(*texts: str) -> int:
        """A stand-in for a tokenizer: four characters are a token."""
        return -(-sum(map(len, texts)) // 4)
