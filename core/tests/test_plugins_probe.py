"""What becomes of an unknown plugin: tried in a child process, told apart, written down (C179, C185)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield.plugins.discovery import Found, discover
from jackfield.plugins.probe import Trial, probe
from jackfield.testing.distributions import Site

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "plugins"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path) as place:
        yield place


def installed(site: Site, name: str) -> Found:
    site.install(FIXTURES / name)
    return next(one for one in discover(site.home / "plugins").found() if one.name == name)


def attempt(site: Site, name: str, *, seconds: float = 60.0) -> Trial:
    return probe(installed(site, name), seconds=seconds)


def test_a_plugin_that_is_well_has_nothing_to_be_told_of(site: Site) -> None:
    assert attempt(site, "well") == Trial()


@pytest.mark.parametrize(
    ("name", "phase", "words"),
    [
        ("raising", "import", "ValueError: no key at old_settings.key"),
        ("exits", "import", "SystemExit 3"),
        ("broken", "import", "syntax error"),
        ("missing-import", "import", "needs the module a_package_that_nobody_has"),
        ("missing-folder", "import", "jackfield_tools_missing_folder.plugin is not there"),
        ("bad-settings", "import", "PydanticUserError"),
        ("vanishing", "import", "exit code 1"),
        ("crashing", "import", "SIGABRT"),
        ("misspelt", "hooks", "there is no hook 'register_tool'"),
        ("unknown-argument", "hooks", "has no argument 'turns'"),
        ("not-async", "hooks", "must be an async function"),
        ("wrong-type", "register", "returned dict, not a list of ToolSet"),
        ("wrong-name", "register", "reports 'another'"),
        ("raising-hook", "register", "RuntimeError: the settings could not be read"),
        ("silent", "register", "is not marked as a hook"),
    ],
)
def test_every_way_to_fail_is_told_apart_and_names_a_way_out(site: Site, name: str, phase: str, words: str) -> None:
    """C179."""
    broken = attempt(site, name).broken
    assert broken is not None
    assert broken.phase == phase
    assert words in broken.reason
    assert broken.fix
    assert "\n" not in broken.reason + broken.fix


@pytest.mark.parametrize(("name", "hint"), [("misspelt", "register_tools"), ("unknown-argument", "turn")])
def test_a_misspelt_name_is_answered_with_the_right_one(site: Site, name: str, hint: str) -> None:
    broken = attempt(site, name).broken
    assert broken is not None
    assert broken.fix == f"did you mean {hint}?"


def test_a_plugin_that_never_finishes_importing_is_given_up(site: Site) -> None:
    """C185: the trial has a deadline, and nothing is left of the child."""
    broken = attempt(site, "hanging", seconds=8.0).broken
    assert broken is not None
    assert broken.phase == "import"
    assert "within 8 s while it was imported" in broken.reason


def test_what_a_plugin_prints_is_a_note_and_goes_no_further(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    trial = attempt(site, "printing")
    assert trial.broken is None
    assert trial.notes == ("it prints to standard output while being loaded: hello, I am being imported",)
    assert capfd.readouterr() == ("", "")


def test_a_hook_without_its_mark_is_noted(site: Site) -> None:
    site.add(
        "jackfield-tools-half",
        entry_points={"jackfield.tools": {"half": "half"}},
        files={
            "half.py": "from jackfield.api import ToolSet, hookimpl\n"
            "@hookimpl\n"
            "def register_tools(): return [ToolSet(name='half', title='Half', tools=())]\n"
            "async def turn_ended(turn): pass\n"
        },
    )
    found = next(one for one in discover().found() if one.name == "half")
    trial = probe(found, seconds=60)
    assert trial.broken is None
    assert "turn_ended(turn)" in trial.notes[0]
    assert "no @hookimpl" in trial.notes[0]


def test_keys_in_the_environment_are_not_shown_to_an_unknown_plugin(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODEL_API_KEY", "hush")
    site.add(
        "jackfield-tools-nosy",
        entry_points={"jackfield.tools": {"nosy": "nosy"}},
        files={"nosy.py": "import os\nraise RuntimeError(os.environ.get('MODEL_API_KEY', 'nothing to see'))\n"},
    )
    found = next(one for one in discover().found() if one.name == "nosy")
    broken = probe(found, seconds=60).broken
    assert broken is not None
    assert "nothing to see" in broken.reason


def test_a_process_that_a_plugin_leaves_behind_does_not_hold_the_trial_up(site: Site) -> None:
    site.add(
        "jackfield-tools-parent",
        entry_points={"jackfield.tools": {"parent": "parent"}},
        files={
            "parent.py": "import subprocess, sys\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'], stdin=subprocess.PIPE)\n"
            "raise RuntimeError(f'pid {child.pid}')\n"
        },
    )
    found = next(one for one in discover().found() if one.name == "parent")
    broken = probe(found, seconds=60).broken
    assert broken is not None
    assert "RuntimeError: pid " in broken.reason


def test_a_trial_leaves_this_process_untouched(site: Site) -> None:
    before = dict(os.environ), os.getcwd()
    attempt(site, "well")
    import sys

    assert "jackfield_tools_well" not in sys.modules
    assert (dict(os.environ), os.getcwd()) == before


def test_a_plugin_that_forges_its_own_verdict_gets_no_further(site: Site) -> None:
    """The child runs foreign code; what it reports is read with care."""
    site.add(
        "jackfield-tools-forger",
        entry_points={"jackfield.tools": {"forger": "forger"}},
        files={
            "forger.py": "import os\n"
            "for fd in range(3, 32):\n"
            '    try: os.write(fd, b\'[1]\\n{"phase": 7}\\n{"verdict": {"broken": {"x": 1}, "notes": 3}}\\n\')\n'
            "    except OSError: pass\n"
            "os._exit(0)\n"
        },
    )
    found = next(one for one in discover().found() if one.name == "forger")
    broken = probe(found, seconds=60).broken
    assert broken is not None
    assert broken.reason == "it disturbed its own trial"
