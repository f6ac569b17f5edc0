"""What the documentation shows as code is run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from jackfield.config import Home
from jackfield.config.load import check_agent_text, check_text
from jackfield.plugins import manifest
from jackfield.process.settings import ProcessSettings
from jackfield.testing.distributions import install_project

from tests.conftest import MakeExchange
from tests.docs.pages import Page, all_pages, page

NOT_HERE = ("pip install", "make ")
"""Commands that would set up this very checkout again, or the machine."""
PROMPT = ("README.md", "docs/operators/start.md")
"""What a newcomer runs first; the other pages' commands are for the slow suite."""


# ---- commands


@dataclass(frozen=True, slots=True)
class Step:
    command: str
    output: tuple[str, ...]


def steps(one: Page) -> Iterator[Step]:
    """The commands behind `$`, each with what it is said to print."""
    for fence in one.fences("console"):
        for part in re.split(r"^\$ ", fence, flags=re.MULTILINE)[1:]:
            command, *output = part.rstrip().splitlines()
            yield Step(command, tuple(output))


def commands_of(one: Page) -> list[Step]:
    return [step for step in steps(one) if not step.command.startswith(NOT_HERE)]


# The READMEs of plugins show what a person types in a conversation.
CONSOLES = [
    pytest.param(one, id=one.name, marks=() if one.name in PROMPT else pytest.mark.slow)
    for one in all_pages()
    if commands_of(one) and not one.name.startswith("plugins/")
]


@pytest.mark.parametrize("one", CONSOLES)
def test_commands_do_what_their_page_says(one: Page, tmp_path: Path) -> None:
    """In a home of a user who has just made one, with a second agent."""
    programs = Path(sys.executable).parent
    env = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")}
    env |= {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }

    def shell(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
            encoding="utf-8",
        )  # fmt: skip

    todo = commands_of(one)
    try:
        if not any("jackfield init" in step.command for step in todo):
            assert shell("jackfield init && jackfield group add Berta").returncode == 0
        for step in todo:
            done = shell(step.command)
            assert done.returncode == 0, f"{step.command}\n{done.stdout}\n{done.stderr}"
            shown = [line.rstrip() for line in done.stdout.splitlines()]
            for line in step.output:
                assert line in shown, f"{step.command} printed {done.stdout!r}"
    finally:
        shell("jackfield down")


@pytest.mark.parametrize("one", all_pages(), ids=lambda one: one.name)
def test_programs_that_pages_start_by_module_are_there(one: Page) -> None:
    for module in re.findall(r"python -m ([\w.]+)", one.text):
        subprocess.run(
            [sys.executable, "-c", f"import importlib.util as u; assert u.find_spec({module!r})"], check=True
        )


# ---- configuration


def test_the_configuration_samples_are_accepted_without_a_remark(tmp_path: Path) -> None:
    host, agent = page("docs/operators/configuration.md").fences("toml")
    found = check_text(Home(tmp_path), host)
    assert found.problems == ()
    assert not found.channels["second"].enabled
    checked = check_agent_text(tmp_path, agent)
    assert checked.problems == ()
    assert checked.settings is not None


def test_the_process_runtimes_sample_is_accepted(tmp_path: Path) -> None:
    (sample,) = page("docs/runtimes/process.md").fences("toml")
    found = check_text(Home(tmp_path), re.sub(r"^# (?=\w+ = )", "", sample, flags=re.MULTILINE))
    assert found.problems == ()
    ProcessSettings.model_validate(found.runtimes["process"])


def test_the_manifest_samples_are_manifests() -> None:
    for sample in page("docs/plugins/manifest.md").fences("toml"):
        manifest.parse(sample)


@pytest.mark.parametrize("one", all_pages(), ids=lambda one: one.name)
def test_every_piece_of_toml_is_toml(one: Page) -> None:
    for sample in one.fences("toml"):
        tomllib.loads(sample)


# ---- Python


# What the testing page shows needs a plugin and a suite; test_testing_page.py runs it.
PYTHON = [one for one in all_pages() if one.fences("python") and one.name != "docs/plugins/testing.md"]


@pytest.mark.parametrize("one", PYTHON, ids=lambda one: one.name)
def test_python_samples_run(one: Page) -> None:
    for sample in one.fences("python"):
        exec(compile(sample, one.name, "exec"), {"__name__": "sample"})


# ---- the sample plugins


def written(tmp_path: Path, name: str) -> Path:
    """A sample project of the writing page, as its reader would have it."""
    for path, text in page("docs/plugins/writing.md").files.items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return tmp_path / name


def test_the_sample_tool_set_works_in_a_conversation(make_exchange: MakeExchange, tmp_path: Path) -> None:
    exchange = make_exchange()
    install_project(exchange.root / "site", written(tmp_path, "dice"))
    assert "ready" in exchange.run("plugin", "doctor", "dice").stdout
    exchange.run("group", "set", "andy", "tools", "messaging,dice")
    exchange.wire("c1")
    exchange.start()
    exchange.say("c1", 'mock: tool roll {"sides": 1} mock: say It shows {result}')
    assert exchange.wait_sent("c1", 1)[0]["text"] == "It shows 1"
    exchange.say("c1", 'mock: tool roll {"sides": 0}')
    assert "sides must be between 1 and 1000, not 0" in exchange.wait_sent("c1", 2)[1]["text"]
    exchange.say("c1", "mock: show system")
    assert "Use `roll` instead of inventing a number." in exchange.wait_sent("c1", 3)[2]["text"]


def test_the_sample_channel_works_in_a_conversation(make_exchange: MakeExchange, tmp_path: Path) -> None:
    exchange = make_exchange()
    install_project(exchange.root / "site", written(tmp_path, "inbox"))
    assert "ready" in exchange.run("plugin", "doctor", "folder").stdout
    desk = tmp_path / "desk"
    exchange.run("channel", "add", "folder", "desk", f"folder={desk}")
    exchange.run("wire", "folder:desk:desk", "andy", "--policy", "public")
    exchange.start()
    for number, text in enumerate(("hello", "again"), 1):
        part = desk / "in" / "note.part"
        part.write_text(text, encoding="utf-8")
        part.replace(desk / "in" / "note.txt")
        exchange.wait_for(lambda: len(list((desk / "out").glob("*.txt"))) == number, f"answer {number}")  # noqa: B023
    assert not list((desk / "in").iterdir())
    answers = {path.read_text(encoding="utf-8") for path in (desk / "out").glob("*.txt")}
    assert answers == {"You said: hello", "You said: again"}
