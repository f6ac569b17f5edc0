"""How a plugin's command reaches the host: the running one, or one that this process runs for the while."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from jackfield.api.client import COMMAND_HOST, LocalConnection
from jackfield.cli.state import State
from jackfield.config.home import Home
from jackfield.errors import HostRunning, NoHost

__all__ = ["HomeClient", "HomeHost", "offer"]

PATIENCE = 30.0
"""Seconds for a host to answer that is known to start."""


def offer(state: State) -> None:
    """Make `jackfield.api.client.connect` work for the command that runs next."""
    COMMAND_HOST.set(HomeHost(state))


class HomeClient:
    """A connected home; see `jackfield.api.client.LocalClient`."""

    def __init__(self, home: Home, *, started_host: bool) -> None:
        from jackfield.host.control import Client

        self._home = home
        self._client = Client(home)
        self._started_host = started_host

    @property
    def home(self) -> Path:
        return self._home.root

    @property
    def started_host(self) -> bool:
        return self._started_host

    async def open(self) -> None:
        await self._client.open()

    async def call(self, op: str, args: dict[str, Any]) -> Any:
        return await self._client.call(op, args)

    async def attach(self, instance: str, options: dict[str, Any]) -> LocalConnection:
        return await self._client.attach(instance, options)

    async def close(self) -> None:
        await self._client.close()


class HomeHost:
    """See `jackfield.api.client.CommandHost`."""

    def __init__(self, state: State) -> None:
        self._state = state

    @contextlib.asynccontextmanager
    async def connect(self, home: str | None) -> AsyncIterator[HomeClient]:
        """Connect; where no host runs, run one in this process and stop it at the end.

        Raises:
            NotInitialised: there is no home.
            JackfieldError: the host could not start.
        """
        place = (self._state.home if home is None else Home.find(home)).require()
        client = HomeClient(place, started_host=False)
        try:
            await client.open()
        except NoHost:
            async with self._own_host(place) as client:
                yield client
            return
        try:
            yield client
        finally:
            await client.close()

    @contextlib.asynccontextmanager
    async def _own_host(self, home: Home) -> AsyncIterator[HomeClient]:
        from jackfield.cli.logging_setup import host_logging
        from jackfield.host.application import running_host

        host_logging(home, verbose=self._state.verbose, terminal=self._state.verbose > 0)
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(running_host(home, safe=self._state.safe, strict=self._state.strict))
            except HostRunning:
                started = False  # another one was quicker; it answers in a moment
            else:
                started = True
            client = HomeClient(home, started_host=started)
            stack.push_async_callback(client.close)
            await _open_soon(client)
            yield client


async def _open_soon(client: HomeClient) -> None:
    """Connect to a host that may still be starting."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        try:
            await client.open()
            return
        except NoHost:
            if loop.time() > until:
                raise
            await asyncio.sleep(0.1)
