"""Opening: migrations, backups, and what is refused without touching a byte."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from jackfield.errors import StoreError, StoreNewer
from jackfield.store import Kept, Leftovers, Migration, Store, notes
from jackfield.store.migrations import MIGRATIONS
from jackfield.store.opening import inspect

NEWEST = len(MIGRATIONS)
JOBS = Migration(
    NEWEST + 1,
    "jobs",
    (
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, name TEXT, zone TEXT)",
        "INSERT INTO jobs (id, name, zone) VALUES (1, 'normal', 'UTC'), (2, '🦊', 'UTC'), (3, 'no zone', NULL)",
    ),
)
REBUILD = Migration(
    NEWEST + 2,
    "rebuild jobs",
    (
        "CREATE TABLE jobs_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL, zone TEXT)",
        "INSERT INTO jobs_new SELECT id, name, zone FROM jobs",
        "DROP TABLE jobs",
        "ALTER TABLE jobs_new RENAME TO jobs",
    ),
    checks=(Kept.rows("jobs"),),
    leftovers=(Leftovers("jobs without a zone", "SELECT id, name FROM jobs WHERE zone IS NULL"),),
    rebuilds=True,
)


def files(folder: Path) -> dict[str, str]:
    """Every file below, with its content's digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


async def visit(path: Path, migrations: Sequence[Migration] = MIGRATIONS, **values: str) -> None:
    """Open, note something, close."""
    store = Store(path, migrations=migrations)
    await store.open()
    for key, value in values.items():
        await store.write(notes.set, key, value)
    await store.close()


def ask(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()


def schema(path: Path) -> list[tuple[object, ...]]:
    return ask(path, "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")


async def test_a_new_database_has_every_migration_recorded(tmp_path: Path) -> None:
    await visit(tmp_path / "home" / "state.db", a="1")
    applied = ask(tmp_path / "home" / "state.db", "SELECT number, name, checksum FROM schema_version")
    assert applied == [(step.number, step.name, step.checksum) for step in MIGRATIONS]
    assert not (tmp_path / "home" / "backups").exists()


@pytest.mark.parametrize(
    ("make", "said"), [(Path.mkdir, "is a folder"), (os.mkfifo, "is a named pipe")], ids=["folder", "pipe"]
)
async def test_what_is_no_file_is_named_and_left_alone(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "state.db")
    with pytest.raises(StoreError, match=said) as refused:
        await Store(tmp_path / "state.db").open()
    assert "move it out of the way" in (refused.value.fix or "")
    assert [path.name for path in tmp_path.iterdir()] == ["state.db"]


def test_a_file_that_this_user_may_not_use_is_told_with_its_owner() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders can't be entered by anybody else
        folder = Path(name)
        folder.chmod(0o711)
        path = folder / "state.db"
        path.write_bytes(b"x" * 100)
        path.chmod(0)
        own = os.geteuid()
        if own == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(StoreError, match=rf"belongs to uid {own} and has the mode 0000") as refused:
                inspect(path)
        finally:
            os.seteuid(own)
        assert "chmod 600" in (refused.value.fix or "")


async def test_opening_again_changes_nothing(tmp_path: Path) -> None:
    await visit(tmp_path / "state.db", a="1")
    before = files(tmp_path)
    await visit(tmp_path / "state.db")
    assert files(tmp_path) == before


async def test_migrations_are_numbered_without_gaps_and_named_once() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert len({step.name for step in MIGRATIONS}) == len(MIGRATIONS)


@pytest.mark.parametrize("unclean", [False, True])
async def test_a_newer_database_is_refused_and_stays_byte_for_byte(tmp_path: Path, unclean: bool) -> None:
    """C202."""
    path = tmp_path / "state.db"
    await visit(path, (*MIGRATIONS, JOBS), a="1")
    if unclean:
        leave_uncheckpointed(path)
    before = files(tmp_path)
    assert ("state.db-wal" in before) is unclean
    store = Store(path)
    with pytest.raises(StoreNewer, match="nothing was touched"):
        await store.open()
    await store.close()
    assert files(tmp_path) == before


def leave_uncheckpointed(path: Path) -> None:
    """Write in a process that dies, so that the log stays with something in it."""
    script = """
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("INSERT INTO notes VALUES ('left', 'in the log')")
        os.unlink(sys.argv[1] + "-shm")
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path)], check=True)


async def test_a_database_that_a_crash_left_open_is_checked_and_keeps_its_log(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await visit(path, a="1")
    leave_uncheckpointed(path)
    store = Store(path)
    await store.open()
    assert await store.read(notes.get, "left") == "in the log"
    await store.close()
    assert [found.name for found in tmp_path.iterdir()] == ["state.db"]


async def test_a_migration_that_only_the_log_holds_is_seen(tmp_path: Path) -> None:
    """C202."""
    path = tmp_path / "state.db"
    await visit(path, a="1")
    script = """
        import os, sqlite3, sys
        db = sqlite3.connect(sys.argv[1], isolation_level=None)
        db.execute("INSERT INTO schema_version VALUES (?, 'from the future', 'x', 0)", sys.argv[2:])
        os._exit(0)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(path), str(NEWEST + 1)], check=True)
    with pytest.raises(StoreNewer):
        await Store(path).open()


async def test_a_migration_that_changed_after_it_was_applied_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await visit(path, (*MIGRATIONS, JOBS))
    before = files(tmp_path)
    changed = Migration(NEWEST + 1, "jobs", (*JOBS.statements, "CREATE TABLE extra (id)"))
    with pytest.raises(StoreError, match=rf"migration {NEWEST + 1} \('jobs'\) was changed"):
        await Store(path, migrations=(*MIGRATIONS, changed)).open()
    with pytest.raises(StoreError, match="where this version has 'other'"):
        await Store(path, migrations=(*MIGRATIONS, Migration(NEWEST + 1, "other", JOBS.statements))).open()
    assert files(tmp_path) == before


async def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (id)")
    before = files(tmp_path)
    with pytest.raises(StoreError, match="not one of Jackfield's"):
        await Store(path).open()
    assert files(tmp_path) == before


@pytest.mark.parametrize("garbage", [b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(garbage)
    before = files(tmp_path)
    with pytest.raises(StoreError):
        await Store(path).open()
    assert files(tmp_path) == before


async def test_a_damaged_database_is_noticed_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    await visit(path, MIGRATIONS, **{f"k{n}": "x" * 500 for n in range(100)})
    size = path.stat().st_size
    with path.open("r+b") as handle:
        handle.seek(size // 2 // 4096 * 4096)
        handle.write(os.urandom(4096 * 4))
    before = files(tmp_path)
    with pytest.raises(StoreError):
        await Store(path).open()
    assert files(tmp_path) == before


async def test_a_database_with_data_is_backed_up_before_a_migration(tmp_path: Path) -> None:
    """C203."""
    path = tmp_path / "state.db"
    await visit(path, a="1")
    await visit(path, (*MIGRATIONS, JOBS))
    (backup,) = (tmp_path / "backups").iterdir()
    assert backup.name.startswith(f"state-schema{NEWEST}-") and backup.suffix == ".db"
    assert backup.stat().st_mode & 0o777 == 0o600
    assert ask(backup, "SELECT * FROM notes") == [("a", "1")]
    assert ask(backup, "SELECT max(number) FROM schema_version") == [(NEWEST,)]
    await visit(path, (*MIGRATIONS, JOBS))
    assert len(list((tmp_path / "backups").iterdir())) == 1


async def test_a_database_without_data_is_not_backed_up(tmp_path: Path) -> None:
    await visit(tmp_path / "state.db")
    await visit(tmp_path / "state.db", (*MIGRATIONS, JOBS))
    assert not (tmp_path / "backups").exists()


async def test_a_rebuilt_table_keeps_its_rows_and_lists_the_odd_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C203."""
    path = tmp_path / "state.db"
    await visit(path, (*MIGRATIONS, JOBS), a="1")
    await visit(path, (*MIGRATIONS, JOBS, REBUILD))
    assert ask(path, "SELECT count(*) FROM jobs") == [(3,)]
    assert "jobs without a zone" in caplog.text and "no zone" in caplog.text


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("INSERT INTO jobs_new SELECT id, name, zone FROM jobs WHERE zone IS NOT NULL", "rows of jobs: 3 before, 2"),
        ("INSERT INTO jobs_new SELECT id, NULL, zone FROM jobs", "statement 2: NOT NULL"),
        ("INSERT INTO jobs_new SELECT * FROM nowhere", "statement 2: no such table"),
    ],
)
async def test_a_migration_that_loses_rows_or_fails_is_rolled_back(tmp_path: Path, statement: str, why: str) -> None:
    """C203."""
    path = tmp_path / "state.db"
    await visit(path, (*MIGRATIONS, JOBS), a="1")
    before = schema(path), ask(path, "SELECT * FROM jobs")
    lossy = Migration(
        NEWEST + 2, "rebuild jobs", (REBUILD.statements[0], statement, *REBUILD.statements[2:]), REBUILD.checks
    )
    with pytest.raises(StoreError, match=why):
        await Store(path, migrations=(*MIGRATIONS, JOBS, lossy)).open()
    assert (schema(path), ask(path, "SELECT * FROM jobs")) == before
    assert ask(path, "SELECT max(number) FROM schema_version") == [(NEWEST + 1,)]
    assert len(list((tmp_path / "backups").glob(f"*schema{NEWEST + 1}*.db"))) == 1
    await visit(path, (*MIGRATIONS, JOBS, REBUILD))
    assert ask(path, "SELECT count(*) FROM jobs") == [(3,)]


async def test_a_rebuild_must_not_leave_references_to_nothing(tmp_path: Path) -> None:
    """C203."""
    path = tmp_path / "state.db"
    linked = Migration(
        NEWEST + 1,
        "linked",
        (
            "CREATE TABLE parents (id INTEGER PRIMARY KEY)",
            "CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents (id))",
            "INSERT INTO parents VALUES (1), (2)",
            "INSERT INTO children VALUES (1, 1), (2, 2)",
        ),
    )
    await visit(path, (*MIGRATIONS, linked), a="1")
    cut = Migration(NEWEST + 2, "cut", ("DELETE FROM parents WHERE id = 2",), rebuilds=True)
    with pytest.raises(StoreError, match="1 references point at nothing"):
        await Store(path, migrations=(*MIGRATIONS, linked, cut)).open()
    assert ask(path, "SELECT count(*) FROM parents") == [(2,)]


KILLS = """
import os, shutil, sqlite3, signal, sys
from pathlib import Path
from contextlib import closing
from jackfield.clock import SystemClock
from jackfield.store import Kept, Migration
from jackfield.store.migrations import MIGRATIONS
from jackfield.store.opening import inspect
from jackfield.store import opening

STEPS = (*MIGRATIONS,
    Migration(len(MIGRATIONS) + 1, "jobs", ("CREATE TABLE jobs (id INTEGER PRIMARY KEY, name TEXT)",
        "INSERT INTO jobs VALUES (1, 'a'), (2, 'b')")),
    Migration(len(MIGRATIONS) + 2, "rebuild", ("CREATE TABLE jobs_new (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        "INSERT INTO jobs_new SELECT * FROM jobs", "DROP TABLE jobs", "ALTER TABLE jobs_new RENAME TO jobs"),
        (Kept.rows("jobs"),), rebuilds=True))
plain = sqlite3.connect

def migrate(path):
    opening.open_database(path, SystemClock(), backups=path.parent / "backups", migrations=STEPS).close()

def content(path):
    with closing(plain(path)) as db:
        return (db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").fetchall(),
            db.execute("SELECT number, name, checksum FROM schema_version ORDER BY number").fetchall(),
            db.execute("SELECT * FROM jobs").fetchall(), db.execute("SELECT * FROM notes").fetchall())

def killed_after(path, k):
    seen = 0
    def connect(*args, **kwargs):
        db = plain(*args, **kwargs)
        def count(statement):
            nonlocal seen
            seen += 1
            if seen > k:
                os.kill(os.getpid(), signal.SIGKILL)
        db.set_trace_callback(count)
        return db
    child = os.fork()
    if child == 0:
        sqlite3.connect = connect
        migrate(path)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0

def start(folder, prepared):
    folder.mkdir()
    if prepared is not None:
        shutil.copyfile(prepared, folder / "state.db")
    return folder / "state.db"

root = Path(sys.argv[1])
old = root / "old.db"
opening.open_database(old, SystemClock(), backups=root, migrations=MIGRATIONS).close()
with closing(plain(old)) as db, db:
    db.execute("INSERT INTO notes VALUES ('kept', 'yes')")
for name, prepared in (("new", None), ("old", old)):
    expected = start(root / name, prepared)
    migrate(expected)
    wanted, k = content(expected), 0
    while True:
        path = start(root / f"{name}{k}", prepared)
        died = killed_after(path, k)
        migrate(path)
        assert content(path) == wanted, (name, k)
        shutil.rmtree(path.parent)
        if not died:
            break
        k += 1
    print(name, k)
"""


def test_a_migration_killed_at_any_statement_ends_the_same_after_a_rerun(tmp_path: Path) -> None:
    """C205."""
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(tmp_path)], check=False, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    kills = {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}
    assert kills["new"] > 60 and kills["old"] > 20  # it did die at each


async def test_a_home_of_the_first_schema_keeps_all_it_has(tmp_path: Path) -> None:
    """C203."""
    path = tmp_path / "state.db"
    await visit(path, MIGRATIONS[:1], a="1")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO users VALUES ('irc:ada', 'irc', 'Ada', 5)")
        db.execute(
            "INSERT INTO inbound (id, session_id, state, preview, created_at, updated_at) "
            "VALUES ('in_1', 'ses_1', 'queued', 'hi', 5, 5)"
        )
    await visit(path)
    assert ask(path, "SELECT id, display_name, timezone FROM users") == [("irc:ada", "Ada", None)]
    assert ask(path, "SELECT id, state, turn, hops, chain FROM inbound") == [("in_1", "queued", None, 0, None)]
    assert len(list((tmp_path / "backups").glob("state-schema1-*.db"))) == 1
