"""How long a response's headers say to wait, in all the forms that model servers use."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

__all__ = ["backoff", "wait_of"]

_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?"
)
_EPOCH = 1_000_000_000
"""Numbers of at least this are seconds since 1970, not a wait (thirty years); a thousand times it, milliseconds."""
_LONGEST = 31 * 86400.0


def wait_of(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Seconds to wait, or None when nothing says.

    `retry-after-ms` and `retry-after` (seconds, or a date) go first.  Else the resets of exhausted limits
    (`anthropic-ratelimit-<limit>-reset`, `anthropic-ratelimit-unified-...-reset`, `x-ratelimit-reset-<limit>`): the
    latest of those whose `remaining` is 0 or whose `status` is `rejected`; where none tells, the earliest of all.
    """
    now = time.time() if now is None else now
    known = {name.lower(): value.strip() for name, value in headers.items()}
    milliseconds = _number(known.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _bounded(milliseconds / 1000)
    if "retry-after" in known and (wait := _read(known["retry-after"], now)) is not None:
        return wait
    resets: list[tuple[bool, float]] = []
    for name, value in known.items():
        if "ratelimit" in name and "reset" in name and (wait := _read(value, now)) is not None:
            spent = known.get(name.replace("reset", "remaining")), known.get(name.replace("reset", "status"))
            resets.append((spent[0] == "0" or spent[1] == "rejected", wait))
    exhausted = [wait for is_spent, wait in resets if is_spent]
    return max(exhausted) if exhausted else min((wait for _, wait in resets), default=None)


def backoff(attempt: int, share: float) -> float:
    """Seconds before try number `attempt` + 1: from 1 doubling to 60, of which `share` (0 to 1, random) is taken."""
    return min(60.0, 2.0 ** min(attempt - 1, 6)) * share


def _read(text: str, now: float) -> float | None:
    number = _number(text)
    if number is not None:
        if number >= _EPOCH * 1000:
            number /= 1000
        return _bounded(number - now if number >= _EPOCH else number)
    found = _DURATION.fullmatch(text)
    if found is not None and any(found.groups()):
        days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in found.groups())
        return _bounded(days * 86400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return _bounded((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _bounded(seconds: float) -> float:
    return min(max(seconds, 0.0), _LONGEST)
