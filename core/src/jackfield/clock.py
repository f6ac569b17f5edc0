"""Time behind one injectable clock.

Wall-clock moments are stored and passed as `UnixMs`: whole milliseconds since 1970-01-01 UTC.  Durations are seconds
(`float`).  Only this module asks the operating system what time it is, so that a test can hand in a clock of its own.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import NewType, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

__all__ = [
    "Clock",
    "SystemClock",
    "UnixMs",
    "from_datetime",
    "local_iso",
    "local_text",
    "to_datetime",
    "zone_or_utc",
    "zoned_text",
]

UnixMs = NewType("UnixMs", int)
"""Milliseconds since the epoch, UTC."""


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> UnixMs:
        """The wall clock.  May jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; for time-outs."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; zero or less yields once."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> UnixMs:
        return UnixMs(time.time_ns() // 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def to_datetime(at: UnixMs) -> datetime:
    """The moment as an aware UTC datetime."""
    return datetime.fromtimestamp(at / 1000, tz=UTC)


def from_datetime(moment: datetime) -> UnixMs:
    """An aware datetime as milliseconds.  A naive one is read as UTC (messaging.md 9, pitfall 20)."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return UnixMs(round(moment.timestamp() * 1000))


def zone_or_utc(name: str | None) -> ZoneInfo:
    """The named IANA zone, or UTC when the name is unknown, empty or None (messaging.md 6.3)."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def local_iso(at: UnixMs, zone: ZoneInfo) -> str:
    """The moment in that zone by ISO 8601, to the second, like ``2026-01-05T21:00:00+01:00``."""
    return to_datetime(at).astimezone(zone).isoformat(timespec="seconds")


def zoned_text(at: UnixMs, zone: ZoneInfo) -> str:
    """The moment for a person, who need not guess whose clock is meant: ``2026-01-05 21:00 +01:00 (Europe/Berlin)``."""
    iso = to_datetime(at).astimezone(zone).isoformat(timespec="minutes")
    return f"{iso[:10]} {iso[11:16]} {iso[16:]} ({zone.key})"


def local_text(at: UnixMs, zone: ZoneInfo) -> str:
    """How a person reads the moment in their zone, like ``Jan 5, 2026, 9:00 PM`` (messaging.md 6.3).

    Built by hand, because `strftime`'s month names and `%-I` depend on locale and platform.
    """
    moment = to_datetime(at).astimezone(zone)
    month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][moment.month - 1]
    half = "AM" if moment.hour < 12 else "PM"
    return f"{month} {moment.day}, {moment.year}, {moment.hour % 12 or 12}:{moment.minute:02d} {half}"
