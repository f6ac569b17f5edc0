"""TCP servers for tests that do what no HTTP server does: cut, drip, lie about lengths."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from ssl import SSLContext

__all__ = ["Serve", "answering", "raw_server"]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection; it is closed when this returns."""


@contextlib.asynccontextmanager
async def raw_server(serve: Serve, *, ssl: SSLContext | None = None) -> AsyncGenerator[str, None]:
    """Run a server on 127.0.0.1, with `ssl` over TLS; its URL, like `http://127.0.0.1:40123`.

    Leaving ends all connections.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=ssl)
    try:
        yield f"{'https' if ssl else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def answering(data: bytes, *, again: bytes = b"", every: float = 0.02) -> Serve:
    """Read the head of a request and write these bytes; then `again` every so many seconds, for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        while again:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(every)

    return serve
