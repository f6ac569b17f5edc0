"""Finding the group's provider and tool sets.  Only what the spec names is ever imported (architecture 3)."""

from __future__ import annotations

import importlib.metadata
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.api import Provider, ProviderType, ToolSet
from jackfield.errors import PluginBroken
from jackfield.models import RunnerSpec

__all__ = ["Engine", "load_engine"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Engine:
    """What a session works with."""

    provider: Provider
    settings: Any
    tool_sets: tuple[tuple[ToolSet, dict[str, Any]], ...]
    """With what the group says for each."""


def load_engine(spec: RunnerSpec) -> Engine:
    """Import the named plugins and make the provider.  Slow: for a worker thread.

    Raises:
        PluginBroken: one is not installed, can't be imported, or doesn't register what its name says.
    """
    kind = _find("jackfield.providers", "register_providers", spec.provider, ProviderType)
    settings = _settings(spec.provider, kind, {key: _json(value) for key, value in spec.provider_settings.items()})
    sets = []
    for name in spec.tools:
        found = _find("jackfield.tools", "register_tools", name, ToolSet)
        told = _json(spec.tool_settings.get(name, "{}"))
        sets.append((found, told if isinstance(told, dict) else {}))
    try:
        provider = kind.create(settings)
    except Exception as problem:
        _LOG.exception("provider %s could not be created", spec.provider)
        raise PluginBroken(spec.provider, "create", repr(problem)) from problem
    return Engine(provider, settings, tuple(sets))


def _find(group: str, hook: str, name: str, kind: type[Any]) -> Any:
    points = [point for point in importlib.metadata.entry_points(group=group) if point.name == name]
    if not points:
        known = sorted({point.name for point in importlib.metadata.entry_points(group=group)})
        raise PluginBroken(
            name,
            "discovery",
            f"no installed distribution offers {name!r} in {group}; there are: {', '.join(known) or 'none'}",
            fix="install the plugin, or name another one in agent.toml: jackfield plugin list",
        )
    try:
        module = points[0].load()
    except Exception as problem:
        _LOG.exception("plugin %s could not be imported", points[0].value)
        raise PluginBroken(name, "import", f"{points[0].value}: {problem!r}") from problem
    register = getattr(module, hook, None)
    if register is None:
        raise PluginBroken(name, "registration", f"{points[0].value} has no {hook}")
    try:
        offered: Sequence[Any] = register()
    except Exception as problem:
        _LOG.exception("%s of %s failed", hook, points[0].value)
        raise PluginBroken(name, "registration", f"{hook} raised {problem!r}") from problem
    for item in offered:
        if isinstance(item, kind) and item.name == name:
            return item
    raise PluginBroken(name, "registration", f"{hook} of {points[0].value} offers nothing called {name!r}")


def _settings(name: str, kind: ProviderType, values: dict[str, Any]) -> Any:
    if kind.settings is None:
        return values
    import pydantic

    try:
        return kind.settings.model_validate(values)
    except pydantic.ValidationError as problem:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors(include_url=False))
        raise PluginBroken(name, "settings", faults, fix=f"mend [providers.{name}] of agent.toml") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
