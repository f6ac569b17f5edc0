"""What a platform's answer means: pure decisions over status, headers and body.

A channel's own `classify(response) -> ChannelError | None` looks first, at every answer: platforms hide failures in a
200 or a 400 (spec/channels.md 1.14).  `by_status` is what holds when it says nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
)

__all__ = ["Response", "by_status", "retry_after"]

UNSAID = 5.0
"""Seconds to wait when a platform says "too many" and not how long."""
LONGEST = 86_400.0
"""A platform that says more is not believed."""
SHOWN = 300
"""How many characters of a body an error shows."""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer, read to its end and unpacked.  Names in `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            Ambiguous: it is none, so nobody can tell what the platform did.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise Ambiguous(f"the platform answered {self.status} with something that is no JSON") from None

    def fields(self) -> dict[str, Any]:
        """The body's JSON object; empty when it is something else.  For `classify`, which must not fail."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


def by_status(response: Response, *, now: float, idempotent: bool = False) -> ChannelError | None:
    """What an answer means by HTTP's own rules; None is success.  `now` is seconds since 1970.

    A gateway that gave up waiting (504) tells nothing about the request behind it: `Ambiguous`, unless it is
    idempotent.
    """
    status = response.status
    if 200 <= status < 300:
        return None
    said = f"{status} {_shown(response)}".strip()
    wait = retry_after(response.headers, now)
    if status == 429:
        return RateLimited(said, retry_after=UNSAID if wait is None else wait)
    if status == 403 and "retry-after" in response.headers and wait is not None:
        return RateLimited(said, retry_after=wait, scope="account")
    if status == 503 and wait is not None:
        return RateLimited(said, retry_after=wait, scope="account")
    if status == 504 and not idempotent:
        return Ambiguous(said)
    kinds: dict[int, type[ChannelError]] = {
        400: BadContent,
        401: AuthFailed,
        403: SendNotAllowed,
        404: ChatNotFound,
        408: Transient,
        409: Transient,
        410: ChatNotFound,
        413: TooLarge,
        422: BadContent,
        423: Transient,
        425: Transient,
    }
    return kinds.get(status, Transient if status >= 500 else SendNotAllowed)(said)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by an answer's headers, None when they don't say; never negative, at most a day (C077).

    Read in this order: `retry-after-ms`, `retry-after` (seconds, fractions too, or a date, which is measured from the
    answer's own `date` where there is one, so that clocks may differ), and the `*ratelimit-reset*` ones that
    platforms made up: seconds to wait, or a moment in seconds or milliseconds since 1970.
    """
    if (wait := _number(headers.get("retry-after-ms"))) is not None:
        return _bounded(wait / 1000)
    if (said := headers.get("retry-after")) is not None:
        if (wait := _number(said)) is not None:
            return _bounded(wait)
        if (until := _date(said)) is not None:
            here = _date(headers.get("date", ""))
            return _bounded(until - (now if here is None else here))
    for name in ("x-ratelimit-reset-after", "x-ratelimit-reset", "x-rate-limit-reset", "ratelimit-reset"):
        if (value := _number(headers.get(name))) is not None:
            if value > 1e11:
                value = value / 1000 - now
            elif value > 1e8:
                value -= now
            return _bounded(value)
    return None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _bounded(seconds: float) -> float:
    return min(LONGEST, max(0.0, seconds))


def _shown(response: Response) -> str:
    text = " ".join(response.text[: 4 * SHOWN].split())
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
