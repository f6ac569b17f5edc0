"""The schedule's units of work: claiming what is due, and taking over how runs ended.  Each is one transaction.

A claim moves the series on, enters the run and its message in the ledger, and finds or makes the session; from then on
the run is fed into the session's inbox however often the host dies (C113).  Ends are read from the ledger of messages,
so that it does not matter who ended a run: the agent, the retry rule, an operator, a cleared session.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, NotAllowed, NotFound
from jackfield.host.schedule.places import require_destination
from jackfield.host.schedule.plan import Occurrence, after_run, next_occurrence, rearmed, recurrence_of, subject
from jackfield.host.schedule.times import STEPS
from jackfield.ids import SessionId, TaskId, TaskRunId, new_id
from jackfield.models import (
    Address,
    InboundEntry,
    InboundState,
    RunState,
    Session,
    SessionStatus,
    Task,
    TaskRun,
    TaskState,
)
from jackfield.store import chats, inbound, sessions, tasks

__all__ = [
    "CLEARED",
    "FEED",
    "SET_BACK",
    "Claimed",
    "Settled",
    "claim",
    "enter_extra",
    "release",
    "restore_clock",
    "session_of",
    "settle",
]

log = logging.getLogger(__name__)

FEED = 10
"""Runs that a session has open at most, as many as go into one prompt: a message that comes in between never waits
behind more than these."""
HOLD = 30.0
"""Seconds after which a series is looked at again whose session had no room; an end in that session is sooner."""
SET_BACK = 60_000
"""Milliseconds by which a clock that was set back is noticed."""
CLEARED = "session cleared"
"""The ledger's reason for what was dropped with its conversation."""
_PREVIEW = 200
_ENDS = {
    InboundState.COMPLETED: RunState.COMPLETED,
    InboundState.FAILED: RunState.FAILED,
    InboundState.DROPPED: RunState.CANCELLED,
    InboundState.REFUSED: RunState.CANCELLED,
}


@dataclass(slots=True)
class Claimed:
    """What one transaction claimed: runs by session, to be fed.  `looked_at` counts the series that were due."""

    runs: dict[SessionId, list[tuple[TaskRun, Task]]] = field(default_factory=dict)
    sessions: dict[SessionId, Session] = field(default_factory=dict)
    looked_at: int = 0
    spoken: bool = False
    """Whether people must be told something."""
    refused: list[tuple[Task, str]] = field(default_factory=list)
    """Series that were stopped since their agent may no longer write there, and why."""


def claim(db: sqlite3.Connection, now: UnixMs, limit: int) -> Claimed:
    """Claim what is due, at most `limit` series; one whose cron or zone means nothing any more is stopped."""
    claimed = Claimed()
    places: dict[tuple[str, str, Address | None], Session] = {}
    room: dict[SessionId, int] = {}
    held: list[TaskId] = []
    moved: list[Moved] = []
    for task in tasks.due(db, now, limit):
        claimed.looked_at += 1
        place = (task.agent_group_id, task.session_key, task.origin)
        try:
            require_destination(db, task)
            session = places.get(place)
            if session is None:
                session = places[place] = session_of(db, task, now)
            left = room.get(session.id)
            if left is None:
                left = FEED - len(tasks.open_runs_of_session(db, session.id))
            room[session.id] = left
            if left <= 0:
                held.append(task.id)
                continue
            occurrence = next_occurrence(task, now)
        except NotAllowed as problem:
            log.warning("task %s is refused: %s", task.id, problem)
            _refuse(db, task, str(problem), now)
            claimed.refused.append((task, str(problem)))
            continue
        except JackfieldError as problem:
            log.warning("task %s can't be run any more: %s", task.id, problem)
            _stop(db, task, str(problem), now)
            claimed.spoken = True
            continue
        if occurrence.run is None:
            _pass_over(db, task, occurrence, now)
            continue
        room[session.id] = left - 1
        run = _new_run(task, session, occurrence.run, now, missed_from=occurrence.missed_from)
        moved.append((task, session, occurrence, run))
    _enter(db, moved, claimed, now)
    tasks.put_off(db, held, UnixMs(now + round(1000 * HOLD)))
    return claimed


Moved = tuple[Task, Session, Occurrence, TaskRun]


def _enter(db: sqlite3.Connection, moved: Sequence[Moved], claimed: Claimed, now: UnixMs) -> None:
    """Enter the runs and their messages, and move the series on; all of them at once, since there may be many."""
    entered = tasks.add_runs(db, [run for _, _, _, run in moved])
    fresh = []
    for task, session, occurrence, run in moved:
        if run.id not in entered:  # it ran before: the clock was set back since
            _pass_over(db, task, occurrence, now)
            continue
        fresh.append((run.inbound_id, session.id, task.prompt[:_PREVIEW]))
        claimed.sessions[session.id] = session
        claimed.runs.setdefault(session.id, []).append((run, task))
    inbound.record_all(db, fresh, now)
    tasks.move(db, [(occurrence.next_at, task.id) for task, _, occurrence, run in moved if run.id in entered])


def _pass_over(db: sqlite3.Connection, task: Task, occurrence: Occurrence, now: UnixMs) -> None:
    """Move the series on without a run."""
    if occurrence.run is None and occurrence.skipped is not None:
        tasks.add_run(db, _skipped(task, occurrence.skipped, occurrence.missed_from, now))
    after = replace(task, next_at=occurrence.next_at, look_at=occurrence.next_at)
    if occurrence.next_at is None:
        after = replace(after, state=TaskState.DONE, reason="its time passed while nothing could run", updated_at=now)
    tasks.change(db, task, after)


def session_of(db: sqlite3.Connection, task: Task, now: UnixMs) -> Session:
    """The session that the series runs in; made anew when it was closed.

    Raises:
        NotFound: its chat, its agent, or the conversation that asked another agent is gone.
    """
    origin = task.origin
    if origin is not None and not origin.is_agent and chats.messaging_group_at(db, origin.chat) is None:
        raise NotFound(f"its chat {origin} is not known any more")
    if origin is not None and origin.is_agent:
        asking = sessions.session(db, SessionId(origin.thread_id or ""))
        if asking is None or asking.status is SessionStatus.CLOSED:
            raise NotFound("the conversation that scheduled it was ended")
    session, _ = sessions.session_for(
        db,
        task.agent_group_id,
        task.session_key,
        mode=task.session_mode,
        messaging_group_id=task.messaging_group_id,
        thread_id=task.thread_id,
        now=now,
    )
    return session


def enter_extra(db: sqlite3.Connection, task: Task, session: Session, due_at: UnixMs, now: UnixMs) -> TaskRun | None:
    """A run that somebody asked for, and its message in the ledger; None when another run is open."""
    run = _new_run(task, session, due_at, now, extra=True)
    if not tasks.add_run(db, run):
        return None
    inbound.record_all(db, [(run.inbound_id, session.id, task.prompt[:_PREVIEW])], now)
    return run


def _new_run(
    task: Task,
    session: Session,
    due_at: UnixMs,
    now: UnixMs,
    *,
    missed_from: UnixMs | None = None,
    extra: bool = False,
) -> TaskRun:
    run_id = TaskRunId(new_id("run", now))
    return TaskRun(
        id=run_id,
        task_id=task.id,
        due_at=due_at,
        missed_from=missed_from,
        extra=extra,
        session_id=session.id,
        state=RunState.CLAIMED,
        created_at=now,
    )


def _skipped(task: Task, due_at: UnixMs, missed_from: UnixMs | None, now: UnixMs) -> TaskRun:
    run_id = TaskRunId(new_id("run", now))
    return TaskRun(
        id=run_id,
        task_id=task.id,
        due_at=due_at,
        missed_from=missed_from,
        session_id=None,
        state=RunState.SKIPPED,
        reason="nothing could run when it was due",
        created_at=now,
        finished_at=now,
    )


def _stop(db: sqlite3.Connection, task: Task, why: str, now: UnixMs) -> None:
    text = f"The task {subject(task)} was stopped: {why} (id {task.id})."
    stopped = replace(task, state=TaskState.STOPPED, reason=why, look_at=None, unsaid=text, updated_at=now)
    tasks.change(db, task, stopped)


def _refuse(db: sqlite3.Connection, task: Task, why: str, now: UnixMs) -> None:
    """Stop it, with an entry among its runs.  Nothing is said where it was to run: that is what is not allowed."""
    refused = TaskRun(
        id=TaskRunId(new_id("run", now)),
        task_id=task.id,
        due_at=task.next_at if task.next_at is not None else now,
        session_id=None,
        state=RunState.CANCELLED,
        reason=why,
        created_at=now,
        finished_at=now,
    )
    tasks.add_run(db, refused)
    tasks.change(db, task, replace(task, state=TaskState.STOPPED, reason=why, look_at=None, updated_at=now))


# ---- ends


@dataclass(slots=True)
class Settled:
    """`closed` are the sessions of which no run is open any more; `failed` what the agents are told of; `stale` runs
    that wait although their series was paused or cancelled (C115)."""

    closed: list[SessionId] = field(default_factory=list)
    stale: list[TaskRun] = field(default_factory=list)
    failed: list[tuple[Task, TaskRun, str]] = field(default_factory=list)
    spoken: bool = False
    due: bool = False
    """Whether a series must be looked at earlier than the timer knows."""


def settle(db: sqlite3.Connection, session_ids: Iterable[SessionId], now: UnixMs) -> Settled:
    """Take over from the ledger how the open runs of these sessions ended.  Doing it again changes nothing."""
    settled = Settled()
    for session_id in session_ids:
        left = False
        for run in tasks.open_runs_of_session(db, session_id):
            if not _settle_one(db, run, settled, now):
                left = True
        if not left:
            settled.closed.append(session_id)
    return settled


def _settle_one(db: sqlite3.Connection, run: TaskRun, settled: Settled, now: UnixMs) -> bool:
    """Whether the run has its end."""
    task, entry = tasks.task(db, run.task_id), inbound.entry(db, run.inbound_id)
    if task is None:
        return tasks.end_run(db, run.id, RunState.UNKNOWN, now, "its task is gone")
    if entry is not None and entry.state not in _ENDS:
        if task.state is not TaskState.ACTIVE and not run.extra and entry.state is not InboundState.CLAIMED:
            settled.stale.append(run)
        return False
    if entry is not None and _was_cleared(entry) and not run.extra:
        release(db, task, run, now)
        settled.due = True
        return True
    state, reason = (RunState.UNKNOWN, None) if entry is None else (_ENDS[entry.state], entry.reason)
    tasks.end_run(db, run.id, state, now, reason)
    after = after_run(task, run, state, reason, now)
    tasks.change(db, task, after)
    made = tasks.make_room(db, task.agent_group_id, task.session_key, FEED)
    settled.due = settled.due or made > 0 or after.look_at != task.look_at
    settled.spoken = settled.spoken or after.unsaid is not None
    if state is RunState.FAILED:
        settled.failed.append((after, run, reason or "nobody knows why"))
    return True


def _was_cleared(entry: InboundEntry) -> bool:
    """Whether it went with its conversation before the agent had it: a series outlives a cleared session."""
    return entry.state is InboundState.DROPPED and entry.reason == CLEARED and entry.attempts == 0


def release(db: sqlite3.Connection, task: Task, run: TaskRun, now: UnixMs) -> Task:
    """Undo the claim of a run that never began and that no runner can take any more; the series as it is then.

    A cancelled series keeps the run as cancelled.  Otherwise the occurrence is due again, at its own moment.
    """
    inbound.set_state(db, run.inbound_id, InboundState.DROPPED, now, reason=f"task {task.state.value}")
    if task.state is TaskState.CANCELLED or run.extra:
        tasks.end_run(db, run.id, RunState.CANCELLED, now, f"the task was {task.state.value}")
        return task
    tasks.delete_run(db, run.id)
    again = rearmed(task, run.due_at, now)
    tasks.change(db, task, again)
    return again


# ---- a clock that was set back


def restore_clock(db: sqlite3.Connection, now: UnixMs) -> int:
    """After the clock was set back: series that ran in what is the future again go on with their next occurrence that
    has not run, instead of resting until the clock has caught up; how many.  Costs nothing when it was not."""
    moved = 0
    for task_id in tasks.run_after(db, UnixMs(now + SET_BACK)):
        task = tasks.task(db, task_id)
        if task is None or task.state is not TaskState.ACTIVE or task.cron is None or task.look_at is None:
            continue
        try:
            recurrence = recurrence_of(task)
        except JackfieldError:
            continue  # it is stopped when it is due
        at = None if recurrence is None else recurrence.next_after(now)
        for _ in range(STEPS):
            if at is None or recurrence is None or not tasks.has_run(db, task.id, at):
                break
            at = recurrence.next_after(at)
        else:
            log.warning("task %s: no occurrence that has not run within %d steps", task.id, STEPS)
            continue
        if at is not None and (task.next_at is None or at < task.next_at):
            tasks.change(db, task, replace(task, next_at=at, look_at=at))
            moved += 1
    return moved
