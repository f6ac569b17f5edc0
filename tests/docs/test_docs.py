"""What there is has its place in the documentation, and a test; what is written there holds together."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from jackfield import errors
from jackfield.api import HOOKS
from jackfield.config.settings import AgentSettings, HostSettings, IngressSettings
from jackfield.models import DeliveryState, InboundState
from jackfield.process.settings import ProcessSettings

from tests.docs.pages import ROOT, Page, all_pages, page, script

DOCS = script("docs")
PAGES = all_pages()
TESTS = [
    path
    for place in (*ROOT.glob("core/tests"), *ROOT.glob("plugins/*/*/tests"), ROOT / "tests")
    for path in place.rglob("*.py")
    if path != Path(__file__).resolve() and "fixtures" not in path.parts
]


def _words_of_tests() -> str:
    """All test files, with what stands between two words of a call folded to one space."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in TESTS)
    return re.sub(r"[\"',\s]+", " ", text)


WORDS = _words_of_tests()


def named_by_a_test(words: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", WORDS) is not None


def commands() -> list[str]:
    """Every command that does something; a group only holds others."""
    return [name for name, command, _ in DOCS.all_commands() if not isinstance(command, click.Group)]


# ---- generated pages


def test_the_generated_parts_are_what_the_code_says_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert DOCS.main(["--check"]) == 0, capsys.readouterr().out


def test_a_stale_page_is_shown_as_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(errors.EXIT_CODES, 77, "something else")
    assert DOCS.main(["--check"]) == 1
    shown = capsys.readouterr().out
    assert "-| 77 | not allowed |" in shown
    assert "+| 77 | something else |" in shown


def test_an_error_without_advice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    short = tmp_path / "errors.toml"
    short.write_text("\n".join(line for line in DOCS.ADVICE.read_text().splitlines() if "StoreFull" not in line))
    monkeypatch.setattr(DOCS, "ADVICE", short)
    with pytest.raises(ValueError, match="StoreFull"):
        DOCS.error_pages()


# ---- everything has its heading, and its test


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_heading_with_its_exact_arguments_and_a_test(hook: str) -> None:
    assert DOCS.heading_of(hook) in page("docs/plugins/hooks.md").headings
    assert named_by_a_test(hook)


@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_heading_and_a_test(name: str) -> None:
    assert f"`jackfield {name}`" in page("docs/operators/commands.md").headings
    assert named_by_a_test(name)


@pytest.mark.parametrize("name", [one.__name__ for one in DOCS.all_errors()])
def test_every_error_has_a_heading_and_a_test(name: str) -> None:
    assert f"`{name}`" in page("docs/operators/errors.md").headings
    assert named_by_a_test(name)


@pytest.mark.parametrize("name", DOCS.event_types())
def test_every_event_type_has_a_heading_and_a_test(name: str) -> None:
    assert f"`{name}`" in page("docs/plugins/events.md").headings
    assert named_by_a_test(name)


@pytest.mark.parametrize(
    ("prefix", "model"),
    [
        ("host.", HostSettings),
        ("ingress.", IngressSettings),
        ("", AgentSettings),
        ("runtimes.process.", ProcessSettings),
    ],
)
def test_every_setting_has_a_heading_and_a_default_in_the_table(prefix: str, model: type) -> None:
    configuration = page("docs/operators/configuration.md")
    for name, _, default, _ in DOCS.setting_rows(model):
        assert f"`{prefix}{name}`" in configuration.headings
        assert re.search(
            rf"^\| \[`{re.escape(prefix + name)}`\].* \| {re.escape(default)} \|$", configuration.text, re.M
        )


def test_every_state_of_the_ledger_is_explained_to_operators() -> None:
    text = page("docs/operators/messages.md").text
    for state in (*InboundState, *DeliveryState):
        assert f"`{state}`" in text


def test_the_hooks_that_nothing_calls_are_said_to_be_so() -> None:
    text = page("docs/plugins/hooks.md").text
    assert text.count("*Not in use yet") == len(DOCS.unused_hooks())


# ---- pages hold together


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.name)
def test_links_lead_somewhere(one: Page) -> None:
    for link in one.links:
        if re.match(r"[a-z]+:", link):
            continue
        target, _, fragment = link.partition("#")
        file = (one.path.parent / target).resolve() if target else one.path
        assert file.exists(), f"{one.name} links to {link}"
        if fragment:
            assert fragment in Page(file).anchors, f"{one.name} links to {link}"


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.name)
def test_no_page_has_two_headings_that_lead_to_one_place(one: Page) -> None:
    anchors = [DOCS.anchor(heading) for heading in one.headings]
    assert len(anchors) == len(set(anchors)), sorted(name for name in anchors if anchors.count(name) > 1)


@pytest.mark.parametrize("one", PAGES, ids=lambda one: one.name)
def test_no_page_names_somebodys_own_paths_or_our_own_numbers(one: Page) -> None:
    assert not re.findall(r"/(?:work|home|Users|root|tmp)/\w+|\bC\d{3}\b|\bspec/\w+|architecture \d", one.text)


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [page("README.md").path]
    while waiting:
        path = waiting.pop()
        if path in seen or path.suffix != ".md":
            continue
        seen.add(path)
        links = [link.partition("#")[0] for link in Page(path).links if not re.match(r"[a-z]+:", link)]
        waiting += [(path.parent / link).resolve() for link in links if link]
    assert {one.path for one in PAGES if one.path.is_relative_to(ROOT / "docs")} <= seen
