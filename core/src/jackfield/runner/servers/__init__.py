"""The group's own MCP servers: what they offer stands beside the tools of the group's tool sets (`[mcp.<name>]`).

Nothing is started before the first conversation is opened.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jackfield.api import BoundTool, ToolResult
from jackfield.clock import Clock
from jackfield.ids import new_id
from jackfield.models import ActivityKind, ExternalServer, RunnerSpec
from jackfield.models.secret_references import NoSecret, resolved
from jackfield.models.server_states import ServerState, server_target
from jackfield.runner.board import Board
from jackfield.runner.environment import server_environment
from jackfield.runner.secrets import Secrets
from jackfield.runner.servers.catalog import Offered
from jackfield.runner.servers.peer import Peer
from jackfield.runner.servers.server import Server
from jackfield.runner.servers.wires import ServerFailed, StdioWire, Wire

__all__ = ["SETTLE_SECONDS", "ServerFailed", "Servers", "reach", "try_server"]

SETTLE_SECONDS = 10.0
"""How long a conversation waits for servers that are being started; those that take longer join a later turn."""


class Servers:
    """All of a session's servers."""

    def __init__(
        self,
        spec: RunnerSpec,
        secrets: Secrets,
        board: Board,
        clock: Clock,
        *,
        on_call: Callable[[], None],
    ) -> None:
        self.version = 0
        """Grows with every change of what is offered."""
        self._spec = spec
        self._secrets = secrets
        self._board = board
        self._clock = clock
        self._on_call = on_call
        self._told: dict[str, bool] = {}
        """Servers of which the agent was told that they don't work, and whether that they were given up."""
        self._servers = {
            name: Server(
                name,
                partial(reach, name, server, spec, secrets),
                clock,
                on_change=self._changed,
                tell=partial(self._note, name),
            )
            for name, server in sorted(spec.servers.items())
        }
        self._tools: list[External] | None = []

    @property
    def tools(self) -> Sequence[BoundTool]:
        """What can be called now."""
        if self._tools is None:
            self._tools = [
                External(self, server, offered) for server in self._servers.values() for offered in server.tools
            ]
        return self._tools

    @property
    def has_news(self) -> bool:
        """Whether a server does not work, or was given up, and the agent was not told."""
        return any(self._is_news(server) for server in self._servers.values())

    def _is_news(self, server: Server) -> bool:
        return server.down is not None and self._told.get(server.name) is not (server.off is not None)

    def take_news(self) -> list[str]:
        """What the agent should know, each thing once."""
        news = []
        for server in self._servers.values():
            if self._is_news(server):
                self._told[server.name] = server.off is not None
                more = "It was given up" if server.off is not None else "It is started again from time to time"
                news.append(f"The MCP server {server.name} does not work. {more}: {server.down}")
        return news

    def _note(self, name: str, state: ServerState, more: str) -> None:
        """For the host, which has no other way to know."""
        if state is ServerState.WORKS:
            self._told.pop(name, None)
        self._board.did(ActivityKind.MCP_CALL, server_target(name), f"{state}: {more}")

    async def begin(self) -> None:
        """Start those that were not started, and wait a moment for them."""
        for server in self._servers.values():
            server.begin()
        tried = [asyncio.ensure_future(server.tried()) for server in self._servers.values() if not server.was_tried]
        if not tried:
            return
        self._board.waiting("servers", SETTLE_SECONDS, "MCP servers that start")
        try:
            await asyncio.wait(tried, timeout=SETTLE_SECONDS)
        finally:
            self._board.waited("servers")
            for task in tried:
                task.cancel()

    async def close(self) -> None:
        """End them all, side by side."""
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def _changed(self) -> None:
        self._tools = None
        self.version += 1

    async def call(self, server: Server, tool: Offered, arguments: dict[str, Any]) -> ToolResult:
        """Its answer, without the agent's secrets; never raises but for cancellation."""
        return self._secrets.without(await self._answer(server, tool, arguments))

    async def _answer(self, server: Server, tool: Offered, arguments: dict[str, Any]) -> ToolResult:
        self._on_call()
        self._board.did(ActivityKind.MCP_CALL, tool.name, ", ".join(arguments))
        if tool not in server.tools:
            return ToolResult(
                text=f"Error: MCP server {server.name} does not offer {tool.called} any more", is_error=True
            )
        seconds = self._spec.servers[server.name].timeout
        number = new_id("call", self._clock.now())
        self._board.tool_started(number, tool.name, seconds)
        try:
            return await server.call(tool.called, arguments, seconds)
        finally:
            self._board.tool_ended(number)


class External:
    """A tool of a server (`jackfield.api.BoundTool`)."""

    def __init__(self, servers: Servers, server: Server, offered: Offered) -> None:
        self._servers = servers
        self._server = server
        self._offered = offered

    @property
    def name(self) -> str:
        return self._offered.name

    @property
    def description(self) -> str:
        return self._offered.description

    @property
    def input_schema(self) -> dict[str, Any]:
        return self._offered.schema

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        return await self._servers.call(self._server, self._offered, arguments)


async def reach(name: str, server: ExternalServer, spec: RunnerSpec, secrets: Mapping[str, str]) -> Wire:
    """Start a server's program, or connect to it.

    Raises:
        ServerFailed: it can't be started, or nothing here can speak with it.
    """
    try:
        if server.url:
            return await _connect(server.url, {key: resolved(value, secrets) for key, value in server.headers.items()})
        environment = server_environment(server, os.environ, spec.package_folders, secrets)
    except NoSecret as problem:
        raise ServerFailed(str(problem)) from problem
    cwd = os.path.join(spec.paths.workspace, server.cwd)  # noqa: PTH118 - a text for another program
    return await StdioWire.open(name, server.command, environment, cwd)


async def try_server(name: str, server: ExternalServer, spec: RunnerSpec, seconds: float) -> int:
    """Whether it works, without its secrets: how many tools it offers.

    Raises:
        ServerFailed: it does not, for the reason that the message gives.
    """
    peer: Peer | None = None
    try:
        async with asyncio.timeout(seconds):
            peer = Peer(name, await reach(name, server, spec, {}), lambda: None)
            await peer.start()
            return len((await peer.tools()).tools)
    except TimeoutError:
        raise ServerFailed(f"it was not ready within {seconds:g} s") from None
    finally:
        if peer is not None:
            await peer.close()


async def _connect(url: str, headers: Mapping[str, str]) -> Wire:
    try:
        # Slow, so beside the loop: the heart must go on beating.
        module = await asyncio.to_thread(importlib.import_module, "jackfield.runner.servers.http_wire")
    except ImportError as problem:
        raise ServerFailed(f"a server with a url needs the package `jackfield[mcp]`: {problem}") from problem
    wire: Wire = module.HttpWire(url, headers)
    return wire
