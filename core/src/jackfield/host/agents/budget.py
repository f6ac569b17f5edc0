"""How much agents may write to each other.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jackfield.config import AgentsSettings

__all__ = ["CHAIN_REASONS", "MINUTE", "Counts", "Stopped", "judge"]

MINUTE = 60_000
CHAIN_REASONS = frozenset({"TooManyHops", "ChainTooLong"})
"""Reasons that stop what follows from one message, not a single one that came too soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the ledger says of a message before it is entered.  The minute's counts are without it."""

    hops: int
    """How many it will have made."""
    chain: int
    """Messages of its chain so far."""
    lately: int
    """Messages of its writer to its reader in the last minute."""
    to_itself: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    reason: str
    text: str


def judge(counts: Counts, budget: AgentsSettings) -> Stopped | None:
    """Why the message must not go on, in words for the agent that wrote it; None when it may (C168, C170)."""
    end = "Don't send it again: answer the person who asked, or end here"
    if counts.hops > budget.max_hops:
        return Stopped(
            "TooManyHops",
            f"what follows from one request may go from agent to agent {budget.max_hops} times, and has. {end}",
        )
    if counts.chain >= budget.max_messages:
        return Stopped(
            "ChainTooLong",
            f"agents have written {counts.chain} messages over one request, and may write no more. {end}",
        )
    if counts.to_itself and counts.lately >= budget.to_itself_per_minute:
        return Stopped(
            "TooOftenToItself", f"you may write to yourself {budget.to_itself_per_minute} times a minute. {end}"
        )
    if counts.lately >= budget.per_minute:
        return Stopped("TooOften", f"you may write to that agent {budget.per_minute} times a minute; wait with it")
    return None
