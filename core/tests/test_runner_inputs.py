"""Which inputs an end of the provider's turn answers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.models import InboundRow
from jackfield.runner.inputs import Inputs
from runner_kit import chat


def row(seq: int) -> InboundRow:
    return replace(chat("x"), seq=seq)


def seqs(rows: list[InboundRow] | None) -> list[int] | None:
    return None if rows is None else [row.seq for row in rows]


def test_all_that_was_started_or_injected_is_answered() -> None:
    inputs = Inputs(exact=False)
    inputs.add("a", [row(2), row(4)])
    inputs.received("a", "started")
    inputs.add("b", [row(6)])
    inputs.received("b", "injected")
    assert seqs(inputs.settle()) == [2, 4, 6] and not inputs


def test_what_was_queued_is_owed_and_comes_next() -> None:
    """Pitfall 27."""
    inputs = Inputs(exact=False)
    for number, (name, receipt) in enumerate([("a", "started"), ("b", "queued"), ("c", "queued")]):
        inputs.add(name, [row(2 * number + 2)])
        inputs.received(name, receipt)  # type: ignore[arg-type]  # any value may come
    assert [seqs(inputs.settle()) for _ in range(3)] == [[2], [4], [6]]


def test_a_provider_that_tells_is_believed() -> None:
    inputs = Inputs(exact=True)
    for number, name in enumerate("ab"):
        inputs.add(name, [row(2 * number + 2)])
        inputs.received(name, "injected")
    inputs.take(["a", "unknown"])
    assert seqs(inputs.settle()) == [2] and seqs(inputs.rows()) == [4]
    assert seqs(inputs.settle()) == [4]


def test_the_end_of_a_turn_that_was_not_ours_answers_nothing() -> None:
    inputs = Inputs(exact=True)
    inputs.add("a", [row(2)])
    inputs.received("a", "queued")
    assert inputs.settle() is None
    inputs.take(["a"])
    assert seqs(inputs.settle()) == [2]


def test_what_was_rejected_is_not_owed() -> None:
    inputs = Inputs(exact=False)
    inputs.add("a", [row(2)])
    inputs.received("a", "rejected")
    assert not inputs and inputs.rows() == []
