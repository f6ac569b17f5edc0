"""A schedule that takes notes: what tool sets asked it for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jackfield.api import ActionContext, ApprovalTicket, TaskChange, TaskInfo, TaskOutcome, TaskWish
from jackfield.clock import UnixMs
from jackfield.errors import NotFound
from jackfield.ids import RequestId, TaskId, derive_id
from jackfield.models import TaskState

__all__ = ["ScheduleRecorder"]

NEXT_AT = UnixMs(1_800_000_000_000)


class ScheduleRecorder:
    """A `ScheduleService` without a clock: tasks are entered as they were wished, due at one fixed moment."""

    def __init__(self) -> None:
        self.wished: list[TaskWish] = []
        self.changed: list[tuple[str, TaskChange | TaskState]] = []
        self.known: dict[TaskId, TaskInfo] = {}
        self.ticket: ApprovalTicket | None = None
        """Returned for every wish with a `to`."""
        self.begun = False
        """Whether each change finds a run that has begun."""
        self.error: Exception | None = None
        """Raised by every call from now on."""

    async def schedule(
        self, context: ActionContext, request_id: RequestId, wish: TaskWish
    ) -> TaskInfo | ApprovalTicket:
        self._check()
        self.wished.append(wish)
        if wish.to is not None and self.ticket is not None:
            return self.ticket
        info = TaskInfo(
            id=TaskId(derive_id("tsk", context.session.id, request_id)),
            state=TaskState.ACTIVE,
            prompt=wish.prompt,
            next_at=NEXT_AT,
            next_local="Jan 15, 2027, 8:00 AM (UTC)",
            timezone=wish.timezone or "UTC",
            cron=wish.cron,
            script=wish.script,
            catch_up=wish.catch_up or "latest",
            stop_after=wish.stop_after,
        )
        return self.known.setdefault(info.id, info)

    async def tasks(self, context: ActionContext, state: TaskState | None = None) -> Sequence[TaskInfo]:
        self._check()
        over = (TaskState.DONE, TaskState.CANCELLED)
        return [one for one in self.known.values() if (one.state is state if state else one.state not in over)]

    async def update(self, context: ActionContext, id: str, change: TaskChange) -> TaskOutcome:
        info = self._find(id)
        self.changed.append((id, change))
        self.known[info.id] = replace(info, prompt=change.prompt or info.prompt)
        return TaskOutcome(task=self.known[info.id], begun=self.begun)

    async def pause(self, context: ActionContext, id: str) -> TaskOutcome:
        return self._to(id, TaskState.PAUSED)

    async def resume(self, context: ActionContext, id: str) -> TaskOutcome:
        return self._to(id, TaskState.ACTIVE)

    async def cancel(self, context: ActionContext, id: str) -> TaskOutcome:
        return self._to(id, TaskState.CANCELLED)

    def _to(self, id: str, state: TaskState) -> TaskOutcome:
        info = self._find(id)
        self.changed.append((id, state))
        self.known[info.id] = replace(info, state=state)
        return TaskOutcome(task=self.known[info.id], begun=self.begun)

    def _find(self, id: str) -> TaskInfo:
        self._check()
        found = self.known.get(TaskId(id))
        if found is None:
            raise NotFound(f"there is no task {id!r}")
        return found

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
