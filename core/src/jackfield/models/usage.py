"""What models were used for, and what it cost: tokens in one shape, whatever wire they were counted on.

`input` leaves out what a cache gave or took (`cache_read`, `cache_write`); `output` includes `reasoning`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jackfield.clock import UnixMs
from jackfield.ids import AgentGroupId, SessionId

__all__ = ["UsageEntry", "UsageRow", "UsageSource", "UsageTotals"]

UsageSource = Literal["gateway", "provider"]
"""Who counted: the model gateway of the host, or the provider in the runner, which is believed where no gateway is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry:
    """What one turn used of one model, as a runner writes it into its mailbox."""

    at: UnixMs
    provider: str
    model: str
    requests: int = 1
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars; None when the price is not known."""
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one request or turn used, as the host keeps it."""

    at: UnixMs
    session_id: SessionId
    agent_group_id: AgentGroupId
    provider: str
    model: str
    source: UsageSource
    requests: int = 1
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float | None = None
    """US dollars; None when the price is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Sums over rows."""

    requests: int = 0
    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float = 0.0
    """US dollars of what has a price."""
    unpriced: int = 0
    """Requests whose price is not known: then `cost` is less than what was spent."""

    @property
    def tokens(self) -> int:
        """All of them, in and out."""
        return self.input + self.cache_read + self.cache_write + self.output
