"""What models were used for: kept once, summed up by day, never counted twice; and what an owner has to mend."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.clock import SystemClock, UnixMs
from jackfield.host.models.days import day_text, midnight
from jackfield.ids import AgentGroupId, SessionId, new_id
from jackfield.models import AgentGroup, Session, SessionMode, UsageEntry, UsageRow, UsageTotals
from jackfield.store import alerts, groups, sessions, usage
from jackfield.store.opening import open_database

NOW = UnixMs(1_769_846_400_000)  # 2026-01-31T08:00Z
DAY = 86_400_000
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = open_database(tmp_path / "state.db", SystemClock(), backups=tmp_path)
    yield db
    db.close()


@pytest.fixture
def session(db: sqlite3.Connection) -> Session:
    group = AgentGroup(id=AgentGroupId(new_id("ag")), name="Scout", folder="scout", created_at=NOW)
    groups.add_agent_group(db, group)
    made, _ = sessions.session_for(
        db, group.id, "k", mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=NOW
    )
    return made


def row(session: Session, **more: Any) -> UsageRow:
    known = {"at": NOW, "session_id": session.id, "agent_group_id": session.agent_group_id}
    return UsageRow(**{**known, "provider": "p", "model": "m", "source": "gateway", **more})


def test_what_a_runner_says_twice_is_kept_once_and_what_a_gateway_counts_each_time(
    db: sqlite3.Connection, session: Session
) -> None:
    entry = UsageEntry(at=NOW, provider="p", model="m", input=3, seq=7)
    usage.record_entries(db, session, [entry])
    usage.record_entries(db, session, [entry, replace(entry, seq=8)])
    usage.record(db, [row(session), row(session)])
    assert usage.totals(db).requests == 4
    assert usage.totals(db, source="provider").input == 6
    assert usage.totals(db, agent_group_id=AgentGroupId("ag_other")) == UsageTotals()
    assert usage.totals(db, session_id=session.id, since=UnixMs(NOW + 1)) == UsageTotals()


@pytest.mark.parametrize("cost", [-1.0, math.nan, math.inf, 1e12])
def test_what_a_hostile_runner_says_can_be_added_up(db: sqlite3.Connection, session: Session, cost: float) -> None:
    wild = UsageEntry(
        at=NOW, provider="p" * 999, model="\ud800" + "m" * 999, input=-5, output=2**200, requests=1, cost=cost, seq=1
    )
    usage.record_entries(db, session, [wild])
    found = usage.totals(db)
    assert (found.input, found.output, found.cost, found.unpriced) == (0, 2**53, 0.0, 1)
    assert len(usage.sums(db, "model")[0][0]) == 200


def test_old_rows_become_sums_of_their_day_and_every_sum_stays_the_same(
    db: sqlite3.Connection, session: Session
) -> None:
    late = UnixMs(NOW + 15 * 3_600_000 + 1)  # 23:00Z, which is the next day in Berlin
    usage.record(
        db,
        [
            row(session, cost=0.25, input=1),
            row(session, input=2, output=3),
            row(session, at=late, cost=0.5, cache_read=4),
            row(session, at=UnixMs(NOW + 9 * DAY), model="n", reasoning=1, output=1, cost=1.0),
        ],
    )
    before, by_group = usage.totals(db), usage.sums(db, "group")
    assert usage.sum_up(db, UnixMs(NOW + DAY), lambda at: midnight(at, BERLIN), limit=2) == 2
    assert usage.sum_up(db, UnixMs(NOW + DAY), lambda at: midnight(at, BERLIN), limit=2) == 1
    assert usage.sum_up(db, UnixMs(NOW + DAY), lambda at: midnight(at, BERLIN), limit=2) == 0
    assert usage.totals(db) == before and usage.sums(db, "group") == by_group
    days = db.execute("SELECT day, requests, cost, unpriced FROM usage_days ORDER BY day").fetchall()
    assert [day_text(UnixMs(day), BERLIN) for day, *_ in days] == ["2026-01-31", "2026-02-01"]
    assert [rest for _, *rest in days] == [[2, 0.25, 1], [1, 0.5, 0]]
    assert [key for key, _ in usage.sums(db, "session")] == ["", session.id]
    assert usage.totals(db, since=midnight(late, BERLIN)).requests == 2
    assert usage.forget_days(db, UnixMs(days[1][0])) == 1
    assert usage.totals(db).requests == before.requests - 2


@given(st.integers(0, 4_000_000_000_000), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "Africa/Cairo"]))
def test_a_day_begins_before_its_moments_and_is_named_alike(at: int, zone: str) -> None:
    place = ZoneInfo(zone)
    start = midnight(UnixMs(at), place)
    assert start <= at < start + 25 * 3_600_000
    assert day_text(start, place) == day_text(UnixMs(at), place)
    assert start % usage.QUARTER == 0 or at < 600_000_000_000  # zones had odd offsets once


def test_an_alert_is_new_once_until_it_is_settled(db: sqlite3.Connection) -> None:
    assert alerts.raise_alert(db, "k", "Subject", "Text", NOW)
    assert not alerts.raise_alert(db, "k", "Other", "Text", NOW)
    alerts.told(db, "k", UnixMs(NOW + 1))
    assert [(one.subject, one.told_at) for one in alerts.alerts(db)] == [("Subject", NOW + 1)]
    assert alerts.settle(db, "k") and not alerts.settle(db, "k")
    assert alerts.raise_alert(db, "k", "Again", "Text", NOW)


def test_a_forgotten_session_leaves_what_it_cost(db: sqlite3.Connection, session: Session) -> None:
    usage.record(db, [row(session, cost=2.0)])
    sessions.close_session(db, session.id, NOW)
    db.execute("DELETE FROM sessions WHERE id = ?", (session.id,))
    assert usage.totals(db, session_id=SessionId(session.id)).cost == 2.0
