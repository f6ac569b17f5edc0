"""For tests of wires: a server that answers with exactly the bytes it is told, however odd.

`jackfield.testing.model_server` speaks the model wires well; servers in the field do not always.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["OddServer", "odd_server", "sse"]


def sse(*data: object) -> str:
    """A stream of events, each a JSON value or a raw text; a value with a `type` is named by it."""
    lines = []
    for each in data:
        name = f"event: {each['type']}\n" if isinstance(each, dict) and "type" in each else ""
        lines.append(f"{name}data: {each if isinstance(each, str) else json.dumps(each)}\n\n")
    return "".join(lines)


class OddServer:
    """`url` is its address; `bodies` what it was sent.  Each request takes the next of its answers."""

    def __init__(self, answers: Sequence[tuple[int, str] | str]) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._answers = list(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request; an answer's text is a stream, unless a status comes with it."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            pairs = (line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            headers = {name.lower(): value for name, value in pairs}
            self.headers.append(headers)
            self.bodies.append(json.loads(await reader.readexactly(int(headers.get("content-length", "0")))))
            answer = self._answers.pop(0)
            status, text = answer if isinstance(answer, tuple) else (200, answer)
            kind = "application/json" if status != 200 else "text/event-stream"
            body = text.encode()
            told = (
                f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n"
            )
            writer.write(told.encode() + b"\r\n" + body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def odd_server(*answers: tuple[int, str] | str) -> AsyncIterator[OddServer]:
    """Listens on a free port of 127.0.0.1 until the end of the block."""
    odd = OddServer(answers)
    server = await asyncio.start_server(odd.serve, "127.0.0.1", 0)
    odd.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield odd
    finally:
        server.close()
        await server.wait_closed()
