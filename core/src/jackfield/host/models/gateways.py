"""Which sessions reach their model by a gateway.  What decides is pure: `use_of`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from jackfield.api import Isolation, ModelGateway
from jackfield.config import AgentSettings
from jackfield.errors import Conflict, NotFound
from jackfield.models.secret_references import secrets_named

__all__ = ["IN_CONTAINER", "Gateways", "Use", "provider_secrets", "secrets_in", "use_of"]

IN_CONTAINER = "http://127.0.0.1:3128"
"""Where a runner in a container finds the gateway: its way out, which leads to the host and nowhere else."""


class Use(Enum):
    """What becomes of a session whose provider may or may not be covered by a gateway."""

    GATEWAY = "gateway"
    DIRECT = "direct"
    REFUSED = "refused"
    """It must use one, and there is none: better no runner than one with a key in it."""


def use_of(wanted: bool | None, isolation: Isolation | None, *, covered: bool, has_key: bool) -> Use:
    """`wanted` is what `agent.toml` says, `isolation` the level that the runtime has proved, None when it was not asked
    yet; `has_key` tells that the provider's settings name a secret.

    Unasked, a container has the gateway.  Where none covers its provider, it goes without only if that brings no key
    into it, as for a provider that needs none.
    """
    contained = isolation is Isolation.CONTAINER
    if wanted is False or (wanted is None and not contained):
        return Use.DIRECT
    if covered:
        return Use.GATEWAY
    return Use.REFUSED if wanted or has_key else Use.DIRECT


def provider_secrets(agent: AgentSettings) -> tuple[str, ...]:
    """The names of secrets that the settings of the group's provider refer to."""
    return secrets_in(agent.providers.get(agent.provider, {}))


def secrets_in(value: Any) -> tuple[str, ...]:
    """The names of secrets that a setting, or a table of them, refers to."""
    return secrets_named(_texts(value))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for one in inner for text in _texts(one)]


@dataclass(slots=True, eq=False)
class Gateways:
    """The gateway that is offered now, at most one, and what is known about the runtimes that would use it."""

    offered: ModelGateway | None = None
    levels: dict[str, Isolation] = field(default_factory=dict)
    """What each runtime has proved, by its name, as far as it was asked."""
    settled: bool = True
    """False until the extensions have started, and where no host runs: then a missing gateway tells nothing."""

    def offer(self, gateway: ModelGateway) -> None:
        """Raises:
        Conflict: another one is offered.
        """
        if self.offered is not None and self.offered is not gateway:
            raise Conflict("there is a model gateway already", fix="start only one extension that offers one")
        self.offered = gateway

    def withdraw(self, gateway: ModelGateway) -> None:
        if self.offered is gateway:
            self.offered = None

    def use(self, agent: AgentSettings) -> Use:
        """How sessions with these settings reach their model."""
        covered = self.offered is not None and self.offered.covers(agent.provider)
        level = self.levels.get(agent.runtime)
        return use_of(agent.gateway, level, covered=covered, has_key=bool(provider_secrets(agent)))

    def serving(self, agent: AgentSettings) -> ModelGateway | None:
        """The gateway of sessions with these settings; None when they do without.

        Raises:
            NotFound: they need one, and none covers their provider.
        """
        match self.use(agent):
            case Use.GATEWAY:
                return self.offered
            case Use.DIRECT:
                return None
        if not self.settled:
            return None
        if self.offered is None:
            raise NotFound(
                f"its provider {agent.provider!r} is to be reached by the model gateway, and none runs",
                fix="start an extension that offers one ([extensions.<name>] in jackfield.toml), "
                "or set `gateway = false` in the group's agent.toml",
            )
        raise NotFound(
            f"its provider {agent.provider!r} is to be reached by the model gateway, which has no upstream for it",
            fix="add one to that extension's settings in jackfield.toml, "
            "or set `gateway = false` in the group's agent.toml",
        )

    def address(self, agent: AgentSettings, gateway: ModelGateway) -> str:
        """Where a runner with these settings finds it."""
        return IN_CONTAINER if self.levels.get(agent.runtime) is Isolation.CONTAINER else gateway.address()
