"""When a conversation is given up for a new one that begins with a summary (spec/providers.md 7).  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jackfield.errors import ProviderErrorKind

__all__ = ["FAILING", "WHY", "Failing", "Reason", "anew_after", "anew_after_crashes", "counts"]

FAILING = "failing"
"""In the mailbox: which failure ended the last turns, and how many of them, until one ends well."""
Reason = Literal["lost", "too_long", "engine", "crash", "provider"]
WHY: dict[Reason, str] = {
    "lost": "Your earlier conversation is lost; this is a new one.",
    "too_long": "Your earlier conversation became too long for your model; this is a new one.",
    "engine": "Your engine broke off again and again in the earlier conversation; this is a new one.",
    "crash": "The earlier conversation was broken off again and again by the end of your process; this is a new one.",
    "provider": "Up to now another engine spoke in your place; you take over its conversation.",
}
"""What the agent is told of it."""
CRASHES = 3
"""Turns in a row that ended with their runner after which the conversation itself is suspected."""


@dataclass(frozen=True, slots=True)
class Failing:
    """What the last turns of a session ended with, one after the other."""

    kind: str
    count: int

    def dumps(self) -> str:
        return f"{self.kind} {self.count}"

    @classmethod
    def loads(cls, text: str | None) -> Failing | None:
        """None for what `dumps` did not write, too."""
        kind, _, count = (text or "").partition(" ")
        return cls(kind, int(count)) if kind and count.isdigit() and len(count) < 6 else None

    @classmethod
    def after(cls, before: Failing | None, kind: str) -> Failing:
        """One more."""
        return cls(kind, before.count + 1 if before is not None and before.kind == kind else 1)


def counts(kind: ProviderErrorKind, *, helps: bool) -> bool:
    """Whether it matters how often this failure has come in a row."""
    return helps or kind in ("continuation_lost", "context_overflow", "engine_crash", "protocol")


def anew_after(kind: ProviderErrorKind, failing: Failing, *, helps: bool) -> Reason | None:
    """Why the next turn begins a new conversation after this failure, `failing` with it; None when it goes on.

    `helps` is what the error itself says.  A conversation that is too long is given up once: if a new one is too long
    as well, its first prompt is.  An engine that breaks off gets its conversation back once.
    """
    if kind == "continuation_lost":
        return "lost"
    if (kind == "context_overflow" or helps) and failing.count == 1:
        return "too_long" if kind == "context_overflow" else "engine"
    if kind in ("engine_crash", "protocol") and failing.count >= 2:
        return "engine"
    return None


def anew_after_crashes(turns: int, reason: str) -> Reason | None:
    """The same for a runner that finds that so many turns over what it has to answer did not end well, the last one
    for that reason."""
    return "crash" if reason == "crash" and turns >= CRASHES else None
