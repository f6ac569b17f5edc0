"""The provider: its claims, what it lacks, and opening a session."""

from __future__ import annotations

from typing import Literal

from jackfield.api import Continuation, Probe, ProviderCapabilities, ProviderSession, ProviderSpec
from jackfield.errors import ProviderError, ProviderScope
from jackfield_provider_kit.installed import probe_of, version_of
from jackfield_provider_kit.loop.setup import CAPABILITIES, Setup

from jackfield_provider_openai.defaults import INSTALL, Defaults

__all__ = ["OpenAIProvider"]

_PACKAGE = "openai"
_KEY = "OPENAI_API_KEY"
_SORRY = "I'm not set up yet. My operator has to look at it."


class OpenAIProvider:
    """Any server of the chat completions API, from the runner's own process (spec/providers.md 2.3)."""

    def __init__(self, settings: Defaults) -> None:
        self._settings = settings

    def capabilities(self) -> ProviderCapabilities:
        return CAPABILITIES

    async def probe(self) -> Probe:
        """Whether the package is installed; it is not imported for that."""
        where = self._settings.base_url or "OpenAI's own server"
        return probe_of(_PACKAGE, INSTALL, f"asks {where} from this process")

    async def open(self, spec: ProviderSpec, continuation: Continuation | None) -> ProviderSession:
        """Begin or take up a conversation; the package is loaded in a thread meanwhile.

        Raises:
            ProviderError: no model is named, there is no key where one is needed, or the conversation can't be kept.
        """
        from jackfield_provider_kit.loop import open_session

        from jackfield_provider_openai.wire import OWN_SERVER, OpenAIWire

        settings = self._settings
        model = spec.model or settings.model
        if not model:
            raise _not_set_up("config", "no model is named", 'model = "NAME" in the group\'s agent.toml')
        base_url = f"{spec.gateway_url.rstrip('/')}/v1" if spec.gateway_url else settings.base_url or OWN_SERVER
        key = "gateway" if spec.gateway_url else settings.api_key or _key_of(spec, settings)
        if not key:
            raise _not_set_up(
                "auth",
                "there is no key for OpenAI's API",
                f"`jackfield secret set {_KEY}`, `jackfield secret assign {_KEY} GROUP`, then "
                f'api_key = "secret:{_KEY}" under [providers.openai] in the group\'s agent.toml; or base_url',
            )
        setup = Setup(
            provider="openai",
            version=version_of(_PACKAGE) or "",
            model=model,
            window=settings.window,
            max_output=settings.max_output,
            prices=settings.prices,
            limits=settings.limits,
        )
        wire = OpenAIWire(settings, model=model, key=key, base_url=base_url)
        return await open_session(spec, setup, wire, continuation)


def _key_of(spec: ProviderSpec, settings: Defaults) -> str | None:
    """The environment's key is OpenAI's: no other server is shown it.  The SDK wants some key all the same."""
    return spec.env.get(_KEY) if settings.base_url is None else "none"


def _not_set_up(kind: Literal["auth", "config"], what: str, fix: str) -> ProviderError:
    scope: ProviderScope = "credential" if kind == "auth" else "session"
    return ProviderError(what, kind=kind, scope=scope, fix=fix, message_for_user=_SORRY)
