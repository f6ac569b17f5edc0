"""The steps that bring `state.db` from any earlier version to this one, in order.

A step that was released never changes: its checksum is recorded when it is applied, and another one under the same
number is refused.  A change of the schema is a new module here and one more line in `MIGRATIONS`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from jackfield.store.migrations.m0001_initial import STATEMENTS as INITIAL
from jackfield.store.migrations.m0002_people import STATEMENTS as PEOPLE
from jackfield.store.migrations.m0003_models import STATEMENTS as MODELS

__all__ = ["MIGRATIONS", "Kept", "Leftovers", "Migration"]


@dataclass(frozen=True, slots=True)
class Kept:
    """Two questions that must have the same answer: `before` the statements ran and `after` (C203).

    Usually both count the rows of a table that is rebuilt; each gives one value.
    """

    what: str
    before: str
    after: str

    @classmethod
    def rows(cls, table: str, renamed: str | None = None) -> Kept:
        """All rows of `table` are there afterwards too, under its new name if it gets one."""
        return cls(f"rows of {table}", f"SELECT count(*) FROM {table}", f"SELECT count(*) FROM {renamed or table}")


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Rows that a step keeps although it does not understand them; they are listed in the log (C203)."""

    what: str
    query: str


@dataclass(frozen=True, slots=True)
class Migration:
    """One step.  `rebuilds` turns foreign keys off around it, as SQLite's way of altering a table asks for; the number
    of dangling references must not grow then (old orphans are no reason to fail)."""

    number: int
    name: str
    statements: tuple[str, ...]
    checks: tuple[Kept, ...] = ()
    leftovers: tuple[Leftovers, ...] = ()
    rebuilds: bool = False

    @property
    def checksum(self) -> str:
        """SHA-256 of number, name and statements."""
        text = "\x1f".join((str(self.number), self.name, *self.statements))
        return hashlib.sha256(text.encode()).hexdigest()


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "initial", INITIAL),
    Migration(2, "people", PEOPLE),
    Migration(3, "models", MODELS),
)
