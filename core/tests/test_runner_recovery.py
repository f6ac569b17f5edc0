"""When a conversation is given up for a new one with a summary (spec/providers.md 7)."""

from __future__ import annotations

import pytest
from jackfield.errors import ProviderErrorKind
from jackfield.runner.recovery import Failing, Reason, anew_after, anew_after_crashes, counts


@pytest.mark.parametrize(
    ("kind", "helps", "anew"),
    [
        ("continuation_lost", False, ["lost", "lost", "lost"]),
        ("context_overflow", False, ["too_long", None, None]),
        ("engine_crash", False, [None, "engine", "engine"]),
        ("protocol", False, [None, "engine", "engine"]),
        ("livelock", True, ["engine", None, None]),
        ("overloaded", False, [None, None, None]),
        ("refusal", False, [None, None, None]),
        ("auth", False, [None, None, None]),
    ],
)
def test_a_new_conversation_begins_only_where_it_helps(
    kind: ProviderErrorKind, helps: bool, anew: list[Reason | None]
) -> None:
    """C124: an engine gets its conversation back once; one that is too long is given up once, and never in a loop."""
    failing: Failing | None = None
    found = []
    for _ in range(3):
        failing = Failing.after(failing, kind)
        found.append(anew_after(kind, failing, helps=helps))
    assert found == anew
    assert counts(kind, helps=helps) == any(anew)


def test_another_failure_begins_to_count_anew() -> None:
    first = Failing.after(None, "engine_crash")
    assert Failing.after(first, "context_overflow").count == 1
    assert Failing.after(first, "engine_crash").count == 2
    assert Failing.loads(first.dumps()) == first


@pytest.mark.parametrize("text", [None, "", "engine_crash", "engine_crash x", "engine_crash -1", " 3", "a 9999999"])
def test_what_is_no_count_counts_nothing(text: str | None) -> None:
    assert Failing.loads(text) is None


def test_a_conversation_that_ends_its_runner_three_times_is_suspected() -> None:
    """C099: but not one whose turns failed with an error."""
    assert anew_after_crashes(2, "crash") is None
    assert anew_after_crashes(3, "crash") == "crash"
    assert anew_after_crashes(5, "error") is None
