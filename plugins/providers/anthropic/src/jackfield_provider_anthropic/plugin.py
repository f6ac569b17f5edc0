"""The entry point `anthropic` of `jackfield.providers`.  Importing it loads neither pydantic nor the SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Provider, ProviderType, hookimpl

from jackfield_provider_anthropic.defaults import Defaults

if TYPE_CHECKING:
    from jackfield_provider_anthropic.settings import AnthropicSettings

__all__ = ["create", "register_providers"]


def create(settings: AnthropicSettings | dict[str, Any]) -> Provider:
    """A provider with these settings; an empty dict takes the defaults."""
    from jackfield_provider_anthropic.provider import AnthropicProvider

    if isinstance(settings, dict):
        if not settings:
            return AnthropicProvider(Defaults())
        from jackfield_provider_anthropic.settings import AnthropicSettings

        settings = AnthropicSettings.model_validate(settings)
    return AnthropicProvider(settings.read())


@hookimpl
def register_providers() -> Sequence[ProviderType]:
    """The one provider of this distribution."""
    place = "jackfield_provider_anthropic.settings:AnthropicSettings"
    return [ProviderType(name="anthropic", title="Anthropic (Messages API)", create=create, settings=place)]
