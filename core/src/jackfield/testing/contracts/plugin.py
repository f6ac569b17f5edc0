"""What is asked of every plugin, whatever its kind (marketplace.md 5.2; architecture 4)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from jackfield import API_VERSION
from jackfield.api import ProviderType
from jackfield.errors import HookMisuse, JackfieldError
from jackfield.plugins.discovery import Discovery, Found
from jackfield.plugins.kinds import GROUPS, Kind
from jackfield.plugins.loading import check_hooks, import_object
from jackfield.plugins.manifest import Manifest
from jackfield.plugins.probe import probe
from jackfield.plugins.registry import PluginRegistry
from jackfield.testing.contracts.checks import check, plain_text, skip
from jackfield.testing.distributions import Site
from jackfield.testing.trial import Observed, observe

__all__ = ["PluginContract"]


class PluginContract:
    """Subclass the contract of your plugin's kind; each of them includes this one."""

    kind: ClassVar[Kind]
    plugin: ClassVar[str]
    """The entry point's name."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """What a user would write into the configuration."""
    project: ClassVar[Path | None] = None
    """The project's folder, when it is not installed: with `pyproject.toml` and `src/`, or a directory plugin."""
    state_file: ClassVar[Path | None] = None
    _observed: ClassVar[dict[type[Any], Observed]] = {}

    @pytest.fixture(autouse=True)
    def _site(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        """The project, installed for the time of a test."""
        if self.project is None:
            yield
            return
        with Site(tmp_path_factory.mktemp("site")) as site:
            if (self.project / "pyproject.toml").is_file():
                site.install(self.project)
            else:
                shutil.copytree(self.project, site.home / "plugins" / self.project.name)
                type(self).state_file = site.state_file
            yield

    # ---- what checks use

    def found(self) -> Found:
        """The entry point, as discovery sees it."""
        matching = self._matching()
        assert matching, (
            f"{self.plugin!r} is no installed {self.kind} in this environment; install the distribution "
            "(pip install -e .), or set `project` to its folder"
        )
        return matching[0]

    def item(self) -> Any:
        """What the entry point names: a `ChannelType`, `ProviderType`, ..., loaded as a host would."""
        return PluginRegistry(state_file=self.state_file, strict=True).load(self.kind, self.plugin).item

    def validated(self, settings: Mapping[str, Any] | None = None) -> Any:
        """The settings as the plugin gets them: an instance of its model, or a dict without one."""
        values = dict(self.settings if settings is None else settings)
        model = self._settings_model()
        return model.model_validate(values) if model is not None else values

    def _settings_model(self) -> type[Any] | None:
        item = self.item()
        found: type[Any] | None = (
            item.settings_model() if isinstance(item, ProviderType) else getattr(item, "settings", None)
        )
        return found

    def _matching(self) -> list[Found]:
        folder = self.state_file.parent if self.state_file is not None else None
        everything = Discovery(folder).read().found()
        return [one for one in everything if one.kind is self.kind and one.name == self.plugin]

    def _seen(self) -> Observed:
        """The trial, made once for a suite."""
        cls = type(self)
        if cls not in self._observed:
            self._observed[cls] = observe(self.found())
        return self._observed[cls]

    def _manifest(self) -> Manifest:
        found = self.found()
        if found.built_in:
            skip("a built-in needs no manifest: it is the core's")
        problem = found.distribution.manifest_problem
        assert problem is None, problem
        manifest = found.distribution.manifest
        assert manifest is not None, (
            "there is no jackfield-plugin.toml beside the plugin's code; without it nobody can see what the plugin "
            "needs before it is imported"
        )
        return manifest

    # ---- the checks

    @check("PLUGIN-01")
    def test_plugin_01_the_name_is_offered_once(self) -> None:
        """The entry point is there, exactly once in its group, and its name can be a word of the configuration."""
        found = self.found()
        owners = [one.distribution.name for one in self._matching()]
        assert len(owners) == 1, f"{self.plugin!r} is offered by {', '.join(owners)}; uninstall all but one"
        assert found.named_well, f"{self.plugin!r} must be small letters, digits and single hyphens, at most 64"

    @check("PLUGIN-02")
    def test_plugin_02_the_manifest_is_there_and_fits_this_core(self) -> None:
        """`jackfield-plugin.toml` is found without importing the package, and its API range holds this version."""
        manifest = self._manifest()
        version = ".".join(map(str, API_VERSION))
        assert self.found().distribution.compatible, f"api = {manifest.api!r} does not hold this core's API {version}"
        assert manifest.description.strip(), "description is empty; it is what people read in `jackfield plugin list`"
        for text in (manifest.title, manifest.description, *(one.help for one in manifest.settings)):
            assert not plain_text(text), f"{text!r} has characters that can't be seen: {plain_text(text)}"

    @check("PLUGIN-03")
    def test_plugin_03_it_loads_in_a_child_within_its_bound(self) -> None:
        """A process of its own can import and register it, without the caller's environment, in 10 s at most."""
        found = self.found()
        if found.codeless:
            skip("there is no code to load")
        trial = probe(found)
        assert trial.tried, "the trial's child could not start at all; look at the log"
        assert trial.broken is None, f"{trial.broken.phase}: {trial.broken.reason} ({trial.broken.fix})"

    @check("PLUGIN-04")
    def test_plugin_04_loading_prints_nothing(self) -> None:
        """Importing and registering writes nothing to standard output or error."""
        seen = self._seen()
        assert not seen.printed, f"it printed {seen.printed[:300]!r}"

    @check("PLUGIN-05")
    def test_plugin_05_loading_does_nothing_but_define(self) -> None:
        """Importing and registering opens no socket, starts no thread and no process, and writes no file."""
        deeds = self._seen().deeds
        assert not deeds, f"while it is loaded it {'; it '.join(deeds)}. Move that into create or start"

    @check("PLUGIN-06")
    def test_plugin_06_its_hooks_are_known(self) -> None:
        """Every marked function is a hook's, with arguments that the hook has, and async exactly where the hook is."""
        found = self.found()
        if found.codeless:
            skip("there is no code to load")
        try:
            odd = check_hooks(import_object(found), found.distribution.name)
        except HookMisuse as problem:
            raise AssertionError(f"{problem} ({problem.fix})") from None
        assert not odd, "; ".join(odd)

    @check("PLUGIN-07")
    def test_plugin_07_its_hooks_return_what_they_must(self) -> None:
        """Each `register_*` returns a list of its own type, and the plugin reports the entry point's name."""
        seen = self._seen()
        assert seen.finished, seen.problem
        assert not seen.problem, seen.problem
        assert f"{self.kind}: {self.plugin}" in seen.names[0]

    @check("PLUGIN-08")
    def test_plugin_08_registering_again_gives_the_same(self) -> None:
        """Registration hooks may be called twice: the second answer offers the same names."""
        seen = self._seen()
        assert not seen.problem, seen.problem
        once, again = seen.names
        assert once == again, f"the first call offered {once}, the second {again}"

    @check("PLUGIN-09")
    def test_plugin_09_the_manifest_tells_the_kinds(self) -> None:
        """The manifest's kinds are exactly those of the distribution's entry points."""
        manifest = self._manifest()
        offered = {kind for kind, _, _ in self.found().distribution.entries}
        assert set(manifest.kinds) == offered, (
            f"kinds = {sorted(manifest.kinds)}, but the entry points are in "
            f"{sorted(group for group, kind in GROUPS.items() if kind in offered)}"
        )

    @check("PLUGIN-10")
    def test_plugin_10_the_manifest_tells_the_settings(self) -> None:
        """The manifest's settings are exactly those of the settings model, and it says which must be set."""
        manifest = self._manifest()
        model = self._settings_model()
        if model is None:
            assert not manifest.settings or len(manifest.kinds) > 1, "the manifest has settings, the code has no model"
            skip("it has no settings model")
        if len(self.found().distribution.entries) > 1:
            skip("the distribution offers several plugins, whose settings share one manifest")
        told = {one.name: one.required for one in manifest.settings}
        real = {field.alias or name: field.is_required() for name, field in model.model_fields.items()}
        assert told == real, f"the manifest says {told} (name: must be set), the model {real}"

    @check("PLUGIN-11")
    def test_plugin_11_it_uses_public_rooms_only(self) -> None:
        """Loading it imports none of the core's inner rooms: it stands on `jackfield.api`, `models` and `errors`."""
        if self.found().built_in:
            skip("a built-in is part of the core")
        modules = self._seen().modules
        assert not modules, f"it imports {', '.join(modules)}"

    @check("PLUGIN-12")
    def test_plugin_12_missing_settings_are_named(self) -> None:
        """Without any setting it can be used, or the error names what is missing."""
        from pydantic import ValidationError

        model = self._settings_model()
        if model is None:
            skip("it has no settings model")
        required = {field.alias or name for name, field in model.model_fields.items() if field.is_required()}
        try:
            model.model_validate({})
        except ValidationError as problem:
            named = {str(error["loc"][0]) for error in problem.errors() if error["loc"]}
            assert required <= named or not required, f"the error names {sorted(named)}, needed are {sorted(required)}"
            assert named, f"without settings it says {problem}, which names none"

    @check("PLUGIN-13")
    def test_plugin_13_its_commands_can_be_run(self) -> None:
        """What the manifest says of each command leads to a click command with a help text."""
        import click

        commands = self._manifest().commands
        if not commands:
            skip("it brings no commands")
        for command in commands:
            module, _, name = command.target.partition(":")
            target: Any = import_module(module)
            for part in name.split("."):
                target = getattr(target, part)
            assert isinstance(target, click.Command), f"{command.target} is {target!r}, no click command"
            assert command.help.strip(), f"command {command.name} has no help"

    @check("PLUGIN-14")
    def test_plugin_14_two_registries_load_it_side_by_side(self) -> None:
        """It can be loaded more than once in a process: nothing of it is used up by the first."""
        try:
            assert type(self.item()) is type(self.item())
        except JackfieldError as problem:
            raise AssertionError(f"it can't be loaded a second time: {problem}") from problem
