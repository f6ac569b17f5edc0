"""The host's half: requests of the tools, checked and handed to the schedule."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Any

from jackfield.api import ActionContext, ActionHandler, ApprovalTicket, TaskChange, TaskOutcome, TaskWish
from jackfield.errors import MalformedData
from jackfield.ids import RequestId
from jackfield.models import TaskState
from pydantic import TypeAdapter, ValidationError

__all__ = ["actions"]

_WISH = TypeAdapter(TaskWish)
_CHANGE = TypeAdapter(TaskChange)


def _read(adapter: TypeAdapter[Any], arguments: dict[str, Any]) -> Any:
    """The arguments as what they must be: they come from a runner, which is nobody's friend."""
    try:
        return adapter.validate_json(json.dumps(arguments), strict=True)
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(step) for step in first["loc"]) or "the request"
        raise MalformedData(
            f"{place}: {first['msg']}", fix="call the tool with the arguments that it describes"
        ) from None


def _id(arguments: dict[str, Any]) -> str:
    found = arguments.get("id")
    if not isinstance(found, str) or not found.strip():
        raise MalformedData("task_id is missing", fix="list_tasks tells the ids")
    return found


async def _schedule(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    wish: TaskWish = _read(_WISH, arguments)
    made = await context.host.schedule.schedule(context, RequestId(request_id), wish)
    if isinstance(made, ApprovalTicket):
        return {"approval": {"id": made.id, "state": made.state}}
    return {"task": asdict(made)}


async def _list(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    wanted = arguments.get("state")
    try:
        state = None if wanted is None else TaskState(wanted)
    except ValueError:
        known = ", ".join(one.value for one in TaskState)
        raise MalformedData(f"state can't be {wanted!r}", fix=f"it is one of {known}") from None
    return {"tasks": [asdict(one) for one in await context.host.schedule.tasks(context, state)]}


async def _update(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    change = {name: value for name, value in arguments.items() if name != "id"}
    return asdict(await context.host.schedule.update(context, _id(arguments), _read(_CHANGE, change)))


Step = Callable[[ActionContext, str], Awaitable[TaskOutcome]]


def _step(step: Step) -> Callable[[ActionContext, str, dict[str, Any]], Awaitable[dict[str, Any]]]:
    async def handle(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return asdict(await step(context, _id(arguments)))

    return handle


def actions() -> Sequence[ActionHandler]:
    """One for each tool, of the same name."""
    return [
        ActionHandler(name="schedule_task", handle=_schedule),
        ActionHandler(name="list_tasks", handle=_list),
        ActionHandler(name="update_task", handle=_update),
        ActionHandler(name="pause_task", handle=_step(lambda context, id: context.host.schedule.pause(context, id))),
        ActionHandler(name="resume_task", handle=_step(lambda context, id: context.host.schedule.resume(context, id))),
        ActionHandler(name="cancel_task", handle=_step(lambda context, id: context.host.schedule.cancel(context, id))),
    ]
