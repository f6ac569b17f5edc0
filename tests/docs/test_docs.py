"""What there is has its place in the documentation, and a test; what is written there holds together."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pytest
from jackfield import errors
from jackfield.api import HOOKS
from jackfield.api import channels as channel_api
from jackfield.clock import UnixMs
from jackfield.config.settings import AgentSettings, HostSettings, IngressSettings
from jackfield.host import retry, sending
from jackfield.models import (
    Capabilities,
    ChannelState,
    DeliveryState,
    EventState,
    InboundState,
    MessageReceived,
    OutMessage,
    Person,
)
from jackfield.process.settings import ProcessSettings
from jackfield.store import deliveries, inbound

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


def rows_under(text: str, heading: str) -> dict[str, str]:
    """The first cells of the table behind a heading, and the rest of their rows."""
    part = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| (\S+) \|(.*)\|$", part, re.M))


@pytest.mark.parametrize(
    ("heading", "states", "ends"),
    [
        ("Accepted: events", EventState, set(EventState) - {EventState.RECEIVED}),
        ("On the way in", InboundState, inbound.ENDS),
        ("On the way out", DeliveryState, deliveries.ENDS),
    ],
)
def test_every_state_of_the_ledger_stands_in_its_table_and_ends_are_bold(
    heading: str, states: Iterable[str], ends: set[str]
) -> None:
    """Operators can look up what each state means, who moves it and what ends it."""
    rows = rows_under(page("docs/operators/messages.md").text, heading)
    assert {one for one in rows if "`" in one} == {f"**`{one}`**" if one in ends else f"`{one}`" for one in states}


def test_what_the_table_says_about_retrying_is_what_the_command_does() -> None:
    """`retry` and `drop` in the last column, against the states that `jackfield message` takes."""
    text = page("docs/operators/messages.md").text
    tables = [(InboundState, rows_under(text, "On the way in")), (DeliveryState, rows_under(text, "On the way out"))]
    may_retry = {("InboundState", one) for one in ("failed", "retrying", "parked")}
    may_retry |= {("DeliveryState", one) for one in ("failed", "retrying", "waiting")}
    for states, rows in tables:
        for name, row in rows.items():
            if "`" not in name:
                continue
            state = states(name.strip("*`"))
            you = row.rsplit("|", 1)[1]
            assert ("`retry`" in you) == ((states.__name__, state.value) in may_retry), name
            ended = name.startswith("**")
            assert ("`drop`" in you) == (not ended), name


def test_every_public_name_of_a_channels_api_is_in_its_contract() -> None:
    contract = page("docs/channels/contract.md")
    written = contract.text.split("\n## Reference\n")[0]
    for name in channel_api.__all__:
        assert re.search(rf"\b{name}\b", written), f"{name} is explained nowhere"
        assert f"`{name}`" in contract.headings
    for method in ("accept", "cursor", "secret", "route_url", "report", "wake", "spawn", "folder", "clock", "instance"):
        assert f"`{method}" in written


@pytest.mark.parametrize("cls", [Capabilities, MessageReceived, Person, OutMessage])
def test_every_field_of_what_channels_say_and_get_is_in_the_contract(cls: type) -> None:
    written = page("docs/channels/contract.md").text.split("\n## Reference\n")[0]
    common = {"address", "dedupe_key", "occurred_at"} if cls is MessageReceived else set()
    rows = set(re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| ([^|]+) \|", written, re.M))))
    missing = {one.name for one in dataclasses.fields(cls)} - rows - common
    assert not missing


def test_every_error_of_a_channel_event_and_state_is_in_the_contract() -> None:
    written = page("docs/channels/contract.md").text.split("\n## Reference\n")[0]
    kinds = [one.__name__ for one in DOCS.all_errors() if issubclass(one, errors.ChannelError)]
    for name in (*kinds, *DOCS.event_types(), *ChannelState):
        assert re.search(rf"`{name}\b", written), name


def raised(kind: type[errors.ChannelError]) -> errors.ChannelError:
    """One of that class."""
    more: dict[type[errors.ChannelError], dict[str, Any]] = {
        errors.RateLimited: {"retry_after": 1.0},
        errors.Migrated: {"new_platform_id": "new"},
    }
    return kind("no", **more.get(kind, {}))


def test_the_contract_says_what_the_core_really_does_after_each_error() -> None:
    """The last cell of its row, against the rule that decides."""
    written = page("docs/channels/contract.md").text
    part = written.split("### What you may raise", 1)[1].split("\n## ", 1)[0]
    says = dict(re.findall(r"^\| `(\w+)[^|]*\|[^|]*\|([^|]*)\|$", part, re.M))
    words = {
        retry.GiveUp: "gives up", retry.SendAgain: "again|waits that long", retry.Wait: "waits",
        retry.MoveTo: "moves the chat", retry.SendPlain: "`plain`",
    }  # fmt: skip
    kinds = [one for one in DOCS.all_errors() if issubclass(one, errors.ChannelError)]
    for kind in kinds:
        done = retry.after_send(
            raised(kind), retry.SendState(attempts=1, first_try_at=UnixMs(0)), UnixMs(0),
            idempotent=False, history=False, random=0.0,
        )  # fmt: skip
        row = says["ChannelError" if kind is errors.ChannelError else kind.__name__]
        if kind is errors.AuthFailed:
            assert "the part waits" in row
        else:
            assert re.search(words[type(done)], row), (kind.__name__, row)
            assert ("gives up" in row) == isinstance(done, retry.GiveUp), kind.__name__


def test_the_waits_that_operators_are_told_are_those_of_the_rule() -> None:
    text = page("docs/operators/messages.md").text
    *waits, last = (f"{retry.turn_delay(tries):g}" for tries in range(retry.MAX_TRIES))
    assert f"{retry.MAX_TRIES} retries, after {', '.join(waits)} and {last} s" in text
    assert f"for up to {retry.SEND_WINDOW / 3600:g} h" in text
    assert f"doubling to {retry.SEND_LONGEST / 60:g} min" in text
    assert f"or {sending.SEND_SECONDS:g} s without one" in text


def test_every_module_of_the_kit_is_in_the_contract_and_in_its_readme() -> None:
    package = ROOT / "plugins" / "channels" / "kit" / "src" / "jackfield_channel_kit"
    inner = {"__init__", "responses", "unpack"}  # parts of `http`
    modules = {path.stem for path in package.glob("*.py")} - inner
    modules |= {f"text.{name}" for name in ("render", "split", "parse", "stream")} | {"testing"}
    written = page("docs/channels/contract.md").text
    assert not {name for name in modules if f"`{name}`" not in written}


def test_every_ability_of_a_channel_is_told_to_operators() -> None:
    abilities = script("docs").docs_channels.ABILITIES
    told = [field for _, fields, _ in abilities for field in fields]
    assert sorted(told) == sorted(one.name for one in dataclasses.fields(Capabilities))


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
