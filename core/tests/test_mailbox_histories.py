"""Whatever happens in whatever order, no committed row is lost, doubled or reordered (messaging.md 3.6)."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from jackfield.clock import UnixMs
from jackfield.ids import InboundId, OutboundId, TurnId
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    ChatContent,
    InboundKind,
    InboundRow,
    MessageContent,
    OutboundKind,
    OutboundRow,
)

CHAT = Address("terminal", "terminal", "x")
FINAL = (AckStatus.COMPLETED, AckStatus.FAILED)


@dataclass
class Expected:
    """What is known of an inbound row without looking."""

    seq: int
    trigger: bool
    attempt: int = 1
    due_at: int = 0
    withdrawn: bool = False
    ack: tuple[AckStatus, int, int] | None = None
    """Status, attempt, epoch."""


class Mailbox(RuleBasedStateMachine):
    """Both sides against a model of a few dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.folder = SessionFolder(self.place / "ag" / "ses")
        self.folder.create()
        self.host = HostMailbox(self.folder)
        self.runner = RunnerMailbox(self.folder, 1)
        self.epoch = 1
        self.now = 1000
        self.rows: dict[str, Expected] = {}
        self.out: dict[str, int] = {}
        self.changes = 0
        self.taken: list[InboundRow] = []
        self.read: list[str] = []
        self.acks_read: dict[str, tuple[AckStatus, int, int]] = {}
        self.cursor = (0, 0)

    def teardown(self) -> None:
        self.host.close()
        self.runner.close()
        shutil.rmtree(self.place)

    names = st.integers(0, 11).map(lambda number: f"m{number}")

    @rule(batch=st.lists(st.tuples(names, st.booleans(), st.integers(0, 3)), min_size=1, max_size=4))
    def enqueue(self, batch: list[tuple[str, bool, int]]) -> None:
        rows = [self.inbound(name, trigger, self.now + 10 * delay) for name, trigger, delay in batch]
        for row, done in zip(rows, self.host.enqueue(rows), strict=True):
            known = self.rows.get(row.id)
            if known is None:
                assert done.inserted and not done.raised
                assert done.seq == max((other.seq for other in self.rows.values()), default=0) + 2
                self.rows[row.id] = Expected(done.seq, row.trigger, due_at=row.due_at)
            else:
                assert (done.seq, done.inserted) == (known.seq, False)
                assert done.raised == (row.trigger and not known.trigger)
                known.trigger |= row.trigger

    @rule(limit=st.integers(1, 5))
    def take(self, limit: int) -> None:
        self.taken = self.runner.pending(UnixMs(self.now), limit)
        assert [row.id for row in self.taken] == self.due()[:limit]
        for row in self.taken:
            known = self.rows[row.id]
            assert (row.seq, row.trigger, row.attempt) == (known.seq, known.trigger, known.attempt)
            assert row.content == ChatContent(text=row.id)

    @precondition(lambda self: self.taken)
    @rule()
    def claim(self) -> None:
        self.runner.claim(self.taken, TurnId(f"trn_{self.epoch}"))
        for row in self.taken:
            self.rows[row.id].ack = (AckStatus.PROCESSING, row.attempt, self.epoch)

    @precondition(lambda self: self.taken)
    @rule(
        status=st.sampled_from([AckStatus.COMPLETED, AckStatus.FAILED, AckStatus.RELEASED]),
        replies=st.lists(st.integers(0, 30).map(lambda number: f"o{number}"), max_size=3),
    )
    def end_turn(self, status: AckStatus, replies: list[str]) -> None:
        acks = [
            Ack(
                message_id=row.id,
                status=status,
                attempt=row.attempt,
                epoch=self.epoch,
                at=UnixMs(self.now),
                turn=TurnId(f"trn_{self.epoch}"),
            )
            for row in self.taken
        ]
        messages = [self.outbound(name) for name in replies]
        seqs = self.runner.write(messages=messages, acks=acks)
        highest = max([*self.out.values(), *(row.seq for row in self.taken)])
        for message, seq in zip(messages, seqs, strict=True):
            if message.id in self.out:
                assert seq == self.out[message.id]
            else:
                assert seq % 2 == 1 and seq > highest
                self.out[message.id] = highest = seq
        for row in self.taken:
            self.rows[row.id].ack = (status, row.attempt, self.epoch)
        self.taken = []

    @rule(crash=st.booleans())
    def new_runner(self, crash: bool) -> None:
        """A crash leaves claims open; the next epoch takes them again."""
        self.runner.close()
        self.epoch += 1
        self.taken = []
        self.runner = RunnerMailbox(self.folder, self.epoch)
        open_claims = [row for row in self.rows.values() if row.ack is not None and row.ack[0] is AckStatus.PROCESSING]
        assert (self.runner.broken_turn() is not None) == bool(open_claims)
        if not crash:
            self.host.close()

    @rule(name=names, attempt=st.integers(1, 4), delay=st.integers(0, 3), revive=st.booleans())
    def retry(self, name: str, attempt: int, delay: int, revive: bool) -> None:
        known = self.rows.get(name)
        due_at = self.now + 10 * delay
        possible = known is not None and attempt >= known.attempt and (revive or not known.withdrawn)
        assert self.host.retry(name, attempt, UnixMs(due_at), revive=revive) == possible
        if known is not None and possible:
            known.attempt, known.due_at, known.withdrawn = attempt, due_at, False

    @rule(chosen=st.lists(names, max_size=3, unique=True))
    def withdraw(self, chosen: list[str]) -> None:
        fresh = [name for name in chosen if name in self.rows and not self.rows[name].withdrawn]
        assert self.host.withdraw(chosen) == len(fresh)
        for name in fresh:
            self.rows[name].withdrawn = True

    @rule(limit=st.integers(1, 4))
    def collect(self, limit: int) -> None:
        batch = self.host.read_outbound(after_seq=self.cursor[0], after_change=self.cursor[1], limit=limit)
        assert batch.bad == []
        self.read += [row.id for row in batch.rows]
        for ack in batch.acks:
            assert ack.change > self.cursor[1]
            self.acks_read[ack.message_id] = (ack.status, ack.attempt, ack.epoch)
        self.cursor = (batch.last_seq, batch.last_change)
        if not batch.more:
            assert self.read == sorted(self.out, key=lambda name: self.out[name])
            assert self.acks_read == {name: row.ack for name, row in self.rows.items() if row.ack is not None}

    @rule(seconds=st.integers(1, 20))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def what_was_read_is_a_beginning_of_what_was_written(self) -> None:
        written = sorted(self.out, key=lambda name: self.out[name])
        assert self.read == written[: len(self.read)]

    @invariant()
    def the_next_due_time_is_the_earliest_of_those_that_wait(self) -> None:
        waiting = [row.due_at for row in self.rows.values() if row.due_at > self.now and self.open(row)]
        assert self.runner.next_due(UnixMs(self.now)) == min(waiting, default=None)

    def due(self) -> list[str]:
        found = [name for name, row in self.rows.items() if row.due_at <= self.now and self.open(row)]
        return sorted(found, key=lambda name: self.rows[name].seq)

    def open(self, row: Expected) -> bool:
        if row.withdrawn:
            return False
        if row.ack is None or row.ack[1] < row.attempt:
            return True
        status, _, epoch = row.ack
        return not (status in FINAL or (status is AckStatus.PROCESSING and epoch == self.epoch))

    def inbound(self, name: str, trigger: bool, due_at: int) -> InboundRow:
        return InboundRow(
            id=InboundId(name),
            kind=InboundKind.CHAT,
            content=ChatContent(text=name),
            at=UnixMs(self.now),
            origin=CHAT,
            trigger=trigger,
            due_at=UnixMs(due_at),
        )

    def outbound(self, name: str) -> OutboundRow:
        return OutboundRow(
            id=OutboundId(name),
            kind=OutboundKind.MESSAGE,
            content=MessageContent(text=name),
            at=UnixMs(self.now),
            epoch=self.epoch,
            address=CHAT,
        )


TestHistories = Mailbox.TestCase
TestHistories.settings = settings(
    max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
