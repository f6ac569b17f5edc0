"""The way to an MCP server that runs elsewhere: streamable HTTP, by the client of the `mcp` package.

Imported when a group has such a server; the extra `jackfield[mcp]` brings the package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from jackfield.runner.servers.wires import ServerFailed

__all__ = ["HttpWire"]

Json = Any
_QUEUED = 100
_CLOSE_SECONDS = 2.0


class HttpWire:
    """One MCP session with a server elsewhere."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url
        self._headers = dict(headers)
        self._came: asyncio.Queue[dict[str, Json] | None] = asyncio.Queue(_QUEUED)
        self._leaving: asyncio.Queue[dict[str, Json] | None] = asyncio.Queue(_QUEUED)
        self._reason = "the connection ended"
        # The client's scopes must be left by the task that entered them.
        self._task = asyncio.create_task(self._run(), name=f"MCP server at {url}")

    async def send(self, message: dict[str, Json]) -> None:
        if self._task.done():
            raise ServerFailed(self._reason)
        await self._leaving.put(message)

    async def receive(self) -> dict[str, Json]:
        found = await self._came.get()
        if found is None:
            raise ServerFailed(self._reason)
        return found

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(create_mcp_http_client(headers=self._headers))
                read, write = await stack.enter_async_context(streamable_http_client(self._url, http_client=client))
                sending = asyncio.create_task(self._send(write))
                try:
                    async for item in read:
                        if isinstance(item, Exception):
                            self._reason = f"it sent what is no message: {str(item)[:300]}"
                            return
                        await self._came.put(item.message.model_dump(by_alias=True, exclude_none=True, mode="json"))
                finally:
                    sending.cancel()
        except asyncio.CancelledError:
            raise
        except BaseException as problem:  # noqa: BLE001 - whatever the library raises, the server is out of reach
            self._reason = f"it can't be reached: {_innermost(problem)}"[:500]
        finally:
            while self._came.full():
                self._came.get_nowait()
            self._came.put_nowait(None)

    async def _send(self, write: Any) -> None:
        while True:
            message = await self._leaving.get()
            await write.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))


def _innermost(problem: BaseException) -> str:
    """The first error inside a group of them, in words."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return f"{type(problem).__name__}: {problem}"
