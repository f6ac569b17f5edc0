"""When a series falls due: through every change of the clock, in five zones."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.clock import UnixMs, from_datetime, to_datetime
from jackfield.errors import MalformedData
from jackfield.host.schedule.times import CRON_LENGTH, Recurrence, parse_moment, parse_zone, read_cron

ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago")
"""Gaps at 2:00 and at midnight, a change of half an hour, none at all; both hemispheres."""
FIXED = ("30 2 * * *", "0 9 * * 1-5", "15,45 1-3 * * *", "0 0 1 * *", "59 23 28-31 * *", "0 0 * * *", "30 1 * * 0")
INTERVALS = ("* * * * *", "*/5 * * * *", "*/15 * * * *", "0 * * * *", "*/20 2 * * *", "7 */3 * * *", "* 0 * * *")
YEAR_2026 = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
moments = st.integers(YEAR_2026, YEAR_2026 + 2 * 366 * 86_400)


def ms(text: str) -> UnixMs:
    return from_datetime(datetime.fromisoformat(text))


def series(cron: str, zone: str) -> Recurrence:
    return Recurrence.parse(cron, ZoneInfo(zone))


def run_from(recurrence: Recurrence, since: str, until: str) -> list[datetime]:
    """Every moment from `since` to `until`, both included."""
    at, found = recurrence.next_after(UnixMs(ms(since) - 1)), []
    while at is not None and at <= ms(until):
        found.append(to_datetime(at))
        at = recurrence.next_after(at)
    return found


# ---- the cases


def test_a_daily_job_in_the_gap_runs_once_at_the_end_of_the_gap_and_the_next_day_at_its_time() -> None:
    """C103"""
    found = run_from(series("30 2 * * *", "America/New_York"), "2027-03-13T12:00-05:00", "2027-03-16T00:00-04:00")
    assert found == [datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2027, 3, 15, 6, 30, tzinfo=UTC)]


def test_a_daily_job_in_the_repeated_hour_runs_the_first_time_only() -> None:
    """C103"""
    found = run_from(series("30 1 * * *", "America/New_York"), "2026-11-01T00:00-04:00", "2026-11-03T00:00-05:00")
    assert found == [datetime(2026, 11, 1, 5, 30, tzinfo=UTC), datetime(2026, 11, 2, 6, 30, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("since", "until"),
    [("2026-10-24T23:00+00:00", "2026-10-25T03:00+00:00"), ("2026-03-29T00:00+00:00", "2026-03-29T04:00+00:00")],
)
def test_an_interval_keeps_its_real_distance_through_both_changes(since: str, until: str) -> None:
    """C105"""
    found = run_from(series("*/15 * * * *", "Europe/Berlin"), since, until)
    assert len(found) == 17
    assert {later - at for at, later in pairwise(found)} == {timedelta(minutes=15)}


@pytest.mark.parametrize("cron", ["* * * * *", "*/5 * * * *", "0 * * * *", "30 2 * * *", "0,30 1-3 * * *"])
@pytest.mark.parametrize("base", ["2027-03-14T06:30Z", "2027-03-14T06:59Z", "2026-11-01T05:59Z", "2026-11-01T06:15Z"])
def test_the_next_moment_around_a_change_is_later_than_its_base(cron: str, base: str) -> None:
    """C107"""
    found = series(cron, "America/New_York").next_after(ms(base))
    assert found is not None
    assert ms(base) < found <= ms(base) + 25 * 3_600_000


def test_the_zone_of_the_series_decides() -> None:
    """C109"""
    asia, west = series("26 7 * * *", "Asia/Ho_Chi_Minh"), series("26 7 * * *", "America/Vancouver")
    assert asia.next_after(ms("2027-01-10T00:00Z")) == ms("2027-01-10T00:26Z")
    assert west.next_after(ms("2027-01-10T00:00Z")) == ms("2027-01-10T15:26Z")
    with pytest.raises(MalformedData, match="Mars/Base"):
        parse_zone("Mars/Base")


def test_the_next_moment_is_the_same_whatever_zone_the_process_runs_in() -> None:
    """C111: the stored moment is UTC; no process' own zone takes part in it."""
    program = (
        "from zoneinfo import ZoneInfo; from jackfield.host.schedule.times import Recurrence, parse_moment\n"
        "zone = ZoneInfo('Asia/Shanghai')\n"
        "now = 1_800_000_000_000\n"
        "print(Recurrence.parse('30 14 * * *', zone).next_after(now), parse_moment('2027-01-05T14:30', zone, now))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True
        ).stdout
        for zone in ("UTC", "America/Lima", "Asia/Shanghai")
    }
    assert len(said) == 1
    at, parsed = map(int, said.pop().split())
    assert to_datetime(UnixMs(at)).strftime("%H:%M") == "06:30"
    assert to_datetime(UnixMs(parsed)) == datetime(2027, 1, 5, 6, 30, tzinfo=UTC)


# ---- a year of changes in five zones


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", FIXED + INTERVALS)
@settings(max_examples=10)
@given(base=moments)
def test_every_moment_is_later_than_its_base_and_none_is_left_out(zone: str, cron: str, base: int) -> None:
    """C107: from any moment in between, the same next one is found."""
    recurrence = series(cron, zone)
    first = recurrence.next_after(UnixMs(base * 1000))
    assert first is not None
    assert first > base * 1000
    assert recurrence.next_after(UnixMs((base * 1000 + first) // 2)) == first
    assert recurrence.next_after(UnixMs(first - 1)) == first


@pytest.mark.parametrize("zone", ZONES)
def test_a_daily_job_runs_once_on_every_day_of_a_year(zone: str) -> None:
    """C103"""
    for hour in range(4):
        found = run_from(series(f"30 {hour} * * *", zone), "2026-01-02T12:00Z", "2027-01-02T12:00Z")
        days = [at.astimezone(ZoneInfo(zone)).date() for at in found]
        assert len(days) == 365
        assert len(set(days)) == 365
        clocks = {at.astimezone(ZoneInfo(zone)).strftime("%H:%M") for at in found}
        assert len(clocks) <= 2  # the one that was asked for, and the end of the gap


@pytest.mark.parametrize("zone", ZONES)
def test_an_interval_of_a_quarter_of_an_hour_has_that_distance_all_year(zone: str) -> None:
    """C105: also where the clock changes by half an hour."""
    recurrence, at = series("*/15 * * * *", zone), ms("2026-01-01T00:00Z")
    end = ms("2027-01-01T00:00Z")
    while at < end:
        later = recurrence.next_after(at)
        assert later == at + 900_000
        at = later


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Asia/Kolkata"])
@pytest.mark.parametrize("cron", FIXED + INTERVALS)
@settings(max_examples=6)
@given(base=moments)
def test_where_clocks_change_by_whole_hours_the_moments_are_those_of_cronsim(zone: str, cron: str, base: int) -> None:
    expected = next(at for at in CronSim(cron, datetime.fromtimestamp(base, ZoneInfo(zone))) if at.timestamp() > base)
    assert series(cron, zone).next_after(UnixMs(base * 1000)) == expected.timestamp() * 1000


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", FIXED + INTERVALS)
@settings(max_examples=6)
@given(base=moments, span=st.integers(60, 3 * 86_400))
def test_the_latest_moments_of_a_span_are_its_last_ones(zone: str, cron: str, base: int, span: int) -> None:
    recurrence = series(cron, zone)
    since, until = UnixMs(base * 1000), UnixMs((base + span) * 1000)
    every, at = [], recurrence.next_after(UnixMs(since - 1))
    while at is not None and at <= until:
        every.append(at)
        at = recurrence.next_after(at)
    assert recurrence.latest(since, until) == (every[-1] if every else None)
    assert recurrence.last_few(since, until, 24) == every[-24:]


def test_the_latest_of_years_of_minutes_is_found_in_few_steps() -> None:
    recurrence = series("* * * * *", "Europe/Berlin")
    assert recurrence.latest(ms("2000-01-01T00:00Z"), ms("2027-01-01T00:00:30Z")) == ms("2027-01-01T00:00Z")


# ---- what is refused


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "61 * * * *", "* * * * MOON", "0 0 30 2 *", "0 9 * * 1-", "@often", "*/0 * * * *",
     "٣ * * * *", "0 0 L/2#3 * *", "1/2/3 * * * *", "0 " * 2000],
)  # fmt: skip
def test_what_is_no_cron_expression_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(MalformedData) as refused:
        read_cron(text)
    assert refused.value.fix
    assert len(str(refused.value)) < CRON_LENGTH + 200


@given(st.text(alphabet="0123456789*/,-#LW@adily \t", max_size=40))
def test_any_text_is_a_cron_expression_or_refused(text: str) -> None:
    try:
        cron = read_cron(text)
    except MalformedData:
        return
    assert read_cron(cron) == cron


def test_aliases_are_spelled_out() -> None:
    assert read_cron(" @Daily ") == "0 0 * * *"
    assert read_cron("0  9 * *\t1-5") == "0 9 * * 1-5"


NOW = ms("2027-03-01T12:00Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2027-03-14T09:00", "2027-03-14T13:00Z"),
        ("2027-03-14 09:00:30", "2027-03-14T13:00:30Z"),
        ("2027-03-14T09:00Z", "2027-03-14T09:00Z"),
        ("2027-03-14T09:00+02:00", "2027-03-14T07:00Z"),
        ("2027-03-14T02:30", "2027-03-14T07:00Z"),
        ("2027-11-07T01:30", "2027-11-07T05:30Z"),
        ("20m", "2027-03-01T12:20Z"),
        ("1h30m", "2027-03-01T13:30Z"),
        ("in 2 d", "2027-03-03T12:00Z"),
        ("+90s", "2027-03-01T12:01:30Z"),
    ],
)
def test_a_moment_is_read_in_the_zone_unless_it_brings_its_own(text: str, expected: str) -> None:
    """D.18: a naive time is a wall clock's; a skipped one means the end of the gap, a repeated one the first."""
    assert parse_moment(text, ZoneInfo("America/New_York"), NOW) == ms(expected)


@pytest.mark.parametrize("text", ["", "soon", "2027-13-01T00:00", "25:00", "9999-12-31T23:59", "999999w", "-5m", "1x"])
def test_what_is_no_moment_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(MalformedData) as refused:
        parse_moment(text, ZoneInfo("America/New_York"), NOW)
    assert refused.value.fix


def test_the_shortest_gap_of_a_series_is_told() -> None:
    assert series("*/2 9 * * *", "UTC").shortest_gap(NOW) == 120.0
    assert series("0 9 * * 1", "UTC").shortest_gap(NOW) == 7 * 86_400.0
