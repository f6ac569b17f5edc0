"""`marketplace.json` says what the repository really ships (marketplace.md 3.3)."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jackfield import API_VERSION
from jackfield.plugins.discovery import discover
from jackfield.plugins.kinds import GROUPS
from jackfield.plugins.manifest import allows
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PERMISSION = re.compile(
    r"net:(\*|[a-z0-9.-]+)(:\d+)?|fs:(read|write):(group|data|tmp|home|\*)|secret:[A-Z][A-Z0-9_]*|exec:[\w.-]+|docker"
    r"|prompt:(docs|system)|hooks:(messages|tools|storage)"
)


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("marketplace_script", ROOT / "scripts" / "marketplace.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MARKETPLACE = script()
INDEX: dict[str, Any] = json.loads((ROOT / "marketplace.json").read_text(encoding="utf-8"))
PLUGINS: list[dict[str, Any]] = INDEX["plugins"]


def test_the_index_is_what_the_script_writes() -> None:
    assert (ROOT / "marketplace.json").read_text(encoding="utf-8") == MARKETPLACE.build(), (
        "run: python scripts/marketplace.py"
    )


def test_every_shipped_plugin_is_in_it_once() -> None:
    shipped = {
        path.parents[2].relative_to(ROOT).as_posix() for path in ROOT.glob("plugins/*/*/src/*/jackfield-plugin.toml")
    }
    listed = [one["releases"][0]["source"]["path"] for one in PLUGINS]
    assert sorted(listed) == sorted(shipped)
    names = [one["name"] for one in PLUGINS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda one: str(one["name"]))
def test_every_entry_obeys_the_schemas_rules(plugin: dict[str, Any]) -> None:
    release = plugin["releases"][0]
    assert NAME.fullmatch(plugin["name"])
    assert len(plugin["name"]) <= 64
    assert len(plugin["summary"]) <= 200
    assert len(plugin["description"]) <= 2000
    assert plugin["publisher"] in {one["name"] for one in INDEX["publishers"]}
    assert all(PERMISSION.fullmatch(one) for one in release["permissions"]), release["permissions"]
    for key in ("core", "hook_api", "python"):
        assert str(SpecifierSet(release["requires"][key]))
    assert (ROOT / release["source"]["path"] / "pyproject.toml").is_file()


@pytest.mark.parametrize("project", MARKETPLACE.projects(), ids=lambda one: str(one.name))
def test_every_manifest_agrees_with_its_project_and_this_core(project: Path) -> None:
    manifest = MARKETPLACE.manifest_of(project)
    entry = MARKETPLACE.entry(project)
    assert {str(GROUPS[one["group"]]) for one in entry["releases"][0]["provides"]} == {
        str(kind) for kind in manifest.kinds
    }
    assert allows(manifest, API_VERSION)


def test_what_is_installed_here_shows_the_same_titles() -> None:
    """Manifests are found without importing, editable installs included."""
    installed = {one.distribution.name: one.distribution for one in discover().found()}
    for plugin in PLUGINS:
        distribution = installed[plugin["releases"][0]["source"]["package"]]
        assert distribution.title == plugin["title"]
        assert distribution.compatible
    assert installed["jackfield"].title == "Process"
