"""Notices that the wall clock was set, or that the machine slept: then moments on it say little about durations."""

from __future__ import annotations

from jackfield.clock import Clock

__all__ = ["WallClock"]

TOLERANCE = 5.0
"""Seconds that the two clocks may drift apart between two looks."""


class WallClock:
    """Compares the wall clock with the one that only goes on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._measured()

    def jumped(self) -> float:
        """Seconds by which the wall clock was moved since the last look, negative when back; 0 within the tolerance."""
        ahead = self._measured()
        moved, self._ahead = ahead - self._ahead, ahead
        return moved if abs(moved) > TOLERANCE else 0.0

    def _measured(self) -> float:
        return self._clock.now() / 1000 - self._clock.monotonic()
