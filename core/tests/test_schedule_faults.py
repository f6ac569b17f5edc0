"""What the schedule stands: another zone of the process, ten thousand at once, an old store with odd rows."""

from __future__ import annotations

import sqlite3
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jackfield.clock import SystemClock
from jackfield.errors import StoreError
from jackfield.host.schedule.claiming import FEED
from jackfield.ids import TaskId, new_id
from jackfield.models import CatchUp, RunState, TaskState
from jackfield.store import Kept, Migration, Store, opening, tasks
from jackfield.store.migrations import MIGRATIONS

sys.path.insert(0, str(Path(__file__).parent))

from schedule_kit import Office, ms, open_office


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path / "home") as office:
        yield office


@pytest.fixture
def zone_of_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Sets the zone that the process runs in."""

    def choose(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield choose
    monkeypatch.undo()
    time.tzset()


async def test_hosts_in_different_zones_leave_a_series_where_it_is(office: Office, zone_of_process: Any) -> None:
    """C111: saved with TZ=UTC, loaded and saved with America/Lima, and again: 06:30Z stays, and nothing is due."""
    task = await office.add(cron="30 14 * * *", timezone="Asia/Shanghai")
    for zone in ("UTC", "America/Lima", "Pacific/Auckland", "UTC"):
        zone_of_process(zone)
        office.renew()
        await office.schedule.start()
        await office.series.pause(task.id)
        await office.series.resume(task.id)
        await office.schedule.sweep()
        await office.tick()
        found = await office.task(task)
        assert (found.next_at, found.look_at) == (ms("2027-01-01T06:30Z"), ms("2027-01-01T06:30Z")), zone
    assert office.woken == []
    zone_of_process("America/Lima")
    await office.tick("2027-01-01T06:30Z")
    assert await (await office.hand()).work() == ["Report"]
    assert (await office.task(task)).next_at == ms("2027-01-02T06:30Z")


@pytest.mark.slow
async def test_ten_thousand_due_at_once_are_given_out_by_the_prompt_and_each_runs_once(office: Office) -> None:
    """Issue 4: ten thousand due tasks at once; whoever writes in between waits behind one prompt of them."""
    first = await office.add("0", cron=None, next_at=ms("2027-01-01T08:00Z"))
    made = [office.session]
    for number in range(1, 20):
        made.append(await office.bench.session(await office.bench.chat(f"c{number}"), f"shared:{number}"))

    def fill(db: sqlite3.Connection) -> None:
        for number in range(1, 10_000):
            session = made[number % len(made)]
            one = replace(
                first, id=TaskId(new_id("tsk")), prompt=str(number), session_key=session.key,
                messaging_group_id=session.messaging_group_id,
            )  # fmt: skip
            assert tasks.add(db, one)

    await office.bench.hub.store.write(fill)
    seen: Counter[str] = Counter()
    await office.tick("2027-01-01T08:00Z")
    for _ in range(3):
        for session in made:
            hand = await office.hand(session)
            assert 0 < len(hand.pending()) <= FEED
            seen.update(await hand.work())
        await office.tick()
    assert set(seen.values()) == {1}
    assert len(seen) == 3 * FEED * len(made), "no conversation waits for another"
    counts = await office.bench.hub.store.read(tasks.counts)
    assert counts == {TaskState.DONE: len(seen), TaskState.ACTIVE: 10_000 - len(seen)}, "the others are still to come"
    assert office.bench.hub.troubles == {}


async def test_a_run_of_which_nothing_is_left_is_unknown_not_tried_again_and_ends_no_series(office: Office) -> None:
    """C121: nobody can tell whether it was done; what a runner says of it later changes nothing."""
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    assert hand.take() == ["Report"]
    (run,) = await office.runs(task)
    await office.bench.hub.store.write(
        lambda db: db.execute("DELETE FROM inbound WHERE id = ?", (run.run.inbound_id,)) and None
    )
    office.renew()
    await office.schedule.start()
    await office.schedule.sweep()
    assert await office.run_states(task) == [RunState.UNKNOWN]
    await hand.end()
    await office.tick("2027-01-01T09:00Z")
    assert hand.pending() == [] and await office.run_states(task) == [RunState.UNKNOWN]
    await office.tick("2027-01-02T08:00Z")
    assert await hand.work() == ["Report"]
    assert await office.run_states(task) == [RunState.UNKNOWN, RunState.COMPLETED]
    assert (await office.task(task)).state is TaskState.ACTIVE


async def test_a_clock_that_ran_ahead_and_is_set_back_before_a_run_does_not_repeat_it(office: Office) -> None:
    """Clock changes: what ran stays done, also when its moment comes a second time; the next one is the first that
    has not run."""
    task = await office.add(cron="0 * * * *")
    hand = await office.hand()
    for hour in (1, 2, 3):
        await office.tick(f"2027-01-01T0{hour}:00Z")
        await hand.work()
    await office.tick("2031-05-05T12:00Z")
    await hand.work()
    office.set_clock("2027-01-01T00:30Z")
    await office.schedule.sweep()
    assert (await office.task(task)).next_at == ms("2027-01-01T04:00Z")
    for hour in (1, 2, 3):
        await office.tick(f"2027-01-01T0{hour}:00Z")
        assert hand.pending() == []
    await office.tick("2027-01-01T04:00Z")
    assert await hand.work() == ["Report"]
    times = await office.due_times(task)
    assert len(times) == len(set(times)) == 5


# ---- an old store

_COPY = next(text for text in (s for m in MIGRATIONS for s in m.statements) if text.startswith("CREATE TABLE tasks ("))
REBUILT = Migration(
    len(MIGRATIONS) + 1,
    "rebuild tasks",
    (
        _COPY.replace("CREATE TABLE tasks (", "CREATE TABLE tasks_new (", 1),
        "INSERT INTO tasks_new SELECT * FROM tasks",
        "DROP TABLE tasks",
        "ALTER TABLE tasks_new RENAME TO tasks",
    ),
    checks=(Kept.rows("tasks"),),
    rebuilds=True,
)
LOSSY = replace(
    REBUILT,
    statements=(REBUILT.statements[0], "INSERT INTO tasks_new SELECT * FROM tasks LIMIT 1", *REBUILT.statements[2:]),
)


async def test_a_migration_keeps_every_task_also_the_odd_ones_or_is_taken_back(tmp_path: Path) -> None:
    """C203: 40 normal, one without a zone, one with an emoji, one with no expression, one paused, one of the past."""
    home = tmp_path / "home"
    async with open_office(home) as office:
        for number in range(40):
            await office.add(f"normal {number}")
        usual: dict[str, Any] = {"next_at": ms("2027-01-01T08:00Z")}
        await office.add("no zone", timezone="", **usual)
        await office.add("🦊 emoji", **usual)
        await office.add("no expression", cron="not five fields", **usual)
        await office.add("paused", state=TaskState.PAUSED, look_at=None, **usual)
        await office.add("of the past", cron=None, catch_up=CatchUp.LATEST, next_at=ms("2026-12-31T00:00Z"))
        await office.bench.hub.store.close()
        path = office.bench.hub.home.state_db
        query = "SELECT * FROM tasks ORDER BY id"
        before = sqlite3.connect(path).execute(query).fetchall()
        with pytest.raises(StoreError, match="rows of tasks: 45 before, 1 after"):
            opening.open_database(
                path, SystemClock(), backups=home / "backups", migrations=(*MIGRATIONS, LOSSY)
            ).close()
        assert sqlite3.connect(path).execute(query).fetchall() == before
        opening.open_database(path, SystemClock(), backups=home / "backups", migrations=(*MIGRATIONS, REBUILT)).close()
        assert sqlite3.connect(path).execute(query).fetchall() == before and len(before) == 45
        backups = sorted((home / "backups").glob("*.db"))
        assert backups and sqlite3.connect(backups[0]).execute(query).fetchall() == before
        office.bench.hub.store = Store(path, clock=office.bench.clock, migrations=(*MIGRATIONS, REBUILT))
        await office.bench.hub.store.open()
        office.renew()
        await office.schedule.start()
        hand = await office.hand()
        ran: list[str] = []
        for _ in range(10):
            await office.tick("2027-01-01T08:00Z")
            ran += await hand.work()
        assert sorted(ran) == sorted([*(f"normal {number}" for number in range(40)), "🦊 emoji", "of the past"])
        states = {one.prompt: (one.state, one.reason) for one in await office.bench.hub.store.read(tasks.tasks)}
        assert states["paused"][0] is TaskState.PAUSED
        for odd in ("no zone", "no expression"):
            assert states[odd][0] is TaskState.STOPPED and states[odd][1], "kept, and listed with its reason"
        assert {run.run.state for one in await office.bench.hub.store.read(tasks.tasks)
                for run in await office.runs(one)} == {RunState.COMPLETED}  # fmt: skip
