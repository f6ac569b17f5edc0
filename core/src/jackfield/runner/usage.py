"""What the engine reported about tokens and cost: for the people who ask (`/context`, `/cost`), and for the host."""

from __future__ import annotations

from dataclasses import replace

from jackfield.api import Usage
from jackfield.clock import UnixMs
from jackfield.models import UsageEntry

__all__ = ["Tally"]


class Tally:
    """Sums since this runner started.  Requests are counted where an engine reports both requests and turns."""

    def __init__(self) -> None:
        self._sums: dict[str, list[int]] = {"request": [0, 0], "turn": [0, 0]}
        self._costs: dict[str, float | None] = {"request": None, "turn": None}
        self._context: tuple[int, int | None] | None = None
        self._fresh: dict[tuple[str, str], UsageEntry] = {}
        """What the host was not told yet, by scope and model."""

    def add(self, usage: Usage) -> None:
        sums = self._sums[usage.scope]
        sums[0] += usage.input + usage.cache_read + usage.cache_write
        sums[1] += usage.output
        if usage.cost is not None:
            self._costs[usage.scope] = (self._costs[usage.scope] or 0.0) + usage.cost
        key = (usage.scope, usage.model)
        before = self._fresh.get(key) or UsageEntry(at=UnixMs(0), provider="", model=usage.model, requests=0)
        self._fresh[key] = replace(
            before,
            requests=before.requests + 1,
            input=before.input + usage.input,
            cache_read=before.cache_read + usage.cache_read,
            cache_write=before.cache_write + usage.cache_write,
            output=before.output + usage.output,
            reasoning=before.reasoning + usage.reasoning,
            cost=_added(before, usage.cost),
        )
        if usage.context_used is not None:
            self._context = (usage.context_used, usage.context_limit)

    def take(self, provider: str, at: UnixMs) -> list[UsageEntry]:
        """What was used since the last call, a row for each model; requests where there are both."""
        fresh, self._fresh = self._fresh, {}
        scope = "request" if any(scope == "request" for scope, _ in fresh) else "turn"
        return [replace(entry, provider=provider, at=at) for (its, _), entry in sorted(fresh.items()) if its == scope]

    def context_text(self) -> str:
        """How full the model's context is, in one line."""
        if self._context is None:
            return "The engine has not said yet how full its context is."
        used, limit = self._context
        if not limit:
            return f"{used:,} tokens of the context are used."
        return f"{used:,} of {limit:,} tokens of the context are used ({100 * used / limit:.0f} %)."

    def cost_text(self) -> str:
        """What was used, in one line."""
        scope = "request" if any(self._sums["request"]) else "turn"
        taken, given = self._sums[scope]
        cost = self._costs[scope]
        price = "" if cost is None else f", ${cost:.4f}"
        return f"Since this agent was started: {taken:,} tokens in, {given:,} out{price}."


def _added(before: UsageEntry, cost: float | None) -> float | None:
    """A sum has a price only when all of it has."""
    if cost is None or (before.requests and before.cost is None):
        return None
    return (before.cost or 0.0) + cost
