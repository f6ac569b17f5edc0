"""What the page about testing says is done as it stands there, on the sample plugins of the page about writing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jackfield.testing.contracts import CONTRACTS, checks_of
from jackfield.testing.distributions import install_project

from tests.docs.pages import page

SETTINGS = (
    "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\naddopts = -p no:cacheprovider\n"
)


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample projects with their tests, installed."""
    root = tmp_path_factory.mktemp("projects")
    for source in ("docs/plugins/writing.md", "docs/plugins/testing.md", "docs/channels/writing.md"):
        for path, text in page(source).files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    for name in ("dice", "inbox", "pager"):
        install_project(root / "site", root / name)
        (root / name / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    return root


def run(projects: Path, *arguments: str, where: str = "dice") -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(projects / "site"), "XDG_CACHE_HOME": str(projects / "cache")}
    command = [sys.executable, "-m", "pytest", "-p", "jackfield.testing.pytest", "-q", "-rs", *arguments]
    return subprocess.run(
        command, cwd=projects / where, env=env, capture_output=True, text=True, encoding="utf-8", timeout=240
    )


def outcome(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    last = done.stdout.strip().splitlines()[-1]
    return {word: int(count) for count, word in re.findall(r"(\d+) (passed|skipped|failed|error)", last)}


def test_the_tool_sets_tests_pass(projects: Path) -> None:
    done = run(projects)
    found = outcome(done)
    assert done.returncode == 0, done.stdout
    assert found["passed"] >= 20


def test_the_channels_tests_pass(projects: Path) -> None:
    done = run(projects, where="inbox")
    found = outcome(done)
    assert done.returncode == 0, done.stdout
    assert found["passed"] >= 35
    assert "this peer can't write that" in done.stdout


@pytest.mark.slow
def test_the_real_channels_tests_pass(projects: Path) -> None:
    """The sample over HTTP plays nearly all that the suite asks for."""
    done = run(projects, where="pager")
    found = outcome(done)
    assert done.returncode == 0, done.stdout
    assert found["passed"] >= 45
    assert found["skipped"] <= 15


def test_an_installed_plugin_is_tested_without_any_code(projects: Path) -> None:
    done = run(projects, "--pyargs", "jackfield.testing.contracts", "--plugin", "dice")
    assert done.returncode == 0, done.stdout
    assert outcome(done)["passed"] >= 15


def test_a_plugin_that_is_not_there_is_named_with_those_that_are(projects: Path) -> None:
    done = run(projects, "--pyargs", "jackfield.testing.contracts", "--plugin", "dize")
    assert done.returncode != 0
    known = re.search(r"no plugin 'dize' is installed; there are: ([a-z0-9, -]+)", done.stdout)
    assert known is not None and "dice" in known[1].split(", ")


def test_without_a_name_nothing_is_tested_and_the_reason_told(projects: Path) -> None:
    done = run(projects, "--pyargs", "jackfield.testing.contracts")
    assert outcome(done) == {"skipped": 1}
    assert "--plugin NAME" in done.stdout


def test_a_failed_check_says_what_was_promised(projects: Path, tmp_path: Path) -> None:
    fixture = page("README.md").path.parent / "tests" / "fixtures" / "plugins" / "printing"
    install_project(tmp_path / "site", fixture)
    (tmp_path / "dice").mkdir()
    done = run(tmp_path, "--pyargs", "jackfield.testing.contracts", "--plugin", "printing")
    assert done.returncode == 1
    assert outcome(done)["failed"] == 1
    assert "it printed 'hello, I am being imported'" in done.stdout
    assert re.search(r"-+ contract PLUGIN-04 -+\nImporting and registering writes nothing", done.stdout)


def test_every_check_has_an_id_of_its_own() -> None:
    promises: dict[str, str] = {}
    for suite in CONTRACTS.values():
        for one in checks_of(suite):
            assert promises.setdefault(one.id, one.text) == one.text
            assert one.text.endswith(".")
    assert len(promises) > 120
