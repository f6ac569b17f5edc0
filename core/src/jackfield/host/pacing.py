"""How fast messages may leave: for a chat, for an account, for a session (C083).

The rule is pure: each send takes the next free moment of every bucket that it falls under.  Buckets live in memory;
after a restart everybody starts with a full one, which the platform's own 429 corrects.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

__all__ = ["Bucket", "Pacer", "Rate", "next_free"]


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `per_second` in the long run, and `burst` at once."""

    per_second: float
    burst: float = 1.0

    @classmethod
    def per_minute(cls, count: int) -> Rate:
        """A minute's worth at once, and in the long run as much each minute."""
        return cls(per_second=count / 60.0, burst=float(count))


@dataclass(frozen=True, slots=True)
class Bucket:
    """`free_at` is when the next send would be free if there were no burst; seconds of a clock that never goes back."""

    free_at: float = 0.0


def next_free(bucket: Bucket, rate: Rate, now: float) -> tuple[float, Bucket]:
    """When the next send may go, not before `now`, and the bucket once it went then.

    For N sends the last one goes no earlier than `(N - burst) / per_second` after the first.
    """
    step = 1.0 / rate.per_second
    slack = max(0.0, rate.burst - 1.0) * step
    at = max(now, bucket.free_at - slack)
    return at, Bucket(max(at, bucket.free_at) + step)


class Pacer:
    """Buckets by name, the least recently used dropped.  `pause` keeps a name shut for a while (a 429)."""

    def __init__(self, keep: int = 10_000) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._shut: dict[str, float] = {}
        self._keep = keep

    def reserve(self, limits: dict[str, Rate | None], now: float) -> float:
        """The moment at which one send that falls under all these names may go; it is taken at once.

        A name with the rate None has no bucket, but may be shut.
        """
        at = max([now, *(self._shut.get(name, 0.0) for name in limits)])
        changed: dict[str, Bucket] = {}
        for name, rate in limits.items():
            if rate is not None:
                at = max(at, next_free(self._buckets.get(name, Bucket()), rate, now)[0])
        for name, rate in limits.items():
            if rate is not None:
                changed[name] = next_free(self._buckets.get(name, Bucket()), rate, at)[1]
        for name, bucket in changed.items():
            self._buckets[name] = bucket
            self._buckets.move_to_end(name)
        while len(self._buckets) > self._keep:
            self._buckets.popitem(last=False)
        return at

    def went(self, limits: dict[str, Rate | None], now: float) -> None:
        """A send really goes now, maybe later than reserved: the next one keeps its distance from this moment."""
        for name, rate in limits.items():
            bucket = self._buckets.get(name)
            if rate is not None and bucket is not None:
                slack = max(0.0, rate.burst - 1.0) / rate.per_second
                self._buckets[name] = Bucket(max(bucket.free_at, now + 1.0 / rate.per_second - slack))

    def pause(self, name: str, until: float, now: float) -> None:
        """Nothing under `name` before `until`."""
        self._shut = {key: end for key, end in self._shut.items() if end > now}
        self._shut[name] = max(until, self._shut.get(name, 0.0))
