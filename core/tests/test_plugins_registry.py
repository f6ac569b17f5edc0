"""One plugin's trouble stays its own: loading, remembering, trying again (architecture 4; C179, C181, C185)."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield.api import ToolSet
from jackfield.errors import NotFound, PluginBroken
from jackfield.plugins import Kind, PluginInfo, PluginRegistry, PluginState
from jackfield.plugins.discovery import Found
from jackfield.plugins.probe import Trial
from jackfield.testing.distributions import Site, manifest_text

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "plugins"
RAISE_AT_IMPORT = ["raising", "exits", "broken", "missing-import", "missing-folder", "bad-settings"]
RAISE_LATER = ["misspelt", "unknown-argument", "not-async", "wrong-type", "wrong-name", "raising-hook", "silent"]

TOOLS = """
from jackfield.api import ActionHandler, ExtensionType, ToolSet, hookimpl

async def act(context, request_id, arguments): return None

@hookimpl
def register_tools(): return [ToolSet(name=NAME, title=NAME, tools=())]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as place:
        yield place


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were tried; the trials themselves find nothing, so that loading here meets the trouble."""
    tried: list[str] = []

    def attempt(found: Found, **_: object) -> Trial:
        tried.append(found.name)
        return Trial()

    monkeypatch.setattr("jackfield.plugins.registry.probe", attempt)
    return tried


def add(site: Site, name: str, code: str = TOOLS, **more: str) -> None:
    module = name.replace("-", "_") + "_module"
    site.add(
        more.get("distribution", f"jackfield-tools-{name}"),
        more.get("version", "1.0"),
        entry_points={f"jackfield.{more.get('kind', 'tools')}": {more.get("entry", name): module}},
        files={f"{module}/__init__.py": code.replace("NAME", repr(more.get("entry", name)))}
        | ({f"{module}/jackfield-plugin.toml": more["manifest"]} if "manifest" in more else {}),
    )


def registry(site: Site, *, safe: bool = False, strict: bool = False) -> PluginRegistry:
    return PluginRegistry(state_file=site.state_file, safe=safe, strict=strict)


def info_of(plugins: PluginRegistry, name: str) -> PluginInfo:
    return next(one for one in plugins.listing() if one.name == name)


def test_a_plugin_is_imported_when_it_is_asked_for_and_not_before(site: Site) -> None:
    site.install(FIXTURES / "well")
    plugins = registry(site)
    assert info_of(plugins, "well").state is PluginState.UNTRIED
    assert "jackfield_tools_well" not in sys.modules
    assert isinstance(plugins.tool_set("well"), ToolSet)
    assert plugins.tool_set("well") is plugins.tool_set("well")
    assert info_of(plugins, "well").state is PluginState.READY


@pytest.mark.parametrize("name", RAISE_AT_IMPORT + RAISE_LATER)
def test_whatever_a_plugin_raises_comes_out_as_one_error_and_the_others_load(
    site: Site, trials: list[str], name: str
) -> None:
    """C179."""
    site.install(FIXTURES / name)
    site.install(FIXTURES / "well")
    plugins = registry(site)
    with pytest.raises(PluginBroken) as refused:
        plugins.tool_set(name)
    assert f"jackfield-tools-{name}" in refused.value.plugin
    assert refused.value.fix
    assert plugins.tool_set("well").name == "well"
    assert info_of(plugins, name).state is PluginState.BROKEN


@pytest.mark.parametrize("name", ["vanishing", "crashing", "raising"])
def test_a_plugin_that_would_end_the_process_is_found_out_in_a_child(site: Site, name: str) -> None:
    """C179, C183."""
    site.install(FIXTURES / name)
    plugins = registry(site)
    with pytest.raises(PluginBroken):
        plugins.tool_set(name)
    assert f"jackfield_tools_{name}" not in sys.modules


def test_a_broken_plugin_is_not_tried_again_by_the_next_process(site: Site, trials: list[str]) -> None:
    site.install(FIXTURES / "raising")
    with pytest.raises(PluginBroken):
        registry(site).tool_set("raising")
    trials.clear()
    with pytest.raises(PluginBroken) as refused:
        registry(site).tool_set("raising")
    assert trials == []
    assert "no key at old_settings.key" in refused.value.reason
    stored = json.loads(site.state_file.read_text())["broken"]
    assert list(stored) == ["tools:raising@jackfield-tools-raising"]


def test_a_plugin_that_was_well_is_not_tried_again_by_another_home(site: Site, trials: list[str]) -> None:
    add(site, "one")
    registry(site).tool_set("one")
    assert trials == ["one"]
    PluginRegistry(state_file=site.home / "other" / "broken.json").tool_set("one")
    assert trials == ["one"]


def test_a_broken_plugin_is_tried_again_when_it_changes(site: Site, trials: list[str]) -> None:
    add(site, "one", "raise ValueError('first')")
    with pytest.raises(PluginBroken):
        registry(site).tool_set("one")
    add(site, "one", TOOLS)
    assert registry(site).tool_set("one").name == "one"
    assert trials == ["one", "one"]
    assert json.loads(site.state_file.read_text())["broken"] == {}


def test_a_broken_plugin_is_tried_again_when_the_core_changes(
    site: Site, trials: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add(site, "one", "raise ValueError('no')")
    with pytest.raises(PluginBroken):
        registry(site).tool_set("one")
    monkeypatch.setattr("jackfield.plugins.fingerprint.core_fingerprint", lambda: "another core")
    assert info_of(registry(site), "one").state is PluginState.UNTRIED


def test_retry_gives_a_second_chance_in_the_same_process(site: Site, tmp_path: Path) -> None:
    flag = tmp_path / "mended"
    add(site, "one", f"import pathlib\nif not pathlib.Path({str(flag)!r}).exists(): raise ValueError('no')\n" + TOOLS)
    plugins = registry(site)
    with pytest.raises(PluginBroken):
        plugins.tool_set("one")
    assert [one.state for one in plugins.retry("one")] == [PluginState.BROKEN]
    flag.touch()
    with pytest.raises(PluginBroken):
        plugins.tool_set("one")
    assert [one.state for one in plugins.retry("jackfield-tools-one")] == [PluginState.READY]
    assert plugins.tool_set("one").name == "one"


def test_a_running_host_sees_what_was_installed_and_mended_after_a_refresh(site: Site, trials: list[str]) -> None:
    add(site, "one", "raise ValueError('no')")
    plugins = registry(site)
    with pytest.raises(PluginBroken):
        plugins.tool_set("one")
    add(site, "one", TOOLS)
    add(site, "two")
    with pytest.raises(NotFound):
        plugins.tool_set("two")
    registry(site).retry("one")
    plugins.refresh()
    assert plugins.tool_set("one").name == "one"
    assert plugins.tool_set("two").name == "two"


@pytest.mark.parametrize(
    "text", ["", "{", '{"format": 1, "broken": []}', '{"format": 9}', '{"format":1,"broken":{"x":1}}']
)
def test_damaged_records_only_mean_that_nothing_is_known(site: Site, trials: list[str], text: str) -> None:
    add(site, "one")
    site.state_file.parent.mkdir(parents=True)
    site.state_file.write_text(text)
    assert registry(site).tool_set("one").name == "one"


def test_an_unknown_name_is_answered_with_near_ones(site: Site) -> None:
    site.install(FIXTURES / "well")
    plugins = registry(site)
    with pytest.raises(NotFound) as refused:
        plugins.tool_set("wel")
    assert refused.value.fix == "did you mean well?"
    with pytest.raises(NotFound) as refused:
        plugins.channel_type("well")
    assert refused.value.fix == "well is installed as tools"


def test_another_api_version_is_told_without_importing(site: Site, trials: list[str]) -> None:
    site.install(FIXTURES / "incompatible")
    plugins = registry(site)
    info = info_of(plugins, "incompatible")
    assert info.state is PluginState.INCOMPATIBLE
    with pytest.raises(PluginBroken, match="asks for plugin API >=7,<8, this is 1"):
        plugins.tool_set("incompatible")
    assert trials == []


def test_a_bad_manifest_or_name_is_told_without_importing(site: Site, trials: list[str]) -> None:
    add(site, "one", manifest="title = ")
    add(site, "two", entry="No Word")
    plugins = registry(site)
    assert [
        (one.broken.phase if one.broken else None)
        for one in plugins.listing()
        if one.kind is Kind.TOOLS and one.name in ("one", "No Word")
    ] == ["metadata", "manifest"]
    with pytest.raises(PluginBroken):
        plugins.tool_set("one")
    assert trials == []


def test_a_name_that_two_distributions_offer_belongs_to_neither(site: Site, trials: list[str]) -> None:
    add(site, "one", entry="hello", distribution="jackfield-tools-a")
    add(site, "two", entry="hello", distribution="jackfield-tools-b")
    plugins = registry(site)
    both = [one for one in plugins.listing() if one.name == "hello"]
    assert [(one.distribution, one.state) for one in both] == [
        ("jackfield-tools-a", PluginState.CONFLICT),
        ("jackfield-tools-b", PluginState.CONFLICT),
    ]
    with pytest.raises(PluginBroken) as refused:
        plugins.tool_set("hello")
    assert "also offered by jackfield-tools-b 1.0" in refused.value.reason
    assert refused.value.fix == "remove one of them: jackfield-tools-a, jackfield-tools-b"


def test_the_same_name_in_two_kinds_is_no_conflict(site: Site, trials: list[str]) -> None:
    add(site, "one", entry="hello")
    add(site, "two", entry="hello", kind="packs", distribution="jackfield-pack-hello")
    plugins = registry(site)
    assert plugins.tool_set("hello").name == "hello"


def test_a_built_ins_name_cannot_be_taken(site: Site) -> None:
    add(site, "squatter", kind="runtimes", entry="process")
    plugins = registry(site)
    states = {one.distribution: one.state for one in plugins.listing() if one.name == "process"}
    assert states == {"jackfield": PluginState.READY, "jackfield-tools-squatter": PluginState.CONFLICT}
    assert plugins.runtime_type("process").name == "process"


def test_safe_mode_uses_none_but_the_built_ins(site: Site) -> None:
    """Architecture 4, C183."""
    site.install(FIXTURES / "well")
    plugins = registry(site, safe=True)
    assert {one.distribution for one in plugins.listing() if one.state is not PluginState.LEFT_OUT} == {"jackfield"}
    assert plugins.runtime_type("process").name == "process"
    with pytest.raises(NotFound) as refused:
        plugins.tool_set("well")
    assert refused.value.fix == "start without --safe"
    assert plugins.commands() == []


def test_a_runner_tries_nothing_in_children_and_keeps_no_records(site: Site, trials: list[str]) -> None:
    add(site, "one")
    add(site, "two", "raise ValueError('no')")
    plugins = PluginRegistry(state_file=None)
    assert plugins.tool_set("one").name == "one"
    with pytest.raises(PluginBroken):
        plugins.tool_set("two")
    assert trials == []
    assert not site.state_file.exists()


def test_metadata_that_cannot_be_read_are_logged(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """C179: also discovery."""
    info = site.add("jackfield-tools-bad", entry_points={"jackfield.tools": {"bad": "bad"}})
    (info / "entry_points.txt").write_bytes(b"[jackfield.tools]\nbad = \xff\xfe\n")
    registry(site).listing()
    assert str(site.packages) in caplog.text


async def test_every_enabled_plugin_gets_one_line_in_the_log(
    site: Site, trials: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """C181: loaded = enabled minus failed, and each start says so."""
    site.install(FIXTURES / "well")
    site.install(FIXTURES / "incompatible")
    site.install(FIXTURES / "missing-folder")
    plugins = registry(site)
    with caplog.at_level(logging.INFO, logger="jackfield.plugins.registry"):
        outcomes = await plugins.load_enabled(
            [("tools", "well"), ("tools", "incompatible"), ("tools", "missing-folder"), ("tools", "nowhere")]
        )
    assert [(one.name, one.state) for one in outcomes] == [
        ("well", "loaded"),
        ("incompatible", "failed"),
        ("missing-folder", "failed"),
        ("nowhere", "failed"),
    ]
    lines = [record.getMessage() for record in caplog.records if record.name == "jackfield.plugins.registry"]
    assert len(lines) == 4
    assert lines[0] == "plugin well (tools): loaded"
    assert "asks for plugin API >=7,<8" in lines[1]
    assert [one.found.name for one in plugins.loaded()] == ["well"]
    states = {one.name: one.state for one in plugins.listing()}
    assert (states["well"], states["incompatible"], states["missing-folder"]) == (
        PluginState.READY,
        PluginState.INCOMPATIBLE,
        PluginState.BROKEN,
    )


async def test_safe_mode_logs_what_it_skips(site: Site) -> None:
    """C181."""
    site.install(FIXTURES / "well")
    (outcome,) = await registry(site, safe=True).load_enabled([("tools", "well")])
    assert outcome.state == "skipped"


async def test_strict_raises_the_first_failure_with_its_cause(site: Site) -> None:
    site.install(FIXTURES / "raising")
    with pytest.raises(PluginBroken) as refused:
        await registry(site, strict=True).load_enabled([("tools", "raising")])
    assert isinstance(refused.value.__cause__, ValueError)


async def test_unknown_plugins_are_tried_side_by_side_before_they_are_loaded(site: Site, trials: list[str]) -> None:
    add(site, "one")
    add(site, "two")
    plugins = registry(site)
    await plugins.prepare(
        [("tools", "one"), ("tools", "two"), ("tools", "one"), ("tools", "nobody"), ("runtime", "process")]
    )
    assert sorted(trials) == ["one", "two"]
    plugins.tool_set("one")
    assert sorted(trials) == ["one", "two"]


def test_a_module_behind_several_entry_points_is_one_plugin(site: Site, trials: list[str]) -> None:
    code = (
        TOOLS
        + "@hookimpl\n"
        + "def register_actions(): return [ActionHandler(name='do', handle=act)]\n"
        + "@hookimpl\n"
        + "def register_extensions(): return [ExtensionType(name='many', title='Many', create=lambda s: None)]\n"
        + "@hookimpl\n"
        + "async def turn_ended(turn): pass\n"
    )
    site.add(
        "jackfield-many",
        entry_points={"jackfield.tools": {"many": "many"}, "jackfield.extensions": {"many": "many"}},
        files={"many.py": code.replace("NAME", "'many'")},
    )
    plugins = registry(site)
    plugins.tool_set("many")
    assert plugins.extension_type("many").name == "many"
    assert list(plugins.actions()) == ["do"]
    assert plugins.tool_sets_of_action("do") == {"many"}
    assert plugins.tool_sets_of_action("undo") == frozenset()
    assert plugins.dispatcher.has("turn_ended")


def test_a_kind_of_approval_that_there_is_already_is_refused(site: Site, trials: list[str]) -> None:
    code = (
        TOOLS
        + "from jackfield.api import ApprovalKind\n"
        + "@hookimpl\ndef register_approvals(): return [ApprovalKind(name='do', title='Do', apply=act)]\n"
    )
    add(site, "one", code)
    add(site, "two", code)
    plugins = registry(site)
    plugins.tool_set("one")
    with pytest.raises(PluginBroken) as refused:
        plugins.tool_set("two")
    assert refused.value.reason == "there is a kind of approval 'do' already"
    assert [kind.name for kind in plugins.approval_kinds()] == ["do"]


def test_an_action_that_is_handled_already_is_refused(site: Site, trials: list[str]) -> None:
    code = TOOLS + "@hookimpl\ndef register_actions(): return [ActionHandler(name='do', handle=act)]\n"
    add(site, "one", code)
    add(site, "two", code)
    plugins = registry(site)
    plugins.tool_set("one")
    with pytest.raises(PluginBroken) as refused:
        plugins.tool_set("two")
    assert refused.value.reason == "the action 'do' is already handled by jackfield-tools-one"
    assert [one.found.name for one in plugins.loaded()] == ["one"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("'/clear'", "the command /clear is the core's"),
        ("'/claim'", "the command /claim is the core's"),
        ("'/go'", "the command /go is another plugin's"),
        ("'/mine', CommandAccess.OWN_TURN", "the command /mine has the access own_turn"),
        ("'Go now'", "'Go now' is no command"),
    ],
)
def test_a_command_that_has_a_meaning_already_is_refused(site: Site, trials: list[str], row: str, said: str) -> None:
    """messaging.md 1.7: one table, exact tokens; a plugin adds and changes nothing."""
    code = TOOLS + "from jackfield.models.commands import ChatCommand, CommandAccess\n"
    code += "@hookimpl\ndef register_commands(): return [ChatCommand({})]\n"
    add(site, "one", code.format("'/go'"))
    add(site, "two", code.format(row))
    plugins = registry(site)
    plugins.tool_set("one")
    with pytest.raises(PluginBroken) as refused:
        plugins.tool_set("two")
    assert said in refused.value.reason
    assert list(plugins.chat_commands()) == ["/go"]


async def test_threads_that_ask_at_once_get_the_same_plugin(site: Site, trials: list[str]) -> None:
    add(site, "one", "import threading\nthreading.Event().wait(0.05)\n" + TOOLS)
    plugins = registry(site)
    found = await asyncio.gather(*(asyncio.to_thread(plugins.tool_set, "one") for _ in range(8)))
    assert len({id(one) for one in found}) == 1
    assert len(plugins.loaded()) == 1


async def test_hooks_of_loaded_plugins_only_take_part(site: Site, trials: list[str]) -> None:
    hook = "@hookimpl\nasync def tool_instructions(tool_set, text): return text + tool_set\n"
    add(site, "one", TOOLS + hook)
    plugins = registry(site)
    assert await plugins.dispatcher.compose("tool_instructions", "text", "a", tool_set="b") == "a"
    plugins.tool_set("one")
    assert await plugins.dispatcher.compose("tool_instructions", "text", "a", tool_set="b") == "ab"


def test_an_object_works_as_well_as_a_module_and_a_class_is_refused(site: Site, trials: list[str]) -> None:
    code = (
        "from jackfield.api import ToolSet, hookimpl\n"
        "class Plugin:\n"
        "    @hookimpl\n"
        "    def register_tools(self): return [ToolSet(name='one', title='One', tools=())]\n"
        "    @property\n"
        "    def settings(self): raise RuntimeError('not yet')\n"
        "plugin = Plugin()\n"
    )
    site.add("a", entry_points={"jackfield.tools": {"one": "a_module:plugin"}}, files={"a_module.py": code})
    site.add("b", entry_points={"jackfield.tools": {"two": "a_module:Plugin"}})
    plugins = registry(site)
    assert plugins.tool_set("one").title == "One"
    with pytest.raises(PluginBroken, match="is a class"):
        plugins.tool_set("two")


def test_a_directory_plugin_with_code_is_loaded_from_its_folder(site: Site) -> None:
    folder = site.home / "plugins" / "weather"
    folder.mkdir(parents=True)
    (folder / "jackfield-plugin.toml").write_text(
        manifest_text("tools", more='[entry_points.tools]\nweather = "weather_module"\n')
    )
    (folder / "weather_module.py").write_text(TOOLS.replace("NAME", "'weather'"))
    before = list(sys.path)
    try:
        assert registry(site).tool_set("weather").name == "weather"
    finally:
        sys.path[:] = before
        sys.modules.pop("weather_module", None)


def test_a_directory_pack_needs_no_code(site: Site) -> None:
    folder = site.home / "plugins" / "field-notes"
    folder.mkdir(parents=True)
    (folder / "jackfield-plugin.toml").write_text(manifest_text("pack", title="Field notes"))
    pack = registry(site).pack("field-notes")
    assert (pack.name, pack.title, pack.package, pack.folder) == ("field-notes", "Field notes", "", str(folder))


def test_commands_come_from_manifests_without_importing(site: Site) -> None:
    more = '[[commands]]\nname = "weather"\nhelp = "Ask."\ntarget = "one_module.cli:command"\n'
    add(site, "one", "raise ValueError('no')", manifest=manifest_text("tools", more=more))
    (command,) = [one for one in registry(site).commands() if one.name == "weather"]
    assert (command.target, command.distribution) == ("one_module.cli:command", "jackfield-tools-one")


def test_importing_the_registry_and_listing_import_neither_pluggy_nor_the_api() -> None:
    program = (
        "import sys; from jackfield.plugins import PluginRegistry;"
        "PluginRegistry(state_file=None).listing();"
        "print(*{'pluggy', 'pydantic', 'jackfield.api', 'jackfield_provider_mock'} & set(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_the_package_exports_what_it_names() -> None:
    import jackfield.plugins as room

    assert {name for names in room._HOME_OF.values() for name in names} == set(room.__all__)
    assert all(getattr(room, name).__name__ == name for name in room.__all__)
    with pytest.raises(AttributeError):
        room.nothing_of_the_sort  # noqa: B018
