"""`jackfield plugin` works with any plugin broken, and imports none (C181, C183)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jackfield.testing.distributions import Site, manifest_text, settle

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "plugins"
KEYS = {"name", "kind", "state", "distribution", "version", "title", "entry", "problem", "notes"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as place:
        yield place


def jackfield(site: Site, *words: str, expected: int = 0) -> str:
    environment = dict(os.environ) | {"PYTHONPATH": str(site.packages), "JACKFIELD_HOME": str(site.home)}
    ran = subprocess.run(
        [sys.executable, "-m", "jackfield.cli", *words],
        env=environment,
        cwd=site.home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == expected, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def listed(site: Site, *words: str, expected: int = 0) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(jackfield(site, *words, expected=expected))["plugins"]}


@pytest.mark.parametrize("name", ["vanishing", "raising"])
@pytest.mark.parametrize(
    "words", [["plugin", "list"], ["plugin", "list", "--json"], ["--version"], ["--help"], ["plugin", "--help"]]
)
def test_management_commands_work_beside_a_plugin_that_ends_the_interpreter(
    site: Site, name: str, words: list[str]
) -> None:
    """C183."""
    site.install(FIXTURES / name)
    assert jackfield(site, *words)


@pytest.mark.parametrize("with_home", [True, False])
def test_the_list_for_programs_is_the_same_with_and_without_click(site: Site, with_home: bool) -> None:
    """The one form that goes around click (`cli.main`) and any other form of it."""
    for name in ("well", "raising", "incompatible", "printing"):
        site.install(FIXTURES / name)
    for owner in ("a", "b"):
        site.add(
            f"jackfield-tools-{owner}",
            entry_points={"jackfield.tools": {"twice": f"{owner}_module"}},
            files={f"{owner}_module/jackfield-plugin.toml": manifest_text("tools", title="Zw\u00f6lf \u202e \x9b")},
        )
    info = site.add("jackfield-tools-damaged", entry_points={"jackfield.tools": {"damaged": "damaged"}})
    (info / "entry_points.txt").write_bytes(b"[jackfield.tools]\nbad = \xff\xfe\n")
    if not with_home:
        (site.home / "jackfield.toml").unlink()
    jackfield(site, "plugin", "doctor", expected=1)
    quick = jackfield(site, "plugin", "list", "--json")
    assert quick == jackfield(site, "--no-color", "plugin", "list", "--json")
    listed = json.loads(quick)
    kept = "broken" if with_home else "not loaded yet"  # without a home there is no place for a verdict
    assert {one["state"] for one in listed["plugins"]} >= {"ready", kept, "incompatible", "conflict"}
    assert listed["problems"]


def test_the_list_for_programs_imports_nothing_of_weight(site: Site) -> None:
    heavy = "{'click', 'inspect', 'logging', 'dataclasses', 'pydantic', 'asyncio', 'importlib_metadata', '_hashlib'}"
    code = (
        "import sys; from jackfield.cli.main import main; main(['plugin', 'list', '--json']);"
        f"print(sorted({heavy} & set(sys.modules)), file=sys.stderr)"
    )
    site.install(FIXTURES / "well")
    settle(site.packages)
    jackfield(site, "plugin", "doctor")
    environment = dict(os.environ) | {"PYTHONPATH": str(site.packages), "JACKFIELD_HOME": str(site.home)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stderr == "[]\n"


@pytest.mark.parametrize("name", ["vanishing", "raising"])
def test_doctor_and_retry_say_what_is_wrong_and_end_with_1(site: Site, name: str) -> None:
    """C183."""
    site.install(FIXTURES / name)
    for words in (["doctor", name], ["retry", name]):
        said = jackfield(site, "plugin", *words, expected=1)
        assert f"{name} (tools, jackfield-tools-{name} 1.0): broken" in said
        assert "  import: " in said
        assert "  fix: " in said
    assert listed(site, "plugin", "list", "--json")[name]["problem"]["phase"] == "import"


def test_the_list_tells_each_state_before_and_after_a_trial(site: Site) -> None:
    """C181: what failed is not shown as if it worked."""
    for name in ("well", "raising", "incompatible", "printing"):
        site.install(FIXTURES / name)
    for owner in ("a", "b"):
        site.add(f"jackfield-tools-{owner}", entry_points={"jackfield.tools": {"twice": f"{owner}_module"}})
    before = {name: one["state"] for name, one in listed(site, "plugin", "list", "--json").items()}
    assert before["well"] == before["raising"] == "not loaded yet"
    assert (before["incompatible"], before["twice"], before["process"]) == ("incompatible", "conflict", "ready")
    jackfield(site, "plugin", "doctor", expected=1)
    after = listed(site, "plugin", "list", "--json")
    assert (after["well"]["state"], after["raising"]["state"]) == ("ready", "broken")
    assert all(set(one) == KEYS for one in after.values())
    assert after["printing"]["notes"] == ["it prints to standard output while being loaded: hello, I am being imported"]
    said = jackfield(site, "plugin", "list")
    assert re.search(r"^raising +tools +broken +jackfield-tools-raising 1\.0 +Raising$", said, re.MULTILINE)
    assert "remove one of them: jackfield-tools-a, jackfield-tools-b" in said


def test_safe_mode_lists_what_it_leaves_out(site: Site) -> None:
    site.install(FIXTURES / "well")
    found = listed(site, "plugin", "list", "--json", "--safe")
    assert {one["distribution"] for one in found.values() if one["state"] != "left out"} == {"jackfield"}


def test_info_shows_the_whole_manifest(site: Site) -> None:
    more = (
        'description = "Weather."\npermissions = ["net:api.example"]\ndocs = "https://example.org/weather"\n'
        '[[settings]]\nname = "units"\nhelp = "Which."\n[[secrets]]\nname = "KEY"\nhelp = "From there."\n'
        '[[commands]]\nname = "weather"\nhelp = "Ask."\ntarget = "weather.cli:command"\n'
    )
    site.add(
        "jackfield-tools-weather",
        entry_points={"jackfield.tools": {"weather": "weather.plugin"}},
        files={
            "weather/__init__.py": "raise RuntimeError",
            "weather/jackfield-plugin.toml": manifest_text("tools", title="Weather", more=more),
        },
    )
    (one,) = json.loads(jackfield(site, "plugin", "info", "jackfield-tools-weather", "--json"))["plugins"]
    assert set(one) == KEYS | {"place", "editable", "directory", "manifest", "manifest_path"}
    assert one["manifest"]["commands"] == [{"name": "weather", "help": "Ask.", "target": "weather.cli:command"}]
    said = jackfield(site, "plugin", "info", "weather")
    for words in ("net:api.example", "units", "KEY", "jackfield weather", "https://example.org/weather"):
        assert words in said


def test_an_unknown_name_is_answered_with_near_ones(site: Site) -> None:
    site.install(FIXTURES / "well")
    assert "did you mean well?" in jackfield(site, "plugin", "info", "wel", expected=3)


def test_what_a_plugin_says_of_itself_cannot_drive_the_terminal(site: Site) -> None:
    """C215: titles and error texts are foreign."""
    site.add(
        "jackfield-tools-evil",
        entry_points={"jackfield.tools": {"evil": "evil"}},
        files={"evil.py": "raise RuntimeError('\\x1b[2J\\x1b]0;owned\\x07')\n"},
    )
    said = jackfield(site, "plugin", "doctor", "evil", expected=1) + jackfield(site, "plugin", "list")
    assert "\x1b" not in said
    assert "RuntimeError" in said


def test_listing_and_version_import_no_plugin(site: Site, tmp_path: Path) -> None:
    """Architecture 4: not one of fifty plugins is imported."""
    proof = tmp_path / "imported"
    for number in range(50):
        site.add(
            f"jackfield-tools-dummy-{number}",
            entry_points={"jackfield.tools": {f"dummy-{number}": f"dummy_{number}.plugin"}},
            files={
                f"dummy_{number}/__init__.py": f"open({str(proof)!r}, 'a').write('{number}')\n",
                f"dummy_{number}/jackfield-plugin.toml": manifest_text("tools", title=f"Dummy {number}"),
            },
        )
    settle(site.packages)
    for _ in range(2):
        assert len([name for name in listed(site, "plugin", "list", "--json") if name.startswith("dummy-")]) == 50
        jackfield(site, "--version")
        jackfield(site, "--help")
    assert not proof.exists()


def test_directory_plugins_of_the_home_are_listed(site: Site) -> None:
    folder = site.home / "plugins" / "field-notes"
    folder.mkdir(parents=True)
    (folder / "jackfield-plugin.toml").write_text(manifest_text("pack", title="Field notes"))
    assert listed(site, "plugin", "list", "--json")["field-notes"]["state"] == "ready"


def test_looking_and_trying_make_no_home(site: Site, tmp_path: Path) -> None:
    site.install(FIXTURES / "raising")
    nowhere = tmp_path / "nowhere"
    jackfield(site, "plugin", "doctor", "--home", str(nowhere), expected=1)
    jackfield(site, "plugin", "list", "--home", str(nowhere))
    assert not nowhere.exists()
