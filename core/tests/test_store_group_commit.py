"""The writer: units of work, groups, isolation, what is flushed when."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jackfield.errors import StoreError
from jackfield.store import Store, notes
from jackfield.store import writer as writer_module

BOUND = 30


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    store = Store(tmp_path / "state.db")
    await store.open()
    yield store
    await store.close()


class Block:
    """Keeps the writer busy until it is let go, so that what comes meanwhile becomes one group."""

    def __init__(self, store: Store) -> None:
        self._started = threading.Event()
        self._go = threading.Event()
        self._task = asyncio.ensure_future(store.write(self._work))

    def _work(self, db: sqlite3.Connection) -> None:
        self._started.set()
        assert self._go.wait(BOUND)

    async def started(self) -> None:
        assert await asyncio.to_thread(self._started.wait, BOUND)

    async def release(self) -> None:
        self._go.set()
        await self._task


def fail(db: sqlite3.Connection, key: str) -> None:
    notes.set(db, key, "half")
    raise LookupError(key)


async def test_a_write_gives_its_result_and_can_be_read(store: Store) -> None:
    def both(db: sqlite3.Connection, key: str, *, value: str) -> str | None:
        notes.set(db, key, value)
        return notes.get(db, key)

    assert await store.write(both, "a", value="1") == "1"
    assert await store.read(notes.get, "a") == "1"
    assert store.commits == 1


async def test_units_that_wait_together_share_one_commit(store: Store) -> None:
    block = Block(store)
    await block.started()
    waiting = [asyncio.ensure_future(store.write(notes.set, f"k{n}", str(n))) for n in range(50)]
    await asyncio.sleep(0)
    await block.release()
    await asyncio.gather(*waiting)
    assert store.commits == 1  # they joined the group that was running
    assert await store.read(notes.get, "k49") == "49"


async def test_a_unit_that_raises_undoes_only_itself(store: Store) -> None:
    block = Block(store)
    await block.started()
    tasks = [
        asyncio.ensure_future(store.write(fail, f"k{n}") if n % 3 == 0 else store.write(notes.set, f"k{n}", "whole"))
        for n in range(12)
    ]
    await asyncio.sleep(0)
    await block.release()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for n, result in enumerate(results):
        value = await store.read(notes.get, f"k{n}")
        if n % 3 == 0:
            assert isinstance(result, LookupError) and value is None
        else:
            assert result is None and value == "whole"


async def test_a_first_unit_that_raises_leaves_the_rest_of_its_group_alone(store: Store) -> None:
    started, go = threading.Event(), threading.Event()

    def slow_failure(db: sqlite3.Connection) -> None:
        notes.set(db, "first", "half")
        started.set()
        assert go.wait(BOUND)
        raise LookupError

    first = asyncio.ensure_future(store.write(slow_failure))
    assert await asyncio.to_thread(started.wait, BOUND)
    second = asyncio.ensure_future(store.write(notes.set, "second", "whole"))
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(LookupError):
        await first
    await second
    assert await store.read(notes.get, "first") is None
    assert await store.read(notes.get, "second") == "whole"


async def test_a_lone_unit_that_raises_commits_nothing(store: Store) -> None:
    with pytest.raises(LookupError):
        await store.write(fail, "k")
    assert store.commits == 0
    assert await store.read(notes.get, "k") is None


async def test_a_unit_that_ends_the_transaction_is_refused_and_harms_nobody(store: Store) -> None:
    def breaks_out(db: sqlite3.Connection) -> None:
        db.execute("ROLLBACK")

    block = Block(store)
    await block.started()
    good = asyncio.ensure_future(store.write(notes.set, "before", "1"))
    bad = asyncio.ensure_future(store.write(breaks_out))
    late = asyncio.ensure_future(store.write(notes.set, "after", "1"))
    await asyncio.sleep(0)
    await block.release()
    with pytest.raises(StoreError, match="ended the transaction"):
        await bad
    await asyncio.gather(good, late)
    assert await store.read(notes.get, "before") == "1"
    assert await store.read(notes.get, "after") == "1"


async def test_constraint_errors_reach_the_caller_as_they_are(store: Store) -> None:
    def broken(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO notes (key, value) VALUES ('k', NULL)")

    with pytest.raises(sqlite3.IntegrityError):
        await store.write(broken)
    assert store.problem is None


async def test_a_unit_that_raises_stop_iteration_does_not_leave_its_caller_waiting(store: Store) -> None:
    def stops(db: sqlite3.Connection) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError):
        async with asyncio.timeout(BOUND):
            await store.write(stops)


async def test_an_unforeseen_failure_of_the_writer_is_told_and_it_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(name: str) -> None:
        raise ZeroDivisionError(name)

    with monkeypatch.context() as patch:
        patch.setattr(writer_module, "reach", breaks)
        with pytest.raises(StoreError, match="log says why"):
            await store.write(notes.set, "k", "v")
    assert "ZeroDivisionError" in caplog.text and store.problem is not None
    assert await store.read(notes.get, "k") is None
    await store.write(notes.set, "k", "v")
    assert store.problem is None


async def test_a_cancelled_caller_does_not_stop_its_unit(store: Store) -> None:
    block = Block(store)
    await block.started()
    task = asyncio.ensure_future(store.write(notes.set, "k", "v"))
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await block.release()
    await store.write(notes.set, "other", "v")
    assert await store.read(notes.get, "k") == "v"


async def test_units_run_in_the_order_of_the_calls(store: Store) -> None:
    block = Block(store)
    await block.started()
    seen: list[int] = []

    def note(db: sqlite3.Connection, n: int) -> None:
        seen.append(n)

    waiting = [asyncio.ensure_future(store.write(note, n)) for n in range(400)]
    await asyncio.sleep(0)
    await block.release()
    await asyncio.gather(*waiting)
    assert seen == list(range(400))


async def test_a_write_nobody_waits_for_joins_the_next_commit(store: Store) -> None:
    store.write_soon(notes.set, "soon", "1")
    await store.write(notes.set, "now", "1")
    assert await store.read(notes.get, "soon") == "1"
    assert store.commits == 1


async def test_a_write_nobody_waits_for_commits_on_its_own_when_nothing_else_comes(store: Store) -> None:
    done = threading.Event()

    def work(db: sqlite3.Connection) -> None:
        done.set()

    store.write_soon(work)
    assert await asyncio.to_thread(done.wait, BOUND)


async def test_a_write_nobody_waits_for_only_logs_its_failure(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    store.write_soon(fail, "k")
    await store.write(notes.set, "other", "1")
    assert "nobody waits for" in caplog.text


async def test_closing_commits_everything_that_was_handed_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    await store.open()
    block = Block(store)
    await block.started()
    waiting = asyncio.ensure_future(store.write(notes.set, "waited", "1"))
    await asyncio.sleep(0)
    store.write_soon(notes.set, "soon", "1")
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    await block.release()
    await asyncio.gather(waiting, closing)
    again = Store(tmp_path / "state.db")
    await again.open()
    assert await again.read(notes.get, "waited") == "1"
    assert await again.read(notes.get, "soon") == "1"
    await again.close()


async def test_a_closed_or_unopened_store_refuses_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    with pytest.raises(StoreError, match="not open yet"):
        await store.write(notes.set, "k", "v")
    await store.open()
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.read(notes.get, "k")
    with pytest.raises(StoreError, match="closed"):
        store.write_soon(notes.set, "k", "v")


async def test_closing_leaves_one_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    await store.open()
    await store.write(notes.set, "k", "v")
    await store.read(notes.get, "k")
    await store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]
    assert (tmp_path / "state.db").stat().st_mode & 0o777 == 0o600


async def test_a_reader_can_not_write(store: Store) -> None:
    with pytest.raises(StoreError, match="readonly"):
        await store.read(notes.set, "k", "v")


async def test_a_read_is_one_consistent_view(store: Store) -> None:
    await store.write(notes.set, "a", "1")
    begun, go = threading.Event(), threading.Event()

    def twice(db: sqlite3.Connection) -> tuple[str | None, str | None]:
        first = notes.get(db, "a")
        begun.set()
        assert go.wait(BOUND)
        return first, notes.get(db, "a")

    reading = asyncio.ensure_future(store.read(twice))
    assert await asyncio.to_thread(begun.wait, BOUND)
    await store.write(notes.set, "a", "2")
    go.set()
    assert await reading == ("1", "1")


async def test_many_callers_lose_no_update(store: Store) -> None:
    def increment(db: sqlite3.Connection) -> int:
        value = int(notes.get(db, "n") or 0) + 1
        notes.set(db, "n", str(value))
        return value

    async def caller() -> list[int]:
        return [await store.write(increment) for _ in range(100)]

    results = await asyncio.gather(*(caller() for _ in range(16)))
    assert sorted(n for result in results for n in result) == list(range(1, 1601))
    assert store.commits < 1600


async def test_the_log_stays_small_although_readers_always_overlap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "TIDY_AFTER", 20)
    monkeypatch.setattr(writer_module, "LOG_FRAMES", 100)
    store = Store(tmp_path / "state.db")
    await store.open()
    over = False

    def slowly(db: sqlite3.Connection) -> None:
        for _ in range(200):
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()

    async def reader() -> None:
        while not over:
            await store.read(slowly)

    readers = [asyncio.ensure_future(reader()) for _ in range(3)]
    largest = 0
    for n in range(600):
        await store.write(notes.set, f"k{n}", "x" * 8000)
        largest = max(largest, (tmp_path / "state.db-wal").stat().st_size)
    over = True
    await asyncio.gather(*readers)
    await store.close()
    # 600 commits of at least three pages each would be 7 MB.
    assert largest < 3_000_000


async def test_a_peek_sees_every_write_that_returned_before(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    await store.open()
    try:
        await store.write(notes.set, "key", "value")
        assert store.peek(notes.get, "key") == "value"
        await store.write(notes.set, "key", "other")
        assert store.peek(notes.get, "key") == await store.read(notes.get, "key") == "other"
    finally:
        await store.close()
    with pytest.raises(StoreError):
        store.peek(notes.get, "key")
