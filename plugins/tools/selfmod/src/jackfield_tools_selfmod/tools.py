"""The tools themselves; their docstrings are what the model reads (messaging.md 7)."""

from __future__ import annotations

from typing import Annotated, Any

from jackfield.api import Tool, ToolContext, tool

__all__ = ["TOOLS", "add_mcp_server", "install_packages", "request_rebuild"]

Reason = Annotated[str, "Why you need it, in a sentence for the person who decides"]


@tool
async def install_packages(
    context: ToolContext,
    reason: Reason,
    pip: Annotated[list[str] | None, "Packages of Python: names, or name==version"] = None,
    npm: Annotated[list[str] | None, "Packages of Node.js: names, also @scope/name"] = None,
    apt: Annotated[
        list[str] | None, "Packages of the operating system, where this agent's runtime has an image"
    ] = None,
) -> str:
    """Ask for packages to be installed for you, at most 20 at once. A person decides; a notice tells the outcome."""
    return await _ask(context, "install_packages", {"pip": pip, "npm": npm, "apt": apt, "reason": reason})


@tool
async def add_mcp_server(
    context: ToolContext,
    name: Annotated[str, "What its tools' names begin with: lower-case letters and digits, like files"],
    reason: Reason,
    command: Annotated[str | None, "The program that is started in your sandbox, like npx"] = None,
    args: Annotated[list[str] | None, "Its arguments, one by one"] = None,
    env: Annotated[
        dict[str, str] | None, "Variables that it needs; for a secret the value is secret:NAME, never the secret"
    ] = None,
    cwd: Annotated[str | None, "Where it starts; your workspace when left out"] = None,
    url: Annotated[str | None, "Instead of a command: the address of a server that speaks streamable HTTP"] = None,
    headers: Annotated[dict[str, str] | None, "HTTP headers for it, such as Authorization: Bearer secret:NAME"] = None,
    timeout: Annotated[float | None, "Seconds that a call of its tools may take; 60 when left out"] = None,
) -> str:
    """Ask for an MCP server, whose tools you then have. A person decides; a notice tells you the outcome."""
    settings = {
        "command": command, "args": args, "env": env, "cwd": cwd, "url": url, "headers": headers, "timeout": timeout,
    }  # fmt: skip
    given = {key: value for key, value in settings.items() if value not in (None, "", [], {})}
    return await _ask(context, "add_mcp_server", {"name": name, "settings": given, "reason": reason})


@tool
async def request_rebuild(context: ToolContext, reason: Reason) -> str:
    """Ask for everything that is installed for you to be installed anew, and to be started again afterwards."""
    return await _ask(context, "request_rebuild", {"reason": reason})


async def _ask(context: ToolContext, action: str, request: dict[str, Any]) -> str:
    answer = await context.act(action, request)
    if answer["state"] == "approved":
        return f"It is allowed and being done ({answer['approval']}). A notice tells you when it is there."
    return f"A person was asked ({answer['approval']}). A notice tells you what they decided; don't wait for it."


TOOLS: tuple[Tool, ...] = (install_packages, add_mcp_server, request_rebuild)
