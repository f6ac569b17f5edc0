"""Which rows make the next prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from hypothesis import given
from hypothesis import strategies as st
from jackfield.models import Address, InboundRow
from jackfield.runner.batch import choose_batch, choose_follow_ups, may_stop, stop_requests
from runner_kit import HERE, chat

THERE = Address("telegram", "bot", "-100", "7")


def row(seq: int, text: str = "x", **more: object) -> InboundRow:
    return replace(chat(text, **more), seq=seq)  # type: ignore[arg-type]  # the values' types vary


def seqs(rows: Iterable[InboundRow]) -> list[int]:
    return [row.seq for row in rows]


def test_without_a_trigger_nothing_starts() -> None:
    assert choose_batch([row(2, trigger=False)], 10) is None


def test_the_oldest_trigger_decides_the_origin() -> None:
    """Architecture 5, rule 9."""
    rows = [row(2, origin=THERE, trigger=False), row(4), row(6, origin=THERE), row(8)]
    batch = choose_batch(rows, 10)
    assert batch is not None and seqs(batch.rows) == [4, 8] and batch.origin == HERE


def test_a_command_is_a_batch_of_its_own_in_its_turn() -> None:
    """C019."""
    rows = [row(2), row(4, "/clear", command="/clear"), row(6)]
    first = choose_batch(rows, 10)
    second = choose_batch(rows[1:], 10)
    assert first is not None and seqs(first.rows) == [2] and first.command is None
    assert second is not None and seqs(second.rows) == [4] and second.command == "/clear"


def test_context_before_a_clear_goes_with_it() -> None:
    batch = choose_batch([row(2, trigger=False), row(4, "/clear", command="/clear")], 10)
    assert batch is not None and seqs(batch.skipped) == [2]


def test_too_much_context_is_left_out_oldest_first_and_counted() -> None:
    rows = [row(2 * n, trigger=False) for n in range(1, 31)] + [row(70), row(72)]
    batch = choose_batch(rows, 10)
    assert batch is not None and seqs(batch.rows)[-1] == 70
    assert len(batch.rows) == 10 and len(batch.skipped) == 21


def test_context_without_an_origin_rides_along_with_any_turn() -> None:
    batch = choose_batch([row(2, origin=None, trigger=False), row(4)], 10)
    assert batch is not None and seqs(batch.rows) == [2, 4] and batch.origin == HERE


ROWS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([HERE, THERE, None]), st.sampled_from([None, None, None, "/clear", "/x"])),
    max_size=40,
)


@given(ROWS, st.integers(0, 12))
def test_every_row_with_a_trigger_is_taken_once_and_each_chat_in_order(rows: list[tuple], limit: int) -> None:
    """C019; messaging 6.2: nothing starves."""
    left = [
        row(2 * n + 2, trigger=trigger, origin=origin, command=command)
        for n, (trigger, origin, command) in enumerate(rows)
    ]
    wanted = [item.seq for item in left if item.trigger]
    taken: list[int] = []
    while (batch := choose_batch(left, limit)) is not None:
        assert len(batch.rows) <= (limit or 1000)
        assert seqs(batch.all_rows) == sorted(seqs(batch.all_rows))
        assert {item.origin for item in batch.rows if item.trigger} == {batch.origin}
        assert not any(item.trigger for item in batch.skipped)
        assert len(batch.rows) == 1 or all(item.content.command is None for item in batch.rows if item.trigger)
        gone = {item.id for item in batch.all_rows}
        older = [item for item in left if item.id not in gone and item.origin == batch.origin]
        assert batch.command or not any(item.seq < batch.rows[-1].seq for item in older)
        taken += [item.seq for item in batch.rows if item.trigger]
        left = [item for item in left if item.id not in gone]
    assert sorted(taken) == wanted


def test_follow_ups_stop_at_the_first_row_that_must_wait() -> None:
    """C128, C019."""
    people = frozenset({"terminal:ann"})
    rows = [row(2), row(4, trigger=False), row(6, sender="bob"), row(8)]
    found = choose_follow_ups(rows, HERE, people, 10)
    assert found is not None and seqs(found.rows) == [2]
    assert choose_follow_ups([row(2, trigger=False)], HERE, people, 10) is None
    assert choose_follow_ups([row(2, "/clear", command="/clear"), row(4)], HERE, people, 10) is None
    assert choose_follow_ups([row(2, origin=THERE)], HERE, people, 10) is None


def test_stopping_is_for_the_initiator_and_admins() -> None:
    """C128."""
    stop = row(2, "/stop", command="/stop")
    assert stop_requests([stop, row(4), row(6, "/stop", command="/stop", origin=THERE)], HERE) == (stop,)
    assert may_stop(stop, "terminal:ann") and not may_stop(stop, "terminal:bob") and not may_stop(stop, None)
    assert may_stop(row(4, "/stop", command="/stop", role="owner"), "terminal:bob")
    assert not may_stop(row(4, "/stop", command="/stop", role="member"), "terminal:bob")
