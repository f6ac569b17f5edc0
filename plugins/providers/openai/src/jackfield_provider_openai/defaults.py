"""The settings as the provider reads them, and what holds when a group sets nothing."""

from __future__ import annotations

from typing import Literal, NamedTuple

from jackfield_provider_kit.loop.setup import Limits, Prices

__all__ = ["INSTALL", "Defaults", "Effort"]

INSTALL = "pip install jackfield-provider-openai"
"""What brings the package, too."""

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Defaults(NamedTuple):
    """The fields of `OpenAISettings`, unset.  The key is kept out of `repr`."""

    model: str | None = None
    api_key: str | None = None
    base_url: str | None = None
    max_output: int = 16_000
    window: int = 128_000
    effort: Effort | None = None
    output_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    prices: Prices | None = None
    limits: Limits = Limits()

    def __repr__(self) -> str:
        return f"Defaults(model={self.model!r}, base_url={self.base_url!r})"
