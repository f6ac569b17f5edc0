"""What the documentation shows as code is run as it stands there."""

from __future__ import annotations

import ast
import asyncio
import configparser
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
import typing
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import jackfield_channel_kit
import pytest
from jackfield.cli.app import cli
from jackfield.config import Home
from jackfield.config.load import check_agent_text, check_text
from jackfield.plugins import manifest
from jackfield.process.settings import ProcessSettings
from jackfield.testing.distributions import install_project

from tests.conftest import MakeExchange
from tests.docs.pages import ROOT, Page, all_pages, page, script

T = TypeVar("T")

NOT_HERE = ("pip install", "make ")
"""Commands that would set up this very checkout again, or the machine."""
ELSEWHERE = re.compile(
    r"\b(telegram|slack|matrix|irc|work|TOKEN|jq|ses_\w+)\b| (-f|--follow)\b| /(mnt|srv)/"
    r"|^(export|sudo|docker|systemctl|launchctl|openssl) "
)
"""Commands that need a platform, an account or another machine, or have no end: what is typed is read, and not run."""
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


INGRESS = "http://127.0.0.1:8787"
"""Where pages say that the ingress listens; a test has it listen on any free port."""


class Shell:
    """A user's shell with a home of its own and the mock provider; every command has a bound."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")} | {
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=120, encoding="utf-8",
        )  # fmt: skip

    def init(self, command: str) -> subprocess.CompletedProcess[str]:
        """Make the home, with an ingress that takes any free port."""
        done = self.run(command)
        return done if done.returncode else self.run("jackfield config set ingress.port 0")

    def step(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run what a page shows."""
        if re.match(r"jackfield init\b", command):
            return self.init(command)
        if INGRESS in command:
            status = json.loads(self.run("jackfield status --json").stdout)
            command = command.replace(INGRESS, status["ingress"]["address"])
        return self.run(command)


@pytest.mark.parametrize("one", CONSOLES)
def test_commands_do_what_their_page_says(one: Page, tmp_path: Path) -> None:
    """In a home of a user who has just made one, with a second agent."""
    todo, shell = commands_of(one), Shell(tmp_path)
    if any(step.command.startswith("curl ") for step in todo) and not shutil.which("curl"):
        pytest.skip("no curl on this machine")
    try:
        if not any("jackfield init" in step.command for step in todo):
            assert shell.init("jackfield init && jackfield group add Berta").returncode == 0
        for step in todo:
            if ELSEWHERE.search(step.command):
                read_only(step.command)
                continue
            done = shell.step(step.command)
            assert done.returncode == 0, f"{step.command}\n{done.stdout}\n{done.stderr}"
            shown = [line.rstrip() for line in done.stdout.splitlines()]
            for line in step.output:
                assert line in shown, f"{step.command} printed {done.stdout!r}"
    finally:
        shell.run("jackfield down")


def read_only(command: str) -> None:
    """Have `jackfield` take a command's words apart, as far as it does without doing anything.

    Raises:
        click.UsageError: there is no such command, option or number of arguments.
    """
    for part in command.split("|"):
        words = shlex.split(part, comments=True)
        if words[:1] != ["jackfield"]:
            continue
        name, step, context = "jackfield", typing.cast(click.Command, cli), None
        rest = words[1:]
        while True:
            context = step.make_context(name, rest, parent=context)
            if not isinstance(step, click.Group):
                break
            found, known, rest = step.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            assert known is not None
            name, step = found, known


def test_words_that_no_command_takes_are_noticed() -> None:
    read_only('printf %s "$TOKEN" | jackfield channel setup telegram work --secret token=- --json')
    with pytest.raises(click.UsageError):
        read_only("jackfield channel setup telegram work --sekret token=-")
    with pytest.raises(click.UsageError):
        read_only("jackfield channel steup telegram")


@functools.cache
def known_commands() -> frozenset[str]:
    """`group`, `group add` and so on; those that shipped plugins bring, too."""
    brought = [manifest.read(path) for path in ROOT.glob("plugins/*/*/src/*/jackfield-plugin.toml")]
    own = {name for name, _, _ in script("docs").all_commands()}
    return frozenset(own | {command.name for one in brought for command in one.commands})


def named_commands(text: str) -> set[str]:
    """What a page says in backticks that somebody should type: the words behind `jackfield`, without options."""
    found = set()
    for one in re.findall(r"`(?:jackfield|\$ jackfield) ([^`]+)`", text) + re.findall(
        r"^\$ jackfield (.+)$", text, re.M
    ):
        words = []
        for word in one.split("|")[0].split():
            if not re.fullmatch(r"[a-z-]+", word) or word.startswith("-"):
                break
            words.append(word)
        if words:
            found.add(" ".join(words[:2]))
    return found


@pytest.mark.parametrize("one", all_pages(), ids=lambda one: one.name)
def test_commands_that_pages_name_are_there(one: Page) -> None:
    known = known_commands()
    for named in named_commands(one.text):
        first, _, second = named.partition(" ")
        assert first in known, f"{one.name}: jackfield {named}"
        if second and any(name.startswith(f"{first} ") for name in known) and first != "help":
            assert named in known, f"{one.name}: jackfield {named}"


def test_the_systemd_unit_starts_the_host() -> None:
    (unit,) = page("docs/operators/start.md").fences("ini")
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]  # the test's own in its place
    parsed.read_string(unit)
    program, *arguments = shlex.split(parsed["Service"]["ExecStart"])
    assert Path(program).name == "jackfield"
    assert arguments == ["up"]


def test_the_launchd_job_starts_the_host() -> None:
    (text,) = page("docs/operators/start.md").fences("xml")
    job = plistlib.loads(text.encode())
    program, *arguments = job["ProgramArguments"]
    assert Path(program).name == "jackfield"
    assert arguments == ["up"]


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


CHANNEL_TABLES = [
    pytest.param(sample, id=f"{one.name}-{number}")
    for one in all_pages()
    for number, sample in enumerate(one.fences("toml"))
    if re.search(r"^\[channels\.", sample, re.MULTILINE)
]


@pytest.mark.parametrize("sample", CHANNEL_TABLES)
def test_the_channels_that_pages_configure_take_these_settings(sample: str, tmp_path: Path) -> None:
    """Each table, as the channel's own model reads it."""
    kinds = {kind.info.type: kind for _, kind in script("docs").docs_channels.shipped()}
    found = check_text(Home(tmp_path), sample)
    assert found.channels
    for section in found.channels.values():
        kind = kinds[section.type]
        if kind.settings is not None:
            kind.settings.model_validate(section.settings)


@pytest.mark.parametrize("one", all_pages(), ids=lambda one: one.name)
def test_every_piece_of_toml_is_toml(one: Page) -> None:
    for sample in one.fences("toml"):
        tomllib.loads(sample)


# ---- Python


PROJECTS = ("docs/plugins/testing.md", "docs/channels/writing.md")
"""What these show needs a plugin and a suite; test_testing_page.py runs it."""
PYTHON = [one for one in all_pages() if one.fences("python") and one.name not in PROJECTS]
WHOLE = [
    (one, sample) for one in PYTHON for sample in one.fences("python") if re.search(r"^(import|from) |^\"{3}", sample)
]
FRAGMENTS = [(one, sample) for one in PYTHON for sample in one.fences("python") if (one, sample) not in WHOLE]


def numbered(samples: list[tuple[Page, str]]) -> list[Any]:
    return [pytest.param(sample, id=f"{one.name}-{number}") for number, (one, sample) in enumerate(samples)]


@pytest.mark.parametrize("sample", numbered(WHOLE))
def test_python_samples_run(sample: str) -> None:
    exec(compile(sample, "sample", "exec"), {"__name__": "sample"})


@functools.cache
def kit() -> dict[str, Any]:
    """Everything public of the kit by its name, the methods of its fake platform too."""
    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(jackfield_channel_kit.__path__, "jackfield_channel_kit."):
        if ".testing." not in module.name and ".dialects" not in module.name:
            loaded = importlib.import_module(module.name)
            found |= {name: getattr(loaded, name) for name in getattr(loaded, "__all__", ())}
    return found


@pytest.mark.parametrize("sample", numbered(FRAGMENTS))
def test_python_fragments_call_what_there_is_with_arguments_that_it_takes(sample: str) -> None:
    """They stand inside of something that is not shown, so they can't run; their calls of the kit can be looked at."""
    tree = compile(sample, "fragment", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    looked_at = 0
    for call in (one for one in ast.walk(tree) if isinstance(one, ast.Call)):
        function: Any = None
        if isinstance(call.func, ast.Name):
            function = kit().get(call.func.id)
        elif isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            owner = {"platform": "FakePlatform", "http": "Http"}.get(call.func.value.id)
            if owner is not None:
                function = functools.partial(getattr(kit()[owner], call.func.attr), None)
        if function is not None:
            looked_at += 1
            inspect.signature(function).bind(*call.args, **{word.arg or "": word.value for word in call.keywords})
    assert looked_at


# ---- the sample plugins


def written(tmp_path: Path, name: str, source: str = "docs/plugins/writing.md") -> Path:
    """A sample project of a page about writing, as its reader would have it."""
    for path, text in page(source).files.items():
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


class PagerTown:
    """The sample page's own server, alive in a thread."""

    def __init__(self, project: Path) -> None:
        spec = importlib.util.spec_from_file_location("pager_server", project / "tests" / "pager_server.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="pager")
        self.thread.start()
        self.server = module.PagerServer()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=60)

    def seen(self) -> tuple[str, str, str, dict[str, Any]]:
        """The next thing that people see."""
        thing: tuple[str, str, str, dict[str, Any]] = self.call(self.server.seen.get())
        return thing

    def close(self) -> None:
        self.call(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=30)
        self.loop.close()


@pytest.fixture
def pager(tmp_path: Path) -> Iterator[PagerTown]:
    town = PagerTown(written(tmp_path, "pager", "docs/channels/writing.md"))
    town.call(town.server.start())
    yield town
    town.close()


def test_the_sample_channel_over_http_answers_asks_and_is_clicked(
    make_exchange: MakeExchange, tmp_path: Path, pager: PagerTown
) -> None:
    exchange = make_exchange(environment={"JACKFIELD_SECRET_WORK_PAGER": "let-me-in"})
    install_project(exchange.root / "site", tmp_path / "pager")
    assert "ready" in exchange.run("plugin", "doctor", "pager").stdout
    exchange.run("channel", "add", "pager", "work", f"url={pager.server.url}", "token=work-pager")
    exchange.run("wire", "pager:work:lobby", "andy", "--policy", "public")
    exchange.start()
    pager.call(pager.server.add("message", "lobby", message="a1", text="hello", group=False, mention=False))
    assert pager.seen()[3]["text"] == "You said: hello"
    question = json.dumps({"title": "Lunch", "question": "Soup?", "options": ["Yes", "No"]})
    asks = f"mock: tool ask_user_question {question} mock: say {{result}}"
    pager.call(pager.server.add("message", "lobby", message="a2", text=asks, group=False, mention=False))
    kind, message, _, body = pager.seen()
    assert kind == "message"
    assert [one["label"] for one in body["buttons"]] == ["Yes", "No"]
    button = body["buttons"][1]["data"]
    pager.call(pager.server.add("click", "lobby", message=message, data=button))
    after = sorted([pager.seen(), pager.seen()], key=lambda one: one[0])
    assert [one[0] for one in after] == ["edit", "message"]
    assert after[0][1] == message
    assert after[0][3]["buttons"] == []
    assert "No" in after[1][3]["text"]
