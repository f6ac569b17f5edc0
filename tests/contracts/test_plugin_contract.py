"""The suite for all plugins refuses distributions that misbehave when they are found, loaded or read about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield.plugins.kinds import Kind
from jackfield.testing import PluginContract, Site
from jackfield.testing.distributions import manifest_text

from tests.contracts.refusing import refusal

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plugins"

TOOLS = """
from jackfield.api import ToolSet, hookimpl
@hookimpl
def register_tools(): return [ToolSet(name="odd", title="Odd", tools=())]
"""
PROVIDERS = """
from jackfield.api import ProviderType, hookimpl
from pydantic import BaseModel, model_validator
class Settings(BaseModel):
    key: str
    units: str = "metric"
    @model_validator(mode="wrap")
    @classmethod
    def _whole(cls, value, handler):
        if "key" not in value: raise ValueError("something is missing")
        return handler(value)
@hookimpl
def register_providers(): return [ProviderType(name="odd", title="Odd", create=dict, settings=Settings)]
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as place:
        yield place


def suite(name: str, kind: Kind = Kind.TOOLS) -> type[PluginContract]:
    return type("Bad", (PluginContract,), {"plugin": name, "kind": kind})


def add(site: Site, code: str, *, kind: str = "tools", manifest: str | None = None, name: str = "odd") -> None:
    files = {f"{name}_module/__init__.py": "", f"{name}_module/plugin.py": code}
    text = manifest if manifest is not None else manifest_text(kind, more='description = "Odd."\n')
    site.add(
        f"jackfield-{name}",
        entry_points={f"jackfield.{kind}{'' if kind.endswith('s') else 's'}": {"odd": f"{name}_module.plugin"}},
        files=files | ({f"{name}_module/jackfield-plugin.toml": text} if text else {}),
    )


@pytest.mark.parametrize(
    ("fixture", "id", "says"),
    [
        ("incompatible", "PLUGIN-02", "does not hold this core's API"),
        ("raising", "PLUGIN-03", "import"),
        ("printing", "PLUGIN-04", "I am being imported"),
        ("misspelt", "PLUGIN-06", "did you mean register_tools?"),
        ("not-async", "PLUGIN-06", "must be an async function"),
        ("unknown-argument", "PLUGIN-06", "argument"),
        ("silent", "PLUGIN-06", "no @hookimpl"),
        ("wrong-type", "PLUGIN-07", "not a list of ToolSet"),
        ("wrong-name", "PLUGIN-07", "reports"),
        ("crashing", "PLUGIN-07", "ended the process"),
        ("vanishing", "PLUGIN-07", "ended the process"),
    ],
)
async def test_a_broken_fixture_is_refused(fixture: str, id: str, says: str, site: Site, tmp_path: Path) -> None:
    site.install(FIXTURES / fixture)
    assert says in await refusal(suite(fixture), id, tmp_path)


@pytest.mark.parametrize(
    ("deed", "says"),
    [
        ("import socket; socket.socket().close()", "opens a socket"),
        ("import threading; threading.Thread(target=print, daemon=True).start()", "starts a thread"),
        ("import subprocess; subprocess.run(['true'])", "starts a process"),
        ("open('left-behind', 'w').close()", "writes the file"),
        ("import os; os.system('true')", "starts a process"),
    ],
)
async def test_deeds_while_it_is_loaded_are_refused(deed: str, says: str, site: Site, tmp_path: Path) -> None:
    add(site, f"{deed}\n{TOOLS}")
    message = await refusal(suite("odd"), "PLUGIN-05", tmp_path)
    assert says in message and "odd_module/plugin.py:1" in message


async def test_a_name_that_two_distributions_offer_is_refused(site: Site, tmp_path: Path) -> None:
    add(site, TOOLS)
    add(site, TOOLS, name="other")
    assert "jackfield-odd, jackfield-other" in await refusal(suite("odd"), "PLUGIN-01", tmp_path)


async def test_a_plugin_that_is_not_installed_is_refused_with_the_way_out(tmp_path: Path) -> None:
    assert "pip install -e" in await refusal(suite("nowhere"), "PLUGIN-01", tmp_path)


async def test_a_plugin_without_a_manifest_is_refused(site: Site, tmp_path: Path) -> None:
    add(site, TOOLS, manifest="")
    assert "jackfield-plugin.toml" in await refusal(suite("odd"), "PLUGIN-02", tmp_path)


async def test_hooks_that_offer_something_else_each_time_are_refused(site: Site, tmp_path: Path) -> None:
    add(site, TOOLS.replace("return [", "COUNT.append(1); return [ToolSet(name=f'n{len(COUNT)}', title='', tools=()), ")
        + "COUNT = []\n")  # fmt: skip
    assert "the second" in await refusal(suite("odd"), "PLUGIN-08", tmp_path)


async def test_a_manifest_with_other_kinds_is_refused(site: Site, tmp_path: Path) -> None:
    add(site, TOOLS, manifest=manifest_text("channel"))
    assert "jackfield.tools" in await refusal(suite("odd"), "PLUGIN-09", tmp_path)


async def test_a_manifest_without_the_settings_is_refused(site: Site, tmp_path: Path) -> None:
    add(site, PROVIDERS, kind="provider")
    assert "'key': True" in await refusal(suite("odd", Kind.PROVIDER), "PLUGIN-10", tmp_path)


async def test_an_import_of_the_core_s_inner_rooms_is_refused(site: Site, tmp_path: Path) -> None:
    add(site, f"import jackfield.store\n{TOOLS}")
    assert "jackfield.store" in await refusal(suite("odd"), "PLUGIN-11", tmp_path)


async def test_an_error_that_names_no_setting_is_refused(site: Site, tmp_path: Path) -> None:
    add(site, PROVIDERS, kind="provider")
    assert "needed are ['key']" in await refusal(suite("odd", Kind.PROVIDER), "PLUGIN-12", tmp_path)


async def test_a_command_that_is_none_is_refused(site: Site, tmp_path: Path) -> None:
    more = '\n[[commands]]\nname = "odd"\nhelp = "Odd."\ntarget = "odd_module.plugin:register_tools"\n'
    add(site, TOOLS, manifest=manifest_text("tools", more=more))
    assert "no click command" in await refusal(suite("odd"), "PLUGIN-13", tmp_path)


async def test_a_well_made_plugin_passes(site: Site) -> None:
    site.install(FIXTURES / "well")
    good = suite("well")()
    for name in (
        "01_the_name_is_offered_once",
        "02_the_manifest_is_there_and_fits_this_core",
        "04_loading_prints_nothing",
        "05_loading_does_nothing_but_define",
        "07_its_hooks_return_what_they_must",
    ):
        getattr(good, f"test_plugin_{name}")()
