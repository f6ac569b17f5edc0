"""The settings: `[providers.anthropic]` of an `agent.toml`."""

from __future__ import annotations

from typing import Literal

from jackfield_provider_kit.settings import LimitSettings, PriceSettings, prices_of
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from jackfield_provider_anthropic.defaults import Defaults, Effort

__all__ = ["AnthropicSettings"]

_UNSET = Defaults()


class AnthropicSettings(BaseModel):
    """`[providers.anthropic]` of an `agent.toml`."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(default=_UNSET.model, min_length=1)
    """The model's name; the group's own `model` goes first."""
    api_key: SecretStr | None = None
    """`secret:NAME`.  Without it, `ANTHROPIC_API_KEY` of the session's environment.  Not used behind the gateway."""
    base_url: str | None = Field(default=None, pattern=r"^https?://")
    """Another server of the Messages API, without `/v1`."""
    max_output: int = Field(default=_UNSET.max_output, ge=1)
    """Tokens of one reply; a longer answer goes on in up to three more."""
    window: int = Field(default=_UNSET.window, ge=1000)
    """Tokens of a conversation: at 80 % of it, older parts are summarised.  A model may take more than is set here."""
    effort: Effort | None = None
    """How much a model that knows effort should think and write."""
    thinking: Literal["adaptive", "off"] | int | None = None
    """`adaptive`, `off`, or a budget of tokens (at least 1024); left out, the model's own default holds."""
    prices: PriceSettings | None = None
    """US dollars a million tokens; left out, the list prices of known models on Anthropic's own server."""
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
            thinking=self.thinking,
            prices=prices_of(self.prices),
            limits=self.limits.read(),
        )
