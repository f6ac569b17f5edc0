"""Kill -9, full disks, two processes: what was acknowledged is there, and whole."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from jackfield.errors import StoreError, StoreFull
from jackfield.store import Store, notes

BOUND = 60

WRITE_FOREVER = """
import asyncio, sys
from pathlib import Path
from jackfield.store import Store, notes

def unit(db, n):
    for part in range(3):
        notes.set(db, f"{n}.{part}", "x" * (n * 37 % 3000))

async def caller(store, first):
    n = first
    while True:
        await store.write(unit, n)
        print(n, flush=True)
        n += 8

async def main():
    store = Store(Path(sys.argv[1]))
    await store.open()
    await asyncio.gather(*(caller(store, int(sys.argv[2]) + i) for i in range(8)))

asyncio.run(main())
"""


def units_in(path: Path) -> dict[int, int]:
    """How many parts of each unit a database holds."""
    found: dict[int, int] = {}
    with closing(sqlite3.connect(path)) as db:
        for (key,) in db.execute("SELECT key FROM notes"):
            number = int(key.split(".")[0])
            found[number] = found.get(number, 0) + 1
    return found


def test_after_a_kill_acknowledged_units_are_there_and_no_unit_is_half_there(tmp_path: Path) -> None:
    chance = random.Random(7)
    path = tmp_path / "state.db"
    acknowledged: set[int] = set()
    for round_ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITE_FOREVER, str(path), str(round_ * 1_000_000)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        with child.stdout:
            for _ in range(chance.randrange(1, 300)):
                acknowledged.add(int(child.stdout.readline()))
            child.kill()
            acknowledged.update(int(line) for line in child.stdout if line.endswith("\n"))
        child.wait(BOUND)
        parts = units_in(path)
        assert acknowledged <= parts.keys()
        assert set(parts.values()) == {3}


@pytest.mark.parametrize("visit", [1, 5])
def test_a_kill_inside_a_transaction_leaves_nothing_of_it(tmp_path: Path, visit: int) -> None:
    child = subprocess.run(
        [sys.executable, "-c", WRITE_FOREVER, str(tmp_path / "state.db"), "0"],
        env={**os.environ, "JACKFIELD_KILL_AT": f"store.mid_transaction:{visit}"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=BOUND,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    parts = units_in(tmp_path / "state.db")
    assert {int(line) for line in child.stdout.split()} <= set(parts)
    assert set(parts.values()) <= {3}
    assert bool(parts) is (visit > 1)


INCREMENT = """
import asyncio, sys
from pathlib import Path
from jackfield.store import Store, notes

def unit(db):
    notes.set(db, "n", str(int(notes.get(db, "n") or 0) + 1))

async def task(store):
    for _ in range(500):
        await store.write(unit)

async def main():
    store = Store(Path(sys.argv[1]))
    await store.open()
    await asyncio.gather(*(task(store) for _ in range(8)))
    await store.close()

asyncio.run(main())
"""


async def test_two_processes_that_write_get_no_lock_errors_and_lose_no_update(tmp_path: Path) -> None:
    """C211."""
    path = tmp_path / "state.db"
    store = Store(path)
    await store.open()
    await store.close()
    children = [
        subprocess.Popen([sys.executable, "-c", INCREMENT, str(path)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for child in children:
        _, problems = child.communicate(timeout=120)
        assert child.returncode == 0, problems
    store = Store(path)
    await store.open()
    assert await store.read(notes.get, "n") == "8000"
    await store.close()


async def test_two_processes_may_open_a_new_database_at_once(tmp_path: Path) -> None:
    """C211."""
    first, second = Store(tmp_path / "state.db"), Store(tmp_path / "state.db")
    await asyncio.gather(first.open(), second.open())
    await asyncio.gather(first.write(notes.set, "a", "1"), second.write(notes.set, "b", "1"))
    assert await first.read(notes.get, "b") == "1"
    await asyncio.gather(first.close(), second.close())


# Full disks


async def test_a_full_database_refuses_what_does_not_fit_and_nothing_else(tmp_path: Path) -> None:
    """C213."""
    store = Store(tmp_path / "state.db", max_pages=150)
    await store.open()
    await store.write(notes.set, "small", "1")
    with pytest.raises(StoreFull) as refused:
        for n in range(200):
            await store.write(notes.set, f"k{n}", "x" * 10_000)
    assert refused.value.fix is not None
    assert isinstance(store.problem, StoreFull)
    stored = await store.read(lambda db: db.execute("SELECT count(*) FROM notes").fetchone()[0])
    assert stored > 5
    assert await store.read(notes.get, "small") == "1"
    await store.write(lambda db: db.execute("DELETE FROM notes WHERE key LIKE 'k%'").rowcount)
    await store.write(notes.set, "k0", "x" * 10_000)
    assert store.problem is None
    await store.close()


async def test_a_unit_that_does_not_fit_does_not_harm_those_that_share_its_group(tmp_path: Path) -> None:
    """C213."""
    store = Store(tmp_path / "state.db", max_pages=120)
    await store.open()

    def large(db: sqlite3.Connection) -> None:
        for n in range(500):
            notes.set(db, f"big{n}", "x" * 10_000)

    results = await asyncio.gather(
        *(store.write(notes.set, f"a{n}", "1") for n in range(10)),
        store.write(large),
        *(store.write(notes.set, f"b{n}", "1") for n in range(10)),
        return_exceptions=True,
    )
    assert isinstance(results[10], StoreFull)
    assert results[:10] + results[11:] == [None] * 20
    keys = await store.read(lambda db: {row[0] for row in db.execute("SELECT key FROM notes")})
    assert keys == {f"{letter}{n}" for letter in "ab" for n in range(10)}
    await store.close()


FILE_LIMIT = """
import asyncio, resource, sys
from pathlib import Path
from jackfield.errors import StoreError
from jackfield.store import Store, notes

async def main():
    path = Path(sys.argv[1])
    store = Store(path)
    await store.open()
    await store.write(notes.set, "before", "1")
    log = path.with_name(path.name + "-wal")
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 100_000, hard))
    stored, refused = set(), 0
    for n in range(40):
        results = await asyncio.gather(
            *(store.write(notes.set, f"{n}.{i}", "x" * 3000) for i in range(4)), return_exceptions=True)
        for i, result in enumerate(results):
            if result is None:
                stored.add(f"{n}.{i}")
            else:
                assert isinstance(result, StoreError), repr(result)
                refused += 1
    assert refused and stored and isinstance(store.problem, StoreError)
    keys = await store.read(lambda db: {row[0] for row in db.execute("SELECT key FROM notes")})
    assert keys == stored | {"before"}, keys ^ stored
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.write(notes.set, "after", "1")
    assert store.problem is None
    await store.close()
    store = Store(path)
    await store.open()
    keys = await store.read(lambda db: {row[0] for row in db.execute("SELECT key FROM notes")})
    assert keys == stored | {"before", "after"}, keys ^ stored
    await store.close()

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no file size limit here")
def test_when_the_file_can_not_grow_nothing_is_half_stored_and_it_goes_on_afterwards(tmp_path: Path) -> None:
    """C213."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FILE_LIMIT), str(tmp_path / "state.db")],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=False, capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small tmpfs can't be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
async def small_store(small_disk: Path) -> AsyncIterator[Store]:
    store = Store(small_disk / "state.db")
    await store.open()
    yield store
    await store.close()


async def test_a_full_disk_loses_nothing_and_ends_when_space_returns(small_disk: Path, small_store: Store) -> None:
    """C213."""
    store = small_store
    await store.write(notes.set, "before", "1")
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as handle:
        while True:
            handle.write(b"x" * 4096)
    stored: set[str] = set()
    refused: list[StoreError] = []
    for n in range(60):
        key = f"k{n}"
        try:
            await store.write(notes.set, key, "x" * 6000)
            stored.add(key)
        except StoreError as problem:
            refused.append(problem)
    assert refused and isinstance(refused[-1], StoreFull) and isinstance(store.problem, StoreFull)
    assert await keys_of(store) == stored | {"before"}
    filler.unlink()
    await store.write(notes.set, "after", "1")
    assert store.problem is None
    await store.close()
    again = Store(small_disk / "state.db")
    await again.open()
    assert await keys_of(again) == stored | {"before", "after"}
    await again.close()


async def keys_of(store: Store) -> set[str]:
    return await store.read(lambda db: {row[0] for row in db.execute("SELECT key FROM notes")})


async def test_a_full_disk_at_the_start_is_told_and_leaves_nothing_broken(small_disk: Path) -> None:
    """C213."""
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as handle:
        while True:
            handle.write(b"x" * 4096)
    with pytest.raises(StoreError):
        await Store(small_disk / "state.db").open()
    filler.unlink()
    store = Store(small_disk / "state.db")
    await store.open()
    await store.write(notes.set, "k", "v")
    await store.close()


async def test_a_read_only_disk_is_told_and_ends_when_it_is_writable_again(small_disk: Path) -> None:
    """C213."""
    store = Store(small_disk / "state.db")
    await store.open()
    await store.write(notes.set, "before", "1")
    await store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        with pytest.raises(StoreError) as refused:
            await Store(small_disk / "state.db").open()
        assert refused.value.fix is not None
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    store = Store(small_disk / "state.db")
    await store.open()
    assert await store.read(notes.get, "before") == "1"
    await store.close()
