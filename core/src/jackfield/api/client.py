"""How a plugin's command reaches the host of its home: over the host's socket, or a host of its own for the while.

The command line provides the way in (`COMMAND_HOST`); a plugin only asks for it::

    async with connect() as client:
        await client.call("status", {})
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from jackfield.errors import UsageError

__all__ = ["CommandHost", "LocalClient", "LocalConnection", "connect"]


class LocalConnection(Protocol):
    """The client's end of an attachment to a channel: JSON objects both ways."""

    async def receive(self) -> dict[str, Any] | None:
        """The next object; None when the host is gone."""
        ...

    async def send(self, message: dict[str, Any]) -> None: ...

    async def close(self) -> None: ...


class LocalClient(Protocol):
    """A connected home.  `started_host` tells that no host ran, and that this process runs one until it leaves."""

    @property
    def home(self) -> Path: ...

    @property
    def started_host(self) -> bool: ...

    async def call(self, op: str, args: dict[str, Any]) -> Any:
        """One operation of the control socket, as JSON values.

        Raises:
            JackfieldError: as the host reported it.
        """
        ...

    async def attach(self, instance: str, options: dict[str, Any]) -> LocalConnection: ...


class CommandHost(Protocol):
    def connect(self, home: str | None) -> AbstractAsyncContextManager[LocalClient]: ...


COMMAND_HOST: ContextVar[CommandHost | None] = ContextVar("jackfield_command_host", default=None)
"""Set by the command line before it runs a plugin's command."""


def connect(home: str | None = None) -> AbstractAsyncContextManager[LocalClient]:
    """The host of the given home, or of the one that the command line was called for.

    Raises:
        UsageError: called outside a command.
    """
    host = COMMAND_HOST.get()
    if host is None:
        raise UsageError("there is no command line to connect through", fix="run it as `jackfield <command>`")
    return host.connect(home)
