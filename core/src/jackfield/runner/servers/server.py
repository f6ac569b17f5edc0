"""One MCP server, kept alive: started, listed, started again when it ends, and given up when that happens too often."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from jackfield.api import ToolResult
from jackfield.clock import Clock
from jackfield.models.server_states import ServerState
from jackfield.runner.servers.catalog import Catalog, Offered
from jackfield.runner.servers.peer import Peer
from jackfield.runner.servers.restarts import Restarts
from jackfield.runner.servers.wires import ServerFailed, Wire

__all__ = ["Reach", "Server", "Tell"]

_LOG = logging.getLogger(__name__)
_START_SECONDS = 30.0
_PING_SECONDS = 5.0
_CALM = 1.0
"""Seconds between two looks at a list that its server says has changed."""


Tell = Callable[[ServerState, str], None]
"""Hears how a server does, and more about it in a few words."""
Reach = Callable[[], Awaitable[Wire]]
"""How a server is reached: a program that is started, or a connection.  Raises `ServerFailed` when it can't be."""


class Server:
    """Alone responsible for its server: what happens to one does not touch another (C174)."""

    def __init__(self, name: str, reach: Reach, clock: Clock, *, on_change: Callable[[], None], tell: Tell) -> None:
        self.name = name
        self.off: str | None = None
        """Why it was given up."""
        self._reach = reach
        self._clock = clock
        self._on_change = on_change
        self._tell = tell
        self._restarts = Restarts()
        self._catalog = Catalog()
        self._peer: Peer | None = None
        self._problem = ""
        self._moved = asyncio.Event()
        """Set, and replaced, when it comes up or goes down."""
        self._tried = asyncio.Event()
        self._list_changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._suspecting: asyncio.Task[None] | None = None

    @property
    def tools(self) -> tuple[Offered, ...]:
        """What it offers: nothing until it was reached, and nothing once it is given up.  While it is started again,
        what it offered before; calls wait for it."""
        return self._catalog.tools

    @property
    def down(self) -> str | None:
        """Why it does not work at this moment; None while it does, or is started for the first time."""
        return self.off or (self._problem or None if self._peer is None else None)

    @property
    def was_tried(self) -> bool:
        """Whether it was reached, or could not be, at least once."""
        return self._tried.is_set()

    def begin(self) -> None:
        """Start it, if that was not done."""
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name=f"MCP server {self.name}")

    async def tried(self) -> None:
        """Wait until it `was_tried`."""
        await self._tried.wait()

    async def call(self, called: str, arguments: dict[str, Any], seconds: float) -> ToolResult:
        """Call one of its tools; never raises but for cancellation."""
        try:
            async with asyncio.timeout(seconds):
                peer = await self._up()
                return await peer.call(called, arguments)
        except TimeoutError:
            self._suspect()
            return _error(f"{self.name} did not answer within {seconds:g} s" + self._why())
        except ServerFailed as problem:
            return _error(f"MCP server {self.name} failed: {problem}; whether the call had an effect is not known")

    async def close(self) -> None:
        for task in (self._task, self._suspecting):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    def _why(self) -> str:
        return f"; it is down: {self._problem}" if self._peer is None and self._problem else ""

    async def _up(self) -> Peer:
        while (peer := self._peer) is None or peer.ended.done():
            if self.off is not None:
                raise ServerFailed(f"it was given up: {self.off}")
            await self._moved.wait()
        return peer

    # ---- its life

    async def _live(self) -> None:
        while True:
            reason = await self._once()
            self._moved.set()
            self._moved = asyncio.Event()
            self._problem = reason
            wait = self._restarts.wait_after(self._clock.monotonic())
            if wait is None:
                _LOG.error("MCP server %s is off, it failed too often: %s", self.name, reason)
                self.off = reason
                self._tell(ServerState.OFF, reason)
                self._offer(Catalog())
                self._tried.set()
                self._moved.set()
                return
            _LOG.warning("MCP server %s failed, and is started again in %g s: %s", self.name, wait, reason)
            self._tell(ServerState.FAILED, reason)
            self._tried.set()
            await self._clock.sleep(wait)

    async def _once(self) -> str:
        """From a start to an end; why it ended."""
        peer: Peer | None = None
        try:
            async with asyncio.timeout(_START_SECONDS):
                peer = Peer(self.name, await self._reach(), self._list_changed.set)
                await peer.start()
                catalog = await peer.tools()
            self._list_changed.clear()
            for refused in catalog.refused:
                _LOG.warning("MCP server %s has a tool that can't be used: %s", self.name, refused)
            self._problem = ""
            self._peer = peer
            self._offer(catalog)
            self._tried.set()
            self._moved.set()
            self._moved = asyncio.Event()
            _LOG.info("MCP server %s offers %d tools", self.name, len(catalog.tools))
            self._tell(ServerState.WORKS, f"it offers {len(catalog.tools)} tools")
            await self._follow(peer)
            return peer.ended.result()
        except ServerFailed as problem:
            return str(problem)
        except TimeoutError:
            return f"it was not ready within {_START_SECONDS:g} s"
        finally:
            self._peer = None
            if peer is not None:
                await peer.close()

    async def _follow(self, peer: Peer) -> None:
        """Until it ends, list its tools again whenever it says that they have changed."""
        while not peer.ended.done():
            changed = asyncio.ensure_future(self._list_changed.wait())
            either: set[asyncio.Future[Any]] = {changed, peer.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if peer.ended.done():
                return
            await self._clock.sleep(_CALM)
            self._list_changed.clear()
            async with asyncio.timeout(_START_SECONDS):
                self._offer(await peer.tools())

    def _offer(self, catalog: Catalog) -> None:
        if catalog != self._catalog:
            self._catalog = catalog
            self._on_change()

    def _suspect(self) -> None:
        """A call took too long: does it live at all?"""
        peer = self._peer
        if peer is None or (self._suspecting is not None and not self._suspecting.done()):
            return

        async def look() -> None:
            try:
                async with asyncio.timeout(_PING_SECONDS):
                    await peer.ping()
            except TimeoutError:
                peer.fail("it does not answer")
            except ServerFailed as problem:
                peer.fail(str(problem))

        self._suspecting = asyncio.create_task(look(), name=f"ping of server {self.name}")


def _error(text: str) -> ToolResult:
    return ToolResult(text=f"Error: {text}", is_error=True)
