"""The entry point `mock` of `jackfield.providers`.  Importing it loads neither pydantic models nor the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jackfield.api import Provider, ProviderType, hookimpl

if TYPE_CHECKING:
    from jackfield_provider_mock.settings import MockSettings

__all__ = ["create", "register_providers"]


def create(settings: MockSettings | dict[str, Any]) -> Provider:
    """A provider with these settings; an empty dict takes the defaults."""
    from jackfield_provider_mock.provider import MockProvider
    from jackfield_provider_mock.settings import MockSettings

    return MockProvider(MockSettings.model_validate(settings) if isinstance(settings, dict) else settings)


@hookimpl
def register_providers() -> Sequence[ProviderType]:
    """The one provider of this distribution."""
    from jackfield_provider_mock.settings import MockSettings

    return [ProviderType(name="mock", title="Mock (scripted, no model)", create=create, settings=MockSettings)]
