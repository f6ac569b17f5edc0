"""A provider for tests: what it does in each turn is said by the last line of the prompt's last message.

`say <text>` answers; `fail <kind>` ends the turn with an error; `call <tool> <json>` calls a tool; lines are done in
order; `hang` waits for an interruption; `wait` waits for another input; `slow <seconds> <text>` streams the text.
Everything it is given is written to the file that `settings.log` names.
"""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
import signal
from typing import Annotated, Any, Literal

from jackfield.api import (
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    InputTaken,
    ProviderCapabilities,
    ProviderType,
    Retrying,
    SessionClosed,
    SessionReady,
    TextDelta,
    TextDone,
    ToolEnded,
    ToolFailed,
    ToolSet,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    hookimpl,
    tool,
)
from jackfield.errors import ProviderError
from jackfield.models import Choice, Prompt
from pydantic import BaseModel

_TEXT = re.compile(
    r"<(?:message|task|webhook|notice)\b[^>]*>(?:\s*<quoted_message.*?</quoted_message>\n)?(.*?)</", re.S
)


class Settings(BaseModel):
    log: str
    inject: Literal["no", "queue", "next_step"] = "next_step"
    in_process: bool = True
    lose: str = ""
    mend: str = '<message to="nobody">again</message>'
    interrupt: bool = True
    resume: bool = True


class Scripted:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(
            text_deltas=True,
            inject=self.settings.inject,
            consumed_input_ids=True,
            unsolicited_turns=True,
            interrupt=self.settings.interrupt,
            resume=self.settings.resume,
            compaction=True,
            in_process_tools=self.settings.in_process,
            native_commands=("/native",),
        )

    async def probe(self) -> Any: ...

    async def open(self, spec: Any, continuation: Continuation | None) -> Session:
        self.note(opened=continuation.token if continuation else None, system=spec.system_prompt, cwd=spec.cwd)
        if continuation is not None and self.settings.lose == "open":
            raise ProviderError("no such conversation", kind="continuation_lost")
        return Session(self, spec, continuation)

    def note(self, **what: Any) -> None:
        with open(self.settings.log, "a") as file:
            file.write(json.dumps(what) + "\n")


class Session:
    def __init__(self, provider: Scripted, spec: Any, continuation: Continuation | None) -> None:
        self.provider = provider
        self.spec = spec
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None
        self.more: list[Any] = []
        self.came = asyncio.Event()
        self.resumed = continuation is not None
        self.token = continuation.token if continuation else os.urandom(4).hex()
        self.emit(SessionReady(engine="scripted"))
        if continuation is not None and provider.settings.lose == "event":
            self.token = os.urandom(4).hex()
            self.emit(ContinuationLost(reason="gone"))

    def emit(self, event: Any) -> None:
        self.queue.put_nowait(event)

    async def events(self) -> Any:
        while True:
            event = await self.queue.get()
            yield event
            if isinstance(event, SessionClosed):
                return

    async def send(self, message: Any) -> str:
        self.provider.note(prompt=message.text, when=message.when, pid=os.getpid())
        self.refuse(message.text)
        if self.task is not None:
            self.more.append(message)
            self.came.set()
            return "injected" if message.when == "next_boundary" else "queued"
        self.begin(message)
        return "started"

    def refuse(self, text: str) -> None:
        if "refuse me" in text:
            raise RuntimeError("a bug of the provider")

    def begin(self, message: Any) -> None:
        self.emit(TurnStarted(inputs=(message.id,)))
        self.emit(ContinuationChanged(continuation=Continuation(provider="scripted", token=self.token)))
        self.task = asyncio.create_task(self.play([message]))

    async def play(self, inputs: list[Any]) -> None:
        said: list[str] = []
        outcome, error = "ok", None
        try:
            done = 0
            while done < len(inputs):
                await self.act(inputs[done].text, said, inputs)
                done += 1
        except ProviderError as problem:
            outcome, error = "error", problem
        except asyncio.CancelledError:
            outcome = "interrupted"
        self.task = None
        self.emit(Usage(scope="turn", input=5, cache_read=2, output=3, cost=0.5, context_used=11, context_limit=100))
        self.emit(
            TurnEnded(
                outcome=outcome,
                reply="\n".join(said) if said else None,
                inputs=tuple(item.id for item in inputs),
                error=error,
            )
        )
        if self.more:
            self.begin(self.more.pop(0))

    async def act(self, prompt: str, said: list[str], inputs: list[Any]) -> None:
        if '<notice subject="delivery">' in prompt:
            said.append(self.provider.settings.mend)
            return
        found = _TEXT.findall(prompt)
        text = html.unescape(found[-1]) if found else prompt
        for line in text.strip().splitlines():
            verb, _, rest = line.partition(" ")
            match verb:
                case "say":
                    said.append(rest.replace("\\n", "\n"))
                case "fail":
                    kind, _, flags = rest.partition(" ")
                    if "again" in flags or not self.resumed:
                        raise ProviderError(f"told to fail: {kind}", kind=kind, retryable="retry" in flags)
                    said.append("recovered")
                case "until_recap":
                    if "<recap>" not in prompt:
                        raise ProviderError(f"told to fail: {rest}", kind=rest)  # type: ignore[arg-type]  # a test says it
                    said.append("begun anew")
                case "call":
                    name, _, arguments = rest.partition(" ")
                    said.append(await self.call(name, json.loads(arguments or "{}")))
                case "quiet":
                    name, _, arguments = rest.partition(" ")
                    await self.call(name, json.loads(arguments or "{}"))
                case "remote":
                    name, _, arguments = rest.partition(" ")
                    said.append(await self.remote(name, json.loads(arguments or "{}")))
                case "hang":
                    await asyncio.Event().wait()
                case "deaf":
                    while True:
                        try:
                            await asyncio.Event().wait()
                        except asyncio.CancelledError:
                            continue
                case "wait":
                    self.came.clear()
                    while not self.more:
                        await self.came.wait()
                        self.came.clear()
                    taken, self.more = self.more, []
                    self.emit(InputTaken(inputs=tuple(item.id for item in taken)))
                    inputs.extend(taken)
                case "interim":
                    self.emit(TextDone(block=0, text=rest.replace("\\n", "\n"), final=False))
                case "slow":
                    seconds, _, words = rest.partition(" ")
                    words = words.replace("\\n", "\n")
                    for start in range(0, len(words), 4):
                        self.emit(TextDelta(block=0, text=words[start : start + 4]))
                        await asyncio.sleep(float(seconds))
                    said.append(words)
                case "die":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "close":
                    self.task = None
                    self.emit(SessionClosed(reason="it fell over", stderr_tail="boom"))
                    await asyncio.Event().wait()
                case "later":
                    asyncio.get_running_loop().call_later(0.1, self.spontaneous, rest)
                case "lost":
                    if self.resumed:
                        raise ProviderError("no conversation found", kind="continuation_lost")
                    said.append(rest)
                case "retry":
                    self.emit(Retrying(attempt=1, delay=float(rest), kind="overloaded"))
                    await asyncio.sleep(float(rest))
                case "block":
                    import time

                    time.sleep(float(rest))
                    said.append("unblocked")
                case _:
                    said.append(line)

    def spontaneous(self, text: str) -> None:
        self.emit(TurnStarted(cause="engine"))
        self.emit(TurnEnded(outcome="ok", reply=text))

    async def call(self, name: str, arguments: dict[str, Any]) -> str:
        found = next(tool for tool in self.spec.tools if tool.name == name)
        self.emit(ToolStarted(call="1", name=name))
        result = await found.call(arguments)
        self.emit(ToolEnded(call="1", ok=not result.is_error))
        return result.text

    async def remote(self, name: str, arguments: dict[str, Any]) -> str:
        import httpx2
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client

        (endpoint,) = self.spec.endpoints
        self.emit(ToolStarted(call="1", name=f"mcp__jackfield__{name}"))
        http = httpx2.AsyncClient(headers=endpoint.headers, timeout=30)
        async with http, Client(streamable_http_client(endpoint.url, http_client=http)) as client:
            result = await client.call_tool(name, arguments)
        self.emit(ToolEnded(call="1", ok=True))
        return str(result.content[0].text)

    async def interrupt(self, *, grace: float) -> None:
        if self.task is not None:
            self.task.cancel()

    async def compact(self, instructions: str | None = None) -> None:
        self.provider.note(compacted=True)

    async def close(self, *, deadline: float) -> None:
        if self.task is not None:
            self.task.cancel()
        self.provider.note(closed=True)
        self.emit(SessionClosed(reason="closed"))


@tool
async def send_message(context: Any, text: str, to: Annotated[str | None, "the name of a destination"] = None) -> str:
    """Send a message."""
    sent = await context.send(text=text, to=to)
    return f"Message sent to {sent.name} (id: {sent.seq})"


@tool
async def send_file(context: Any, path: str) -> str:
    """Send a file."""
    from pathlib import Path

    return f"sent {(await context.send(text='see', files=[Path(path)])).seq}"


@tool
async def react(context: Any, message_id: int, emoji: str) -> str:
    """React."""
    await context.react(message_id, emoji)
    return "reacted"


@tool
async def edit(context: Any, message_id: int, text: str) -> str:
    """Edit."""
    await context.edit(message_id, text)
    return "edited"


@tool
async def nap(context: Any, seconds: float) -> str:
    """Sleep a while."""
    await asyncio.sleep(seconds)
    return "rested"


@tool(timeout=0.2)
async def sleepy(context: Any) -> str:
    """Sleep for ever."""
    await asyncio.Event().wait()
    return "never"


@tool
async def break_down(context: Any) -> str:
    """Break."""
    raise RuntimeError("a secret of the inside")


@tool
async def refuse(context: Any) -> str:
    """Refuse."""
    raise ToolFailed("not today")


@tool(timeout=0.2)
async def ask(context: Any, question: str, seconds: float = 20.0) -> str:
    """Ask a person."""
    prompt = Prompt("", "Question", question, (Choice("yes", "Yes"), Choice("no", "No")))
    return str(await context.ask(prompt, timeout=seconds))


@tool
async def act(context: Any, name: str, seconds: float = 20.0) -> str:
    """Ask the host."""
    return json.dumps(await context.act(name, {"a": 1}, timeout=seconds))


@tool
async def add(context: Any, a: Annotated[int, "the first"], b: int = 2) -> str:
    """Add two numbers."""
    return str(a + b)


@hookimpl
def register_providers() -> Any:
    return [ProviderType(name="scripted", title="Scripted", create=Scripted, settings=Settings)]


@hookimpl
def register_tools() -> Any:
    tools = (send_message, send_file, react, edit, nap, sleepy, break_down, refuse, ask, act, add)
    return [ToolSet(name="scripted", title="Scripted tools", tools=tools, instructions="Use them well.")]
