"""`HostContext.schedule`: what an agent may do with tasks, which follows from whose mailbox it asks through.

A conversation reaches the tasks that run in it and those that it scheduled elsewhere.  What is to run in another
conversation is asked about first (C143), and is afterwards changed only by asking again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jackfield.api import (
    ActionContext,
    ApprovalField,
    ApprovalTicket,
    TaskChange,
    TaskInfo,
    TaskOutcome,
    TaskWish,
)
from jackfield.clock import UnixMs
from jackfield.errors import ConfigError, Conflict, MalformedData, NotAllowed, NotFound
from jackfield.host.agents import places
from jackfield.host.approvals import Approvals, Decision, HostKind
from jackfield.host.hub import Hub
from jackfield.host.schedule.places import Place, has_own_session, new_task, place_in_chat
from jackfield.host.schedule.plan import recurrence_of, subject, when
from jackfield.host.schedule.series import Changed, Series, require_room
from jackfield.host.schedule.times import parse_zone
from jackfield.host.schedule.wishes import read_wish
from jackfield.ids import RequestId, TaskId, UserId, derive_id
from jackfield.models import (
    AGENT_CHANNEL,
    AgentGroup,
    Destination,
    DestinationKind,
    SessionMode,
    Task,
    TaskState,
    decode,
    encode,
)
from jackfield.store import chats, groups, people, tasks, wirings

__all__ = ["ELSEWHERE", "MAX_LIVE", "TaskDesk", "default_zone", "info_of"]

ELSEWHERE = "schedule_elsewhere"
"""The kind of approval."""
MAX_LIVE = 200
"""Tasks that the agents of one group may have scheduled at a time."""
OVER = (TaskState.DONE, TaskState.CANCELLED)


class TaskDesk:
    def __init__(self, hub: Hub, series: Series, approvals: Approvals) -> None:
        self._hub = hub
        self._series = series
        self._approvals = approvals
        title = "Schedule a task in another conversation"
        approvals.kinds.register(
            HostKind(name=ELSEWHERE, title=title, apply=self._decided, idempotent=True, mode="ask")
        )

    async def schedule(
        self, context: ActionContext, request_id: RequestId, wish: TaskWish
    ) -> TaskInfo | ApprovalTicket:
        id = TaskId(derive_id("tsk", context.session.id, request_id))
        known = await self._hub.store.read(tasks.task, id)
        if known is not None:
            return info_of(known)
        now = self._hub.clock.now()
        zone = await default_zone(self._hub, context.users, context.agent_group)
        reading = read_wish(wish, zone, now)
        place = await self._place(context, wish)
        task = new_task(
            id,
            reading,
            place,
            now,
            own_session=wish.own_session,
            creator=_creator(context),
            created_by=context.users[0] if len(context.users) == 1 else None,
        )
        if place.name is None:
            return info_of(await self._series.add(task, at_most=MAX_LIVE))
        # Looked at here only so that nobody is asked in vain.
        await self._hub.store.read(require_room, task.agent_group_id, MAX_LIVE)
        return await self._approvals.request(
            context, request_id, ELSEWHERE, {"task": encode(task)}, fields=_fields(task, place)
        )

    async def tasks(self, context: ActionContext, state: TaskState | None = None) -> Sequence[TaskInfo]:
        session = context.session

        def look(db: sqlite3.Connection) -> list[TaskInfo]:
            found = tasks.of_conversation(db, context.agent_group.id, session.key, _creator(context))
            return [
                info_of(task, running=bool(tasks.open_runs(db, task.id)), elsewhere=_elsewhere(context, task))
                for task in found
                if (task.state is state if state is not None else task.state not in OVER)
            ]

        return await self._hub.store.read(look)

    async def update(self, context: ActionContext, id: str, change: TaskChange) -> TaskOutcome:
        task = await self._mine(context, id)
        if _elsewhere(context, task):
            raise NotAllowed(
                f"task {task.id} runs in another conversation, where it was approved as it is",
                fix="cancel it, and schedule a new one there",
            )
        return _outcome(context, await self._series.update(task.id, change))

    async def pause(self, context: ActionContext, id: str) -> TaskOutcome:
        task = await self._mine(context, id)
        return _outcome(context, await self._series.pause(task.id))

    async def resume(self, context: ActionContext, id: str) -> TaskOutcome:
        task = await self._mine(context, id)
        return _outcome(context, await self._series.resume(task.id))

    async def cancel(self, context: ActionContext, id: str) -> TaskOutcome:
        task = await self._mine(context, id)
        return _outcome(context, await self._series.cancel(task.id))

    async def _mine(self, context: ActionContext, id: str) -> Task:
        task = await self._hub.store.read(tasks.task, TaskId(id.strip().lower()))
        if task is None or not (_here(context, task) or task.creator == _creator(context)):
            raise NotFound(f"this conversation has no task {id[:60]!r}", fix="list_tasks tells the ids")
        return task

    # ---- where

    async def _place(self, context: ActionContext, wish: TaskWish) -> Place:
        session = context.session
        if wish.to is not None and wish.to.strip():
            elsewhere = await self._hub.store.read(_destination, context, wish.to.strip(), self._hub.clock.now())
            if elsewhere is not None:
                if wish.own_session:
                    raise MalformedData("own_session and `to` exclude each other", fix="leave one of them out")
                return elsewhere
        origin = context.origin or await self._hub.store.read(places.home_of, session)
        return Place(
            agent_group_id=context.agent_group.id,
            session_key=session.key,
            session_mode=session.mode,
            messaging_group_id=session.messaging_group_id,
            thread_id=session.thread_id,
            origin=origin,
        )

    # ---- after a decision

    async def _decided(self, decision: Decision) -> str | None:
        if not decision.approved:
            return None
        task: Task = decode(Task, decision.payload["task"])
        now = self._hub.clock.now()
        if task.next_at is not None and task.next_at < now:
            recurrence = recurrence_of(task)
            if recurrence is None:
                return f"Nothing was scheduled: {when(task.next_at, task.timezone)} passed before somebody decided."
            following = recurrence.next_after(now)
            task = replace(task, next_at=following, look_at=following)
        if await self._hub.store.read(groups.agent_group, task.agent_group_id) is None:
            return "Nothing was scheduled: that agent does not exist any more."
        try:
            added = await self._series.add(task, at_most=MAX_LIVE)
        except Conflict as problem:
            return f"Nothing was scheduled: {problem}."
        return f"The task {subject(added)} was scheduled: {_first(added)} (id {added.id})."


def _first(task: Task) -> str:
    return "it does not run" if task.next_at is None else f"it runs first {when(task.next_at, task.timezone)}"


def _destination(db: sqlite3.Connection, context: ActionContext, name: str, now: UnixMs) -> Place | None:
    """The conversation behind a destination's name; None when that is the one that asks."""
    known = wirings.destinations(db, context.agent_group.id)
    found = next((one for one in known if one.name == name.lower()), None)
    if found is None:
        names = ", ".join(one.name for one in known) or "none"
        raise NotFound(f"there is no destination {name[:60]!r}", fix=f"known are: {names}")
    if found.kind is DestinationKind.AGENT:
        return _with_agent(context, found)
    assert found.address is not None
    chat = chats.messaging_group_at(db, found.address)
    if chat is not None and chat.id == context.session.messaging_group_id:
        return None
    place = place_in_chat(db, context.agent_group, found.address)
    return None if place.session_key == context.session.key else place


def _with_agent(context: ActionContext, found: Destination) -> Place:
    """The conversation that the asking one has with another agent; its answers come back to who asks."""
    assert found.agent_group_id is not None
    return Place(
        agent_group_id=found.agent_group_id,
        session_key=f"{AGENT_CHANNEL}:{context.session.id}",
        session_mode=SessionMode.AGENT_SHARED,
        messaging_group_id=None,
        thread_id=None,
        origin=places.address_of(context.session),
        name=found.display_name or found.name,
    )


# ---- shapes


def _fields(task: Task, place: Place) -> list[ApprovalField]:
    where = f"{place.name} ({task.origin})"
    if task.origin is not None and not task.origin.is_agent:
        where = f"{task.origin}, called {place.name!r}"  # a chat's name is what somebody there likes
    found = [
        ApprovalField(label="Conversation", value=where),
        ApprovalField(label="First run", value=_first(task)),
        ApprovalField(label="Repeats", value=f"{task.cron} ({task.timezone})" if task.cron else "never"),
        ApprovalField(label="Missed runs", value=task.catch_up.value),
        ApprovalField(label="Prompt", value=task.prompt),
    ]
    if task.script is not None:
        found.append(ApprovalField(label="Script", value=task.script))
    if task.stop_after is not None:
        found.append(ApprovalField(label="Stops after", value=f"{task.stop_after} failures in a row"))
    return found


def info_of(task: Task, *, running: bool = False, elsewhere: bool = False) -> TaskInfo:
    """The series as it is shown."""
    return TaskInfo(
        id=task.id,
        state=task.state,
        prompt=task.prompt,
        next_at=task.next_at,
        next_local=None if task.next_at is None else when(task.next_at, task.timezone),
        timezone=task.timezone,
        cron=task.cron,
        script=task.script,
        catch_up=task.catch_up.value,
        stop_after=task.stop_after,
        place=None if task.origin is None else str(task.origin),
        elsewhere=elsewhere,
        running=running,
        failures=task.failures,
        reason=task.reason,
    )


def _outcome(context: ActionContext, done: Changed) -> TaskOutcome:
    info = info_of(done.task, running=done.begun, elsewhere=_elsewhere(context, done.task))
    return TaskOutcome(task=info, begun=done.begun)


def _creator(context: ActionContext) -> str:
    return f"{context.agent_group.id} {context.session.key}"


def _here(context: ActionContext, task: Task) -> bool:
    return task.agent_group_id == context.agent_group.id and task.session_key == context.session.key


def _elsewhere(context: ActionContext, task: Task) -> bool:
    """Whether it runs where other people are; a session of its own is not elsewhere."""
    return not _here(context, task) and not has_own_session(task)


async def default_zone(hub: Hub, users: Sequence[UserId], group: AgentGroup) -> str:
    """The zone that holds when a task names none: the asking person's, else the agent group's, else the host's (C109).

    Of several people nobody's counts.
    """
    user = await hub.store.read(people.user, users[0]) if len(users) == 1 else None
    if user is not None and user.timezone:
        return parse_zone(user.timezone).key
    try:
        own: Any = hub.agent_settings(group).timezone
    except ConfigError:
        own = None
    return own or hub.settings.timezone
