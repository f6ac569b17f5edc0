"""Work at a time of its own: what the host does for agents that schedule something.

A *task* is a series: it runs once, or again and again.  Each run is a turn in the conversation that scheduled it, whose
answer goes where that conversation is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jackfield.api.approvals import ApprovalTicket
from jackfield.clock import UnixMs
from jackfield.ids import RequestId, TaskId
from jackfield.models import TaskState

if TYPE_CHECKING:
    from jackfield.api.plugins import ActionContext

__all__ = ["ScheduleService", "TaskChange", "TaskInfo", "TaskOutcome", "TaskWish"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWish:
    """What somebody wants to be done, and when; in the words of whoever wants it.

    At least one of `at` and `cron` is needed: `at` alone runs once, `cron` again and again, from `at` on.
    """

    prompt: str
    at: str | None = None
    """ISO 8601, without an offset in the task's zone; or a time from now on, like `1h30m`."""
    cron: str | None = None
    """Five fields, read in the task's zone, or an alias like `@daily`."""
    timezone: str | None = None
    """IANA name; by default the asking person's zone, then the agent group's, then the host's (C109)."""
    script: str | None = None
    """A bash script that tells, in the agent's sandbox, whether the agent is needed at all."""
    to: str | None = None
    """A destination in whose conversation it runs; None for the conversation that schedules it."""
    own_session: bool = False
    """Whether it has a conversation of its own, that knows nothing of the other; its answers go to the same place."""
    catch_up: str | None = None
    """`latest`, `all` or `skip`: what becomes of occurrences that could not run."""
    stop_after: int | None = None
    """Failures in a row after which it stops by itself; None for never."""
    often: bool = False
    """Whether it is meant to run more often than every five minutes, without a script that would spare the agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChange:
    """What becomes different; None leaves a thing as it is, an empty `script` or `cron` takes it away."""

    prompt: str | None = None
    at: str | None = None
    cron: str | None = None
    timezone: str | None = None
    script: str | None = None
    catch_up: str | None = None
    stop_after: int | None = None
    """0 for never."""
    often: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """A series, to be shown."""

    id: TaskId
    state: TaskState
    prompt: str
    next_at: UnixMs | None
    next_local: str | None
    """The same in the series' zone, for people."""
    timezone: str
    cron: str | None = None
    script: str | None = None
    catch_up: str = "latest"
    stop_after: int | None = None
    place: str | None = None
    """Where its answers go, as an address."""
    elsewhere: bool = False
    """Whether it runs in another conversation than the one that asks."""
    running: bool = False
    """Whether an occurrence of it waits or runs at this moment."""
    failures: int = 0
    """In a row."""
    reason: str | None = None
    """Why it does not run any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOutcome:
    """What a change came to.  `begun`: a run had begun before, and goes on to its end as it was."""

    task: TaskInfo
    begun: bool = False


class ScheduleService(Protocol):
    """`HostContext.schedule`.  A conversation reaches the tasks that run in it and those that it scheduled elsewhere;
    to every other one the answer is `NotFound`."""

    async def schedule(
        self, context: ActionContext, request_id: RequestId, wish: TaskWish
    ) -> TaskInfo | ApprovalTicket:
        """Enter a task.  The same `request_id` gets the same one.

        A task for another conversation (`to`) is asked about first, as the approval kind `schedule_elsewhere`; then the
        ticket is returned, and the agent is told the outcome by a notice.

        Raises:
            MalformedData: the time, the expression, the zone or another part of the wish means nothing.
            NotAllowed: it would run too often, or the group's `[permissions]` say no.
            NotFound: no such destination.
            Conflict: the group has too many tasks.
        """
        ...

    async def tasks(self, context: ActionContext, state: TaskState | None = None) -> Sequence[TaskInfo]:
        """Those that the conversation reaches, the oldest first; without a state, those that are not over."""
        ...

    async def update(self, context: ActionContext, id: str, change: TaskChange) -> TaskOutcome:
        """Change a task.  An occurrence that waits runs as it is after the change; one that has begun is not touched.

        Raises:
            NotFound: no such task.
            Conflict: it is over.
            NotAllowed: it runs in another conversation, where it was approved as it is; or too often.
            MalformedData: as `schedule`.
        """
        ...

    async def pause(self, context: ActionContext, id: str) -> TaskOutcome:
        """Run it no more until it is resumed; an occurrence that waits does not run.

        Raises:
            NotFound: no such task.
            Conflict: it is over.
        """
        ...

    async def resume(self, context: ActionContext, id: str) -> TaskOutcome:
        """Go on with it.  What fell due meanwhile is caught up with as after a downtime.

        Raises:
            NotFound: no such task.
            Conflict: it is over.
            MalformedData: its expression or zone means nothing any more.
        """
        ...

    async def cancel(self, context: ActionContext, id: str) -> TaskOutcome:
        """End it.  When this returns, no occurrence of it waits any more (C115).

        Raises:
            NotFound: no such task.
            Conflict: it is over.
        """
        ...
