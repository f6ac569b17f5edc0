"""Whether a failed request is tried again inside its turn, and when (architecture 5, rule 5).  Pure."""

from __future__ import annotations

from jackfield.errors import ProviderError

from jackfield_provider_kit.waits import backoff

__all__ = ["TRIES", "next_wait"]

TRIES = 8
"""Retries of one request, budget permitting."""


def next_wait(error: ProviderError, attempt: int, waited: float, budget: float, share: float) -> float | None:
    """Seconds to wait before retry number `attempt` (1 is the first), or None: the turn ends with the error.

    `waited` is what this turn has waited already, `budget` what it may wait in all, `share` a random number from 0 to
    1.  An answer that can't be read is asked for once more only.
    """
    if not error.retryable or attempt > (1 if error.kind == "protocol" else TRIES):
        return None
    if error.retry_after is None:
        delay = max(0.05, backoff(attempt, share))
    else:
        delay = error.retry_after + share * min(1.0, error.retry_after / 10)
    return delay if waited + delay <= budget else None
