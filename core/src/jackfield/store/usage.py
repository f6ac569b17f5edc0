"""What models were used for: one row a request or turn, and the sums of each day once the rows are old.

A use stands in one of the two, so that whoever adds both counts nothing twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import Session, UsageEntry, UsageRow, UsageSource, UsageTotals
from jackfield.store.text import storable
from jackfield.store.where import where

__all__ = ["By", "forget_days", "record", "record_entries", "sum_up", "sums", "totals"]

By = Literal["group", "model", "provider", "session", "quarter"]
"""What sums are made for; `quarter` is the quarter of an hour, from which whoever knows the zone makes days."""

QUARTER = 900_000
"""Milliseconds; days of every time zone begin with one."""
_COUNTS = ("requests", "input", "cache_read", "cache_write", "output", "reasoning")
_LIMIT = 2**53
_NAME_LIMIT = 200
_SUMS = ", ".join(f"sum({name})" for name in _COUNTS)
_BOTH = f"""(
    SELECT at, agent_group_id, session_id, provider, model, source, {", ".join(_COUNTS)}, coalesce(cost, 0.0) AS cost,
        iif(cost IS NULL, requests, 0) AS unpriced FROM usage
    UNION ALL
    SELECT day, agent_group_id, '', provider, model, source, {", ".join(_COUNTS)}, cost, unpriced FROM usage_days
)"""
_KEYS: dict[By, str] = {
    "group": "agent_group_id",
    "model": "model",
    "provider": "provider",
    "session": "session_id",
    "quarter": f"at / {QUARTER}",
}


def record(db: sqlite3.Connection, rows: Iterable[UsageRow]) -> None:
    """Keep what was counted by the gateway, or by whoever counts a thing once."""
    _insert(db, [(row, None) for row in rows])


def record_entries(db: sqlite3.Connection, session: Session, entries: Sequence[UsageEntry]) -> None:
    """Keep what a session's runner says that it used.  Doing it again changes nothing."""
    rows = [
        UsageRow(
            at=entry.at,
            session_id=session.id,
            agent_group_id=session.agent_group_id,
            provider=entry.provider,
            model=entry.model,
            source="provider",
            requests=entry.requests,
            input=entry.input,
            cache_read=entry.cache_read,
            cache_write=entry.cache_write,
            output=entry.output,
            reasoning=entry.reasoning,
            cost=entry.cost,
        )
        for entry in entries
    ]
    _insert(db, [(row, entry.seq) for row, entry in zip(rows, entries, strict=True)])


def totals(
    db: sqlite3.Connection,
    *,
    agent_group_id: AgentGroupId | None = None,
    session_id: SessionId | None = None,
    since: UnixMs | None = None,
    source: UsageSource | None = None,
) -> UsageTotals:
    """The sum of all that fits.  A summed-up day counts when it began at `since` or later."""
    narrowed, values = _narrowed(agent_group_id, session_id, since, source)
    row = db.execute(f"SELECT {_SUMS}, sum(cost), sum(unpriced) FROM {_BOTH} {narrowed}", values).fetchone()
    return _totals(row)


def sums(
    db: sqlite3.Connection,
    by: By,
    *,
    agent_group_id: AgentGroupId | None = None,
    session_id: SessionId | None = None,
    since: UnixMs | None = None,
) -> list[tuple[str, UsageTotals]]:
    """Sums by what they are made for, in its order; a session is empty text for what has only its day any more."""
    narrowed, values = _narrowed(agent_group_id, session_id, since, None)
    key = _KEYS[by]
    rows = db.execute(
        f"SELECT {key}, {_SUMS}, sum(cost), sum(unpriced) FROM {_BOTH} {narrowed} GROUP BY 1 ORDER BY 1", values
    )
    return [(str(row[0]), _totals(row[1:])) for row in rows]


def sum_up(db: sqlite3.Connection, before: UnixMs, day_of: Callable[[UnixMs], UnixMs], limit: int = 1000) -> int:
    """Let the sums of their day stand for rows of before a moment, at most `limit` of them; how many.

    `day_of` gives the midnight that a moment's day began with.
    """
    rows = db.execute(
        "SELECT ord, at, agent_group_id, provider, model, source, "
        f"{', '.join(_COUNTS)}, cost FROM usage WHERE at < ? ORDER BY at LIMIT ?",
        (before, limit),
    ).fetchall()
    days: dict[tuple[Any, ...], list[Any]] = {}
    for ord_, at, group, provider, model, source, *counts, cost in rows:
        sums = days.setdefault((day_of(UnixMs(at)), group, provider, model, source), [0] * len(_COUNTS) + [0.0, 0])
        for place, count in enumerate(counts):
            sums[place] = min(_LIMIT, sums[place] + count)
        sums[-2] += cost or 0.0
        sums[-1] += counts[0] if cost is None else 0
        db.execute("DELETE FROM usage WHERE ord = ?", (ord_,))
    columns = (*_COUNTS, "cost", "unpriced")
    db.executemany(
        f"INSERT INTO usage_days (day, agent_group_id, provider, model, source, {', '.join(columns)}) "
        f"VALUES ({', '.join('?' * (5 + len(columns)))}) ON CONFLICT DO UPDATE SET "
        + ", ".join(f"{name} = {name} + excluded.{name}" for name in columns),
        [(*key, *sums) for key, sums in days.items()],
    )
    return len(rows)


def forget_days(db: sqlite3.Connection, before: UnixMs) -> int:
    """Delete the sums of days that began before a moment; how many."""
    return db.execute("DELETE FROM usage_days WHERE day < ?", (before,)).rowcount


def _insert(db: sqlite3.Connection, rows: Sequence[tuple[UsageRow, int | None]]) -> None:
    db.executemany(
        "INSERT INTO usage (at, session_id, agent_group_id, provider, model, source, "
        f"{', '.join(_COUNTS)}, cost, seq) VALUES ({', '.join('?' * 14)}) ON CONFLICT DO NOTHING",
        [
            (
                row.at,
                row.session_id,
                row.agent_group_id,
                storable(row.provider)[:_NAME_LIMIT],
                storable(row.model)[:_NAME_LIMIT],
                row.source,
                *(max(0, min(_LIMIT, getattr(row, name))) for name in _COUNTS),
                _money(row.cost),
                seq,
            )
            for row, seq in rows
        ],
    )


def _money(cost: float | None) -> float | None:
    """A price that can be added up; None for one that can't be one."""
    return cost if cost is not None and 0 <= cost < 1e9 else None


def _narrowed(
    group: AgentGroupId | None, session: SessionId | None, since: UnixMs | None, source: UsageSource | None
) -> tuple[str, list[Any]]:
    return where({"agent_group_id = ?": group, "session_id = ?": session, "at >= ?": since, "source = ?": source})


def _totals(row: Sequence[Any]) -> UsageTotals:
    *counts, cost, unpriced = row
    return UsageTotals(
        **{name: int(count or 0) for name, count in zip(_COUNTS, counts, strict=True)},
        cost=round(float(cost or 0.0), 9),
        unpriced=int(unpriced or 0),
    )
