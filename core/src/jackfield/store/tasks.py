"""Series of work at a time of its own, and their runs.

A run is one entry of the ledger of messages in: that entry tells how far the agent is with it, and the run's own state
follows when it has an end.  `(series, due moment)` is unique, so that nothing runs twice, and a series has one run that
is open at most.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, InboundId, SessionId, TaskId, TaskRunId, UserId
from jackfield.models import Address, CatchUp, RunState, SessionMode, Task, TaskRun, TaskState
from jackfield.store.text import storable
from jackfield.store.where import where

__all__ = [
    "RunEntry",
    "add",
    "add_run",
    "add_runs",
    "change",
    "claimed",
    "count_live",
    "counts",
    "delete_run",
    "due",
    "end_run",
    "forget",
    "forgettable",
    "has_run",
    "is_run",
    "make_room",
    "move",
    "of_conversation",
    "open_runs",
    "open_runs_of_session",
    "put_off",
    "queued",
    "run",
    "run_after",
    "runs",
    "said",
    "sessions_with_open_runs",
    "still_claimed",
    "task",
    "tasks",
    "unsaid",
]

_COLUMNS = (
    "id, agent_group_id, messaging_group_id, thread_id, session_key, session_mode, origin, creator, created_by, "
    "prompt, script, cron, timezone, catch_up, state, reason, next_at, look_at, failures, script_failures, "
    "stop_after, unsaid, created_at, updated_at"
)
_MARKS = ", ".join("?" * len(_COLUMNS.split(",")))
_CHANGING = (
    "prompt", "script", "cron", "timezone", "catch_up", "state", "reason", "next_at", "look_at", "failures",
    "script_failures", "stop_after", "unsaid", "updated_at",
)  # fmt: skip
_RUN_COLUMNS = "id, task_id, due_at, missed_from, extra, session_id, state, reason, created_at, finished_at"
_ADD_RUN = f"INSERT INTO task_runs ({_RUN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_OPEN = "state IN ('claimed', 'queued')"


def _task(row: tuple[Any, ...]) -> Task:
    return Task(
        id=TaskId(row[0]),
        agent_group_id=AgentGroupId(row[1]),
        messaging_group_id=row[2],
        thread_id=row[3],
        session_key=row[4],
        session_mode=SessionMode(row[5]),
        origin=None if row[6] is None else Address.parse(row[6]),
        creator=row[7],
        created_by=None if row[8] is None else UserId(row[8]),
        prompt=row[9],
        script=row[10],
        cron=row[11],
        timezone=row[12],
        catch_up=CatchUp(row[13]),
        state=TaskState(row[14]),
        reason=row[15],
        next_at=row[16],
        look_at=row[17],
        failures=row[18],
        script_failures=row[19],
        stop_after=row[20],
        unsaid=row[21],
        created_at=UnixMs(row[22]),
        updated_at=UnixMs(row[23]),
    )


def _run(row: Sequence[Any]) -> TaskRun:
    return TaskRun(
        id=TaskRunId(row[0]),
        task_id=TaskId(row[1]),
        due_at=UnixMs(row[2]),
        missed_from=row[3],
        extra=bool(row[4]),
        session_id=row[5],
        state=RunState(row[6]),
        reason=row[7],
        created_at=UnixMs(row[8]),
        finished_at=row[9],
    )


def _run_values(run: TaskRun) -> tuple[Any, ...]:
    return (
        run.id, run.task_id, run.due_at, run.missed_from, int(run.extra), run.session_id, run.state.value,
        storable(run.reason), run.created_at, run.finished_at,
    )  # fmt: skip


# ---- series


def add(db: sqlite3.Connection, task: Task) -> bool:
    """Enter a series.  False when this id is there already; then nothing changes."""
    values = (
        task.id, task.agent_group_id, task.messaging_group_id, task.thread_id, task.session_key,
        task.session_mode.value, None if task.origin is None else str(task.origin), task.creator, task.created_by,
        storable(task.prompt), storable(task.script), task.cron, task.timezone, task.catch_up.value, task.state.value,
        storable(task.reason), task.next_at, task.look_at, task.failures, task.script_failures, task.stop_after,
        storable(task.unsaid), task.created_at, task.updated_at,
    )  # fmt: skip
    done = db.execute(f"INSERT INTO tasks ({_COLUMNS}) VALUES ({_MARKS}) ON CONFLICT (id) DO NOTHING", values)
    return done.rowcount == 1


def change(db: sqlite3.Connection, before: Task, after: Task) -> None:
    """Write what differs between the two; conversation, creator and group of a series never change."""
    changed = {name: getattr(after, name) for name in _CHANGING if getattr(after, name) != getattr(before, name)}
    if not changed:
        return
    values = [storable(str(value)) if isinstance(value, str) else value for value in changed.values()]
    assignments = ", ".join(f"{name} = ?" for name in changed) + (", held = 0" if "look_at" in changed else "")
    db.execute(f"UPDATE tasks SET {assignments} WHERE id = ?", (*values, after.id))


def task(db: sqlite3.Connection, id: TaskId) -> Task | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM tasks WHERE id = ?", (id,)).fetchone()
    return None if row is None else _task(row)


def tasks(
    db: sqlite3.Connection,
    *,
    agent_group_id: AgentGroupId | None = None,
    states: Sequence[TaskState] = (),
    limit: int = 50,
) -> list[Task]:
    """The newest first; of one group, and in one of the states, if any are given."""
    marks = ", ".join("?" * len(states))
    narrowed, values = where({"agent_group_id = ?": agent_group_id, f"state IN ({marks})": tuple(states)})
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM tasks {narrowed} ORDER BY created_at DESC, id DESC LIMIT ?",
        (*values, limit),
    )
    return [_task(row) for row in rows]


def of_conversation(
    db: sqlite3.Connection, agent_group_id: AgentGroupId, session_key: str, creator: str, limit: int = 1000
) -> list[Task]:
    """Every series that runs in that conversation or was scheduled in it (`creator`), the oldest first."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE agent_group_id = ? AND session_key = ? UNION "
        f"SELECT {_COLUMNS} FROM tasks WHERE creator = ? LIMIT ?",
        (agent_group_id, session_key, creator, limit),
    )
    return sorted((_task(row) for row in rows), key=lambda task: (task.created_at, task.id))


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many series are in each state."""
    return {str(state): int(count) for state, count in db.execute("SELECT state, count(*) FROM tasks GROUP BY state")}


def count_live(db: sqlite3.Connection, agent_group_id: AgentGroupId) -> int:
    """How many series of a group may still run."""
    row = db.execute(
        "SELECT count(*) FROM tasks WHERE agent_group_id = ? AND state IN ('active', 'paused', 'stopped')",
        (agent_group_id,),
    ).fetchone()
    return int(row[0])


def due(db: sqlite3.Connection, now: UnixMs, limit: int) -> list[Task]:
    """Series that the timer must look at, the longest due first; of those due at once, a session's together."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE look_at IS NOT NULL AND look_at <= ? "
        "ORDER BY look_at, session_key LIMIT ?",
        (now, limit),
    )
    return [_task(row) for row in rows]


def move(db: sqlite3.Connection, to: Iterable[tuple[UnixMs | None, TaskId]]) -> None:
    """Set the next occurrence of series that have a run now; they are looked at again when it ends."""
    db.executemany("UPDATE tasks SET next_at = ?, look_at = NULL, held = 0 WHERE id = ?", to)


def put_off(db: sqlite3.Connection, ids: Iterable[TaskId], until: UnixMs) -> None:
    """Hold these, which are due, until that moment or until `make_room`."""
    db.executemany(
        "UPDATE tasks SET look_at = ?, held = 1 WHERE id = ? AND look_at IS NOT NULL", [(until, id) for id in ids]
    )


def make_room(db: sqlite3.Connection, agent_group_id: AgentGroupId, session_key: str, count: int) -> int:
    """Look at some that were put off, the longest due first; how many."""
    done = db.execute(
        "UPDATE tasks SET look_at = next_at, held = 0 WHERE id IN (SELECT id FROM tasks WHERE agent_group_id = ? "
        "AND session_key = ? AND held = 1 AND look_at IS NOT NULL ORDER BY next_at LIMIT ?)",
        (agent_group_id, session_key, count),
    )
    return done.rowcount


def unsaid(db: sqlite3.Connection) -> list[Task]:
    """Series of which people have not been told something yet."""
    return [_task(row) for row in db.execute(f"SELECT {_COLUMNS} FROM tasks WHERE unsaid IS NOT NULL")]


def said(db: sqlite3.Connection, id: TaskId, text: str) -> bool:
    """They have been told that now."""
    return db.execute("UPDATE tasks SET unsaid = NULL WHERE id = ? AND unsaid = ?", (id, text)).rowcount == 1


# ---- runs


def add_run(db: sqlite3.Connection, run: TaskRun) -> bool:
    """Enter a run.  False when there was one of that moment, or one that is open; then nothing changes."""
    done = db.execute(_ADD_RUN, _run_values(run))
    return done.rowcount == 1


def add_runs(db: sqlite3.Connection, runs: Sequence[TaskRun]) -> set[TaskRunId]:
    """Enter many runs, each as `add_run` does; the ids of those that were entered."""
    db.executemany(_ADD_RUN, [_run_values(run) for run in runs])
    return still_claimed(db, [run.id for run in runs])


def has_run(db: sqlite3.Connection, task_id: TaskId, due_at: UnixMs) -> bool:
    return (
        db.execute("SELECT 1 FROM task_runs WHERE task_id = ? AND due_at = ?", (task_id, due_at)).fetchone() is not None
    )


def is_run(db: sqlite3.Connection, inbound_id: InboundId) -> bool:
    """Whether that message in is a run of a task."""
    id = f"run_{inbound_id.removeprefix('in_')}"
    return db.execute("SELECT 1 FROM task_runs WHERE id = ?", (id,)).fetchone() is not None


def run(db: sqlite3.Connection, id: TaskRunId) -> TaskRun | None:
    row = db.execute(f"SELECT {_RUN_COLUMNS} FROM task_runs WHERE id = ?", (id,)).fetchone()
    return None if row is None else _run(row)


def claimed(db: sqlite3.Connection, after: str = "", limit: int = 250) -> list[tuple[TaskRun, Task]]:
    """Runs that are not known to lie in their session's inbox, by id."""
    of_task = ", ".join(f"t.{name.strip()}" for name in _COLUMNS.split(","))
    of_run = ", ".join(f"r.{name.strip()}" for name in _RUN_COLUMNS.split(","))
    rows = db.execute(
        f"SELECT {of_run}, {of_task} FROM task_runs r JOIN tasks t ON t.id = r.task_id "
        f"WHERE r.{_OPEN} AND r.state = 'claimed' AND r.id > ? ORDER BY r.id LIMIT ?",
        (after, limit),
    )
    width = len(_RUN_COLUMNS.split(","))
    return [(_run(row[:width]), _task(row[width:])) for row in rows]


def still_claimed(db: sqlite3.Connection, ids: Sequence[TaskRunId]) -> set[TaskRunId]:
    """Those of the runs that are on their way into an inbox, and were not taken back."""
    marks = ", ".join("?" * len(ids))
    found = db.execute(f"SELECT id FROM task_runs WHERE state = 'claimed' AND id IN ({marks})", tuple(ids))
    return {TaskRunId(row[0]) for row in found}


def queued(db: sqlite3.Connection, ids: Iterable[TaskRunId]) -> None:
    """They lie in the inbox."""
    db.executemany("UPDATE task_runs SET state = 'queued' WHERE id = ? AND state = 'claimed'", [(id,) for id in ids])


def end_run(db: sqlite3.Connection, id: TaskRunId, state: RunState, now: UnixMs, reason: str | None = None) -> bool:
    """Give an open run its end.  False when it has one, which stays."""
    done = db.execute(
        f"UPDATE task_runs SET state = ?, reason = ?, finished_at = ? WHERE id = ? AND {_OPEN}",
        (state.value, storable(reason), now, id),
    )
    return done.rowcount == 1


def delete_run(db: sqlite3.Connection, id: TaskRunId) -> bool:
    """Forget an open run: it never began, and its occurrence is to be had again."""
    return db.execute(f"DELETE FROM task_runs WHERE id = ? AND {_OPEN}", (id,)).rowcount == 1


def open_runs(db: sqlite3.Connection, task_id: TaskId) -> list[TaskRun]:
    """Runs of a series that have no end yet, the oldest first."""
    rows = db.execute(f"SELECT {_RUN_COLUMNS} FROM task_runs WHERE task_id = ? AND {_OPEN} ORDER BY id", (task_id,))
    return [_run(row) for row in rows]


def open_runs_of_session(db: sqlite3.Connection, session_id: SessionId) -> list[TaskRun]:
    rows = db.execute(
        f"SELECT {_RUN_COLUMNS} FROM task_runs WHERE session_id = ? AND {_OPEN} ORDER BY id", (session_id,)
    )
    return [_run(row) for row in rows]


def sessions_with_open_runs(db: sqlite3.Connection) -> list[SessionId]:
    return [SessionId(row[0]) for row in db.execute(f"SELECT DISTINCT session_id FROM task_runs WHERE {_OPEN}")]


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run as operators see it: `message` is the state of its entry in the ledger, if that is still known."""

    run: TaskRun
    message: str | None
    attempts: int


def runs(db: sqlite3.Connection, task_id: TaskId, limit: int = 50) -> list[RunEntry]:
    """The newest first."""
    columns = ", ".join(f"r.{name.strip()}" for name in _RUN_COLUMNS.split(","))
    rows = db.execute(
        f"SELECT {columns}, i.state, coalesce(i.attempts, 0) FROM task_runs r "
        "LEFT JOIN inbound i ON i.id = 'in_' || substr(r.id, 5) WHERE r.task_id = ? ORDER BY r.due_at DESC LIMIT ?",
        (task_id, limit),
    )
    return [RunEntry(_run(row[:-2]), row[-2], row[-1]) for row in rows]


def run_after(db: sqlite3.Connection, at: UnixMs) -> list[TaskId]:
    """Series of which a run was made after a moment; none but when the clock was set back since."""
    # Ids are in the order of the moments at which they were made.
    newest = db.execute("SELECT created_at FROM task_runs WHERE id = (SELECT max(id) FROM task_runs)").fetchone()
    if newest is None or newest[0] <= at:
        return []
    return [TaskId(row[0]) for row in db.execute("SELECT DISTINCT task_id FROM task_runs WHERE created_at > ?", (at,))]


def forgettable(db: sqlite3.Connection, before: UnixMs) -> bool:
    """Whether `forget` would find anything."""
    row = db.execute(
        "SELECT EXISTS (SELECT 1 FROM task_runs WHERE finished_at IS NOT NULL AND finished_at < ?1), "
        "EXISTS (SELECT 1 FROM tasks WHERE state IN ('done', 'cancelled') AND updated_at < ?1)",
        (before,),
    ).fetchone()
    return any(row)


def forget(db: sqlite3.Connection, before: UnixMs, limit: int = 500) -> int:
    """Delete runs, and series that are done or cancelled, that ended before a moment; how many of both."""
    gone = db.execute(
        "DELETE FROM task_runs WHERE id IN (SELECT id FROM task_runs WHERE finished_at IS NOT NULL AND finished_at < ? "
        "LIMIT ?)",
        (before, limit),
    ).rowcount
    return (
        gone
        + db.execute(
            "DELETE FROM tasks WHERE id IN (SELECT t.id FROM tasks t WHERE t.state IN ('done', 'cancelled') "
            f"AND t.updated_at < ? AND NOT EXISTS (SELECT 1 FROM task_runs WHERE task_id = t.id AND {_OPEN}) LIMIT ?)",
            (before, limit),
        ).rowcount
    )
