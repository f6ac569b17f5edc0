"""The provider: its claims, what it lacks, and opening a session."""

from __future__ import annotations

from jackfield.api import Continuation, Probe, ProviderCapabilities, ProviderSession, ProviderSpec
from jackfield.errors import ProviderError
from jackfield_provider_kit.installed import probe_of, version_of
from jackfield_provider_kit.loop.setup import CAPABILITIES, Setup

from jackfield_provider_anthropic.defaults import INSTALL, Defaults
from jackfield_provider_anthropic.prices import list_price

__all__ = ["AnthropicProvider"]

_PACKAGE = "anthropic"
_KEY = "ANTHROPIC_API_KEY"


class AnthropicProvider:
    """Claude by its Messages API, in the runner's own process (spec/providers.md 2)."""

    def __init__(self, settings: Defaults) -> None:
        self._settings = settings

    def capabilities(self) -> ProviderCapabilities:
        return CAPABILITIES

    async def probe(self) -> Probe:
        """Whether the package is installed; it is not imported for that."""
        return probe_of(_PACKAGE, INSTALL, "asks the Messages API from this process")

    async def open(self, spec: ProviderSpec, continuation: Continuation | None) -> ProviderSession:
        """Begin or take up a conversation; the package is loaded in a thread meanwhile.

        Raises:
            ProviderError: there is no key, or the conversation can't be kept.
        """
        from jackfield_provider_kit.loop import open_session

        from jackfield_provider_anthropic.wire import AnthropicWire

        settings = self._settings
        model = spec.model or settings.model
        key = "gateway" if spec.gateway_url else settings.api_key or spec.env.get(_KEY)
        if not key:
            raise ProviderError(
                "there is no key for Anthropic's API",
                kind="auth",
                scope="credential",
                fix=f"`jackfield secret set {_KEY}`, `jackfield secret assign {_KEY} GROUP`, then "
                f'api_key = "secret:{_KEY}" under [providers.anthropic] in the group\'s agent.toml',
                message_for_user="I'm not set up yet: my model's key is missing. My operator has to look at it.",
            )
        setup = Setup(
            provider="anthropic",
            version=version_of(_PACKAGE) or "",
            model=model,
            window=settings.window,
            max_output=settings.max_output,
            prices=settings.prices or (None if settings.base_url else list_price(model)),
            limits=settings.limits,
        )
        wire = AnthropicWire(settings, model=model, key=key, base_url=spec.gateway_url or settings.base_url)
        return await open_session(spec, setup, wire, continuation)
