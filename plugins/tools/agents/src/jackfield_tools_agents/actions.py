"""The host half: what a runner asks for, as the host's own services do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jackfield.api import ActionContext, ActionHandler
from jackfield.errors import MalformedData
from jackfield.ids import RequestId

__all__ = ["actions"]


def actions() -> Sequence[ActionHandler]:
    return [ActionHandler(name="create_agent", handle=_create_agent)]


async def _create_agent(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    name, instructions = _text(arguments, "name"), _text(arguments, "instructions", "")
    ticket = await context.host.agents.create(context, RequestId(request_id), name, instructions)
    return {"approval": ticket.id, "state": ticket.state}


def _text(arguments: dict[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise MalformedData(f"{name} must be text, got {value!r:.80}")
    return value
