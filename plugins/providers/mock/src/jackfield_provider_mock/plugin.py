"""The entry point `mock` of `jackfield.providers`.  Importing it loads neither pydantic models nor the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Provider, ProviderType, hookimpl

from jackfield_provider_mock.defaults import Defaults

if TYPE_CHECKING:
    from jackfield_provider_mock.settings import MockSettings

__all__ = ["create", "register_providers"]


def create(settings: MockSettings | dict[str, Any]) -> Provider:
    """A provider with these settings; an empty dict takes the defaults."""
    from jackfield_provider_mock.provider import MockProvider

    if isinstance(settings, dict):
        if not settings:
            return MockProvider(Defaults())
        from jackfield_provider_mock.settings import MockSettings

        settings = MockSettings.model_validate(settings)
    return MockProvider(settings)


@hookimpl
def register_providers() -> Sequence[ProviderType]:
    """The one provider of this distribution."""
    place = "jackfield_provider_mock.settings:MockSettings"
    return [ProviderType(name="mock", title="Mock (scripted, no model)", create=create, settings=place)]
