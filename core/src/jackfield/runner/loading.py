"""Finding the group's provider and tool sets.  Only what the spec names is ever imported (architecture 3)."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.api import Provider, ProviderType, ToolSet
from jackfield.errors import PluginBroken
from jackfield.models import RunnerSpec

__all__ = ["Engine", "load_engine"]

_LOG = logging.getLogger(__name__)
_GROUPS = {"provider": "jackfield.providers", "tools": "jackfield.tools"}


@dataclass(frozen=True, slots=True)
class Engine:
    """What a session works with."""

    provider: Provider
    settings: Any
    tool_sets: tuple[tuple[ToolSet, dict[str, Any]], ...]
    """With what the group says for each."""


def load_engine(spec: RunnerSpec, secrets: Mapping[str, str] | None = None) -> Engine:
    """Import the named plugins and make the provider.  Slow: for a worker thread.

    Each `secret:NAME` in the provider's settings is replaced by the secret; without any to look in, it stays.

    Raises:
        PluginBroken: one is not installed, can't be imported, or doesn't register what its name says.
    """
    kind = _find("provider", "register_providers", spec.provider, ProviderType, spec)
    told = {key: _json(value) for key, value in spec.provider_settings.items()}
    settings = _settings(spec.provider, kind, told if secrets is None else _with_secrets(spec, told, secrets))
    sets = []
    for name in spec.tools:
        found = _find("tools", "register_tools", name, ToolSet, spec)
        given = _json(spec.tool_settings.get(name, "{}"))
        sets.append((found, given if isinstance(given, dict) else {}))
    try:
        provider = kind.create(settings)
    except Exception as problem:
        _LOG.exception("provider %s could not be created", spec.provider)
        raise PluginBroken(spec.provider, "create", repr(problem)) from problem
    return Engine(provider, settings, tuple(sets))


def _with_secrets(spec: RunnerSpec, settings: dict[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Raises:
    PluginBroken: a secret that they refer to was not given to this agent.
    """
    from jackfield.models.secret_references import NoSecret
    from jackfield.runner.secrets import resolve_all

    try:
        found: dict[str, Any] = resolve_all(settings, secrets)
    except NoSecret as problem:
        raise PluginBroken(
            spec.provider, "settings", str(problem), fix="`jackfield secret set NAME`, then `secret assign NAME GROUP`"
        ) from None
    return found


def _find(word: str, hook: str, name: str, kind: type[Any], spec: RunnerSpec) -> Any:
    value = spec.plugins.get(f"{word}:{name}") or _search(_GROUPS[word], name)
    try:
        module = _import(value)
    except (Exception, SystemExit) as problem:
        _LOG.exception("plugin %s could not be imported", value)
        raise PluginBroken(name, "import", f"{value}: {problem!r}") from problem
    register = getattr(module, hook, None)
    if register is None:
        raise PluginBroken(name, "registration", f"{value} has no {hook}")
    try:
        offered: Sequence[Any] = register()
    except (Exception, SystemExit) as problem:
        _LOG.exception("%s of %s failed", hook, value)
        raise PluginBroken(name, "registration", f"{hook} raised {problem!r}") from problem
    for item in offered:
        if isinstance(item, kind) and item.name == name:
            return item
    raise PluginBroken(name, "registration", f"{hook} of {value} offers nothing called {name!r}")


def _search(group: str, name: str) -> str:
    """The value of the entry point of that name; slow, because all that is installed is looked through."""
    from importlib import metadata

    points = list(metadata.entry_points(group=group))
    for point in points:
        if point.name == name:
            return point.value
    raise PluginBroken(
        name,
        "discovery",
        f"no installed distribution offers {name!r} in {group}; there are: "
        + (", ".join(sorted({point.name for point in points})) or "none"),
        fix="install the plugin, or name another one in agent.toml: jackfield plugin list",
    )


def _import(value: str) -> Any:
    """The module, or the object in one, that an entry point's value names."""
    module, _, path = value.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in path.strip().split(".") if path.strip() else ():
        found = getattr(found, part)
    return found


def _settings(name: str, kind: ProviderType, values: dict[str, Any]) -> Any:
    if kind.settings is None or (isinstance(kind.settings, str) and not values):
        return values
    import pydantic

    model = kind.settings_model()
    assert model is not None
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as problem:
        faults = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors(include_url=False))
        raise PluginBroken(name, "settings", faults, fix=f"mend [providers.{name}] of agent.toml") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
