"""What plugins add to the system prompt of a session whose runner is about to start (`compose_prompt`, ...)."""

from __future__ import annotations

import asyncio
import logging

from jackfield.api import PromptRequest
from jackfield.errors import NotFound, PluginBroken
from jackfield.host.hub import Hub
from jackfield.models import AgentGroup, Session

__all__ = ["additions", "tool_instructions"]

log = logging.getLogger(__name__)
_LIMIT = 64 * 1024
"""Bytes of one text; `session.json` holds them all."""


async def additions(hub: Hub, session: Session, group: AgentGroup, tools: tuple[str, ...]) -> str:
    """The text that stands in the system prompt beside the group's own words; empty without such a plugin."""
    dispatcher = hub.plugins.dispatcher
    if not dispatcher.has("compose_prompt"):
        return ""
    request = PromptRequest(agent_group=group, session=session, tools=tools)
    return _bounded(hub, "compose_prompt", await dispatcher.compose("compose_prompt", "text", "", request=request), "")


async def tool_instructions(hub: Hub, tools: tuple[str, ...]) -> dict[str, str]:
    """The instructions that plugins changed, by tool set; the others are the tool set's own."""
    dispatcher = hub.plugins.dispatcher
    if not dispatcher.has("tool_instructions"):
        return {}
    changed: dict[str, str] = {}
    for name in tools:
        try:
            own = (await asyncio.to_thread(hub.plugins.tool_set, name)).instructions
        except (NotFound, PluginBroken):
            continue  # its runner meets the same problem, and tells the people who wrote
        text = await dispatcher.compose("tool_instructions", "text", own, tool_set=name)
        if text != own:
            changed[name] = _bounded(hub, "tool_instructions", text, own)
    return changed


def _bounded(hub: Hub, hook: str, text: str, otherwise: str) -> str:
    """What the hook made, if it can stand in `session.json`: a plugin's text must not keep a runner from starting."""
    made = text.encode("utf-8", "replace")
    if len(made) <= _LIMIT:
        return made.decode().strip()
    log.warning("hook %s: %d bytes are more than %d; they are left out", hook, len(made), _LIMIT)
    hub.trouble(f"hook {hook}")
    return otherwise
