"""`make bench B=schedule`: 100,000 stored tasks, of which 1,000 fall due in the same second, over 100 sessions.

Measured is the time from the timer's look until every run lies in its session's inbox and is known to: the real store,
mailboxes and schedule.  The bare side, in the same run on the same file system, makes the same durable commits of the
same rows in tables of the same shape, with nothing but `sqlite3`: for each batch one in a copy of the state database (a
run, a message and the series' next moment for each task), then one in each session's file, as many files at a time; at
the end one that marks all.  Both open a session's file when they need it: of hundreds, none stays open.  Rounds of the
two take turns.

Prints what it costs to ask for the next due moment among 1,000 and among 100,000 tasks, and ends with the ratio of the
two times (at most 2).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from jackfield.clock import SystemClock, UnixMs
from jackfield.config import Configuration
from jackfield.config.home import Home
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.schedule import Schedule
from jackfield.host.schedule.schedule import AT_ONCE, BATCH
from jackfield.ids import AgentGroupId, TaskId, new_id
from jackfield.mailbox import MailboxPool
from jackfield.mailbox.rows import INBOUND_COLUMNS
from jackfield.mailbox.schema import INBOUND, create
from jackfield.models import Address, AgentGroup, Session, SessionMode, Task, TaskContent, UnknownSenderPolicy, dumps
from jackfield.store import Store, chats, due, groups, sessions, tasks

from benchmarks.bare import refuse_tmpfs

STORED = int(os.environ.get("BENCH_TASKS", "100000"))
DUE = 1_000
SESSIONS = 100
ROUNDS = 5
PROMPT = "Look at the mail of today and tell what needs an answer, in three lines at most. " * 3
CONTENT = dumps(TaskContent(prompt=PROMPT, series_id="tsk_00000000000000000000"))
FAR = 10 * 365 * 86_400_000
QUESTIONS = 500
ADD_RUN = "INSERT INTO task_runs (id, task_id, due_at, session_id, state, created_at) VALUES (?, ?, ?, ?, 'claimed', ?)"
ADD_MESSAGE = (
    "INSERT INTO inbound (id, session_id, state, preview, created_at, updated_at) VALUES (?, ?, 'queued', ?, ?, ?)"
)
MOVE = "UPDATE tasks SET next_at = ?, look_at = NULL WHERE id = ?"
END_RUNS = "UPDATE task_runs SET state = 'completed', finished_at = ? WHERE finished_at IS NULL"


class Real:
    """The host's own parts, without channels and runners."""

    def __init__(self, root: Path) -> None:
        home = Home(root)
        home.sessions.mkdir(parents=True)
        clock = SystemClock()
        self.hub = Hub(
            home=home,
            clock=clock,
            store=Store(home.state_db, clock),
            mailboxes=MailboxPool(clock),
            plugins=cast(Any, None),
            configuration=Configuration(home=home),
            install_id="ins_bench",
        )
        self.woken = 0
        nobody = cast(Any, None)
        inbox = Inbox(self.hub, nobody, nobody, wake=nobody, unblock=nobody, on_damaged=nobody)
        self.schedule = Schedule(self.hub, inbox, say=nobody, wake=self._wake, nudge=lambda: None)
        self.mine: list[TaskId] = []

    def _wake(self, session: Session) -> None:
        self.woken += 1

    async def fill(self, first: int, count: int) -> None:
        """Store tasks, far in the future; those of `DUE` are spread over the sessions."""
        now = self.hub.clock.now()

        def put(db: sqlite3.Connection) -> None:
            for number in range(first, first + count):
                task = Task(
                    id=TaskId(new_id("tsk")),
                    agent_group_id=self.group.id,
                    session_key=self.sessions[number % SESSIONS].key,
                    session_mode=SessionMode.SHARED,
                    messaging_group_id=self.sessions[number % SESSIONS].messaging_group_id,
                    thread_id=None,
                    origin=self.places[number % SESSIONS],
                    prompt=PROMPT,
                    timezone="Europe/Berlin",
                    cron="0 9 * * *",
                    next_at=UnixMs(now + FAR + number),
                    look_at=UnixMs(now + FAR + number),
                    created_at=now,
                    updated_at=now,
                )
                tasks.add(db, task)
                if number < DUE:
                    self.mine.append(task.id)

        await self.hub.store.write(put)

    async def open(self) -> None:
        await self.hub.store.open()
        now = self.hub.clock.now()
        self.group = AgentGroup(id=AgentGroupId(new_id("ag")), name="Bench", folder="bench", created_at=now)
        await self.hub.store.write(groups.add_agent_group, self.group)
        self.sessions: list[Session] = []
        self.places = [Address("bench", "bench", f"c{number}") for number in range(SESSIONS)]
        for place in self.places:
            chat = await self.hub.store.write(
                chats.ensure_messaging_group,
                place,
                name=None,
                is_group=False,
                policy=UnknownSenderPolicy.STRICT,
                now=now,
            )
            made, _ = await self.hub.store.write(
                sessions.session_for,
                self.group.id,
                f"shared:{chat.id}",
                mode=SessionMode.SHARED,
                messaging_group_id=chat.id,
                thread_id=None,
                now=now,
            )
            self.sessions.append(made)

    async def arm(self) -> None:
        """A thousand fall due in this second; what ran before has ended."""
        now = self.hub.clock.now()

        def put(db: sqlite3.Connection) -> None:
            db.execute(END_RUNS, (now,))
            db.execute("UPDATE inbound SET state = 'completed'")
            ids = [(now, now, id) for id in self.mine]
            db.executemany("UPDATE tasks SET next_at = ?, look_at = ? WHERE id = ?", ids)

        await self.hub.store.write(put)

    async def round(self) -> float:
        """Seconds until all lie in the inboxes."""
        self.woken = 0
        began = time.perf_counter()
        await self.schedule.due()
        assert self.schedule._claiming is not None
        await self.schedule._claiming
        await self.hub.store.write(_left)  # what was handed over before is on the disk then
        took = time.perf_counter() - began
        left = await self.hub.store.read(_left)
        assert left == 0, f"{left} runs are not in their inbox"
        assert self.woken >= SESSIONS
        return took

    def copy(self, to: Path) -> Path:
        """The database as it is now."""
        with contextlib.closing(sqlite3.connect(self.hub.home.state_db)) as db:
            db.execute("VACUUM INTO ?", (str(to),))
        return to

    async def close(self) -> None:
        await self.hub.mailboxes.close()
        await self.hub.store.close()


def _left(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT count(*) FROM task_runs WHERE state = 'claimed'").fetchone()[0])


@dataclass
class Question:
    """Asking a database what is due next: microseconds of CPU, the best of many, and steps of SQLite's machine."""

    file: Path
    micros: float = math.inf
    steps: int = 0

    def ask(self) -> None:
        with contextlib.closing(sqlite3.connect(self.file)) as db:
            due.next_due(db)
            began = time.thread_time()
            for _ in range(QUESTIONS):
                due.next_due(db)
            self.micros = min(self.micros, (time.thread_time() - began) / QUESTIONS * 1e6)
            self.steps = 0
            db.set_progress_handler(self._step, 1)
            due.next_due(db)

    def _step(self) -> int:
        self.steps += 1
        return 0


class Bare:
    """The same commits of the same rows, by nothing but `sqlite3`.  `state` is a copy of the real database."""

    def __init__(self, folder: Path, state: Path, task_ids: Sequence[str], session_ids: Sequence[str]) -> None:
        self._files = [folder / f"inbound-{number}.db" for number in range(SESSIONS)]
        for file in self._files:
            db = self._file(file)
            create(db, INBOUND)
            db.close()
        self._state = sqlite3.connect(state, isolation_level=None, check_same_thread=False)
        self._state.execute("PRAGMA journal_mode=WAL")
        self._state.execute("PRAGMA synchronous=FULL")
        self._tasks, self._sessions = task_ids, session_ids
        self._threads = ThreadPoolExecutor(AT_ONCE)
        self._round = 0

    @staticmethod
    def _file(file: Path) -> sqlite3.Connection:
        db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode=TRUNCATE")
        db.execute("PRAGMA synchronous=FULL")
        return db

    def arm(self) -> None:
        """What ran before has ended, and all are due."""
        self._commit(
            [
                (
                    "UPDATE task_runs SET state = 'completed', finished_at = ? WHERE finished_at IS NULL",
                    [(self._round,)],
                ),
                ("UPDATE inbound SET state = ?", [("completed",)]),
                ("UPDATE tasks SET next_at = ?, look_at = ? WHERE id = ?", [(1, 1, id) for id in self._tasks]),
            ]
        )

    def round(self) -> float:
        """Seconds for all of it."""
        self._round += 1
        apart = DUE // SESSIONS
        began = time.perf_counter()
        everything: list[str] = []
        for start in range(0, DUE, BATCH):
            numbers = range(start, start + BATCH)
            ids = [f"{self._round:05d}{number:015d}" for number in numbers]
            everything += ids
            runs, rows = [], []
            for id, n in zip(ids, numbers, strict=True):
                session = self._sessions[n // apart]
                runs.append((f"run_{id}", self._tasks[n], self._round, session, n))
                rows.append((f"in_{id}", session, PROMPT[:200], n, n))
            self._commit(
                [
                    (ADD_RUN, runs),
                    (ADD_MESSAGE, rows),
                    (MOVE, [(FAR + n, self._tasks[n]) for n in numbers]),
                ]
            )
            parts = [(ids[at : at + apart], self._files[(start + at) // apart]) for at in range(0, BATCH, apart)]
            list(self._threads.map(self._feed, parts))
        self._commit([("UPDATE task_runs SET state = 'queued' WHERE id = ?", [(f"run_{id}",) for id in everything])])
        return time.perf_counter() - began

    def _commit(self, statements: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]) -> None:
        self._state.execute("BEGIN IMMEDIATE")
        for sql, rows in statements:
            self._state.executemany(sql, rows)
        self._state.execute("COMMIT")

    def _feed(self, part: tuple[list[str], Path]) -> None:
        ids, file = part
        db = self._file(file)
        db.execute("BEGIN IMMEDIATE")
        last = db.execute("SELECT coalesce(max(seq), 0) FROM messages_in").fetchone()[0]
        db.executemany(
            f"INSERT INTO messages_in ({INBOUND_COLUMNS}) VALUES (?, ?, 'task', ?, ?, ?, 0, 1, 1, NULL, NULL, 0)",
            [(last + 2 * n, f"in_{id}", CONTENT, self._round, "bench:bench:c1") for n, id in enumerate(ids, 1)],
        )
        db.execute("COMMIT")
        db.close()

    def close(self) -> None:
        self._threads.shutdown()
        self._state.close()


async def main() -> None:
    base = Path(os.environ.get("BENCH_FOLDER", Path(__file__).parent / "out"))
    base.mkdir(parents=True, exist_ok=True)
    refuse_tmpfs(base)
    root = Path(tempfile.mkdtemp(prefix="schedule-", dir=base))
    real = Real(root / "home")
    bare: Bare | None = None
    try:
        await real.open()
        await real.fill(0, DUE)
        few = Question(real.copy(root / "few.db"))
        for first in range(DUE, STORED, 5_000):
            await real.fill(first, min(5_000, STORED - first))
        many = Question(real.copy(root / "many.db"))
        for _ in range(20):
            few.ask()
            many.ask()
        bare = Bare(root, many.file, real.mine, [session.id for session in real.sessions])
        times: list[tuple[float, float]] = []
        for number in range(ROUNDS + 1):
            await real.arm()
            await asyncio.to_thread(bare.arm)
            plain = await asyncio.to_thread(bare.round)
            took = await real.round()
            if number:  # the first makes the files and warms both up
                times.append((took, plain))
    finally:
        await real.close()
        if bare is not None:
            bare.close()
        shutil.rmtree(root, ignore_errors=True)
    for count, asked in ((DUE, few), (STORED, many)):
        cost = f"{asked.micros:.1f} us, {asked.steps} steps of SQLite"
        print(f"asking for the next due moment among {count:,} tasks: {cost}")
    for took, plain in times:
        print(
            f"{DUE:,} of {STORED:,} tasks due in one second: {took * 1000:.0f} ms, bare commits {plain * 1000:.0f} ms"
        )
    ratio = statistics.median(took / plain for took, plain in times)
    print(f"over the bare commits (target at most 2): {ratio:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
