"""For tests of whole conversations: a model whose replies a function decides, on both wires of the loop's providers.

async with played(decide) as model:     # decide(asked) -> Reply
    model.url                           # base URL of the Messages API; + "/v1" of chat completions
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Asked", "PlayedModel", "Reply", "played"]

_FINISHES = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: the last text of the user's side, and how many replies came after it."""

    body: dict[str, Any]
    text: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What comes back.  With a `status` it is an error of that `type`; `after` says what happens once the text is
    out: `hang` for ever, `cut` the connection.  `delay` seconds lie between the pieces of the text."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    stop: str = ""
    tokens: int = 10
    status: int = 200
    type: str = ""
    message: str = "the model's server said no"
    headers: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    delay: float = 0.0


class PlayedModel:
    """`asked` are the requests so far, `aborted` how many of them their client gave up."""

    def __init__(self, decide: Callable[[Asked], Reply]) -> None:
        self.url = ""
        self.asked: list[Asked] = []
        self.aborted = 0
        self._decide = decide
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which may carry many requests."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                asked = _read(body)
                self.asked.append(asked)
                reply = self._decide(asked)
                answer = asyncio.create_task(self._answer(writer, reply, "/messages" in head.split("\r\n")[0], body))
                gone = asyncio.create_task(reader.read(1)) if reply.after == "hang" or reply.delay else None
                await asyncio.wait({answer, *([gone] if gone else ())}, return_when=asyncio.FIRST_COMPLETED)
                if gone is not None:
                    if not answer.done():
                        self.aborted += 1
                    answer.cancel()
                    gone.cancel()
                    await asyncio.gather(answer, gone, return_exceptions=True)
                    return
                await answer
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            return
        finally:
            self._open.discard(task)
            writer.close()

    async def stop(self) -> None:
        """End every connection."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _answer(self, writer: asyncio.StreamWriter, reply: Reply, messages: bool, body: dict[str, Any]) -> None:
        if reply.status != 200:
            said = json.dumps({"type": "error", "error": {"type": reply.type, "message": reply.message}}).encode()
            lines = [f"HTTP/1.1 {reply.status} X", "content-type: application/json", f"content-length: {len(said)}"]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + said)
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for event in _messages(reply, body["model"]) if messages else _chat(reply, body["model"]):
            if event is None:
                await writer.drain()
                if reply.after == "hang":
                    await asyncio.Event().wait()
                if reply.after == "cut":
                    writer.transport.abort()
                    return
                continue
            name = f"event: {event['type']}\n" if "type" in event else ""
            told = f"{name}data: {json.dumps(event)}\n\n".encode()
            writer.write(f"{len(told):x}\r\n".encode() + told + b"\r\n")
            if reply.delay:
                await writer.drain()
                await asyncio.sleep(reply.delay)
        end = b"" if messages else b"data: [DONE]\n\n"
        writer.write((f"{len(end):x}\r\n".encode() + end + b"\r\n" if end else b"") + b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def played(decide: Callable[[Asked], Reply]) -> AsyncIterator[PlayedModel]:
    """Listens on a free port of 127.0.0.1 until the end of the block."""
    model = PlayedModel(decide)
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0, limit=1 << 26)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield model
    finally:
        server.close()
        await model.stop()
        await server.wait_closed()


def _read(body: dict[str, Any]) -> Asked:
    step = 0
    for message in reversed(body["messages"]):
        content = message["content"]
        texts = [content] if isinstance(content, str) else [p["text"] for p in content or () if p["type"] == "text"]
        step += message["role"] == "assistant"
        if message["role"] == "user" and texts:
            return Asked(body, texts[-1], step)
    return Asked(body, "", step)


def _pieces(text: str) -> Iterator[str]:
    size = max(8, len(text) // 50)
    return (text[start : start + size] for start in range(0, len(text), size))


def _messages(reply: Reply, model: str) -> Iterator[dict[str, Any] | None]:
    """Events of the Messages API; None where the text is out."""
    usage = {"input_tokens": reply.tokens, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg", "type": "message", "role": "assistant", "model": model, "usage": usage}
    message.update(content=[], stop_reason=None, stop_sequence=None)
    yield {"type": "message_start", "message": message}
    index = 0

    def block(start: dict[str, Any], deltas: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}

    if reply.text:
        yield from block({"type": "text", "text": ""}, ({"type": "text_delta", "text": p} for p in _pieces(reply.text)))
        yield None
        yield {"type": "content_block_stop", "index": index}
        index += 1
    for name, arguments in reply.calls:
        start = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        pieces = _pieces(json.dumps(dict(arguments)))
        yield from block(start, ({"type": "input_json_delta", "partial_json": piece} for piece in pieces))
        yield {"type": "content_block_stop", "index": index}
        index += 1
    stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def _chat(reply: Reply, model: str) -> Iterator[dict[str, Any] | None]:
    """Chunks of chat completions; None where the text is out."""

    def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": model, "choices": [choice]}

    for piece in _pieces(reply.text):
        yield chunk(content=piece)
    yield None
    for index, (name, arguments) in enumerate(reply.calls):
        function = {"name": name, "arguments": json.dumps(dict(arguments))}
        yield chunk(tool_calls=[{"index": index, "id": f"call_{index}", "type": "function", "function": function}])
    stop = reply.stop or ("tool_use" if reply.calls else "end_turn")
    usage = {"prompt_tokens": reply.tokens, "completion_tokens": 5, "total_tokens": reply.tokens + 5}
    yield {**chunk(finish=_FINISHES[stop]), "usage": usage}
