"""Opening `state.db`: look first, back up, migrate.

Everything that can refuse the database is found out before the first byte is written, so that a refused one is as it
was (C202).  Each migration is one transaction with its own record in it, so that a kill at any statement leaves either
the old schema or the new one (C205).
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from jackfield.clock import Clock, to_datetime
from jackfield.errors import StoreError, StoreNewer
from jackfield.store.faults import translated
from jackfield.store.migrations import MIGRATIONS, Migration

__all__ = ["APPLICATION_ID", "Found", "connect", "connect_reader", "inspect", "open_database"]

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x4A4B4644
"""`JKFD` in the file's header: this database is ours."""
OLDEST_SQLITE = (3, 37, 0)
BUSY_MS = 2000
CHECK_BELOW = 64 * 1024 * 1024
"""Bytes up to which a database is checked at every start; a larger one only after an unclean stop."""

_KINDS = {
    stat.S_ISDIR: "a folder",
    stat.S_ISFIFO: "a named pipe",
    stat.S_ISSOCK: "a socket",
    stat.S_ISBLK: "a device",
    stat.S_ISCHR: "a device",
}

_LEDGER = """CREATE TABLE IF NOT EXISTS schema_version (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT"""


@dataclass(frozen=True, slots=True)
class Found:
    """What lies at a path.  `version` is the number of the newest migration applied, 0 for nothing yet."""

    version: int
    has_data: bool


def open_database(
    path: Path,
    clock: Clock,
    *,
    backups: Path,
    max_pages: int | None = None,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> sqlite3.Connection:
    """The writer's connection to a database of exactly this version.  Blocks; for the thread that will use it.

    Raises:
        StoreNewer: a newer version wrote it; nothing was touched.
        StoreError: it is damaged, not ours, or a migration failed and was rolled back.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old for {path}, 3.37 is needed", fix="use a newer Python build"
        )
    try:
        found = inspect(path, migrations)
        waiting = [step for step in migrations if step.number > found.version]
        _create(path)
        db = connect(path, max_pages=max_pages)
        try:
            if waiting and found.has_data:
                _back_up(db, path, backups, found.version, clock)
            for step in waiting:
                _apply(db, path, step, clock)
        except BaseException:
            db.close()
            raise
        return db
    except sqlite3.Error as problem:
        raise translated(problem, path) from problem


def connect(path: Path, *, max_pages: int | None = None) -> sqlite3.Connection:
    """A connection that may write: WAL, every commit on the disk before it returns."""
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    try:
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{path} can't use a write-ahead log (journal mode {mode})", fix="keep it on a local disk")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -4000")
        # The writer checkpoints between groups, when callers have their answers; this is only the net below it.
        db.execute("PRAGMA wal_autocheckpoint = 8000")
        db.execute("PRAGMA journal_size_limit = 16777216")
        if max_pages is not None:
            db.execute(f"PRAGMA max_page_count = {int(max_pages)}")
    except BaseException:
        db.close()
        raise
    return db


def connect_reader(path: Path) -> sqlite3.Connection:
    """A connection that can't write."""
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )
    try:
        db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        db.execute("PRAGMA query_only = ON")
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA cache_size = -1000")
    except BaseException:
        db.close()
        raise
    return db


def inspect(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> Found:
    """Look at a database without changing a byte of it or leaving a file beside it (C202).

    Raises:
        StoreNewer: it holds a migration that this version does not know.
        StoreError: it is damaged, not ours, or a migration that it holds has changed since.
    """
    if _size(path) == 0:
        return Found(0, has_data=False)
    try:
        with _untouched(path) as (db, clean):
            return _judge(db, path, migrations, thorough=not clean or path.stat().st_size <= CHECK_BELOW)
    except sqlite3.Error as problem:
        raise translated(problem, path) from problem


def _size(path: Path) -> int:
    """The file's size, 0 when there is none.  Refuses what SQLite would only call an I/O error.

    Raises:
        StoreError: it is a folder, a pipe or the like, or this user may not read and write it.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0
    except OSError as problem:
        raise StoreError(
            f"{path} can't be reached: {problem.strerror}", fix="check that this user may enter its folder"
        ) from problem
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS.items() if test(found.st_mode)), "no file")
        raise StoreError(
            f"{path} is {kind}, where the database should lie; it was left alone",
            fix="move it out of the way, and put back the newest file of backups/ if there was a database before",
        )
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreError(
            f"{path} may not be read and written by this user (uid {os.geteuid()}): it belongs to uid {found.st_uid} "
            f"and has the mode {stat.S_IMODE(found.st_mode):04o}",
            fix="run as the user whose home this is; or, if the file is yours: chmod 600 state.db",
        )
    return found.st_size


@contextmanager
def _untouched(path: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """A connection that leaves no trace, and whether the last host closed the database cleanly.

    Without a log the file alone says everything and can be read as immutable.  With one, SQLite would make its shared
    memory file next to it even for reading, so the pair is looked at in a folder of its own.
    """
    log = path.with_name(path.name + "-wal")
    if not log.exists() or log.stat().st_size == 0:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as db:
            yield db, True
        return
    with tempfile.TemporaryDirectory(prefix=".look-", dir=path.parent, ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / path.name
        try:
            os.link(path, copy)
        except OSError:
            shutil.copyfile(path, copy)
        shutil.copyfile(log, copy.with_name(log.name))
        with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield db, False


def _judge(db: sqlite3.Connection, path: Path, migrations: Sequence[Migration], *, thorough: bool) -> Found:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not tables:
        return Found(0, has_data=False)
    if "schema_version" not in tables or db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreError(
            f"{path} is a database, but not one of Jackfield's; it was left alone", fix="move it out of the way"
        )
    known = {step.number: step for step in migrations}
    newest = max(known, default=0)
    applied = db.execute("SELECT number, name, checksum FROM schema_version ORDER BY number").fetchall()
    if applied and applied[-1][0] > newest:
        raise StoreNewer(
            f"{path} was written by a newer Jackfield (schema {applied[-1][0]}, this one knows {newest}); "
            "nothing was touched",
            fix="install that version again, or put back the backup that it made before its update",
        )
    for position, (number, name, checksum) in enumerate(applied, 1):
        step = known.get(number)
        if number != position or step is None or step.name != name:
            raise StoreError(
                f"{path} holds migration {number} ({name!r}) where this version has "
                f"{'none' if step is None else repr(step.name)}; nothing was touched",
                fix="use the Jackfield version that wrote it",
            )
        if step.checksum != checksum:
            raise StoreError(
                f"migration {number} ({name!r}) was changed after it was applied to {path}: recorded "
                f"{checksum[:12]}, now {step.checksum[:12]}; nothing was touched",
                fix="put the migration back as it was, and add a new one for what is to change",
            )
    if thorough:
        verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise StoreError(
                f"{path} is damaged: {verdict}; it was left alone",
                fix="put back the newest file of backups/, or salvage it with the sqlite3 program's .recover",
            )
    data = any(
        db.execute(f'SELECT 1 FROM "{name}" LIMIT 1').fetchone()
        for name in tables
        if name != "schema_version" and not name.startswith("sqlite_")
    )
    return Found(len(applied), has_data=data)


def _create(path: Path) -> None:
    """Make the file with narrow rights, and its name durable."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    except OSError as problem:
        raise StoreError(f"{path} could not be made: {problem}") from problem
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _back_up(db: sqlite3.Connection, path: Path, backups: Path, version: int, clock: Clock) -> Path:
    """A whole copy under its final name only when it is complete and on the disk."""
    backups.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = to_datetime(clock.now()).strftime("%Y%m%dT%H%M%SZ")
    final = backups / f"{path.stem}-schema{version}-{stamp}.db"
    number = 2
    while final.exists():
        final = backups / f"{path.stem}-schema{version}-{stamp}-{number}.db"
        number += 1
    part = final.with_suffix(".part")
    part.unlink(missing_ok=True)
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(part, isolation_level=None)) as copy:
            db.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.rename(final)
        _sync_folder(backups)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    logger.info("backed up %s to %s before its migration", path, final)
    return final


def _apply(db: sqlite3.Connection, path: Path, step: Migration, clock: Clock) -> None:
    """One migration, whole or not at all; a no-op when another process was faster."""
    if step.rebuilds:
        db.execute("PRAGMA foreign_keys = OFF")  # has no effect inside a transaction
    try:
        db.execute("BEGIN IMMEDIATE")
        try:
            _run(db, path, step, clock)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
    finally:
        if step.rebuilds:
            db.execute("PRAGMA foreign_keys = ON")


def _run(db: sqlite3.Connection, path: Path, step: Migration, clock: Clock) -> None:
    db.execute(_LEDGER)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    if db.execute("SELECT 1 FROM schema_version WHERE number = ?", (step.number,)).fetchone():
        return
    before = [db.execute(check.before).fetchone()[0] for check in step.checks]
    dangling = _dangling(db) if step.rebuilds else 0
    for position, statement in enumerate(step.statements, 1):
        try:
            db.execute(statement)
        except (sqlite3.OperationalError, sqlite3.IntegrityError) as problem:
            error = translated(problem, path)
            if error is not problem:
                raise error from problem
            raise _failed(path, step, f"statement {position}: {problem}") from problem
    for check, was in zip(step.checks, before, strict=True):
        now = db.execute(check.after).fetchone()[0]
        if now != was:
            raise _failed(path, step, f"{check.what}: {was} before, {now} after")
    if step.rebuilds and (now := _dangling(db)) > dangling:
        raise _failed(path, step, f"{now - dangling} references point at nothing")
    for leftover in step.leftovers:
        rows = db.execute(leftover.query).fetchall()
        if rows:
            logger.warning("migration %d kept %d rows: %s: %s", step.number, len(rows), leftover.what, rows[:50])
    db.execute(
        "INSERT INTO schema_version (number, name, checksum, applied_at) VALUES (?, ?, ?, ?)",
        (step.number, step.name, step.checksum, clock.now()),
    )


def _dangling(db: sqlite3.Connection) -> int:
    return len(db.execute("PRAGMA foreign_key_check").fetchall())


def _failed(path: Path, step: Migration, why: str) -> StoreError:
    return StoreError(
        f"migration {step.number} ({step.name!r}) of {path} failed and was rolled back: {why}",
        fix="nothing is lost; use the version before, and report this",
    )
