"""SQLite's own errors in the words of `jackfield.errors`."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from jackfield.errors import StoreError, StoreFull

__all__ = ["primary_code", "translated"]

_OURS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""What the file, the disk or another process is to blame for; everything else is the unit's own mistake."""

_FIXES = {
    sqlite3.SQLITE_BUSY: "another process holds the database; only one host may run on a home",
    sqlite3.SQLITE_CORRUPT: "stop the host and put back the newest file of backups/",
    sqlite3.SQLITE_NOTADB: "stop the host and put back the newest file of backups/",
    sqlite3.SQLITE_READONLY: "make the file and its folder writable for this user",
    sqlite3.SQLITE_CANTOPEN: "check that the folder exists and that this user may read and write it",
    sqlite3.SQLITE_IOERR: "check the disk (free space, quota, file size limit, kernel log)",
}


def primary_code(problem: BaseException) -> int | None:
    """SQLite's primary result code of an error, or None when it has none."""
    code: int | None = getattr(problem, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def translated(problem: BaseException, path: Path) -> BaseException:
    """The error to hand to a caller: `StoreFull` or `StoreError` for the disk's faults, `problem` itself otherwise."""
    code = primary_code(problem)
    if code == sqlite3.SQLITE_FULL:
        result: StoreError = StoreFull(
            f"{path} could not be written: {problem}; nothing of this was stored",
            fix="free some space on that disk; nothing else is needed, writing works again then",
        )
    elif code in _OURS:
        name = getattr(problem, "sqlite_errorname", "SQLITE_ERROR")
        result = StoreError(f"{path} could not be used: {problem} ({name})", fix=_FIXES.get(code or 0))
    else:
        return problem
    result.__cause__ = problem
    return result
