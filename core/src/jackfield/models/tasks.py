"""Work that an agent does at a time of its own: the series, and each run of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, InboundId, MessagingGroupId, SessionId, TaskId, TaskRunId, UserId
from jackfield.models.addresses import Address
from jackfield.models.entities import SessionMode

__all__ = ["CatchUp", "RunState", "Task", "TaskRun", "TaskState"]


class CatchUp(StrEnum):
    """What becomes of occurrences that fell due while nothing could run (C119)."""

    LATEST = "latest"
    """Only the newest one runs."""
    ALL = "all"
    """Each runs in order, one after the other; of very many only the newest."""
    SKIP = "skip"
    """None runs; the series goes on with its next one."""


class TaskState(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    DONE = "done"
    """It was to run once, and has."""
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    """By the host, for the reason that the task tells; `resume` starts it again."""


class RunState(StrEnum):
    CLAIMED = "claimed"
    """It is due, and on its way into the session's inbox."""
    QUEUED = "queued"
    """It lies in the inbox; how far the agent is with it, the ledger of messages tells."""
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"
    """Nobody can tell any more how it ended; it is not tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A series: once at `next_at`, or again and again by `cron` in `timezone`.

    `session_key` and what follows it name the conversation that it runs in, which is made again when it was closed.
    """

    id: TaskId
    agent_group_id: AgentGroupId
    session_key: str
    session_mode: SessionMode
    messaging_group_id: MessagingGroupId | None
    thread_id: str | None
    origin: Address | None
    """Where its answers go."""
    prompt: str
    timezone: str
    next_at: UnixMs | None
    """The next occurrence; kept while it is paused."""
    created_at: UnixMs
    updated_at: UnixMs
    creator: str | None = None
    """The conversation that scheduled it, as `<agent group> <session key>`; None for an operator."""
    created_by: UserId | None = None
    """The person who asked for it, if it was one."""
    script: str | None = None
    cron: str | None = None
    catch_up: CatchUp = CatchUp.LATEST
    state: TaskState = TaskState.ACTIVE
    reason: str | None = None
    look_at: UnixMs | None = None
    """When the timer looks at it next; None while it is not active, or has a run that has not ended."""
    failures: int = 0
    """Runs that failed in a row; and those of them that its script failed."""
    script_failures: int = 0
    stop_after: int | None = None
    """Failures in a row after which it stops by itself."""
    unsaid: str | None = None
    """What people have not been told yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """One occurrence, known by its series and `due_at`."""

    id: TaskRunId
    task_id: TaskId
    due_at: UnixMs
    session_id: SessionId | None
    state: RunState
    created_at: UnixMs
    missed_from: UnixMs | None = None
    """The first of the occurrences that were left out and for which this one stands."""
    extra: bool = False
    """Somebody asked for it, besides the schedule."""
    reason: str | None = None
    finished_at: UnixMs | None = None

    @property
    def inbound_id(self) -> InboundId:
        """Of its message, in the ledger and the inbox."""
        return InboundId(f"in_{self.id.removeprefix('run_')}")
