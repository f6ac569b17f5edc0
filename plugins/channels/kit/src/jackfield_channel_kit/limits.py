"""How fast a channel may send: at most so many requests in any span of so many seconds, per chat and in all (C083)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jackfield.clock import Clock
from jackfield.errors import RateLimited

__all__ = ["Buckets", "Rate"]

CHATS = 2000
"""Above so many chats, those that sent nothing lately are forgotten."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` requests in any span of `seconds`."""

    count: int
    seconds: float


class Buckets:
    """Delays requests so that no rate is exceeded; several rates may hold at once, as 1 a second and 20 a minute.

    `per_chat` holds for each chat by itself (a function of the chat, where groups have others than people), `total`
    for all together.  Who would have to wait longer than `patience` seconds is told `RateLimited` and takes no place:
    the core waits better than a request that hangs.  Places are given in the order in which they were asked for.
    """

    def __init__(
        self,
        per_chat: Sequence[Rate] | Callable[[str], Sequence[Rate]] = (),
        total: Sequence[Rate] = (),
        *,
        patience: float = 15.0,
    ) -> None:
        self._per_chat = per_chat
        self._patience = patience
        self._total = [_Window(rate) for rate in total]
        self._chats: dict[str, list[_Window]] = {}
        self._blocked: dict[str | None, float] = {}

    async def take(self, chat: str, clock: Clock) -> None:
        """Wait for the turn of one request to `chat`.

        Raises:
            RateLimited: it would be too long.
        """
        now = clock.monotonic()
        windows = [*self._windows(chat, now), *self._total]
        due = max([now, *(window.free_at() for window in windows)])
        blocked = max(self._blocked.get(chat, 0.0), self._blocked.get(None, 0.0))
        due = max(due, blocked)
        if due - now > self._patience:
            scope = "account" if self._blocked.get(None, 0.0) == due else "chat"
            raise RateLimited(
                f"the limits of the platform allow the next request in {due - now:.0f} s",
                retry_after=due - now,
                scope="account" if scope == "account" else "chat",
            )
        for window in windows:
            window.used(due)
        if due > now:
            await clock.sleep(due - now)

    def block(self, chat: str | None, seconds: float, clock: Clock) -> None:
        """The platform said to wait: no request to this chat, or to any with None, for so long (C077)."""
        until = clock.monotonic() + seconds
        self._blocked[chat] = max(until, self._blocked.get(chat, 0.0))

    def _windows(self, chat: str, now: float) -> list[_Window]:
        windows = self._chats.get(chat)
        if windows is None:
            if len(self._chats) >= CHATS:
                self._chats = {name: kept for name, kept in self._chats.items() if any(w.busy(now) for w in kept)}
                self._blocked = {name: until for name, until in self._blocked.items() if until > now}
            rates = self._per_chat(chat) if callable(self._per_chat) else self._per_chat
            windows = self._chats[chat] = [_Window(rate) for rate in rates]
        return windows


class _Window:
    """When the last `count` requests were or will be made."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._times: deque[float] = deque(maxlen=rate.count)

    def free_at(self) -> float:
        return self._times[0] + self._rate.seconds if len(self._times) == self._rate.count else 0.0

    def used(self, at: float) -> None:
        self._times.append(at)

    def busy(self, now: float) -> bool:
        return bool(self._times) and self._times[-1] + self._rate.seconds > now
