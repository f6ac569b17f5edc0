"""One MCP session with a server: JSON-RPC over a wire, requests side by side.

Spoken by hand, like our own side (`jackfield.runner.mcp`), because it is small, starts at once, and because one bad
item of a stranger's answer must not spoil the rest.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

from jackfield.api import ToolResult
from jackfield.runner.mcp import PROTOCOLS
from jackfield.runner.servers.catalog import MOST_TOOLS, Catalog, read_result, read_tools
from jackfield.runner.servers.wires import ServerFailed, Wire

__all__ = ["Peer", "PeerError"]

_LOG = logging.getLogger(__name__)
Json = Any

_MOST_PAGES = 20
_UNKNOWN = -32601
_SAID = 2000


class PeerError(Exception):
    """The server answered a request with an error."""


class Peer:
    """A server that was just reached.  `start` must be called first; `ended` is done when it is of no use any more."""

    def __init__(self, name: str, wire: Wire, on_list_changed: Callable[[], None]) -> None:
        self._name = name
        self._wire = wire
        self._on_list_changed = on_list_changed
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Json]]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Agree on the protocol.

        Raises:
            ServerFailed: it is no MCP server, or speaks another version.
        """
        self._reading = asyncio.create_task(self._read(), name=f"answers of server {self._name}")
        try:
            answer = await self._ask(
                "initialize",
                {
                    "protocolVersion": PROTOCOLS[0],
                    "capabilities": {},
                    "clientInfo": {"name": "jackfield", "version": "1"},
                },
            )
        except PeerError as problem:
            raise ServerFailed(f"it refuses to begin: {problem}") from problem
        spoken = answer.get("protocolVersion")
        if spoken not in PROTOCOLS:
            raise ServerFailed(f"it speaks version {ascii(spoken)[:40]} of MCP; known are {', '.join(PROTOCOLS)}")
        await self._tell("notifications/initialized")

    async def tools(self) -> Catalog:
        """What it offers now.

        Raises:
            ServerFailed: it does not say.
        """
        listed: list[Json] = []
        cursor: Json = None
        for _ in range(_MOST_PAGES):
            try:
                answer = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
            except PeerError as problem:
                if listed:
                    raise ServerFailed(f"it does not list all of its tools: {problem}") from problem
                _LOG.warning("MCP server %s offers no tools: %s", self._name, problem)
                break
            page = answer.get("tools")
            if not isinstance(page, list):
                raise ServerFailed("its list of tools is no list")
            listed += page[: MOST_TOOLS * 10]
            cursor = answer.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or len(listed) > MOST_TOOLS:
                break
        return read_tools(self._name, listed)

    async def call(self, name: str, arguments: dict[str, Json]) -> ToolResult:
        """Call a tool by the server's own name of it.  When the caller is cancelled, the server is told.

        Raises:
            ServerFailed: it ended meanwhile.
        """
        try:
            return read_result(await self._ask("tools/call", {"name": name, "arguments": arguments}))
        except PeerError as problem:
            return ToolResult(text=f"Error: {problem}", is_error=True)

    async def ping(self) -> None:
        """Raises:
        ServerFailed: it ended.
        """
        try:
            await self._ask("ping", {})
        except PeerError:
            return  # any answer shows that it lives

    def fail(self, reason: str) -> None:
        """It is of no use any more."""
        if not self.ended.done():
            self.ended.set_result(reason)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ServerFailed(reason))
        self._waiting.clear()

    async def close(self) -> None:
        self.fail("it was closed")
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        await self._wire.close()

    # ---- messages

    async def _ask(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        if self.ended.done():
            raise ServerFailed(self.ended.result())
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Json]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._wire.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            return _result(await answer)
        except asyncio.CancelledError:
            if method == "tools/call" and not self.ended.done():
                await self._give_up(number)
            raise
        finally:
            self._waiting.pop(number, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # whoever asked knows already

    async def _give_up(self, number: int) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self._tell("notifications/cancelled", {"requestId": number, "reason": "nobody waits any more"})
        except (ServerFailed, TimeoutError) as problem:
            _LOG.debug("server %s was not told that a call is off: %s", self._name, problem)

    async def _tell(self, method: str, params: dict[str, Json] | None = None) -> None:
        message: dict[str, Json] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = params
        await self._wire.send(message)

    async def _read(self) -> None:
        try:
            while True:
                await self._take(await self._wire.receive())
        except ServerFailed as problem:
            self.fail(str(problem))

    async def _take(self, message: dict[str, Json]) -> None:
        method, number = message.get("method"), message.get("id")
        if not isinstance(method, str):
            waiting = self._waiting.get(number) if isinstance(number, int) else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif number is None:
            if method == "notifications/tools/list_changed":
                self._on_list_changed()
        else:
            # It may ask whether we live; there is nothing else that we offer to a server.
            answer: dict[str, Json] = {"jsonrpc": "2.0", "id": number}
            if method == "ping":
                answer["result"] = {}
            else:
                answer["error"] = {"code": _UNKNOWN, "message": f"Method not found: {method[:80]}"}
            await self._wire.send(answer)


def _result(message: dict[str, Json]) -> dict[str, Json]:
    error = message.get("error")
    if error is not None:
        said = error.get("message") if isinstance(error, dict) else error
        raise PeerError(str(said)[:_SAID].encode("utf-8", "replace").decode())
    result = message.get("result")
    if not isinstance(result, dict):
        raise PeerError("the answer has no result")
    return result
