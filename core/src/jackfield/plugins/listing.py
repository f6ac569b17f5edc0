"""The list of installed plugins with the state of each, from metadata and earlier verdicts only.

`jackfield plugin` stands on this; so it works with any plugin broken, and imports none (C181, C183).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from jackfield.plugins.broken import Broken, Knowledge, verdict_from_metadata
from jackfield.plugins.discovery import CORE, Found, Inventory
from jackfield.plugins.kinds import Kind

if TYPE_CHECKING:
    from jackfield.plugins.manifest import Manifest, ManifestCommand

__all__ = ["PluginInfo", "PluginState", "commands_of", "survey"]


class PluginState(StrEnum):
    READY = "ready"
    """It was tried in this state and is well."""
    UNTRIED = "not loaded yet"
    """Nobody has needed it so far."""
    BROKEN = "broken"
    INCOMPATIBLE = "incompatible"
    """Its manifest asks for another API version."""
    CONFLICT = "conflict"
    """Two distributions offer the same name."""
    LEFT_OUT = "left out"
    """Only built-ins are used (`--safe`)."""


class PluginInfo(NamedTuple):
    """One installed plugin.  `broken` is set for the states broken, incompatible and conflict."""

    found: Found
    state: PluginState
    broken: Broken | None = None
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.found.name

    @property
    def kind(self) -> Kind:
        return self.found.kind

    @property
    def distribution(self) -> str:
        return self.found.distribution.name

    @property
    def version(self) -> str:
        return self.found.distribution.version

    @property
    def entry(self) -> str:
        """The entry point's value."""
        return self.found.value

    @property
    def manifest(self) -> Manifest | None:
        return self.found.distribution.manifest

    @property
    def title(self) -> str:
        return self.found.distribution.title


def survey(inventory: Inventory, knowledge: Knowledge, *, safe: bool = False) -> list[PluginInfo]:
    """Every plugin with its state, ordered by kind, name and distribution."""
    everything = inventory.found()
    return [_state_of(one, everything, knowledge, safe) for one in everything]


def _state_of(found: Found, everything: Sequence[Found], knowledge: Knowledge, safe: bool) -> PluginInfo:
    if safe and not found.built_in:
        return PluginInfo(found, PluginState.LEFT_OUT)
    broken = verdict_from_metadata(found, everything)
    if broken is not None:
        states = {"compatibility": PluginState.INCOMPATIBLE, "conflict": PluginState.CONFLICT}
        return PluginInfo(found, states.get(broken.phase, PluginState.BROKEN), broken)
    broken = knowledge.broken(found)
    if broken is not None:
        return PluginInfo(found, PluginState.BROKEN, broken)
    if knowledge.well(found):
        return PluginInfo(found, PluginState.READY, None, knowledge.notes(found))
    return PluginInfo(found, PluginState.UNTRIED)


def commands_of(inventory: Inventory, *, safe: bool = False) -> list[ManifestCommand]:
    """The commands that installed plugins add to the program; of two with the same name, the first distribution's.

    A plugin that is broken otherwise keeps its commands: they are imported only when run.
    """
    chosen: dict[str, ManifestCommand] = {}
    for one in sorted(inventory.distributions, key=lambda one: one.name):
        if one.described is None or not one.compatible or (safe and one.name != CORE):
            continue
        for command in one.manifest.commands if one.manifest is not None else ():
            chosen.setdefault(command.name, command)
    return [chosen[name] for name in sorted(chosen)]
