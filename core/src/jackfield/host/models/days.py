"""Days as people count them.  Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from jackfield.clock import UnixMs

__all__ = ["day_text", "midnight"]


def midnight(at: UnixMs, zone: ZoneInfo) -> UnixMs:
    """The moment at which the day began that this one lies in.

    Where the clock skips midnight, it is the first moment that there was.
    """
    local = datetime.fromtimestamp(at / 1000, UTC).astimezone(zone)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return UnixMs(min(at, round(start.timestamp() * 1000)))


def day_text(at: UnixMs, zone: ZoneInfo) -> str:
    """``2026-01-31``."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone(zone).date().isoformat()
