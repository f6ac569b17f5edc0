"""From what somebody wants to what is stored, or to a refusal that tells how to put it right.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zoneinfo import ZoneInfo

from jackfield.api import TaskChange, TaskWish
from jackfield.clock import UnixMs, local_iso
from jackfield.errors import Conflict, MalformedData, NotAllowed
from jackfield.host.schedule.times import Recurrence, parse_moment, parse_zone
from jackfield.models import CatchUp, Task, TaskState

__all__ = ["OFTEN", "PROMPT_LENGTH", "SCRIPT_LENGTH", "Reading", "changed", "read_wish"]

PROMPT_LENGTH = 32_000
"""Characters."""
SCRIPT_LENGTH = 64_000
OFTEN = 300.0
"""Seconds between two runs below which somebody must have meant it: each run costs a turn of the model."""
_LATE = 60_000
"""Milliseconds by which a moment may have passed while the wish was on its way."""
_STOP_AFTER = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A wish that makes sense."""

    prompt: str
    script: str | None
    cron: str | None
    timezone: str
    next_at: UnixMs
    catch_up: CatchUp
    stop_after: int | None


def read_wish(wish: TaskWish, default_zone: str, now: UnixMs) -> Reading:
    """Check all of it.  `default_zone` holds when the wish names none.

    Raises:
        MalformedData: a part means nothing; the message names it and what to write.
        NotAllowed: it would run too often.
    """
    zone = parse_zone(wish.timezone or default_zone)
    cron, next_at = _timing(wish.at, wish.cron, zone, now)
    script = _script(wish.script)
    if cron is not None:
        _not_too_often(cron, zone, next_at, gated=script is not None or wish.often)
    return Reading(
        prompt=_prompt(wish.prompt),
        script=script,
        cron=cron,
        timezone=zone.key,
        next_at=next_at,
        catch_up=_catch_up(wish.catch_up),
        stop_after=_stop_after(wish.stop_after),
    )


def changed(task: Task, change: TaskChange, now: UnixMs) -> Task:
    """The series after a change.  When its expression, its zone or its time changes, so does its next occurrence.

    Raises:
        MalformedData, NotAllowed: as `read_wish`.
        Conflict: the series is over.
    """
    if change == TaskChange(often=change.often):
        raise MalformedData("nothing is to be changed", fix="give at least one field that becomes different")
    if task.state in (TaskState.DONE, TaskState.CANCELLED):
        raise Conflict(f"task {task.id} is {task.state.value}", fix="schedule a new one")
    after = task
    if change.prompt is not None:
        after = replace(after, prompt=_prompt(change.prompt))
    if change.script is not None:
        after = replace(after, script=_script(change.script), script_failures=0)
    if change.catch_up is not None:
        after = replace(after, catch_up=_catch_up(change.catch_up))
    if change.stop_after is not None:
        after = replace(after, stop_after=_stop_after(change.stop_after))
    zone = parse_zone(change.timezone or task.timezone)
    timed = change.at is not None or change.cron is not None or zone.key != task.timezone
    if timed:
        cron = task.cron if change.cron is None else change.cron.strip() or None
        if cron is None and change.at is None:
            if task.next_at is None:
                raise MalformedData("without a cron expression the task needs a time", fix="say when, with `at`")
            next_at = task.next_at
        else:
            cron, next_at = _timing(change.at, cron, zone, now)
        after = replace(after, cron=cron, timezone=zone.key, next_at=next_at)
    if after.cron is not None and (timed or change.script is not None) and after.next_at is not None:
        _not_too_often(after.cron, zone, after.next_at, gated=after.script is not None or change.often)
    look_at = after.next_at if after.state is TaskState.ACTIVE else None
    return replace(after, look_at=look_at, updated_at=now)


def _timing(at: str | None, cron: str | None, zone: ZoneInfo, now: UnixMs) -> tuple[str | None, UnixMs]:
    """The expression and the first occurrence."""
    start = parse_moment(at, zone, now) if at is not None and at.strip() else None
    if cron is not None and cron.strip():
        recurrence = Recurrence.parse(cron, zone)
        first = recurrence.next_after(UnixMs(max(now, start - 1) if start is not None else now))
        if first is None:
            raise MalformedData(f"{recurrence.cron!r} never comes true", fix="check the day and the month")
        return recurrence.cron, first
    if start is None:
        raise MalformedData(
            "the task has no time", fix="say when, with `at` to run it once, or with `cron` to repeat it"
        )
    if start < now - _LATE:
        raise MalformedData(
            f"{local_iso(start, zone)} ({zone.key}) has passed; it is {local_iso(now, zone)} there",
            fix="give a later time, or a time from now on like 20m",
        )
    return None, start


def _not_too_often(cron: str, zone: ZoneInfo, next_at: UnixMs, *, gated: bool) -> None:
    gap = None if gated else Recurrence.parse(cron, zone).shortest_gap(UnixMs(next_at - 1))
    if gap is not None and gap < OFTEN:
        raise NotAllowed(
            f"{cron!r} would start a turn every {gap:g} s; without a script, {OFTEN:g} s is the least",
            fix="run it less often, give it a script that decides whether there is anything to do, or say so with "
            "`often` if exactly this is wanted",
        )


def _prompt(text: str) -> str:
    if not text.strip():
        raise MalformedData("the task has no prompt", fix="say what is to be done")
    if len(text) > PROMPT_LENGTH:
        raise MalformedData(
            f"the prompt has {len(text):,} characters, more than {PROMPT_LENGTH:,}",
            fix="put the details into a file of the workspace, and name it in the prompt",
        )
    return text


def _script(text: str | None) -> str | None:
    if text is None or not text.strip():
        return None
    if len(text) > SCRIPT_LENGTH:
        raise MalformedData(
            f"the script has {len(text):,} characters, more than {SCRIPT_LENGTH:,}",
            fix="put it into a file of the workspace, and run that",
        )
    return text


def _catch_up(text: str | None) -> CatchUp:
    try:
        return CatchUp(text or CatchUp.LATEST)
    except ValueError:
        raise MalformedData(f"`catch_up` can't be {text!r}", fix="write latest, all or skip") from None


def _stop_after(count: int | None) -> int | None:
    if count is None or count == 0:
        return None
    if isinstance(count, bool) or not 1 <= count <= _STOP_AFTER:
        raise MalformedData(f"`stop_after` can't be {count!r}", fix=f"give a number from 1 to {_STOP_AFTER}, or none")
    return count
