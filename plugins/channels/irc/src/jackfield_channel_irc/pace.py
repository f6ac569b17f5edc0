"""How fast lines may go out: what the servers themselves count (RFC 1459, 8.10)."""

from __future__ import annotations

from jackfield.clock import Clock

__all__ = ["Pace"]


class Pace:
    """`burst` lines at once, then one in `seconds`; an idle time gives the burst back, bit by bit.

    The kit's `Buckets` count a sliding window, which would let the next burst go all at once.
    """

    def __init__(self, burst: int, seconds: float, clock: Clock) -> None:
        self._ahead = (burst - 1) * seconds
        self._seconds = seconds
        self._clock = clock
        self._timer = clock.monotonic()

    def wait(self) -> float:
        """Seconds until a line may go."""
        return max(0.0, self._timer - self._ahead - self._clock.monotonic())

    async def take(self) -> None:
        """Wait for the place of one line; places are given in the order in which they were asked for."""
        wait = self.wait()
        self._timer = max(self._timer, self._clock.monotonic()) + self._seconds
        if wait > 0:
            await self._clock.sleep(wait)

    def spare(self) -> bool:
        """Take a place for what may as well be left out; False when fewer than half would stay for what matters."""
        now = self._clock.monotonic()
        if max(self._timer, now) + self._seconds > now + self._ahead / 2:
            return False
        self._timer = max(self._timer, now) + self._seconds
        return True
