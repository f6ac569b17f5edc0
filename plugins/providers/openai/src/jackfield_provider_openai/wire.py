"""The chat completions wire for the loop, by the `openai` package, which is imported in `prepare` only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jackfield.errors import ProviderError
from jackfield_provider_kit.client import LazyClient
from jackfield_provider_kit.errors import failure, failure_of
from jackfield_provider_kit.loop import (
    Block,
    BlockDone,
    Image,
    Message,
    Part,
    ReplyDone,
    Request,
    Stop,
    Text,
    TextPart,
    Thinking,
    ThinkingPart,
    Tokens,
    ToolCall,
    ToolOutput,
)

from jackfield_provider_openai.defaults import INSTALL, Defaults

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIWire", "body_of"]

OWN_SERVER = "https://api.openai.com/v1"
_STOPS: dict[str, Stop] = {"stop": "end", "tool_calls": "tools", "length": "max_output", "content_filter": "refusal"}
_TEXT = 0
"""The index of the reply's text; its tool calls come after it."""
_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 300.0
"""A local server may load a model, and read a long prompt, before its first byte."""


class OpenAIWire:
    """One client for the life of a session.  Nothing is tried again here: waits are the loop's."""

    def __init__(self, settings: Defaults, *, model: str, key: str, base_url: str) -> None:
        self._settings = settings
        self._model = model
        self._key = key
        self._base_url = base_url
        self._client = LazyClient("openai", INSTALL, self._make)

    async def prepare(self) -> None:
        """Import the package, in a thread because it takes a second, and make the client."""
        await self._client.get()

    def _make(self) -> AsyncOpenAI:
        from openai import AsyncOpenAI, Timeout

        client = AsyncOpenAI(
            api_key=self._key,
            base_url=self._base_url,
            max_retries=0,
            timeout=Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS),
        )
        _ = client.chat.completions  # imports its module
        return client

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """Send it; always as a stream."""
        client = await self._client.get()
        reading = _Reading()
        own = self._base_url == OWN_SERVER
        body = body_of(request, self._settings, self._model, own_server=own)
        try:
            # As `extra_body` because the package transforms its own parameters part by part, which takes tens of
            # milliseconds for a long conversation; what stands there goes first.
            chunks = await client.chat.completions.create(model=self._model, messages=[], stream=True, extra_body=body)
            async with chunks:
                async for chunk in chunks:
                    for part in reading.take(chunk):
                        yield part
            for part in reading.end():
                yield part
        except (ProviderError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as problem:
            raise failure_of(problem) from problem

    async def close(self) -> None:
        await self._client.close()


class _Reading:
    """What a stream has said so far."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refused: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}
        self._stop: Stop | None = None
        self._tokens: Tokens | None = None
        self._model = ""

    def take(self, chunk: Any) -> Iterator[Part]:
        """What a chunk of the package adds; servers leave out whatever they like."""
        self._model = str(getattr(chunk, "model", None) or self._model)
        problem = getattr(chunk, "error", None)
        if problem:
            told = problem if isinstance(problem, dict) else {"message": str(problem)}
            raise failure(
                type=str(told.get("type") or ""),
                code=str(told.get("code") or ""),
                message=str(told.get("message") or ""),
            )
        if chunk.usage is not None:
            self._tokens = _tokens(chunk.usage) or self._tokens
        for choice in (chunk.choices or ())[:1]:
            delta = choice.delta
            if choice.finish_reason is not None:
                self._stop = _STOPS.get(choice.finish_reason, "end")
            if delta is None:
                continue
            thought = getattr(delta, "reasoning_content", None) or getattr(delta, "reasoning", None)
            if isinstance(thought, str) and thought:
                yield ThinkingPart(thought)
            if delta.content:
                self._text.append(delta.content)
                yield TextPart(_TEXT, delta.content)
            if delta.refusal:
                self._refused.append(delta.refusal)
            for piece in delta.tool_calls or ():
                self._call(piece)

    def _call(self, piece: Any) -> None:
        index = piece.index if isinstance(piece.index, int) else len(self._calls)
        function = piece.function
        known = self._calls.get(index)
        if known is not None and piece.id and known["id"] and piece.id != known["id"]:
            index = max(self._calls) + 1  # a server that gives every call the index 0
            known = None
        call = known or self._calls.setdefault(index, {"id": "", "name": "", "arguments": ""})
        call["id"] = call["id"] or (piece.id or "")
        if function is not None:
            call["name"] = call["name"] or (function.name or "")
            call["arguments"] += function.arguments or ""

    def end(self) -> Iterator[Part]:
        """The whole blocks, in order."""
        if self._stop is None:
            if not self._text and not self._calls:
                return  # cut before it said anything: the loop tells so
            if not self._calls:
                raise failure("network", message="the stream ended before the reply did")
        if self._text:
            yield BlockDone(_TEXT, Text("".join(self._text)))
        for index, call in sorted(self._calls.items()):
            yield BlockDone(index + 1, _whole(call))
        stop = self._stop or "tools"
        if self._refused and not self._text:
            stop = "refusal"
        yield ReplyDone(stop, self._tokens, self._model, "".join(self._refused))


def _whole(call: dict[str, str]) -> ToolCall:
    told = call["arguments"].strip()
    if not told:
        return ToolCall(call["id"], call["name"], {})
    try:
        arguments = json.loads(told)
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(call["id"], call["name"], arguments)
    return ToolCall(call["id"], call["name"], {}, told)


def _tokens(usage: Any) -> Tokens | None:
    """Of a usage that some servers fill in only half; here the input holds the cached part."""
    prompt, output = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    if not isinstance(prompt, int) or not isinstance(output, int) or prompt + output == 0:
        return None
    cached = getattr(getattr(usage, "prompt_tokens_details", None), "cached_tokens", None)
    written = getattr(getattr(usage, "prompt_tokens_details", None), "cache_write_tokens", None)
    thought = getattr(getattr(usage, "completion_tokens_details", None), "reasoning_tokens", None)
    read = min(cached, prompt) if isinstance(cached, int) else 0
    wrote = min(written, prompt - read) if isinstance(written, int) else 0
    return Tokens(
        input=prompt - read - wrote,
        cache_read=read,
        cache_write=wrote,
        output=output,
        reasoning=thought if isinstance(thought, int) else 0,
    )


# ---- requests


def body_of(request: Request, settings: Defaults, model: str, *, own_server: bool) -> dict[str, Any]:
    """The request's body.  What only some servers know is left out unless the settings ask for it."""
    messages: list[dict[str, Any]] = []
    if request.system.strip():
        messages.append({"role": "system", "content": request.system})
    for message in request.messages:
        messages.extend(_rendered(message))
    limit = settings.output_field or ("max_completion_tokens" if own_server else "max_tokens")
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        limit: request.max_output,
    }
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.schema)},
            }
            for tool in request.tools
        ]
    if settings.effort is not None:
        body["reasoning_effort"] = settings.effort
    return body


def _rendered(message: Message) -> Iterator[dict[str, Any]]:
    """One of ours may be several of theirs: each tool output is a message of its own."""
    if message.role == "assistant":
        yield _assistant(message.blocks)
        return
    rest: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolOutput):
            text = block.text or "(nothing)"
            yield {"role": "tool", "tool_call_id": block.call, "content": f"Error: {text}" if block.failed else text}
        else:
            rest.append(block)
    if rest and all(isinstance(block, Text) for block in rest):
        yield {"role": "user", "content": "\n\n".join(block.text for block in rest if isinstance(block, Text))}
    elif rest:
        yield {"role": "user", "content": [_part(block) for block in rest]}


def _assistant(blocks: Sequence[Block]) -> dict[str, Any]:
    said = "".join(block.text for block in blocks if isinstance(block, Text))
    calls = [
        {
            "id": block.id,
            "type": "function",
            "function": {"name": block.name, "arguments": json.dumps(dict(block.arguments))},
        }
        for block in blocks
        if isinstance(block, ToolCall)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if calls:
        message["tool_calls"] = calls
        message["content"] = said or None
    return message


def _part(block: Block) -> dict[str, Any]:
    match block:
        case Image():
            return {"type": "image_url", "image_url": {"url": f"data:{block.media_type};base64,{block.data}"}}
        case Text() | Thinking() | ToolOutput():
            return {"type": "text", "text": block.text}
        case ToolCall():
            return {"type": "text", "text": block.name}
