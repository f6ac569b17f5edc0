"""A well-behaved MCP server, of the `mcp` package.  `http PORT-FILE` serves streamable HTTP; else stdio."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("shop")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool()
async def grow(context: Context) -> str:
    """Offer one tool more."""

    def late() -> str:
        """Came late."""
        return "late"

    server.add_tool(late)
    await context.session.send_tool_list_changed()
    return "grown"


@server.tool()
def header(context: Context) -> str:
    """The authorization that the caller sent."""
    request = context.request_context.request
    return str(request.headers.get("authorization") if request is not None else None)


async def over_http(port_file: str) -> None:
    import socket

    import uvicorn

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    Path(port_file).write_text(str(listening.getsockname()[1]), encoding="utf-8")
    config = uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    await uvicorn.Server(config).serve([listening])


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        asyncio.run(over_http(sys.argv[2]))
    else:
        server.run()
