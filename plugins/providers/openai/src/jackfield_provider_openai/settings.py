"""The settings: `[providers.openai]` of an `agent.toml`."""

from __future__ import annotations

from typing import Literal

from jackfield_provider_kit.settings import LimitSettings, PriceSettings, prices_of
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from jackfield_provider_openai.defaults import Defaults, Effort

__all__ = ["OpenAISettings"]

_UNSET = Defaults()


class OpenAISettings(BaseModel):
    """`[providers.openai]` of an `agent.toml`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(default=None, min_length=1)
    """The model's name; the group's own `model` goes first.  One of the two must be set."""
    api_key: SecretStr | None = None
    """`secret:NAME`.  Without it, `OPENAI_API_KEY` of the session's environment.  Servers of your own need none."""
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """The server, with its `/v1`, like `http://127.0.0.1:11434/v1`; left out, OpenAI's."""
    max_output: int = Field(default=_UNSET.max_output, ge=1)
    """Tokens of one reply; a longer answer goes on in up to three more."""
    window: int = Field(default=_UNSET.window, ge=1000)
    """Tokens that the model really takes: at 80 % of it, older parts are summarised.  With Ollama, its `num_ctx`: it
    cuts longer conversations without a word."""
    effort: Effort | None = None
    """How much a reasoning model should think."""
    output_field: Literal["max_completion_tokens", "max_tokens"] | None = None
    """How the server calls the limit of a reply; left out, `max_completion_tokens` at OpenAI's, else `max_tokens`."""
    prices: PriceSettings | None = None
    """US dollars a million tokens; left out, costs are told as unknown."""
    limits: LimitSettings = LimitSettings()
    """Where a turn is stopped."""

    def read(self) -> Defaults:
        """The values, as the provider takes them."""
        return Defaults(
            model=self.model,
            api_key=self.api_key.get_secret_value() if self.api_key is not None else None,
            base_url=self.base_url,
            max_output=self.max_output,
            window=self.window,
            effort=self.effort,
            output_field=self.output_field,
            prices=prices_of(self.prices),
            limits=self.limits.read(),
        )
