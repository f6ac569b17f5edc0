"""The entry point `openai` of `jackfield.providers`.  Importing it loads neither pydantic nor the SDK."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Provider, ProviderType, hookimpl

from jackfield_provider_openai.defaults import Defaults

if TYPE_CHECKING:
    from jackfield_provider_openai.settings import OpenAISettings

__all__ = ["create", "register_providers"]


def create(settings: OpenAISettings | dict[str, Any]) -> Provider:
    """A provider with these settings; an empty dict takes the defaults."""
    from jackfield_provider_openai.provider import OpenAIProvider

    if isinstance(settings, dict):
        if not settings:
            return OpenAIProvider(Defaults())
        from jackfield_provider_openai.settings import OpenAISettings

        settings = OpenAISettings.model_validate(settings)
    return OpenAIProvider(settings.read())


@hookimpl
def register_providers() -> Sequence[ProviderType]:
    """The one provider of this distribution."""
    place = "jackfield_provider_openai.settings:OpenAISettings"
    return [ProviderType(name="openai", title="OpenAI and compatible servers", create=create, settings=place)]
