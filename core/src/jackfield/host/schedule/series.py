"""Changing a series, by an agent or an operator: what waits is taken back first, what has begun goes on (C115)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from jackfield.api import TaskChange
from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound
from jackfield.host.hub import Hub
from jackfield.host.schedule.claiming import enter_extra, session_of
from jackfield.host.schedule.places import require_destination
from jackfield.host.schedule.plan import recurrence_of
from jackfield.host.schedule.wishes import changed
from jackfield.ids import AgentGroupId, TaskId, TaskRunId
from jackfield.models import Session, Task, TaskRun, TaskState
from jackfield.store import tasks

__all__ = ["Changed", "Series", "require_room"]

_TRIES = 5


@dataclass(frozen=True, slots=True)
class Changed:
    """`begun`: a run had begun before the change, and goes on to its end."""

    task: Task
    begun: bool = False


class TakeOut(Protocol):
    """See `jackfield.host.schedule.withdrawal`."""

    async def __call__(self, run: TaskRun, *, go_on: bool) -> bool: ...


class Series:
    """`take_out` undoes the claim of a run that has not begun, `run_now` feeds one, `changed` wakes the timer."""

    def __init__(
        self,
        hub: Hub,
        *,
        take_out: TakeOut,
        run_now: Callable[[TaskRun, Task, Session], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._out = take_out
        self._run_now = run_now
        self._changed = changed

    async def add(self, task: Task, *, at_most: int | None = None) -> Task:
        """Enter a series, once: one of the same id is left as it is.

        Raises:
            Conflict: its agent group has `at_most` that may still run.
        """

        def put(db: sqlite3.Connection) -> Task:
            if at_most is not None and tasks.task(db, task.id) is None:
                require_room(db, task.agent_group_id, at_most)
            tasks.add(db, task)
            return tasks.task(db, task.id) or task

        added = await self._hub.store.write(put)
        self._changed()
        return added

    async def update(self, id: TaskId, change: TaskChange) -> Changed:
        """See `ScheduleService.update`; whoever calls this has checked who asks."""
        begun: TaskRunId | None = None
        for _ in range(_TRIES):
            now = self._hub.clock.now()
            task, run = await self._hub.store.read(_look, id)
            changed(task, change, now)  # refuses before anything is taken back
            if run is not None and run.id != begun and not await self._take_out(run, go_on=True):
                begun = run.id
            after = await self._hub.store.write(_apply, id, change, begun, now)
            if after is not None:
                self._changed()
                return Changed(after, begun is not None)
        raise Conflict(f"task {id} is being run at this moment", fix="try again")

    async def pause(self, id: TaskId) -> Changed:
        """See `ScheduleService.pause`."""

        def decide(task: Task) -> Task:
            if task.state is TaskState.PAUSED:
                return task
            return replace(task, state=TaskState.PAUSED, reason=None, look_at=None, updated_at=self._hub.clock.now())

        return await self._end(id, decide)

    async def cancel(self, id: TaskId) -> Changed:
        """See `ScheduleService.cancel`."""

        def decide(task: Task) -> Task:
            now = self._hub.clock.now()
            return replace(
                task, state=TaskState.CANCELLED, reason=None, next_at=None, look_at=None, unsaid=None, updated_at=now
            )

        return await self._end(id, decide)

    async def resume(self, id: TaskId) -> Changed:
        """See `ScheduleService.resume`."""

        def apply(db: sqlite3.Connection) -> Changed:
            task, run = _look(db, id)
            if task.state is TaskState.ACTIVE:
                return Changed(task, run is not None)
            _refuse_over(task)
            now = self._hub.clock.now()
            recurrence = recurrence_of(task)
            next_at = task.next_at
            if next_at is None and recurrence is not None:
                next_at = recurrence.next_after(now)
            if next_at is None and run is None:
                raise Conflict(f"task {id} has no time any more", fix="schedule a new one")
            after = replace(
                task,
                state=TaskState.ACTIVE,
                reason=None,
                next_at=next_at,
                look_at=None if run is not None else next_at,
                failures=0,
                script_failures=0,
                updated_at=now,
            )
            tasks.change(db, task, after)
            return Changed(after, run is not None)

        resumed = await self._hub.store.write(apply)
        self._changed()
        return resumed

    async def run(self, id: TaskId) -> TaskRun:
        """Run it once now, besides its schedule; also while it is paused.

        Raises:
            NotFound: no such task, or its conversation is gone.
            NotAllowed: the agent that scheduled it may no longer write there.
            Conflict: it is cancelled, or a run of it is open.
        """

        def enter(db: sqlite3.Connection) -> tuple[TaskRun, Task, Session]:
            task, run = _look(db, id)
            if task.state is TaskState.CANCELLED:
                raise Conflict(f"task {id} is cancelled", fix="schedule a new one")
            if run is not None:
                raise Conflict(f"task {id} is being run already", fix=f"see `jackfield task runs {id}`")
            require_destination(db, task)
            now = self._hub.clock.now()
            session, due_at = session_of(db, task, now), now
            while tasks.has_run(db, id, due_at):
                due_at = UnixMs(due_at + 1)
            made = enter_extra(db, task, session, due_at, now)
            if made is None:
                raise Conflict(f"task {id} is being run already", fix=f"see `jackfield task runs {id}`")
            tasks.change(db, task, replace(task, look_at=None))
            return made, task, session

        run, task, session = await self._hub.store.write(enter)
        await self._run_now(run, task, session)
        return run

    async def _end(self, id: TaskId, decide: Callable[[Task], Task]) -> Changed:
        """Stop new occurrences first, then take back the one that waits."""

        def apply(db: sqlite3.Connection) -> tuple[Task, TaskRun | None]:
            task, run = _look(db, id)
            _refuse_over(task)
            after = decide(task)
            tasks.change(db, task, after)
            return after, run

        task, run = await self._hub.store.write(apply)
        begun = run is not None and not await self._take_out(run, go_on=False, extra=task.state is TaskState.CANCELLED)
        fresh, _ = await self._hub.store.read(_look, id)
        return Changed(fresh, begun)

    async def _take_out(self, run: TaskRun, *, go_on: bool, extra: bool = False) -> bool:
        """Whether it is out; a run that somebody asked for besides the schedule stays, unless `extra`."""
        if run.extra and not extra:
            return False
        return await self._out(run, go_on=go_on)


def require_room(db: sqlite3.Connection, agent_group_id: AgentGroupId, at_most: int) -> None:
    """Refuse one more series of that group when it has `at_most`.

    Raises:
        Conflict: it has.
    """
    if tasks.count_live(db, agent_group_id) >= at_most:
        raise Conflict(f"this agent has {at_most} tasks already", fix="cancel some that are not needed any more")


def _look(db: sqlite3.Connection, id: TaskId) -> tuple[Task, TaskRun | None]:
    """The series and its open run."""
    task = tasks.task(db, id)
    if task is None:
        raise NotFound(f"there is no task {id!r}", fix="see `jackfield task list`")
    runs = tasks.open_runs(db, id)
    return task, runs[0] if runs else None


def _apply(db: sqlite3.Connection, id: TaskId, change: TaskChange, begun: TaskRunId | None, now: UnixMs) -> Task | None:
    """Write the change; None when a run was claimed meanwhile."""
    task, run = _look(db, id)
    if run is not None and run.id != begun:
        return None
    after = changed(task, change, now)
    if run is not None:
        after = replace(after, look_at=None)
    tasks.change(db, task, after)
    return after


def _refuse_over(task: Task) -> None:
    if task.state in (TaskState.DONE, TaskState.CANCELLED):
        raise Conflict(f"task {task.id} is {task.state.value}", fix="schedule a new one")
