"""The tools themselves; their docstrings are what the model reads."""

from __future__ import annotations

from typing import Annotated

from jackfield.api import Tool, ToolContext, tool
from jackfield.models import DestinationKind

__all__ = ["TOOLS", "create_agent", "list_agents"]


@tool
async def create_agent(
    context: ToolContext,
    name: Annotated[str, "What it is called, like Research Bot; you will write to it as research-bot"],
    instructions: Annotated[
        str, "Who it is and what it is to do, as Markdown; it knows nothing else of you and your work"
    ] = "",
) -> str:
    """Ask for a new agent, with a memory and a workspace of its own, that you can write to from then on.

    It can send messages and no more, and only you can write to it. A person may have to allow it.
    """
    answer = await context.act("create_agent", {"name": name, "instructions": instructions})
    if answer["state"] == "approved":
        return f'Creating agent "{name}". You are told when it is there; then you can write to it.'
    return f'Asked a person to allow the agent "{name}" ({answer["approval"]}). You are told what they decide.'


@tool
async def list_agents(context: ToolContext) -> str:
    """List the other agents that you can write to, with the names by which you address them."""
    found = [place for place in await context.destinations() if place.kind is DestinationKind.AGENT]
    if not found:
        return "There is no other agent that you can write to."
    return "\n".join(
        f"- {place.name}" + (f" ({place.display_name})" if place.display_name not in ("", place.name) else "")
        for place in found
    )


TOOLS: tuple[Tool, ...] = (create_agent, list_agents)
