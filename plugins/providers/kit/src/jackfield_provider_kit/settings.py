"""Parts of settings that providers with the loop share.  Imports pydantic: only `settings` modules import it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from jackfield_provider_kit.loop.setup import Limits, Prices

__all__ = ["LimitSettings", "PriceSettings", "prices_of"]

_UNSET = Limits()


class PriceSettings(BaseModel):
    """US dollars a million tokens."""

    model_config = ConfigDict(extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    """Left out: as `input`."""
    cache_write: float | None = Field(default=None, ge=0)


class LimitSettings(BaseModel):
    """Where a turn is stopped, whatever the model wants; 0 sets no limit."""

    model_config = ConfigDict(extra="forbid")

    requests: int = Field(default=_UNSET.requests, ge=0)
    tokens: int = Field(default=_UNSET.tokens, ge=0)
    """Input that was not read from a cache, and output."""
    seconds: float = Field(default=_UNSET.seconds, ge=0)
    compactions: int = Field(default=_UNSET.compactions, ge=0)
    idle_seconds: float = Field(default=_UNSET.idle_seconds, ge=0)
    """A stream that says nothing for so long is stalled, and tried again."""
    tool_seconds: float = Field(default=_UNSET.tool_seconds, ge=0)
    """The last limit of a tool call; tools have limits of their own."""
    result_chars: int = Field(default=_UNSET.result_chars, ge=0)
    """What the model sees of a tool's result; the whole is kept in a file."""

    def read(self) -> Limits:
        """The values, as the loop takes them."""
        return Limits(**self.model_dump())


def prices_of(settings: PriceSettings | None) -> Prices | None:
    """The values, as the loop takes them."""
    return Prices(**settings.model_dump()) if settings is not None else None
