"""One turn: it plays actions one after the other and turns them into events."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jackfield.api import (
    Notice,
    ProviderInput,
    RateLimitedUntil,
    Retrying,
    TextDelta,
    TextDiscarded,
    TextDone,
    Thinking,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Usage,
)
from jackfield.errors import ProviderError, ProviderErrorKind, ProviderScope

from jackfield_provider_mock.prompt import Heard
from jackfield_provider_mock.say import Say

if TYPE_CHECKING:
    from jackfield_provider_mock import actions as do
    from jackfield_provider_mock.session import MockSession

__all__ = ["Stopped", "Turn"]

_FIELD = re.compile(r"\{(text|last|sender|result|turn|inputs)\}")
_PIECES = 40
_RETRYABLE: frozenset[ProviderErrorKind] = frozenset({"rate_limited", "overloaded", "server", "network", "stalled"})
_SCOPES: dict[ProviderErrorKind, ProviderScope] = {
    "auth": "credential", "billing": "credential",
    "engine_missing": "provider", "config": "provider", "engine_crash": "session", "continuation_lost": "session",
}  # fmt: skip


class Stopped(Exception):
    """The turn ends at a limit."""


class Turn:
    """What was heard, what was said, and how far it is."""

    def __init__(self, session: MockSession) -> None:
        self._session = session
        self.inputs: list[str] = []
        self.prompt = ""
        self.steps: list[int] = []
        """Steps of the script that are used up unless this turn will be repeated."""
        self.tools_ran = False
        self.metered = False
        """Whether the script has reported what was used."""
        self.hurry = asyncio.Event()
        """Set to cut a wait short."""
        self._heard: list[Heard] = []
        self._said: list[str] = []
        self._result: str | None = None
        self._unsaid: str | None = None
        """What is said at the end unless something else is said before: a tool's result."""
        self._block = 0
        self._calls = 0

    @property
    def reply(self) -> str | None:
        """The whole text so far; None when nothing was said."""
        return "\n\n".join(self._said) if self._said else None

    def hear(self, message: ProviderInput, heard: Sequence[Heard]) -> None:
        """Take an input's messages in."""
        self.inputs.append(message.id)
        self.prompt = message.text if not self.prompt else f"{self.prompt}\n\n{message.text}"
        self._heard.extend(heard)
        for item in heard:
            self._session.memory.remember("<", item.text)

    async def play(self, actions: Sequence[tuple[str, do.Action]]) -> None:
        """Do these actions, and those of what is sent into the turn meanwhile.

        Raises:
            ProviderError: an action said so.
        """
        self._session.memory.save()
        if self._session.settings.delay:
            await self._pause(self._session.settings.delay)
        queue = deque(actions)
        while True:
            queue.extend(self._session.take_injected())
            if not queue:
                if self._unsaid is None:
                    return
                await self._say(self._unsaid)
                continue
            name, action = queue.popleft()
            await self._do(name, action)

    async def _do(self, name: str, action: do.Action) -> None:
        if isinstance(action, Say):
            await self._say(self._fill(action.say))
            return
        from jackfield_provider_mock import actions as do

        session = self._session
        match action:
            case do.Stream():
                await self._stream(action)
            case do.Think():
                session.emit(Thinking(text=self._fill(action.think)))
            case do.Call():
                await self._call(action.call, {key: self._fill_value(value) for key, value in action.arguments.items()})
            case do.Ask():
                arguments: dict[str, object] = {
                    "title": action.title,
                    "question": self._fill(action.ask),
                    "options": list(action.options),
                    "timeout": action.timeout,
                }
                if action.to is not None:
                    arguments["to"] = action.to
                await self._call("ask_user_question", arguments)
            case do.Wait():
                await self._pause(action.wait)
            case do.Fail():
                if session.memory.due(name, action.times):
                    raise self._failure(action)
                self._unsaid = f"recovered after {action.times} x {action.fail}"
            case do.Crash():
                if session.memory.due(name, action.times):
                    session.memory.save()
                    _crash(action.crash)
                self._unsaid = f"recovered after {action.times} x crash"
            case do.Hang():
                if session.memory.due(name, action.times):
                    await _hang(action.hang)
                self._unsaid = f"recovered after {action.times} x hang"
            case do.Retry():
                session.emit(
                    Retrying(
                        attempt=action.attempt,
                        delay=action.retry,
                        kind=action.kind,
                        of=action.of,
                        status=action.status,
                    )
                )
                await self._pause(action.retry)
            case do.Limit():
                session.emit(RateLimitedUntil(seconds=action.limit, window=action.window))
            case do.Compact():
                await session.compact()
            case do.Lose():
                session.lose(action.lose)
            case do.Recall():
                lines = session.memory.lines[:-1]
                await self._say("I remember:\n" + "\n".join(lines) if lines else "I remember nothing.")
            case do.Show():
                await self._say(self._shown(action.show))
            case do.Write():
                await self._say(_write(Path(session.spec.cwd), action.write, self._fill(action.text)))
            case do.Note():
                session.emit(Notice(level=action.level, text=self._fill(action.note), code="mock"))
            case do.Quiet():
                self._unsaid = None
            case do.Later():
                session.later(action.later, self._fill(action.text))
            case do.Aside():
                session.emit(TextDone(block=self._block, text=self._fill(action.aside), final=False))
                self._block += 1
            case do.Own():
                await self._own(action)
            case do.Use():
                self._use(action)
            case do.Die():
                if session.memory.due(name, action.times):
                    session.die(action.die)
                    await asyncio.Event().wait()  # nobody hears of this turn any more
                self._unsaid = f"recovered after {action.times} x die"
            case do.Stop():
                raise Stopped

    # ---- text

    async def _say(self, text: str) -> None:
        if self._session.settings.stream:
            size = max(20, -(-len(text) // _PIECES))
            for start in range(0, len(text), size):
                self._session.emit(TextDelta(block=self._block, text=text[start : start + size]))
        self._done(text)

    async def _stream(self, action: do.Stream) -> None:
        for chunk in action.chunks:
            self._session.emit(TextDelta(block=self._block, text=self._fill(chunk)))
            await asyncio.sleep(action.every)
        if action.cut:
            self._session.emit(TextDiscarded(block=self._block))
            self._block += 1
        else:
            self._done(self._fill("".join(action.chunks)).rstrip())

    def _done(self, text: str) -> None:
        self._session.emit(TextDone(block=self._block, text=text))
        self._block += 1
        self._said.append(text)
        self._unsaid = None

    def _fill(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            match found[1]:
                case "text":
                    return "\n".join(item.text for item in self._heard)
                case "last":
                    return self._heard[-1].text if self._heard else ""
                case "sender":
                    return self._heard[-1].sender if self._heard else ""
                case "result":
                    return found[0] if self._result is None else self._result
                case "turn":
                    return str(self._session.memory.turns)
                case _:
                    return str(len(self._heard))

        return _FIELD.sub(value, text)

    def _fill_value(self, value: object) -> object:
        return self._fill(value) if isinstance(value, str) else value

    def _shown(self, what: str) -> str:
        spec = self._session.spec
        match what:
            case "prompt":
                return _fenced(self.prompt)
            case "system":
                return spec.system_prompt or "(no system prompt)"
            case "tools":
                return "\n".join(f"{tool.name}: {tool.description}" for tool in spec.tools) or "(no tools)"
            case "model":
                return spec.model or "mock"
            case "gateway":
                return spec.gateway_url.rpartition("/")[0] if spec.gateway_url else "(no gateway)"
            case "env":
                return ", ".join(sorted(spec.env)) or "(empty)"
            case _:
                return spec.cwd

    # ---- tools

    async def _call(self, name: str, arguments: dict[str, object]) -> None:
        self._calls += 1
        call = f"call-{self._session.memory.turns}-{self._calls}"
        found = next((tool for tool in self._session.spec.tools if tool.name == name), None)
        self._session.emit(ToolStarted(call=call, name=name, summary=", ".join(arguments)))
        if found is None:
            known = ", ".join(sorted(tool.name for tool in self._session.spec.tools)) or "none"
            self._result = self._unsaid = f"Error: there is no tool {name!r}; the tools are: {known}"
            self._session.emit(ToolEnded(call=call, ok=False, summary=self._result))
            return
        self.tools_ran = True
        try:
            result = await found.call(arguments)
        except BaseException:
            self._session.emit(ToolEnded(call=call, ok=False, summary="cancelled"))
            raise
        self._result = self._unsaid = result.text
        self._session.emit(ToolEnded(call=call, ok=not result.is_error, summary=result.text[:200]))

    async def _own(self, action: do.Own) -> None:
        self._calls += 1
        call = f"call-{self._session.memory.turns}-{self._calls}"
        emit = self._session.emit
        emit(
            ToolStarted(call=call, name=action.own, source="builtin", summary=action.summary, deadline=action.deadline)
        )
        self.tools_ran = True
        for text in action.progress:
            emit(ToolProgress(call=call, text=text))
        if action.seconds:
            await self._pause(action.seconds)
        emit(ToolEnded(call=call, ok=action.ok, summary=action.summary))

    def _use(self, action: do.Use) -> None:
        self.metered = True
        self._session.emit(
            Usage(
                scope="request",
                model=action.use,
                input=action.input,
                cache_read=action.cache_read,
                cache_write=action.cache_write,
                output=action.output,
                reasoning=action.reasoning,
                cost=action.cost,
            )
        )

    # ---- time and trouble

    async def _pause(self, seconds: float) -> None:
        self.hurry.clear()
        try:
            await asyncio.wait_for(self.hurry.wait(), seconds)
        except TimeoutError:
            return

    def _failure(self, action: do.Fail) -> ProviderError:
        tools_ran = self.tools_ran if action.tools_ran is None else action.tools_ran
        return ProviderError(
            action.message or f"the mock was told to fail: {action.fail}",
            kind=action.fail,
            retryable=action.fail in _RETRYABLE if action.retryable is None else action.retryable,
            retry_after=action.retry_after,
            status=action.status,
            scope=action.scope or _SCOPES.get(action.fail, "turn"),
            tools_ran=tools_ran,
            fresh_session_helps=action.fresh_session_helps,
            message_for_user=action.message_for_user,
        )


def _fenced(text: str) -> str:
    """As code, so that the tags in it are shown and not obeyed; the fence is longer than any in the text."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _crash(how: str | int) -> None:
    if isinstance(how, int):
        os._exit(how)
    os.kill(os.getpid(), signal.SIGKILL)


async def _hang(how: str) -> None:
    if how == "blocking":
        while True:
            time.sleep(3600)  # noqa: ASYNC251 - holding up the event loop is what was asked for
    await asyncio.Event().wait()


def _write(folder: Path, name: str, text: str) -> str:
    """Write below the folder, and tell what was done."""
    root = folder.resolve()
    path = (root / name).resolve()
    if root not in path.parents:
        return f"mock: {name!r} is outside of the workspace, nothing was written"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return f"wrote {len(text.encode())} bytes to {path.relative_to(root)}"
