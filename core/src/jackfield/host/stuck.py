"""Is a live runner stuck?  Pure (messaging.md 9, with its corrections)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.clock import UnixMs
from jackfield.models import Ack, AckStatus, RunnerState

__all__ = ["Observed", "Silent", "StuckClaim", "judge"]

_AHEAD = 60_000
"""Milliseconds that a runner's clock may be ahead of the host's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the host sees of a live runner.  Durations are seconds.

    `heartbeat_at` is the file's time, None when there is none; `claims` are its acks; those of another `epoch` belong
    to a dead runner and count for nothing.
    """

    epoch: int
    started_at: UnixMs
    heartbeat_at: UnixMs | None
    state: RunnerState
    claims: Sequence[Ack]
    silent_ceiling: float
    stuck_claim: float


@dataclass(frozen=True, slots=True)
class Silent:
    """No sign of life for longer than the ceiling; `seconds` is how long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StuckClaim:
    """It took a message and showed no life since."""

    message_id: str
    seconds: float


def judge(seen: Observed, now: UnixMs) -> Silent | StuckClaim | None:
    """Why the runner should be stopped, or None.  Exactly at a threshold is fine.

    - A runner without a heartbeat is as old as its start (C095); a heartbeat from before the start is another's, and
      one from the future is from before the clock was set back.
    - A wait that it announced (`waiting_until`) is no silence before its end (C097), nor is a running tool before the
      deadline that was declared for it.
    """
    if seen.state.waiting_until is not None and now <= seen.state.waiting_until:
        return None
    declared = _declared(seen.state)
    heartbeat = seen.heartbeat_at if seen.heartbeat_at is not None and seen.heartbeat_at <= now + _AHEAD else 0
    alive_at = max(seen.started_at, heartbeat, seen.state.waiting_until or 0)
    silent = (now - alive_at) / 1000
    if silent > max(seen.silent_ceiling, declared):
        return Silent(silent)
    tolerance = max(seen.stuck_claim, declared)
    for claim in seen.claims:
        if claim.status is not AckStatus.PROCESSING or claim.epoch != seen.epoch:
            continue
        age = (now - max(claim.at, seen.started_at)) / 1000
        if age > tolerance and alive_at <= claim.at:
            return StuckClaim(claim.message_id, age)
    return None


def _declared(state: RunnerState) -> float:
    """Seconds that the running tool may take, as it was announced when it began."""
    if state.tool is None or state.tool_started_at is None or state.tool_deadline_at is None:
        return 0.0
    return max(0.0, (state.tool_deadline_at - state.tool_started_at) / 1000)
