"""The Messages API for the loop, by the `anthropic` package, which is imported in `prepare` only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jackfield.errors import ProviderError
from jackfield_provider_kit.client import LazyClient
from jackfield_provider_kit.errors import failure_of
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

from jackfield_provider_anthropic.defaults import INSTALL, Defaults

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["AnthropicWire", "body_of"]

_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "tool_use": "tools",
    "max_tokens": "max_output",
    "pause_turn": "pause",
    "refusal": "refusal",
    "model_context_window_exceeded": "overflow",
}
_CACHED = {"cache_control": {"type": "ephemeral"}}
_CONNECT_SECONDS = 10.0
_SILENT_SECONDS = 120.0
"""Without a byte for so long (the server pings every few seconds) the connection is dead."""


class AnthropicWire:
    """One client for the life of a session.  Nothing is tried again here: waits are the loop's."""

    def __init__(self, settings: Defaults, *, model: str, key: str, base_url: str | None) -> None:
        self._settings = settings
        self._model = model
        self._key = key
        self._base_url = base_url
        self._client = LazyClient("anthropic", INSTALL, self._make)

    async def prepare(self) -> None:
        """Import the package, in a thread because it takes more than a second, and make the client."""
        await self._client.get()

    def _make(self) -> AsyncAnthropic:
        import anyio
        from anthropic import AsyncAnthropic, Timeout

        client = AsyncAnthropic(
            api_key=self._key,
            base_url=self._base_url or "https://api.anthropic.com",
            max_retries=0,
            timeout=Timeout(_SILENT_SECONDS, connect=_CONNECT_SECONDS),
        )
        _ = client.messages  # imports its module
        anyio.run(anyio.sleep, 0)  # and so does the first use of this
        return client

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """Send it; always as a stream, because a long answer is refused otherwise."""
        client = await self._client.get()
        reading = _Reading(self._model)
        body = body_of(request, self._settings, self._model)
        try:
            # As `extra_body` because the package copies its own parameters part by part, which takes milliseconds for a
            # long conversation; what stands there goes first.
            events = await client.messages.create(
                model=self._model, max_tokens=request.max_output, messages=[], stream=True, extra_body=body
            )
            async with events:
                async for event in events:
                    for part in reading.take(event):
                        yield part
        except (ProviderError, asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as problem:
            raise failure_of(problem) from problem
        if reading.stop is not None:
            yield ReplyDone(reading.stop, reading.tokens, reading.model, reading.detail)

    async def close(self) -> None:
        await self._client.close()


class _Reading:
    """What a stream has said so far."""

    def __init__(self, asked: str) -> None:
        self.stop: Stop | None = None
        self._asked = asked
        self.model = ""
        self.detail = ""
        self._usage: dict[str, int] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, list[str]] = {}

    @property
    def tokens(self) -> Tokens | None:
        if not self._usage:
            return None
        return Tokens(
            input=self._usage.get("input_tokens", 0),
            cache_read=self._usage.get("cache_read_input_tokens", 0),
            cache_write=self._usage.get("cache_creation_input_tokens", 0),
            output=self._usage.get("output_tokens", 0),
            reasoning=self._usage.get("thinking_tokens", 0),
        )

    def take(self, event: Any) -> Sequence[Part]:
        """What an event of the package adds."""
        match event.type:
            case "message_start":
                self.model = str(event.message.model or "")
                self._count(event.message.usage)
            case "content_block_start":
                self._open[event.index] = event.content_block.to_dict(mode="json")
                self._pieces[event.index] = []
                text = self._open[event.index].get("text")
                if text:
                    self._pieces[event.index].append(text)
                    return (TextPart(event.index, text),)
            case "content_block_delta":
                return self._delta(event.index, event.delta)
            case "content_block_stop":
                block = self._whole(self._open.pop(event.index, {}), self._pieces.pop(event.index, []))
                return () if block is None else (BlockDone(event.index, block),)
            case "message_delta":
                reason = event.delta.stop_reason
                if reason is not None:
                    self.stop = _STOPS.get(reason, "end")
                self.detail = _explained(event.delta)
                self._count(event.usage)
        return ()

    def _delta(self, index: int, delta: Any) -> Sequence[Part]:
        pieces = self._pieces.setdefault(index, [])
        match delta.type:
            case "text_delta":
                pieces.append(delta.text)
                return (TextPart(index, delta.text),)
            case "thinking_delta":
                pieces.append(delta.thinking)
                return (ThinkingPart(delta.thinking),)
            case "input_json_delta":
                pieces.append(delta.partial_json)
            case "signature_delta":
                self._open.setdefault(index, {})["signature"] = delta.signature
        return ()

    def _whole(self, start: dict[str, Any], pieces: list[str]) -> Block | None:
        told = "".join(pieces)
        match start.get("type"):
            case "text":
                return Text(told)
            case "thinking":
                thought = told or str(start.get("thinking", ""))
                return Thinking(thought, {"model": self._asked, "block": {**start, "thinking": thought}})
            case "redacted_thinking":
                return Thinking("", {"model": self._asked, "block": start})
            case "tool_use":
                return _call(start, told)
            case _:
                return None

    def _count(self, usage: Any) -> None:
        if usage is None:
            return
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"):
            value = getattr(usage, name, None)
            if isinstance(value, int):
                self._usage[name] = value
        thought = getattr(getattr(usage, "output_tokens_details", None), "thinking_tokens", None)
        if isinstance(thought, int):
            self._usage["thinking_tokens"] = thought


def _call(start: Mapping[str, Any], told: str) -> ToolCall:
    name, key = str(start.get("name", "")), str(start.get("id", ""))
    if not told.strip():
        arguments = start.get("input")
        return ToolCall(key, name, dict(arguments) if isinstance(arguments, Mapping) else {})
    try:
        arguments = json.loads(told)
    except ValueError:
        arguments = None
    return ToolCall(key, name, arguments) if isinstance(arguments, dict) else ToolCall(key, name, {}, told)


def _explained(delta: Any) -> str:
    details = getattr(delta, "stop_details", None)
    return str(getattr(details, "explanation", None) or getattr(details, "category", None) or "")


# ---- requests


def body_of(request: Request, settings: Defaults, model: str) -> dict[str, Any]:
    """The request's body.

    The same tools, system prompt and older messages make the same bytes each time, so that the prompt cache is hit.
    Its four breakpoints: the last tool, the system prompt, and the ends of the last two messages of the user's side
    (the server looks back only twenty blocks from each).
    """
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_output,
        "messages": _messages(request.messages, model),
    }
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system, **_CACHED}]
    if request.tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}
            for tool in request.tools
        ]
        body["tools"][-1].update(_CACHED)
    if settings.effort is not None:
        body["output_config"] = {"effort": settings.effort}
    if settings.thinking is not None:
        body["thinking"] = _thinking(settings.thinking)
    return body


def _thinking(wanted: str | int) -> dict[str, Any]:
    if isinstance(wanted, int):
        return {"type": "enabled", "budget_tokens": wanted}
    return {"type": "disabled" if wanted == "off" else wanted}


def _messages(messages: Sequence[Message], model: str) -> list[dict[str, Any]]:
    rendered: list[dict[str, Any]] = []
    for message in messages:
        # A thought is bound to the model that had it: another one refuses it.
        blocks = [b for b in message.blocks if not isinstance(b, Thinking) or b.raw.get("model") == model]
        if blocks:
            rendered.append({"role": message.role, "content": [_content(block) for block in blocks]})
    for last in [each for each in rendered if each["role"] == "user"][-2:]:
        last["content"][-1].update(_CACHED)
    return rendered


def _content(block: Block) -> dict[str, Any]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return dict(block.raw["block"])
        case ToolCall():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": dict(block.arguments)}
        case ToolOutput():
            told = {"type": "tool_result", "tool_use_id": block.call, "content": block.text or "(nothing)"}
            return {**told, "is_error": True} if block.failed else told
        case Image():
            source = {"type": "base64", "media_type": block.media_type, "data": block.data}
            return {"type": "image", "source": source}
