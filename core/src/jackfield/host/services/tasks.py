"""Operations on tasks: what agents, and operators, have scheduled."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from jackfield.api import TaskChange, TaskWish
from jackfield.clock import local_iso, zone_or_utc
from jackfield.errors import MalformedData, NoHost, NotAllowed, NotFound, UsageError
from jackfield.host.approvals import LOCAL_OPERATOR
from jackfield.host.schedule import Series
from jackfield.host.schedule.desk import default_zone
from jackfield.host.schedule.places import has_own_session, new_task, place_in_chat
from jackfield.host.schedule.wishes import read_wish
from jackfield.host.schedule.withdrawal import take_out
from jackfield.host.services.context import Args, ServiceContext, chat_address, operation
from jackfield.host.services.shapes import moment
from jackfield.ids import TaskId, new_id
from jackfield.mailbox import HostMailbox
from jackfield.models import Address, Session, Task, TaskRun, TaskState
from jackfield.store import groups, tasks
from jackfield.store.tasks import RunEntry

__all__: list[str] = []

TERMINAL = "terminal"
NUMBER = 2**31
_FIELD = re.compile(r"`(\w+)`")


def _series(context: ServiceContext) -> Series:
    """The running host's; without one, changes are made under its lock."""
    if context.live is not None:
        return context.live.series
    hub = context.hub

    async def use(session: Session, work: Callable[[HostMailbox], Any]) -> Any:
        return await hub.mailboxes.run(hub.folder_of(session), work)

    async def run_now(run: TaskRun, task: Task, session: Session) -> None:
        raise NoHost("only a running host runs tasks", fix="start one with `jackfield up`")

    return Series(hub, take_out=partial(take_out, hub, use), run_now=run_now, changed=lambda: None)


@contextmanager
def _in_options() -> Iterator[None]:
    """What a wish lacks is told in the words of the command, whose mistake it is."""
    try:
        yield
    except (MalformedData, NotAllowed) as problem:
        message, fix = (_FIELD.sub(_option, text) for text in (problem.message, problem.fix or ""))
        raise UsageError(message, fix=fix or None) from problem


def _option(field: re.Match[str]) -> str:
    return f"`--{field[1].replace('_', '-')}`"


def _id(args: Args) -> TaskId:
    return TaskId(args.text("id").lower())


@operation("task.list")
async def task_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """The newest first; without a state, those that are not over, unless `all`."""
    name, wanted = args.optional_text("group"), args.optional_text("state")
    group = await context.group(name) if name else None
    states: tuple[TaskState, ...] = (TaskState.ACTIVE, TaskState.PAUSED, TaskState.STOPPED)
    if wanted:
        states = (args.choice("state", TaskState, TaskState.ACTIVE),)
    elif args.flag("all"):
        states = ()

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        found = tasks.tasks(
            db,
            agent_group_id=group.id if group is not None else None,
            states=states,
            limit=args.number("limit", 100, low=1, high=100_000),
        )
        folders = {one.id: one.folder for one in groups.agent_groups(db)}
        return [_task_json(db, task, folders.get(task.agent_group_id)) for task in found]

    return await context.hub.store.read(look)


@operation("task.show")
async def task_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    return await _shown(context, _id(args))


async def _shown(context: ServiceContext, id: TaskId) -> dict[str, Any]:
    def look(db: sqlite3.Connection) -> dict[str, Any] | None:
        task = tasks.task(db, id)
        if task is None:
            return None
        group = groups.agent_group(db, task.agent_group_id)
        shown = _task_json(db, task, group.folder if group is not None else None)
        runs = tasks.runs(db, id, 1)
        return shown | {"script": task.script, "last_run": _run_json(runs[0], task) if runs else None}

    shown = await context.hub.store.read(look)
    if shown is None:
        raise NotFound(f"there is no task {id!r}", fix="see `jackfield task list --all`")
    return shown


@operation("task.runs")
async def task_runs(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """The newest first."""
    id, limit = _id(args), args.number("limit", 50, low=1, high=10_000)

    def look(db: sqlite3.Connection) -> list[dict[str, Any]] | None:
        task = tasks.task(db, id)
        return None if task is None else [_run_json(one, task) for one in tasks.runs(db, id, limit)]

    found = await context.hub.store.read(look)
    if found is None:
        raise NotFound(f"there is no task {id!r}", fix="see `jackfield task list --all`")
    return found


@operation("task.add")
async def task_add(context: ServiceContext, args: Args) -> dict[str, Any]:
    """A task of an agent group, in one of its chats; without `chat` in the group's own chat in the terminal."""
    group, now = await context.group(args.text("group")), context.hub.clock.now()
    named = args.optional_text("chat")
    address = chat_address(named) if named else Address(TERMINAL, TERMINAL, group.folder)
    wish = TaskWish(
        prompt=args.text("prompt"),
        at=args.optional_text("at"),
        cron=args.optional_text("cron"),
        timezone=args.optional_text("timezone"),
        script=args.optional_text("script", empty=True),
        catch_up=args.optional_text("catch_up"),
        stop_after=_count(args),
        often=args.flag("often"),
    )
    zone = await default_zone(context.hub, (), group)
    with _in_options():
        reading = read_wish(wish, zone, now)
    place = await context.hub.store.read(place_in_chat, group, address)
    id = TaskId(new_id("tsk", now))
    task = new_task(id, reading, place, now, own_session=args.flag("own_session"))
    await _series(context).add(task)
    return await _shown(context, id)


@operation("task.update")
async def task_update(context: ServiceContext, args: Args) -> dict[str, Any]:
    change = TaskChange(
        prompt=args.optional_text("prompt"),
        at=args.optional_text("at"),
        cron=args.optional_text("cron", empty=True),
        timezone=args.optional_text("timezone"),
        script=args.optional_text("script", empty=True),
        catch_up=args.optional_text("catch_up"),
        stop_after=_count(args),
        often=args.flag("often"),
    )
    if change == TaskChange(often=change.often):
        raise UsageError("nothing is to be changed", fix="give at least one option")
    with _in_options():
        done = await _series(context).update(_id(args), change)
    return await _shown(context, done.task.id) | {"begun": done.begun}


@operation("task.pause")
async def task_pause(context: ServiceContext, args: Args) -> dict[str, Any]:
    done = await _series(context).pause(_id(args))
    return await _shown(context, done.task.id) | {"begun": done.begun}


@operation("task.resume")
async def task_resume(context: ServiceContext, args: Args) -> dict[str, Any]:
    done = await _series(context).resume(_id(args))
    return await _shown(context, done.task.id) | {"begun": done.begun}


@operation("task.cancel")
async def task_cancel(context: ServiceContext, args: Args) -> dict[str, Any]:
    done = await _series(context).cancel(_id(args))
    return await _shown(context, done.task.id) | {"begun": done.begun}


@operation("task.run")
async def task_run(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Once more, now, besides the schedule; also while it is paused."""
    run = await context.running.series.run(_id(args))
    return {"id": run.task_id, "run": run.id, "session": run.session_id, "message": run.inbound_id}


def _count(args: Args) -> int | None:
    return args.number("stop_after", 0, high=NUMBER) if args.given("stop_after") else None


def _task_json(db: sqlite3.Connection, task: Task, folder: str | None) -> dict[str, Any]:
    return {
        "id": task.id,
        "group": folder or task.agent_group_id,
        "state": task.state,
        "running": bool(tasks.open_runs(db, task.id)),
        "next_at": moment(task.next_at),
        "next_local": None if task.next_at is None else local_iso(task.next_at, zone_or_utc(task.timezone)),
        "cron": task.cron,
        "timezone": task.timezone,
        "catch_up": task.catch_up,
        "stop_after": task.stop_after,
        "gated": task.script is not None,
        "failures": task.failures,
        "reason": task.reason,
        "chat": None if task.origin is None else str(task.origin),
        "own_session": has_own_session(task),
        "by": task.created_by or ("agent" if task.creator is not None else LOCAL_OPERATOR),
        "prompt": task.prompt,
        "created_at": moment(task.created_at),
        "updated_at": moment(task.updated_at),
    }


def _run_json(one: RunEntry, task: Task) -> dict[str, Any]:
    """`state` is the run's; while it is open, `message` tells how far the agent is with it."""
    run = one.run
    return {
        "id": run.id,
        "due_at": moment(run.due_at),
        "due_local": local_iso(run.due_at, zone_or_utc(task.timezone)),
        "missed_from": moment(run.missed_from),
        "extra": run.extra,
        "state": run.state,
        "message": run.inbound_id,
        "message_state": one.message,
        "attempts": one.attempts,
        "reason": run.reason,
        "session": run.session_id,
        "created_at": moment(run.created_at),
        "finished_at": moment(run.finished_at),
    }
