"""What is installed is read from metadata, kept in a cache, and never imported (architecture 4; C183)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield.plugins.discovery import Discovery, Inventory
from jackfield.plugins.kinds import GROUPS, Kind
from jackfield.testing.distributions import Site, make_distribution, manifest_text, settle

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "plugins"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as place:
        yield place


def read(site: Site) -> Inventory:
    """Looking at this site only."""
    return Discovery(site.home / "plugins", path=[str(site.packages)]).read()


def names(inventory: Inventory) -> list[str]:
    return [one.name for one in inventory.found()]


def add(site: Site, name: str, *, kind: str = "tools", version: str = "1.0", manifest: str | None = None) -> Path:
    module = name.replace("-", "_")
    files = {f"{module}/__init__.py": "raise RuntimeError('imported')\n"}
    if manifest is not None:
        files[f"{module}/jackfield-plugin.toml"] = manifest
    return site.add(
        f"jackfield-{kind}-{name}",
        version,
        entry_points={f"jackfield.{kind}": {name: f"{module}.plugin"}},
        files=files,
    )


def test_all_six_kinds_are_found_by_their_entry_point_group(site: Site) -> None:
    site.add(
        "jackfield-everything",
        "2.1",
        entry_points={group: {f"a-{kind}": "everything.plugin"} for group, kind in GROUPS.items()}
        | {"console_scripts": {"everything": "everything:main"}},
    )
    found = read(site).found()
    assert [one.kind for one in found] == list(Kind)
    assert {(one.distribution.name, one.distribution.version, one.value) for one in found} == {
        ("jackfield-everything", "2.1", "everything.plugin")
    }


def test_reading_imports_no_plugin(site: Site) -> None:
    add(site, "loud", manifest=manifest_text("tools"))
    read(site)
    assert "loud" not in sys.modules


def test_the_warm_way_imports_neither_metadata_readers_nor_plugins(site: Site) -> None:
    """Architecture 4: listing is the standard library's work only."""
    add(site, "loud", manifest=manifest_text("tools"))
    settle(site.packages)
    program = (
        "import sys; sys.path.append(sys.argv[1]);"
        "from pathlib import Path; from jackfield.plugins.discovery import discover;"
        "found = discover(Path(sys.argv[2]));"
        "print([one.name for one in found.found()]); print(found.cached); print(*sorted(sys.modules))"
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program, str(site.packages), str(site.home / "plugins")],
            check=True,
            capture_output=True,
            text=True,
            cwd=site.home,
        ).stdout.splitlines()
        for _ in range(2)
    ]
    assert "loud" in outputs[1][0]
    assert outputs[1][1] == "True"
    modules = set(outputs[1][2].split())
    assert not modules & {
        "importlib_metadata", "importlib.metadata", "packaging", "pydantic", "pluggy", "tomllib", "jackfield.api",
        "jackfield.models", "asyncio", "loud", "jackfield_tools_messaging", "jackfield_provider_mock",
    }  # fmt: skip


def test_the_cache_serves_what_has_not_changed(site: Site) -> None:
    add(site, "one", manifest=manifest_text("tools", title="One"))
    settle(site.packages)
    cold = read(site)
    warm = read(site)
    assert (cold.cached, warm.cached) == (False, True)
    assert warm.found() == cold.found()
    assert warm.found()[0].distribution.title == "One"


def test_installing_upgrading_and_removing_are_seen(site: Site) -> None:
    info = add(site, "one")
    settle(site.packages)
    read(site)
    add(site, "two")
    assert names(read(site)) == ["one", "two"]
    shutil.rmtree(info)
    add(site, "one", version="2.0")
    settle(site.packages)
    assert [one.distribution.version for one in read(site).found() if one.name == "one"] == ["2.0"]
    shutil.rmtree(site.packages / "jackfield_tools_two-1.0.dist-info")
    assert names(read(site)) == ["one"]


def test_an_edit_of_entry_points_in_place_is_seen(site: Site) -> None:
    """Spec 3.9: it does not touch the folder, hence the second part of the key."""
    info = add(site, "one")
    settle(site.packages)
    read(site)
    (info / "entry_points.txt").write_text("[jackfield.tools]\nuno = one.plugin\n")
    assert names(read(site)) == ["uno"]


def test_an_edit_of_a_manifest_is_seen(site: Site) -> None:
    add(site, "one", manifest=manifest_text("tools", title="Old"))
    settle(site.packages)
    read(site)
    (site.packages / "one" / "jackfield-plugin.toml").write_text(manifest_text("tools", title="Brand new"))
    assert read(site).found()[0].distribution.title == "Brand new"


def test_a_manifest_that_comes_later_is_seen(site: Site) -> None:
    add(site, "one")
    settle(site.packages)
    assert read(site).found()[0].distribution.manifest is None
    (site.packages / "one" / "jackfield-plugin.toml").write_text(manifest_text("tools", title="Late"))
    assert read(site).found()[0].distribution.title == "Late"


def test_a_folder_that_is_changing_right_now_is_not_kept(site: Site) -> None:
    """Otherwise a plugin whose files were still being written would stay half seen."""
    add(site, "one")
    read(site)
    assert read(site).cached is False


@pytest.mark.parametrize(
    "damage",
    ["", "no json", "[]", "{}", '{"for": 1, "folders": 2}', "\x00\xff", "replace:stamp", "replace:entries", "cut"],
)
def test_a_damaged_cache_is_ignored_and_written_again(site: Site, damage: str) -> None:
    add(site, "one", manifest=manifest_text("tools"))
    settle(site.packages)
    read(site)
    cache = site.home / "plugins" / "cache.json"
    whole = cache.read_text()
    if damage.startswith("replace:"):
        damage = whole.replace(damage.removeprefix("replace:"), "other")
    elif damage == "cut":
        damage = whole[: len(whole) // 2]
    cache.write_text(damage, encoding="utf-8")
    assert names(read(site)) == ["one"]
    assert read(site).cached is True


def test_a_cache_of_another_core_is_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add(site, "one")
    settle(site.packages)
    read(site)
    monkeypatch.setattr("jackfield.plugins.discovery.__version__", "99")
    assert read(site).cached is False


def test_the_cache_can_be_turned_off(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add(site, "one")
    settle(site.packages)
    monkeypatch.setenv("JACKFIELD_EP_CACHE", "0")
    assert names(read(site)) == ["one"]
    assert not (site.home / "plugins" / "cache.json").exists()


def test_without_a_home_the_cache_lies_in_the_users_cache_folder(site: Site, tmp_path: Path) -> None:
    add(site, "one")
    settle(site.packages)
    nowhere = tmp_path / "not-made" / "plugins"
    discovery = Discovery(nowhere, path=[str(site.packages)])
    discovery.read()
    assert discovery.read().cached is True
    assert discovery.cache_file == site.cache / "jackfield" / "plugins.json"
    assert not nowhere.parent.exists()


def test_a_cache_that_cannot_be_written_only_costs_time(site: Site) -> None:
    add(site, "one")
    settle(site.packages)
    (site.home / "plugins").write_text("a file where the folder should be")
    assert names(read(site)) == ["one"]


def test_programs_with_another_path_share_the_cache(site: Site, tmp_path: Path) -> None:
    add(site, "one")
    settle(site.packages)
    other = tmp_path / "here"
    other.mkdir()
    read(site)
    both = Discovery(site.home / "plugins", path=[str(other), str(site.packages)])
    assert names(both.read()) == ["one"]
    (other / "a-file").write_text("")
    assert both.read().cached is True
    assert read(site).cached is True


def test_of_two_copies_of_a_distribution_the_first_on_the_path_counts(site: Site, tmp_path: Path) -> None:
    add(site, "one", version="1.0")
    make_distribution(
        tmp_path / "earlier", "Jackfield_Tools.One", "2.0", entry_points={"jackfield.tools": {"one": "one.plugin"}}
    )
    found = Discovery(path=[str(tmp_path / "earlier"), str(site.packages)]).read().found()
    assert [one.distribution.version for one in found] == ["2.0"]


def test_damaged_metadata_hide_no_other_plugin(site: Site) -> None:
    """C179: also discovery."""
    add(site, "one")
    info = add(site, "bad")
    (info / "METADATA").unlink()
    (info / "entry_points.txt").write_bytes(b"[jackfield.tools]\nbad = \xff\xfe\n")
    inventory = read(site)
    assert names(inventory) == ["one"]
    assert len(inventory.problems) == 1
    assert str(site.packages) in inventory.problems[0]


def test_entry_points_that_are_no_words_of_the_configuration_are_told(site: Site) -> None:
    site.add("jackfield-tools-odd", entry_points={"jackfield.tools": {"Odd Name": "odd"}})
    assert [one.named_well for one in read(site).found()] == [False]


# ---- manifests, found without importing


def test_the_innermost_packages_manifest_counts(site: Site) -> None:
    site.add(
        "jackfield-tools-deep",
        entry_points={"jackfield.tools": {"deep": "family.deep.plugin"}},
        files={
            "family/__init__.py": "raise RuntimeError('imported')",
            "family/jackfield-plugin.toml": manifest_text("tools", title="Outer"),
            "family/deep/jackfield-plugin.toml": manifest_text("tools", title="Inner"),
        },
    )
    assert read(site).found()[0].distribution.title == "Inner"


@pytest.mark.parametrize("how", ["pth", "direct_url"])
def test_an_editable_installs_manifest_is_found(site: Site, tmp_path: Path, how: str) -> None:
    project = tmp_path / "a project" / "tools"
    package = project / "src" / "jackfield_tools_edit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "jackfield-plugin.toml").write_text(manifest_text("tools", title="Edited"))
    info = site.add(
        "jackfield-tools-edit",
        entry_points={"jackfield.tools": {"edit": "jackfield_tools_edit.plugin"}},
        files={"_edit.pth": f"{project / 'src'}\n"} if how == "pth" else {},
    )
    url = project.as_uri() if how == "direct_url" else (tmp_path / "moved").as_uri()
    (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))
    found = read(site).found()[0].distribution
    assert found.title == "Edited"
    assert found.editable
    assert found.roots == (str(package),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "is no TOML"),
        ('title = "x"\nkinds = ["tools"]', "api"),
        ('title = "x"\nkinds = ["toaster"]\napi = ">=0"', "kinds[0]"),
        ('title = "x"\nkinds = ["tools"]\napi = "soon"', "api = 'soon' is no version range"),
        ('title = ""\nkinds = ["tools"]\napi = ">=0"', "title is empty"),
    ],
)
def test_a_bad_manifest_is_told_with_its_key(site: Site, text: str, words: str) -> None:
    add(site, "one", manifest=text)
    problem = read(site).found()[0].distribution.manifest_problem
    assert problem is not None
    assert words in problem


@pytest.mark.parametrize(
    ("wanted", "fits"), [(">=1.0,<2", True), (">=0", True), ("==1.2", True), (">=1.3", False), (">=2,<3", False)]
)
def test_the_api_range_is_compared_with_this_core(site: Site, wanted: str, fits: bool) -> None:
    add(site, "one", manifest=manifest_text("tools", api=wanted))
    assert read(site).found()[0].distribution.compatible is fits


# ---- directory plugins


def test_a_directory_plugin_is_found_by_the_manifest_at_its_root(site: Site) -> None:
    folder = site.home / "plugins" / "field-notes"
    folder.mkdir(parents=True)
    (folder / "jackfield-plugin.toml").write_text(manifest_text("pack", title="Field notes"))
    (site.home / "plugins" / "no-manifest").mkdir()
    (found,) = read(site).found()
    assert (found.kind, found.name, found.distribution.directory) == (Kind.PACK, "field-notes", True)
    assert read(site).cached is True
    (folder / "jackfield-plugin.toml").write_text(manifest_text("pack", title="Other notes"))
    assert read(site).found()[0].distribution.title == "Other notes"
    shutil.rmtree(folder)
    assert read(site).found() == []


def test_a_directory_plugin_with_code_names_its_entry_points(site: Site) -> None:
    folder = site.home / "plugins" / "weather"
    folder.mkdir(parents=True)
    (folder / "jackfield-plugin.toml").write_text(
        manifest_text("tools", more='[entry_points.tools]\nweather = "weather_plugin"\n')
    )
    (found,) = read(site).found()
    assert (found.kind, found.name, found.value) == (Kind.TOOLS, "weather", "weather_plugin")


def test_two_programs_that_write_at_once_leave_a_whole_cache(site: Site) -> None:
    for number in range(20):
        add(site, f"plugin-{number}", manifest=manifest_text("tools"))
    settle(site.packages)
    program = (
        "import sys; from pathlib import Path; from jackfield.plugins.discovery import Discovery\n"
        "for _ in range(20):\n"
        "    found = Discovery(Path(sys.argv[2]), path=[sys.argv[1]]).read().found()\n"
        "    assert len(found) == 20, found\n"
        "    Path(sys.argv[2], 'cache.json').unlink(missing_ok=True)\n"
    )
    arguments = [sys.executable, "-c", program, str(site.packages), str(site.home / "plugins")]
    children = [subprocess.Popen(arguments, env=os.environ) for _ in range(2)]
    assert [child.wait(120) for child in children] == [0, 0]
    assert names(read(site)) == sorted(names(read(site)))
    assert not [one for one in (site.home / "plugins").iterdir() if one.name != "cache.json"]
