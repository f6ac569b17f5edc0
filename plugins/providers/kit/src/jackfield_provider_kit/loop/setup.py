"""What a loop is set up with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from jackfield.api import ProviderCapabilities

from jackfield_provider_kit.loop.wire import Tokens

__all__ = ["CAPABILITIES", "Limits", "Prices", "Setup"]

CAPABILITIES = ProviderCapabilities(
    text_deltas=True,
    inject="next_step",
    consumed_input_ids=True,
    compaction=True,
    interrupt=True,
    retry_events=True,
    usage=True,
    resume=True,
    in_process_tools=True,
)
"""What every provider on the loop can do, because the loop does it."""


class Limits(NamedTuple):
    """Where a turn is stopped, whatever the model wants.  0 sets no limit."""

    requests: int = 200
    tokens: int = 4_000_000
    """Input that was not read from a cache, and output."""
    seconds: float = 0.0
    compactions: int = 3
    idle_seconds: float = 300.0
    """A stream that says nothing for so long is stalled."""
    tool_seconds: float = 1800.0
    """A tool call that takes longer is given up; tools have limits of their own, this is the last one."""
    result_chars: int = 100_000
    """What the model sees of a tool's result; the whole is kept in a file."""


class Prices(NamedTuple):
    """US dollars a million tokens."""

    input: float
    output: float
    cache_read: float | None = None
    """None: as `input`."""
    cache_write: float | None = None

    def of(self, tokens: Tokens) -> float:
        """What a request costs, in US dollars."""
        read = self.input if self.cache_read is None else self.cache_read
        write = self.input if self.cache_write is None else self.cache_write
        parts = (
            tokens.input * self.input,
            tokens.output * self.output,
            tokens.cache_read * read,
            tokens.cache_write * write,
        )
        return sum(parts) / 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """`provider` names the folder of its conversations; `window` and `max_output` are tokens."""

    provider: str
    version: str
    model: str
    window: int
    max_output: int
    prices: Prices | None = None
    limits: Limits = field(default_factory=Limits)
