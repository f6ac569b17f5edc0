"""The tools of a session as an MCP server: JSON-RPC messages in, messages out.  No transport here.

Spoken by hand because it is small: `initialize`, `ping`, `tools/list`, `tools/call` and the notifications around them.
Newer clients ask `server/discover` first and fall back when it is unknown (spec/providers.md 6).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any

from jackfield.api import BoundTool

__all__ = ["PROTOCOLS", "McpServer"]

_LOG = logging.getLogger(__name__)
PROTOCOLS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_PARSE, _INVALID, _UNKNOWN, _PARAMS, _INTERNAL = -32700, -32600, -32601, -32602, -32603
Json = Any  # what JSON gives: the peer may send anything


class McpServer:
    """Answers one peer's messages.  Calls run side by side; a cancelled one is not answered.

    `tools` may change: what is listed is what can be called at that moment (C174)."""

    def __init__(self, tools: Sequence[BoundTool]) -> None:
        self._tools = tools
        self._calls: dict[str, asyncio.Task[dict[str, Json]]] = {}

    async def answer_text(self, text: str | bytes) -> str | None:
        """One message as text; the answer as text, None when none is due."""
        try:
            message = json.loads(text)
        except (ValueError, RecursionError) as problem:
            return _dumps(_error(None, _PARSE, f"not JSON: {problem}"))
        answer = await self.answer(message)
        return None if answer is None else _dumps(answer)

    async def answer(self, message: Json) -> dict[str, Json] | None:
        """One message; the answer, None when none is due."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return _error(None, _INVALID, "expected one JSON-RPC 2.0 message")
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return None  # an answer to something that we never ask
        params = message.get("params")
        if not isinstance(params, dict):
            params = {}
        if "id" not in message:
            self._told(method, params)
            return None
        if not isinstance(number, str | int) or isinstance(number, bool):
            return _error(None, _INVALID, "an id is text or a number")
        if method == "tools/call":
            return await self._call(number, params)
        match method:
            case "initialize":
                result = self._initialize(params)
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": [_described(tool) for tool in self._tools]}
            case _:
                return _error(number, _UNKNOWN, f"Method not found: {method}")
        return {"jsonrpc": "2.0", "id": number, "result": result}

    def close(self) -> None:
        """Cancel what runs."""
        for task in list(self._calls.values()):
            task.cancel()

    def _initialize(self, params: dict[str, Json]) -> dict[str, Json]:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in PROTOCOLS else PROTOCOLS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "jackfield", "version": "1"},
        }

    def _told(self, method: str, params: dict[str, Json]) -> None:
        if method == "notifications/cancelled":
            task = self._calls.get(repr(params.get("requestId")))
            if task is not None:
                task.cancel()

    async def _call(self, number: str | int, params: dict[str, Json]) -> dict[str, Json] | None:
        name, arguments = params.get("name"), params.get("arguments")
        tool = next((tool for tool in self._tools if tool.name == name), None)
        if tool is None:
            known = ", ".join(sorted(tool.name for tool in self._tools))
            return _result(number, f"Error: there is no tool {name!r}; the tools are: {known}", is_error=True)
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return _error(number, _PARAMS, "arguments must be an object")
        task = asyncio.create_task(_run(number, tool, arguments), name=f"tool {name}")
        key = repr(number)
        self._calls[key] = task
        try:
            return await task
        except asyncio.CancelledError:
            asking = asyncio.current_task()
            if asking is not None and asking.cancelling():
                task.cancel()
                raise
            return None
        finally:
            if self._calls.get(key) is task:
                del self._calls[key]


async def _run(number: str | int, tool: BoundTool, arguments: dict[str, Json]) -> dict[str, Json]:
    try:
        found = await tool.call(arguments)
    except Exception:  # noqa: BLE001 - a tool's failure must not end the connection
        _LOG.exception("tool %s raised although it never should", tool.name)
        return _error(number, _INTERNAL, "the tool failed")
    return _result(number, found.text, is_error=found.is_error)


def _described(tool: BoundTool) -> dict[str, Json]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}


def _result(number: str | int, text: str, *, is_error: bool) -> dict[str, Json]:
    content = [{"type": "text", "text": text}]
    return {"jsonrpc": "2.0", "id": number, "result": {"content": content, "isError": is_error}}


def _error(number: str | int | None, code: int, text: str) -> dict[str, Json]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}}


def _dumps(message: dict[str, Json]) -> str:
    # ASCII only: one line whatever the text holds, and no lone surrogate that could not be encoded.
    return json.dumps(message, separators=(",", ":"))
