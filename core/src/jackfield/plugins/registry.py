"""The plugins that this process uses.  Nothing is imported before somebody asks for it.

A plugin that can't be loaded raises `PluginBroken` to whoever asked for it, and to nobody else (architecture 4; C179).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from jackfield.errors import NotFound, PluginBroken
from jackfield.plugins.broken import Knowledge, verdict_from_metadata
from jackfield.plugins.clashes import refuse_clashes
from jackfield.plugins.discovery import Discovery, Found, Inventory
from jackfield.plugins.dispatcher import HookDispatcher
from jackfield.plugins.kinds import Kind
from jackfield.plugins.listing import PluginInfo, commands_of, survey
from jackfield.plugins.loading import LoadedPlugin, Refused, load
from jackfield.plugins.manifest import ManifestCommand
from jackfield.plugins.probe import Trial, probe

if TYPE_CHECKING:
    import pluggy

    from jackfield.api import (
        ActionHandler,
        ApprovalKind,
        ChannelType,
        DocumentKind,
        DocumentPack,
        ExtensionType,
        ObjectType,
        ProviderType,
        RouteSet,
        RuntimeType,
        ToolSet,
    )
    from jackfield.models.commands import ChatCommand

__all__ = ["LoadOutcome", "PluginRegistry"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """How one wanted plugin fared: loaded, failed with `problem`, or skipped because of `--safe`."""

    kind: Kind
    name: str
    state: Literal["loaded", "failed", "skipped"]
    problem: PluginBroken | NotFound | None = None


class PluginRegistry:
    """Finds, tries and loads plugins.  May be used from several threads: one loads at a time, trials run side by side.

    Args:
        state_file: `<home>/plugins/broken.json`; directory plugins and the discovery cache lie beside it.  None is for
            a runner: no directory plugins, no trials in children, verdicts in memory only.
        safe: use nothing but the core's own plugins.
        strict: for authors and CI: ignore earlier verdicts, try nothing in children, and let `load_enabled` raise.
    """

    def __init__(self, *, state_file: Path | None, safe: bool = False, strict: bool = False) -> None:
        self.safe = safe
        self.strict = strict
        self.dispatcher = HookDispatcher()
        self._discovery = Discovery(state_file.parent if state_file is not None else None)
        self._state_file = state_file
        self._knowledge = Knowledge(state_file)
        self._trials = state_file is not None and not strict
        self._inventory: Inventory | None = None
        self._loaded: dict[tuple[Kind, str], LoadedPlugin] = {}
        self._manager: pluggy.PluginManager | None = None
        self._commands: dict[str, ChatCommand] = {}
        self._actions: dict[str, tuple[ActionHandler, str]] = {}
        self._lock = threading.RLock()

    # ---- what is there

    def listing(self) -> list[PluginInfo]:
        """Every installed plugin with its state; imports none."""
        return survey(self._installed(), self._knowledge, safe=self.safe)

    def commands(self) -> list[ManifestCommand]:
        """What plugins add to the `jackfield` program."""
        return commands_of(self._installed(), safe=self.safe)

    def refresh(self) -> None:
        """Look again at what is installed and at what other processes found out; what is loaded stays loaded.

        For a host's reload: afterwards a plugin that was installed, mended or retried meanwhile can be loaded.
        """
        with self._lock:
            self._inventory = None
            if self._state_file is not None:
                self._knowledge = Knowledge(self._state_file)

    def loaded(self) -> list[LoadedPlugin]:
        """The plugins in use, in the order in which they came."""
        return list(self._loaded.values())

    # ---- one by its name

    def channel_type(self, name: str) -> ChannelType:
        """Raises NotFound or PluginBroken, as `load` does; so do the next ones."""
        return cast("ChannelType", self.load(Kind.CHANNEL, name).item)

    def provider_type(self, name: str) -> ProviderType:
        return cast("ProviderType", self.load(Kind.PROVIDER, name).item)

    def runtime_type(self, name: str) -> RuntimeType:
        return cast("RuntimeType", self.load(Kind.RUNTIME, name).item)

    def tool_set(self, name: str) -> ToolSet:
        return cast("ToolSet", self.load(Kind.TOOLS, name).item)

    def pack(self, name: str) -> DocumentPack:
        return cast("DocumentPack", self.load(Kind.PACK, name).item)

    def extension_type(self, name: str) -> ExtensionType:
        return cast("ExtensionType", self.load(Kind.EXTENSION, name).item)

    # ---- what the loaded ones brought

    def actions(self) -> Mapping[str, ActionHandler]:
        """The action handlers of all loaded plugins, by name."""
        return {name: handler for name, (handler, _) in self._actions.items()}

    def tool_sets_of_action(self, name: str) -> frozenset[str]:
        """The tool sets of the plugin that brought an action; none for one that has no tool set."""
        for plugin in self._objects():
            if any(action.name == name for action in plugin.offers.actions):
                return frozenset(plugin.offers.by_kind.get(Kind.TOOLS, {}))
        return frozenset()

    def chat_commands(self) -> Mapping[str, ChatCommand]:
        """The chat commands of all loaded plugins, by token."""
        return self._commands

    def routes(self) -> list[RouteSet]:
        return [one for plugin in self._objects() for one in plugin.offers.routes]

    def document_kinds(self) -> list[DocumentKind]:
        return [one for plugin in self._objects() for one in plugin.offers.document_kinds]

    def object_types(self) -> list[ObjectType]:
        return [one for plugin in self._objects() for one in plugin.offers.object_types]

    def approval_kinds(self) -> list[ApprovalKind]:
        return [one for plugin in self._objects() for one in plugin.offers.approvals]

    # ---- loading

    def load(self, kind: Kind | str, name: str) -> LoadedPlugin:
        """Load one plugin, once.

        A plugin that was never seen in this state is tried in a child process first, which takes up to 10 s: from
        asyncio, `await prepare` first.

        Raises:
            NotFound: no such plugin; near names are in `fix`.
            PluginBroken: it can't be loaded now, or could not earlier and nothing has changed since.
        """
        kind = Kind(kind)
        loaded = self._loaded.get((kind, name))
        if loaded is not None:
            return loaded
        found = self._find(kind, name)
        self._refuse_known(found)
        if self._wants_trial(found):
            self._learn(found, probe(found))
            self._refuse_known(found)
        return self._load(found)

    async def prepare(self, wanted: Iterable[tuple[Kind | str, str]]) -> None:
        """Try those that were never seen, in children and side by side, so that `load` is quick.  Raises nothing."""
        unseen: dict[str, Found] = {}
        for kind, name in wanted:
            try:
                found = self._find(Kind(kind), name)
                self._refuse_known(found)
            except (NotFound, PluginBroken, ValueError):
                continue
            if self._wants_trial(found) and (found.kind, found.name) not in self._loaded:
                unseen[found.key] = found
        turns = asyncio.Semaphore(4)

        async def attempt(found: Found) -> None:
            async with turns:
                trial = await asyncio.to_thread(probe, found)
            self._learn(found, trial)

        await asyncio.gather(*(attempt(found) for found in unseen.values()))

    async def load_enabled(self, wanted: Sequence[tuple[Kind | str, str]]) -> list[LoadOutcome]:
        """Load all that the configuration names, and log one line for each (C181).

        Raises:
            NotFound, PluginBroken: with `strict` only; otherwise a failure is in its outcome and the others are loaded.
        """
        await self.prepare(wanted)
        outcomes: list[LoadOutcome] = []
        for kind, name in wanted:
            outcome = self._load_one(Kind(kind), name)
            if outcome.state == "loaded":
                _log.info("plugin %s (%s): loaded", name, kind)
            elif outcome.state == "skipped":
                _log.info("plugin %s (%s): skipped: only built-ins are used (--safe)", name, kind)
            else:
                assert outcome.problem is not None
                _log.error("plugin %s (%s): failed: %s. %s", name, kind, outcome.problem, outcome.problem.fix or "")
                if self.strict:
                    raise outcome.problem
            outcomes.append(outcome)
        return outcomes

    def retry(self, name: str) -> list[PluginInfo]:
        """Forget the verdicts about a plugin, or about all of a distribution's, and try again.

        Raises:
            NotFound: no such plugin or distribution.
        """
        self.refresh()
        matching = [one for one in self._installed().found() if name in (one.name, one.distribution.name)]
        if not matching:
            raise self._unknown(None, name)
        for found in matching:
            with self._lock:
                self._knowledge.forget(found)
                self._unimport(found)
            if self._wants_trial(found) and verdict_from_metadata(found, self._installed().found()) is None:
                self._learn(found, probe(found))
        return [info for info in self.listing() if name in (info.name, info.distribution)]

    # ---- inside

    def _installed(self) -> Inventory:
        if self._inventory is None:
            self._inventory = self._discovery.read()
            for problem in self._inventory.problems:
                _log.warning("%s", problem)
        return self._inventory

    def _find(self, kind: Kind, name: str) -> Found:
        candidates = [one for one in self._installed().found() if one.kind is kind and one.name == name]
        if self.safe:
            usable = [one for one in candidates if one.built_in]
            if candidates and not usable:
                owner = candidates[0].distribution.name
                raise NotFound(
                    f"the {kind} {name!r} of {owner} is installed, but only built-ins are used",
                    fix="start without --safe",
                )
            candidates = usable
        if not candidates:
            raise self._unknown(kind, name)
        return next((one for one in candidates if one.built_in), candidates[0])

    def _unknown(self, kind: Kind | None, name: str) -> NotFound:
        every = self._installed().found()
        names = sorted({one.name for one in every if kind is None or one.kind is kind})
        near = get_close_matches(name, names, n=3, cutoff=0.5)
        other = sorted({str(one.kind) for one in every if one.name == name})
        if near:
            fix = f"did you mean {' or '.join(near)}?"
        elif other:
            fix = f"{name} is installed as {', '.join(other)}"
        else:
            fix = f"installed are: {', '.join(names)}" if names else "none is installed; see jackfield plugin list"
        return NotFound(f"no {kind or 'plugin'} {name!r} is installed", fix=fix)

    def _refuse_known(self, found: Found) -> None:
        broken = verdict_from_metadata(found, self._installed().found())
        if broken is None and not self.strict:
            broken = self._knowledge.broken(found)
        if broken is not None:
            raise broken.as_error(found)

    def _wants_trial(self, found: Found) -> bool:
        return self._trials and not self._knowledge.well(found)

    def _learn(self, found: Found, trial: Trial) -> None:
        with self._lock:
            if trial.broken is not None:
                self._knowledge.record_broken(found, trial.broken)
            elif trial.tried:
                self._knowledge.record_well(found, trial.notes)

    def _load_one(self, kind: Kind, name: str) -> LoadOutcome:
        try:
            self.load(kind, name)
        except NotFound as problem:
            left_out = self.safe and any((one.kind, one.name) == (kind, name) for one in self._installed().found())
            return LoadOutcome(kind, name, "skipped" if left_out else "failed", problem)
        except PluginBroken as problem:
            return LoadOutcome(kind, name, "failed", problem)
        return LoadOutcome(kind, name, "loaded")

    def _load(self, found: Found) -> LoadedPlugin:
        with self._lock:
            loaded = self._loaded.get((found.kind, found.name))
            if loaded is not None:
                return loaded
            try:
                loaded = self._share(load(found))
                self._join(loaded)
            except Refused as refused:
                self._knowledge.record_broken(found, refused.broken)
                self._unimport(found)
                raise refused.broken.as_error(found) from refused.__cause__
            self._loaded[(found.kind, found.name)] = loaded
            return loaded

    def _share(self, loaded: LoadedPlugin) -> LoadedPlugin:
        """Two entry points of one module are one plugin object with one set of offers."""
        for other in self._loaded.values():
            if other.plugin is loaded.plugin:
                return LoadedPlugin(loaded.found, other.plugin, other.offers)
        return loaded

    def _join(self, loaded: LoadedPlugin) -> None:
        """Make the plugin's hooks and actions take part."""
        if any(other.plugin is loaded.plugin for other in self._loaded.values()):
            return
        label = self._label(loaded)
        taken = {name: owner for name, (_, owner) in self._actions.items()}
        refuse_clashes(loaded, taken, self._commands, {kind.name for kind in self.approval_kinds()})
        manager = self._hooks()
        manager.register(loaded.plugin, name=label)
        self._commands |= {command.token: command for command in loaded.offers.commands}
        self._actions.update({action.name: (action, label) for action in loaded.offers.actions})
        self.dispatcher.use(manager)

    def _label(self, loaded: LoadedPlugin) -> str:
        """What failures of its hooks are reported under: the distribution, and the module where it has several."""
        name = loaded.found.distribution.name
        return name if not self._hooks().has_plugin(name) else f"{name} ({loaded.found.value})"

    def _hooks(self) -> pluggy.PluginManager:
        if self._manager is None:
            import pluggy

            from jackfield.api.hookspecs import PROJECT, HookSpecs

            self._manager = pluggy.PluginManager(PROJECT)
            self._manager.add_hookspecs(HookSpecs)
        return self._manager

    def _objects(self) -> list[LoadedPlugin]:
        """Each plugin object once, however many entry points it has."""
        return list({id(one.plugin): one for one in self._loaded.values()}.values())

    def _unimport(self, found: Found) -> None:
        """Let a plugin that failed be imported afresh; a package that others use stays as it is."""
        top = _top_of(found)
        if found.built_in or any(_top_of(one.found) == top for one in self._loaded.values()):
            return
        for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
            del sys.modules[name]


def _top_of(found: Found) -> str:
    """The top-level package of its entry point."""
    return found.value.partition(":")[0].partition(".")[0].strip()
