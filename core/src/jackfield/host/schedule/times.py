"""When a series falls due: cron expressions in a time zone, through every change of the clock.  Pure.

The rules are those of classic cron (C103, C105); cronsim reads the expression and finds matching wall-clock times:

- *Fixed times* (neither the minute nor the hour begins with `*`): a time that the clock skips is replaced by the first
  moment after the gap, a time that comes twice counts the first time.  So a daily job runs once each day.
- *Interval-like* (the minute or the hour begins with `*`): whatever matches on the clock, so that the distance in real
  time stays the same through both changes.

Every answer is later than the moment that was asked about (C107), and the set of moments of a series does not depend
on when it is asked for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from jackfield.clock import UnixMs
from jackfield.errors import MalformedData

__all__ = ["CRON_LENGTH", "STEPS", "Recurrence", "earliest_at", "parse_moment", "parse_zone", "read_cron"]

CRON_LENGTH = 200
"""Characters of an expression."""
STEPS = 10_000
"""Steps of one search; a schedule that needs more is refused or stopped rather than let to spin (C107)."""
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIX = "five fields: minute hour day-of-month month day-of-week, like '0 9 * * 1-5' for weekdays at 9:00"
_WEEK = 7 * 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": _WEEK}
_DURATION = re.compile(r"^(?:in\s+|\+)?((?:\d{1,6}\s*[smhdw]\s*)+)$", re.IGNORECASE)
_FARTHEST = 50 * 366 * 86_400
"""Seconds ahead that a moment may lie."""


def parse_zone(name: str) -> ZoneInfo:
    """The IANA zone of that name.

    Raises:
        MalformedData: there is none (C109).
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        import difflib

        near = difflib.get_close_matches(name[:60], available_timezones(), n=1)
        fix = f"did you mean {near[0]}?" if near else "use an IANA name like Europe/Berlin or America/New_York"
        raise MalformedData(f"there is no time zone {name[:60]!r}", fix=fix) from None


def read_cron(text: str) -> str:
    """The expression with its white space folded and aliases like `@daily` spelled out.

    Raises:
        MalformedData: it is none, or never comes true.
    """
    return Recurrence.parse(text, ZoneInfo("UTC")).cron


def earliest_at(naive: datetime, zone: ZoneInfo) -> int:
    """The second (since the epoch) that a wall clock in `zone` first shows that time; the end of the gap when the clock
    skips it."""
    early = naive.replace(tzinfo=zone, fold=0)
    late = naive.replace(tzinfo=zone, fold=1)
    first, second = int(early.timestamp()), int(late.timestamp())
    if first <= second:
        return first
    # In a gap both readings are valid moments, one on each side of the change (PEP 495).
    change = _change(zone, second, first)
    return first if change is None else change


def _offset(zone: ZoneInfo, at: int) -> timedelta:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return offset


def _change(zone: ZoneInfo, after: int, until: int) -> int | None:
    """The first second after `after`, `until` at most, at which the zone's offset is another than before."""
    offset = _offset(zone, after)
    low = after
    while low < until:
        high = min(until, low + _WEEK)
        if _offset(zone, high) != offset:
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            return high
        low = high
    return None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A cron expression in a zone."""

    cron: str
    zone: ZoneInfo
    _template: CronSim = field(repr=False, compare=False)

    @classmethod
    def parse(cls, cron: str, zone: ZoneInfo) -> Recurrence:
        """Read an expression of five fields, or an alias like `@daily`.

        Raises:
            MalformedData: it is none, or never comes true.
        """
        words = cron.split()
        if len(words) == 1 and words[0].lower() in _ALIASES:
            words = _ALIASES[words[0].lower()].split()
        text = " ".join(words)
        if len(text) > CRON_LENGTH:
            raise MalformedData(f"the cron expression has more than {CRON_LENGTH} characters", fix=f"write {_FIX}")
        if len(words) != 5:
            raise MalformedData(f"{text!r} is no cron expression: it has {len(words)} fields", fix=f"write {_FIX}")
        try:
            template = CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001 - a wall clock's time has no zone
            next(copy.copy(template))
        except CronSimError as problem:
            why = str(problem).lower()
            raise MalformedData(f"{text!r} is no cron expression: {why}", fix=f"write {_FIX}") from None
        except StopIteration:
            raise MalformedData(f"{text!r} never comes true", fix="check the day and the month") from None
        return cls(text, zone, template)

    @property
    def fixed(self) -> bool:
        """Whether it names times of the day, as opposed to intervals."""
        minute, hour = self.cron.split()[:2]
        return not minute.startswith("*") and not hour.startswith("*")

    def next_after(self, base: UnixMs) -> UnixMs | None:
        """The first moment after `base`; None when there is none within fifty years.

        Raises:
            MalformedData: the search took more than `STEPS` steps.
        """
        found = _next(self, base // 1000)
        return None if found is None else UnixMs(found * 1000)

    def latest(self, since: UnixMs, until: UnixMs) -> UnixMs | None:
        """The last moment from `since` to `until`, both included; None when there is none.

        Found by halving, so that a year of minutes costs no more than a day.
        """
        low, high = since // 1000 - 1, until // 1000
        # There is a moment after `low` and up to `high`; close in on the last `low` of which that is true.
        newest = self.next_after(UnixMs(low * 1000))
        if newest is None or newest > until:
            return None
        low = newest // 1000
        while high - low > 1:
            middle = (low + high) // 2
            found = self.next_after(UnixMs(middle * 1000))
            if found is not None and found <= until:
                newest, low = found, found // 1000
            else:
                high = middle
        last = self.next_after(newest)
        return last if last is not None and last <= until else newest

    def last_few(self, since: UnixMs, until: UnixMs, count: int) -> list[UnixMs]:
        """The last moments from `since` to `until`, at most `count`, in order."""
        found: list[UnixMs] = []
        while len(found) < count and (at := self.latest(since, until)) is not None:
            found.append(at)
            until = UnixMs(at - 1)
        return found[::-1]

    def shortest_gap(self, after: UnixMs, count: int = 30) -> float | None:
        """Seconds between the two nearest of the next `count` moments; None when there is one at most."""
        moments = islice(self._from(after), count)
        return min(((later - at) / 1000 for at, later in pairwise(moments)), default=None)

    def _from(self, after: UnixMs) -> Iterator[UnixMs]:
        at = self.next_after(after)
        while at is not None:
            yield at
            at = self.next_after(at)

    def _matches(self, naive: datetime) -> Iterator[datetime]:
        """Wall-clock times after `naive` that the expression names."""
        sim = copy.copy(self._template)
        sim.dt = naive
        return sim

    def search(self, base: int) -> int | None:
        """`next_after` in seconds, without what is remembered."""
        try:
            return self._next_fixed(base) if self.fixed else self._next_interval(base)
        except (OverflowError, ValueError):  # beyond the year 9999
            return None

    def _next_fixed(self, base: int) -> int | None:
        naive = datetime.fromtimestamp(base, self.zone).replace(tzinfo=None)
        for step, match in enumerate(self._matches(naive)):
            at = earliest_at(match, self.zone)
            if at > base:
                return at
            if step > STEPS:
                raise self._stuck()
        return None

    def _next_interval(self, base: int) -> int | None:
        """Between two changes the wall clock runs with real time, so look at one such stretch at a time."""
        start = base
        offset = _offset(self.zone, base)
        naive = _naive(base, offset)
        for _ in range(STEPS):
            match = next(self._matches(naive), None)
            if match is None:
                return None
            at = int((match.replace(tzinfo=UTC) - offset).timestamp())
            change = _change(self.zone, start, at)
            if change is None:
                return at
            start, offset = change, _offset(self.zone, change)
            naive = _naive(change - 1, offset)
        raise self._stuck()

    def _stuck(self) -> MalformedData:
        return MalformedData(
            f"the next moment of {self.cron!r} in {self.zone.key} was not found in {STEPS:,} steps",
            fix="write a simpler expression",
        )


@lru_cache(4096)
def _next(recurrence: Recurrence, base: int) -> int | None:
    """Many series fall due at the same moment and share the next one."""
    return recurrence.search(base)


def _naive(at: int, offset: timedelta) -> datetime:
    return (datetime.fromtimestamp(at, UTC) + offset).replace(tzinfo=None)


def parse_moment(text: str, zone: ZoneInfo, now: UnixMs) -> UnixMs:
    """A moment as people and models write it: ISO 8601, without an offset read in `zone`, or a time from now on like
    `20m`, `1h30m`, `in 2 d`.

    A wall-clock time that comes twice means the first one, one that is skipped the end of the gap, as for series.

    Raises:
        MalformedData: it is none of these, or lies more than fifty years ahead.
    """
    text = text.strip()
    duration = _DURATION.match(text)
    if duration is not None:
        seconds = sum(int(n) * _UNITS[unit.lower()] for n, unit in re.findall(r"(\d+)\s*([a-zA-Z])", duration[1]))
        at = UnixMs(now + 1000 * seconds)
    else:
        try:
            read = datetime.fromisoformat(text)
            second = earliest_at(read.replace(microsecond=0), zone) if read.tzinfo is None else int(read.timestamp())
        except (ValueError, OverflowError, OSError):
            raise MalformedData(
                f"{text[:60]!r} is no time",
                fix=f"write it like 2027-03-14T09:00 (read in {zone.key}), 2027-03-14T09:00+01:00, or 1h30m from now",
            ) from None
        at = UnixMs(1000 * second)
    if at - now > 1000 * _FARTHEST:
        raise MalformedData(f"{text[:60]!r} lies more than fifty years ahead", fix="give an earlier time")
    return at
