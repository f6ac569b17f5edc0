"""The tools themselves; their docstrings are what the model reads (messaging.md 7)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from jackfield.api import Tool, ToolContext, ToolFailed, tool

from jackfield_tools_schedule import words

__all__ = ["TOOLS", "cancel_task", "list_tasks", "pause_task", "resume_task", "schedule_task", "update_task"]

TaskId = Annotated[str, "The task's id, like tsk_..."]
At = Annotated[
    str | None,
    "When, as ISO 8601 like 2027-03-14T09:00, read in the task's zone unless it has an offset; or a time from now on "
    "like 20m or 1h30m",
]
Cron = Annotated[
    str | None, "To repeat it: five cron fields read in the task's zone, like '0 9 * * 1-5', or an alias like @daily"
]
Zone = Annotated[str | None, "IANA time zone like Europe/Berlin; without it, that of the person or of the conversation"]
Script = Annotated[
    str | None,
    "Bash that runs before you are woken (30 s, in your workspace). Its last line must be JSON: "
    '{"wakeAgent": true, "data": ...} wakes you and shows you the data, {"wakeAgent": false} does not',
]
CatchUp = Annotated[
    Literal["latest", "all", "skip"] | None,
    "What becomes of runs that were missed: only the latest (default), all of them in order, or none",
]
StopAfter = Annotated[int | None, "Failures in a row after which it stops by itself; 0 for never"]
Often = Annotated[bool, "Only if a person wants it to run more often than every five minutes, without a script"]


@tool
async def schedule_task(
    context: ToolContext,
    prompt: Annotated[str, "What you are to do then, as a message to yourself: it must make sense on its own"],
    at: At = None,
    cron: Cron = None,
    timezone: Zone = None,
    script: Script = None,
    to: Annotated[
        str | None, "A destination in whose conversation it runs, which a person must allow; without it, this one"
    ] = None,
    own_session: Annotated[
        bool, "Whether it runs in a conversation of its own, which remembers nothing of this"
    ] = False,
    catch_up: CatchUp = None,
    stop_after: StopAfter = None,
    often: Often = False,
) -> str:
    """Schedule work for yourself: once (`at`), or again and again (`cron`, from `at` on if given).

    You are woken with the prompt then, and what you answer goes to the conversation in which it was scheduled. Tell
    the person the time that this returns.
    """
    wish = {
        "prompt": prompt, "at": at, "cron": cron, "timezone": timezone, "script": script, "to": to,
        "own_session": own_session, "catch_up": catch_up, "stop_after": stop_after, "often": often,
    }  # fmt: skip
    answer = await context.act("schedule_task", _given(wish))
    return words.scheduled(answer["task"]) if "task" in answer else words.asked(answer["approval"])


@tool
async def list_tasks(
    context: ToolContext,
    state: Annotated[
        Literal["active", "paused", "stopped", "done", "cancelled"] | None,
        "Only those; without it, all that are not over",
    ] = None,
) -> str:
    """List the tasks of this conversation, with the local time of their next run."""
    answer = await context.act("list_tasks", _given({"state": state}))
    return words.listed(answer["tasks"])


@tool
async def update_task(
    context: ToolContext,
    task_id: TaskId,
    prompt: Annotated[str | None, "The whole new prompt"] = None,
    at: At = None,
    cron: Annotated[str | None, "A new cron expression; '' to run it only once more"] = None,
    timezone: Zone = None,
    script: Annotated[str | None, "A new script; '' to take it away"] = None,
    catch_up: CatchUp = None,
    stop_after: StopAfter = None,
    often: Often = False,
) -> str:
    """Change a task: only what is given becomes different. With a new time or cron, its next run is set anew."""
    change = {
        "id": task_id, "prompt": prompt, "at": at, "cron": cron, "timezone": timezone, "script": script,
        "catch_up": catch_up, "stop_after": stop_after, "often": often,
    }  # fmt: skip
    given = _given(change)
    if not given.keys() - {"id", "often"}:
        raise ToolFailed("at least one field to update is required")
    return words.changed("updated", await context.act("update_task", given))


@tool
async def pause_task(context: ToolContext, task_id: TaskId) -> str:
    """Pause a task: it does not run until it is resumed."""
    return words.changed("paused", await context.act("pause_task", {"id": task_id}))


@tool
async def resume_task(context: ToolContext, task_id: TaskId) -> str:
    """Resume a task that was paused or stopped; a run that was missed meanwhile is caught up with."""
    return words.changed("resumed", await context.act("resume_task", {"id": task_id}))


@tool
async def cancel_task(context: ToolContext, task_id: TaskId) -> str:
    """Cancel a task for good."""
    return words.changed("cancelled", await context.act("cancel_task", {"id": task_id}))


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """Without what was left out."""
    return {name: value for name, value in arguments.items() if value is not None and value is not False}


TOOLS: tuple[Tool, ...] = (schedule_task, list_tasks, update_task, pause_task, resume_task, cancel_task)
