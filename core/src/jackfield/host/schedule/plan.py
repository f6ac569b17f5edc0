"""What a series does next: which occurrence runs, and what follows from how a run ended.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from jackfield.clock import UnixMs, local_text, zone_or_utc
from jackfield.host.schedule.times import Recurrence, parse_zone
from jackfield.models import SCRIPT_FAILED, CatchUp, RunState, Task, TaskRun, TaskState

__all__ = [
    "ALL_LIMIT",
    "GRACE",
    "PACE",
    "SCRIPT_LIMIT",
    "Occurrence",
    "after_run",
    "next_occurrence",
    "rearmed",
    "recurrence_of",
    "script_pause",
    "subject",
    "when",
]

ALL_LIMIT = 24
"""Occurrences that `all` catches up with; of more, the newest."""
GRACE = 300.0
"""Seconds by which an occurrence of a series that skips may be late."""
PACE = 5.0
"""Seconds between the end of a run and the start of the next, when that one is due already."""
SCRIPT_LIMIT = 8
"""Failures of its script in a row after which a series is paused."""
_SUBJECT = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What to do with a series that is due.

    `run` is the occurrence that runs now, for which `missed_from` tells the first of those that were left out;
    `skipped` is the newest of those that never run; `next_at` is the one after all these.
    """

    run: UnixMs | None
    missed_from: UnixMs | None = None
    skipped: UnixMs | None = None
    next_at: UnixMs | None = None


@lru_cache(1024)
def _recurrence(cron: str, timezone: str) -> Recurrence:
    return Recurrence.parse(cron, parse_zone(timezone))


def recurrence_of(task: Task) -> Recurrence | None:
    """How the series repeats; None for one that runs once.

    Raises:
        MalformedData: its expression or its zone means nothing (any more).
    """
    return None if task.cron is None else _recurrence(task.cron, task.timezone)


def next_occurrence(task: Task, now: UnixMs) -> Occurrence:
    """For a series whose `next_at` has come: the catch-up policy (C119).

    Raises:
        MalformedData: as `recurrence_of`.
    """
    assert task.next_at is not None and task.next_at <= now
    first, late = task.next_at, 1000 * GRACE
    recurrence = recurrence_of(task)
    if recurrence is None:
        if task.catch_up is CatchUp.SKIP and now - first > late:
            return Occurrence(run=None, skipped=first)
        return Occurrence(run=first)
    following = recurrence.next_after(first)
    if (following is None or following > now) and (task.catch_up is not CatchUp.SKIP or now - first <= late):
        return Occurrence(run=first, next_at=following)  # in time, as nearly always
    if task.catch_up is CatchUp.ALL:
        few = recurrence.last_few(first, now, ALL_LIMIT) or [first]
        following = few[1] if len(few) > 1 else recurrence.next_after(now)
        return Occurrence(run=few[0], missed_from=_missed(first, few[0]), next_at=following)
    newest = recurrence.latest(first, now) or first
    following = recurrence.next_after(now)
    if task.catch_up is CatchUp.SKIP and now - newest > late:
        return Occurrence(run=None, missed_from=_missed(first, newest), skipped=newest, next_at=following)
    return Occurrence(run=newest, missed_from=_missed(first, newest), next_at=following)


def _missed(first: UnixMs, run: UnixMs) -> UnixMs | None:
    return first if first < run else None


def script_pause(failures: int) -> float:
    """Seconds that a series rests at least after its script failed so often in a row: 2 min doubling to 60."""
    return min(3600.0, 120.0 * 2.0 ** (min(failures, 16) - 1))


def after_run(task: Task, run: TaskRun, state: RunState, reason: str | None, now: UnixMs) -> Task:
    """The series after one of its runs ended so.

    A failure costs that occurrence only (C117): the next one comes at its time, later only while the series' own script
    fails.  People are told of the first failure in a row, and when the series stops.  What somebody asked for besides
    the schedule counts for nothing here.
    """
    if run.extra:
        return _on(task, now)
    failed = state is RunState.FAILED
    by_script = failed and reason is not None and SCRIPT_FAILED in reason
    if failed:
        task = replace(task, failures=task.failures + 1, script_failures=task.script_failures + 1 if by_script else 0)
    elif state is RunState.COMPLETED:
        task = replace(task, failures=0, script_failures=0)
    if task.next_at is None and task.state in (TaskState.ACTIVE, TaskState.PAUSED):
        done = replace(task, state=TaskState.DONE, look_at=None, updated_at=now, reason=reason if failed else None)
        return replace(done, unsaid=_failed_text(done, run, reason)) if failed else done
    if task.state is not TaskState.ACTIVE:
        return task
    if failed and task.stop_after is not None and task.failures >= task.stop_after:
        why = f"it failed {task.failures} times in a row"
        return _ended(task, TaskState.STOPPED, why, run, reason, now)
    if by_script and task.script_failures >= SCRIPT_LIMIT:
        why = f"its script failed {task.script_failures} times in a row"
        return _ended(task, TaskState.PAUSED, why, run, reason, now)
    task = _on(task, now, script_pause(task.script_failures) if by_script else 0.0)
    if failed and task.failures == 1:
        task = replace(task, unsaid=_failed_text(task, run, reason))
    return task


def _on(task: Task, now: UnixMs, rest: float = 0.0) -> Task:
    """Look at the series again when it is due, but not before it rested."""
    if task.state is not TaskState.ACTIVE:
        return task
    if task.next_at is None:
        return replace(task, state=TaskState.DONE, look_at=None, updated_at=now)
    pause = max(rest, PACE if task.next_at <= now else 0.0)
    return replace(task, look_at=UnixMs(max(task.next_at, now + round(1000 * pause))) if pause else task.next_at)


def rearmed(task: Task, due_at: UnixMs, now: UnixMs) -> Task:
    """The series with an occurrence given back that was due and never began."""
    next_at = due_at if task.next_at is None else min(task.next_at, due_at)
    return replace(task, next_at=next_at, look_at=next_at if task.state is TaskState.ACTIVE else None, updated_at=now)


def _ended(task: Task, state: TaskState, why: str, run: TaskRun, reason: str | None, now: UnixMs) -> Task:
    word = "paused" if state is TaskState.PAUSED else "stopped"
    text = (
        f"The task {subject(task)} was {word}: {why}, the last time {when(run.due_at, task.timezone)} "
        f"({_kind(reason)}). It can be resumed (id {task.id})."
    )
    return replace(task, state=state, reason=why, look_at=None, unsaid=text, updated_at=now)


def _failed_text(task: Task, run: TaskRun, reason: str | None) -> str:
    text = f"The task {subject(task)} failed {when(run.due_at, task.timezone)} ({_kind(reason)}; id {task.id})."
    if task.next_at is None:
        return f"{text} It is not tried again."
    return f"{text} It runs next {when(task.look_at or task.next_at, task.timezone)}."


def _kind(reason: str | None) -> str:
    """What people are told of a reason: its kind.  The sentence behind it is for operators and the agent."""
    if reason is None:
        return "nobody knows why"
    return "its script failed" if SCRIPT_FAILED in reason else reason.partition(":")[0].replace("_", " ")


def subject(task: Task) -> str:
    """A task as people are told of it: the beginning of what it asks for."""
    line = " ".join(task.prompt.split())
    return f"“{line if len(line) <= _SUBJECT else line[: _SUBJECT - 1] + '…'}”"


def when(at: UnixMs, timezone: str) -> str:
    """A moment in the series' own zone, like ``Jan 5, 2026, 9:00 PM (Europe/Berlin)``."""
    zone = zone_or_utc(timezone)
    return f"{local_text(at, zone)} ({zone.key})"
