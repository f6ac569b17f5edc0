"""How often a server that ends is started again.  Pure."""

from __future__ import annotations

__all__ = ["MOST", "WINDOW", "Restarts"]

MOST = 6
"""Restarts within the window; one more failure, and the server is off (C174)."""
WINDOW = 300.0
_LONGEST = 60.0


class Restarts:
    """Counts the failures of one server: 1 s to wait after the first, doubling up to a minute."""

    def __init__(self) -> None:
        self._failures: list[float] = []

    def wait_after(self, now: float) -> float | None:
        """A failure, now (monotonic seconds): how long to wait for the next start; None when there is to be none."""
        self._failures = [at for at in self._failures if now - at < WINDOW]
        self._failures.append(now)
        if len(self._failures) > MOST:
            return None
        return float(min(2 ** (len(self._failures) - 1), _LONGEST))
