"""What the host asks of an `outbound.db`, each for `OutboundReader.ask`.

A row that is not what it must be is told of or left out, and never an exception.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from jackfield.errors import MalformedData
from jackfield.mailbox.rows import (
    ACK_COLUMNS,
    ACTIVITY_COLUMNS,
    DRAFT_COLUMNS,
    OUTBOUND_COLUMNS,
    USAGE_COLUMNS,
    ack_row,
    activity_row,
    draft_row,
    outbound_row,
    state_row,
    usage_row,
)
from jackfield.models import (
    Ack,
    ActivityRow,
    Draft,
    OutboundRow,
    RunnerState,
    UsageEntry,
)

__all__ = ["BadRow", "OutboundBatch", "acks_of", "claims", "drafts", "new_rows", "newest_epoch", "runner_state"]

T = TypeVar("T")
_logger = logging.getLogger(__name__)

_BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row of the runner's that is not what it must be.  `seq` is its number or, in `processing_ack`, its change."""

    seq: int
    problem: str
    table: str = "messages_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundBatch:
    """What is new in `outbound.db`, in order.  The `last_...` are the cursors after it, bad rows included."""

    rows: list[OutboundRow] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    activity: list[ActivityRow] = field(default_factory=list)
    usage: list[UsageEntry] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    more: bool = False
    """Whether another read would find more at once."""
    last_seq: int = 0
    last_change: int = 0
    last_activity: int = 0
    last_usage: int = 0


def new_rows(
    database: sqlite3.Connection,
    *,
    after_seq: int,
    after_change: int,
    after_activity: int,
    after_usage: int = 0,
    limit: int,
) -> OutboundBatch:
    """What lies after these cursors: at most `limit` of each kind, about 8 MiB in all."""
    bad: list[BadRow] = []
    rows, last_seq, more = _fetch(database, "messages_out", OUTBOUND_COLUMNS, after_seq, limit, outbound_row, bad)
    acks, last_change, more_acks = _fetch(database, "processing_ack", ACK_COLUMNS, after_change, limit, ack_row, bad)
    activity, last_activity, more_activity = _fetch(
        database, "activity", ACTIVITY_COLUMNS, after_activity, limit, activity_row, bad
    )
    usage, last_usage, more_usage = list[UsageEntry](), after_usage, False
    if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'usage'").fetchone():
        usage, last_usage, more_usage = _fetch(database, "usage", USAGE_COLUMNS, after_usage, limit, usage_row, bad)
    return OutboundBatch(
        rows=rows,
        acks=acks,
        activity=activity,
        usage=usage,
        bad=bad,
        more=more or more_acks or more_activity or more_usage,
        last_seq=last_seq,
        last_change=last_change,
        last_activity=last_activity,
        last_usage=last_usage,
    )


def drafts(database: sqlite3.Connection) -> list[Draft]:
    """The growing texts, by turn and block, at most 100."""
    found = _decoded(database, f"SELECT {DRAFT_COLUMNS} FROM draft ORDER BY turn, block LIMIT 100", draft_row)
    return list(found)


def runner_state(database: sqlite3.Connection) -> RunnerState:
    """What the runner says of itself; nothing when it said nothing sensible."""
    found = _decoded(
        database,
        "SELECT value FROM session_state WHERE key = 'runner_state'",
        state_row,
    )
    return next(found, RunnerState())


def acks_of(database: sqlite3.Connection, message_ids: Sequence[str], until: int) -> list[Ack]:
    """How far the runner said it is with these rows, up to change `until`, in order."""
    marks = ", ".join("?" * len(message_ids))
    which = f"message_id IN ({marks}) AND change <= ?"
    sql = f"SELECT {ACK_COLUMNS} FROM processing_ack WHERE {which} ORDER BY change"
    return list(_decoded(database, sql, ack_row, (*message_ids, until)))


def claims(database: sqlite3.Connection) -> list[Ack]:
    """The rows that the runner is working on, the oldest claim first; at most 1,000."""
    sql = f"SELECT {ACK_COLUMNS} FROM processing_ack WHERE status = 'processing' ORDER BY change LIMIT 1000"
    return list(_decoded(database, sql, ack_row))


def newest_epoch(database: sqlite3.Connection) -> int:
    """Of the runners that have opened the file, as it says itself; 0 for none."""
    found = database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    text = bytes(found[0]) if found and isinstance(found[0], bytes) else b""
    return int(text) if text.isdigit() and len(text) < 16 else 0


def _fetch(
    database: sqlite3.Connection,
    table: str,
    columns: str,
    after: int,
    limit: int,
    decode: Callable[[Sequence[object]], T],
    bad: list[BadRow],
) -> tuple[list[T], int, bool]:
    """Rows of a table after a cursor, in order; the cursor after them, and whether more are there.

    A row that SQLite refuses to hand out for its size is told of, and stepped over.
    """
    key = columns.partition(",")[0]
    rows: list[T] = []
    last, size = after, 0
    for taken, (number, cells) in enumerate(_cells_after(database, table, key, columns, after, limit + 1)):
        if taken == limit or size > _BATCH_BYTES:
            return rows, last, True
        last = number
        if cells is None:
            bad.append(BadRow(number, "the row is far bigger than a row may be", table))
            continue
        size += sum(len(cell) for cell in cells if isinstance(cell, bytes))
        try:
            rows.append(decode(cells))
        except MalformedData as problem:
            bad.append(BadRow(number, problem.message, table))
    return rows, last, False


def _cells_after(
    database: sqlite3.Connection, table: str, key: str, columns: str, after: int, limit: int
) -> Iterator[tuple[int, Sequence[object] | None]]:
    """Rows with their numbers; None for one that is too big.

    The fast way first.  It fails one row early, because a cursor steps ahead; from there on each row is asked for by
    itself, after the numbers alone, which are read without touching the rest of a row.
    """
    done = 0
    try:
        for cells in database.execute(
            f"SELECT {columns} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?", (after, limit)
        ):
            after, done = cells[0], done + 1
            yield cells[0], cells
        return
    except sqlite3.Error as problem:
        if not _too_big(problem):
            raise
    numbers = database.execute(
        f"SELECT {key} FROM {table} WHERE {key} > ? ORDER BY {key} LIMIT ?", (after, limit - done)
    ).fetchall()
    for (number,) in numbers:
        try:
            found = database.execute(f"SELECT {columns} FROM {table} WHERE {key} = ?", (number,)).fetchone()
        except sqlite3.Error as problem:
            if not _too_big(problem):
                raise
            found = None
        yield number, found


def _decoded(
    database: sqlite3.Connection, sql: str, decode: Callable[[Sequence[object]], T], values: Sequence[object] = ()
) -> Iterator[T]:
    try:
        for cells in database.execute(sql, values):
            try:
                yield decode(cells)
            except MalformedData as problem:
                _logger.warning("mailbox: a row of the runner's is not what it must be; it is left out")
                _logger.debug("mailbox: what is wrong with it: %s", problem.message)
    except sqlite3.Error as problem:
        if not _too_big(problem):
            raise
        _logger.warning("mailbox: a row of the runner's is far bigger than a row may be; nothing after it is read")


def _too_big(problem: sqlite3.Error) -> bool:
    return int(getattr(problem, "sqlite_errorcode", 0)) & 0xFF == sqlite3.SQLITE_TOOBIG
