"""Discovery, compatibility, lazy and isolated loading of plugins, and the dispatcher of their hooks.

The names below are imported when they are first used: `jackfield plugin list` needs `discovery` only, and must not pay
for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield.plugins.broken import Broken
    from jackfield.plugins.discovery import Discovery, Distribution, Found, Inventory, discover
    from jackfield.plugins.dispatcher import HookDispatcher
    from jackfield.plugins.kinds import Kind
    from jackfield.plugins.listing import PluginInfo, PluginState
    from jackfield.plugins.loading import LoadedPlugin
    from jackfield.plugins.manifest import Manifest, ManifestCommand, ManifestSecret, ManifestSetting
    from jackfield.plugins.registry import LoadOutcome, PluginRegistry

__all__ = [
    "Broken",
    "Discovery",
    "Distribution",
    "Found",
    "HookDispatcher",
    "Inventory",
    "Kind",
    "LoadOutcome",
    "LoadedPlugin",
    "Manifest",
    "ManifestCommand",
    "ManifestSecret",
    "ManifestSetting",
    "PluginInfo",
    "PluginRegistry",
    "PluginState",
    "discover",
]

_HOME_OF = {
    "broken": ("Broken",),
    "discovery": ("Discovery", "Distribution", "Found", "Inventory", "discover"),
    "dispatcher": ("HookDispatcher",),
    "kinds": ("Kind",),
    "listing": ("PluginInfo", "PluginState"),
    "loading": ("LoadedPlugin",),
    "manifest": ("Manifest", "ManifestCommand", "ManifestSecret", "ManifestSetting"),
    "registry": ("LoadOutcome", "PluginRegistry"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOME_OF.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
