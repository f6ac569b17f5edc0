"""What plugins build on changes only with a bump of `API_VERSION` (architecture 4, the API promise)."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest
from jackfield import API_VERSION
from jackfield.api import HOOKS, HookKind, HookSpecs

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("api_snapshot_script", ROOT / "scripts" / "api_snapshot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SNAPSHOT = script()


def test_no_public_signature_changes_without_a_bump() -> None:
    version, stored = SNAPSHOT.read()
    changes = SNAPSHOT.differences(stored, SNAPSHOT.signatures())
    assert not changes, (
        f"the API differs from the snapshot of {version}; bump API_VERSION in jackfield/__init__.py, then run "
        "python scripts/api_snapshot.py:\n" + "\n".join(changes)
    )
    assert version == API_VERSION


OLD = {
    "api.Ref": "class()",
    "api.Ref.id": "0: str",
    "api.Kind": "class(IntEnum)",
    "api.Kind.ONE": "1",
    "api.Event": "one of",
    "api.Event[Said]": "",
    "api.run": "-> None",
    "api.run(what)": "0: str",
    "api.Channel": "class(Protocol)",
    "api.Channel.send": "async -> SendResult",
    "api.ChannelContext": "class(Protocol)",
    "api.ChannelContext.accept": "async -> Accepted",
    "api.HookSpecs": "class()",
    "api.HookSpecs.decide": "async -> None",
}


@pytest.mark.parametrize(
    ("change", "breaks"),
    [
        ("- api.Ref.id: 0: str", True),
        ("+ api.Ref.id: 0: int", True),
        ("+ api.Ref.name: 1: str", True),
        ("+ api.Ref.name: keyword str", True),
        ("+ api.Ref.name: 1: str = ''", False),
        ("+ api.Ref.reversed: -> Ref", False),
        ("+ api.Kind.TWO: 2", False),
        ("+ api.Event[Left]: ", False),
        ("+ api.run(how): 1: str", True),
        ("+ api.run(how): keyword str = 'fast'", False),
        ("+ api.walk: -> None", False),
        ("+ api.walk(what): 0: str", False),
        ("+ api.Step: class()", False),
        ("+ api.Step.length: 0: int", False),
        ("+ api.Pins: class(Protocol)", False),
        ("+ api.Pins.pin: async -> None", False),
        ("+ api.Pins.pin(ref): 1: Ref", False),
        ("+ api.Channel.pin: async -> None", True),
        ("+ api.Channel.send(loud): keyword bool = False", True),
        ("+ api.ChannelContext.pin: async -> None", False),
        ("+ api.ChannelContext.accept(late): keyword bool = False", False),
        ("+ api.ChannelContext.accept(late): keyword bool", True),
        ("+ api.HookSpecs.decide(more): 2: str", False),
    ],
)
def test_an_addition_breaks_what_would_have_to_know_of_it(change: str, breaks: bool) -> None:
    assert SNAPSHOT.breaks(OLD, change) is breaks


@pytest.mark.parametrize(
    ("before", "now", "changes", "enough"),
    [
        ((0, 1), (0, 1), [], True),
        ((0, 1), (0, 1), ["+ a: "], False),
        ((0, 1), (0, 2), ["+ a: "], True),
        ((0, 1), (0, 2), ["- a: "], True),
        ((1, 3), (1, 4), ["+ a: "], True),
        ((1, 3), (1, 4), ["- a: ", "+ a: "], False),
        ((1, 3), (1, 4), ["+ api.Channel.pin: async -> None"], False),
        ((1, 3), (2, 0), ["- a: ", "+ a: "], True),
        ((1, 3), (1, 2), ["+ a: "], False),
    ],
)
def test_additions_need_a_minor_step_and_all_else_a_major_one(
    before: tuple[int, int], now: tuple[int, int], changes: list[str], enough: bool
) -> None:
    assert SNAPSHOT.bump_suffices(before, now, OLD, changes) is enough


def test_each_protocol_that_may_grow_is_one() -> None:
    stored = SNAPSHOT.signatures()
    promise = (ROOT / "docs" / "plugins" / "api.md").read_text(encoding="utf-8")
    for name in SNAPSHOT.HANDED_OUT:
        assert f"`{name}`" in promise
        assert [place for place in stored if place.endswith(f".{name}") and stored[place] == "class(Protocol)"], name


def test_a_changed_argument_field_or_member_shows() -> None:
    stored = SNAPSHOT.signatures()
    for name in (
        "jackfield.api.Channel.send",
        "jackfield.api.HookSpecs.decide_access",
        "jackfield.api.ChannelType.create",
        "jackfield.models.Address.platform_id",
        "jackfield.api.SendPath.TOOL",
        "jackfield.errors.RateLimited.__init__(retry_after)",
        "jackfield.models.Event[MessageReceived]",
        "jackfield.clock.Clock.now",
    ):
        assert name in stored
        changed = stored | {name: "another"}
        assert SNAPSHOT.differences(stored, changed) == [f"- {name}: {stored[name]}", f"+ {name}: another"]


def test_no_signature_depends_on_the_machine() -> None:
    assert not [line for line in SNAPSHOT.signatures().values() if " at 0x" in line or "<locals>" in line]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_is_documented_and_is_async_where_messages_pass(hook: str) -> None:
    function = getattr(HookSpecs, hook)
    assert inspect.getdoc(function)
    assert inspect.iscoroutinefunction(function) is (HOOKS[hook] is not HookKind.REGISTRATION)
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty
