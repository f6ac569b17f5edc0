"""How a runner's MCP servers do, told among its activity: as an `mcp_call` whose target is no tool's name."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ServerState", "server_of", "server_target"]

_MARK = "server "


class ServerState(StrEnum):
    """The first word of the activity's summary."""

    WORKS = "works"
    FAILED = "failed"
    """It is started again in a moment."""
    OFF = "off"
    """It failed too often, and is left alone as long as this runner lives."""


def server_target(name: str) -> str:
    """The activity's target for the server of that name."""
    return _MARK + name


def server_of(target: str) -> str | None:
    """The server's name; None when the target is a tool."""
    return target.removeprefix(_MARK) if target.startswith(_MARK) else None
