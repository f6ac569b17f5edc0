"""Whatever happens in whatever order: ends stay ends, and each destination keeps its order."""

from __future__ import annotations

import sqlite3
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from jackfield.clock import UnixMs
from jackfield.ids import DeliveryId, InboundId, SessionId
from jackfield.models import Address, Delivery, DeliveryState, InboundState
from jackfield.store import deliveries, due, inbound
from jackfield.store.migrations import MIGRATIONS

OPEN = set(DeliveryState) - deliveries.ENDS
CHATS = [Address("telegram", "main", "1"), Address("telegram", "main", "1", "7"), Address("slack", "work", "C1")]
QUICK = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


def in_memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    for step in MIGRATIONS:
        for statement in step.statements:
            db.execute(statement)
    return db


class Machine(RuleBasedStateMachine):
    """A database, and a clock that only goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.db = in_memory()
        self.now = UnixMs(1_000_000)

    def teardown(self) -> None:
        self.db.close()

    @rule(seconds=st.integers(0, 100))
    def time_goes_on(self, seconds: int) -> None:
        self.now = UnixMs(self.now + seconds * 1000)


class Messages(Machine):
    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, InboundState] = {}

    @rule(target=ids, number=st.integers(0, 5), state=st.sampled_from(InboundState))
    def record(self, number: int, state: InboundState) -> InboundId:
        id = InboundId(f"in_{number}")
        new = inbound.record(
            self.db,
            id=id,
            event_id=None,
            wiring_id=None,
            session_id=SessionId("ses_1"),
            state=state,
            preview="",
            now=self.now,
        )
        assert new is (id not in self.known)
        self.known.setdefault(id, state)
        return id

    @rule(id=ids, state=st.sampled_from(InboundState), wait=st.none() | st.integers(0, 50))
    def move(self, id: InboundId, state: InboundState, wait: int | None) -> None:
        at = None if wait is None else UnixMs(self.now + wait * 1000)
        moved = inbound.set_state(self.db, id, state, self.now, next_try_at=at)
        assert moved is (self.known[id] not in inbound.ENDS)
        if moved:
            self.known[id] = state

    @rule(id=ids)
    def revive(self, id: InboundId) -> None:
        revived = inbound.revive(self.db, id, self.now)
        assert revived is (self.known[id] in (InboundState.FAILED, InboundState.DROPPED))
        if revived:
            self.known[id] = InboundState.QUEUED

    @invariant()
    def states_are_as_known(self) -> None:
        entries = {entry.id: entry for entry in inbound.entries(self.db, limit=100)}
        assert {id: entry.state for id, entry in entries.items()} == self.known
        assert all(entry.next_try_at is None for entry in entries.values() if entry.state in inbound.ENDS)
        opened = {entry.id for entry in inbound.open_entries(self.db, SessionId("ses_1"))}
        assert opened == {id for id, state in self.known.items() if state not in inbound.ENDS}
        moments = [entry.next_try_at for entry in entries.values() if entry.next_try_at is not None]
        assert due.next_due(self.db) == min(moments, default=None)


class Parts(Machine):
    ids = Bundle("ids")

    @initialize()
    def begin(self) -> None:
        self.made = 0
        self.seen: dict[str, DeliveryState] = {}
        self.may_leave: set[str] = set()

    @rule(
        target=ids,
        chats=st.lists(st.sampled_from(CHATS), min_size=1, max_size=3),
        start=st.booleans(),
        state=st.sampled_from([DeliveryState.PENDING, DeliveryState.PENDING, DeliveryState.BLOCKED]),
    )
    def add(self, chats: list[Address], start: bool, state: DeliveryState) -> DeliveryId:
        self.made += 1
        rows = [
            Delivery(
                id=DeliveryId(f"dl_{self.made}.{number}"),
                session_id=SessionId("ses_1"),
                out_seq=self.made,
                out_id="o",
                part=number,
                parts=len(chats),
                kind="message",
                address=chat,
                content="{}",
                state=state,
                attempts=0,
                next_try_at=self.now,
                first_try_at=None,
                platform_ids=(),
                reason=None,
                last_error=None,
                maybe_duplicate=False,
                created_at=self.now,
                updated_at=self.now,
            )
            for number, chat in enumerate(chats, 1)
        ]
        before = {destination: self.oldest(destination) for destination in map(str, chats)}
        added = deliveries.add(self.db, rows, start=start, now=self.now)
        free = {destination for destination, head in before.items() if head is None}
        assert len(added.started) == (len(free) if start and state in OPEN else 0)
        for part in added.started:
            assert part == self.part(part.id)
            assert part.state is DeliveryState.SENDING and part.attempts == 1
            assert self.oldest(str(part.address)) == part.id
        again = deliveries.add(self.db, rows, start=start, now=self.now)
        assert again.started == []
        return rows[0].id

    @rule(id=ids)
    def intend(self, id: DeliveryId) -> None:
        before = self.part(id)
        after = deliveries.intent(self.db, id, self.now)
        assert (after is None) is (before.state in deliveries.ENDS)
        assert after is None or after.attempts == before.attempts + 1

    @rule(id=ids, start=st.booleans(), state=st.sampled_from([DeliveryState.SENT, DeliveryState.ACCEPTED]))
    def sent(self, id: DeliveryId, start: bool, state: DeliveryState) -> None:
        self.check_next(id, deliveries.sent(self.db, id, ["p"], state, self.now, start_next=start), start)

    @rule(id=ids, start=st.booleans())
    def failed(self, id: DeliveryId, start: bool) -> None:
        self.check_next(id, deliveries.failed(self.db, id, "x", None, self.now, start_next=start), start)

    def check_next(self, id: DeliveryId, following: Delivery | None, start: bool) -> None:
        head = self.oldest(str(self.part(id).address))
        assert (None if following is None else following.id) == head
        if following is not None:
            assert following == self.part(following.id)
            if start and following.next_try_at <= self.now:
                assert following.state is DeliveryState.SENDING

    @rule(id=ids, wait=st.integers(0, 50), counts=st.booleans())
    def retry(self, id: DeliveryId, wait: int, counts: bool) -> None:
        deliveries.retry_at(self.db, id, UnixMs(self.now + wait * 1000), "x", None, self.now, counts=counts)

    @rule(id=ids)
    def wait(self, id: DeliveryId) -> None:
        deliveries.waiting(self.db, id, self.now)

    @rule(id=ids)
    def drop(self, id: DeliveryId) -> None:
        assert deliveries.drop(self.db, id, self.now) is (self.seen[id] not in deliveries.ENDS)

    @rule(id=ids)
    def revive(self, id: DeliveryId) -> None:
        self.may_leave.add(id)
        revived = deliveries.revive(self.db, id, self.now)
        assert revived is (self.seen[id] in (DeliveryState.FAILED, DeliveryState.DROPPED))

    @rule(id=ids)
    def report(self, id: DeliveryId) -> None:
        reported = deliveries.reported(self.db, id, DeliveryState.FAILED, self.now)
        assert reported is (self.seen[id] is DeliveryState.ACCEPTED)
        if reported:
            self.seen[id] = DeliveryState.FAILED

    @rule(before=st.sampled_from(CHATS), after=st.sampled_from(CHATS))
    def chat_moves(self, before: Address, after: Address) -> None:
        if before.chat != after.chat:
            deliveries.redirect(self.db, before, after)

    def part(self, id: str) -> Delivery:
        found = deliveries.delivery(self.db, DeliveryId(id))
        assert found is not None
        return found

    def rows(self) -> list[Any]:
        return self.db.execute(
            "SELECT id, destination, state, head_at, next_try_at, attempts FROM deliveries ORDER BY ord"
        ).fetchall()

    def oldest(self, destination: str) -> str | None:
        for id, where, state, *_ in self.rows():
            if where == destination and DeliveryState(state) in OPEN:
                return str(id)
        return None

    @invariant()
    def ends_stay(self) -> None:
        for id, _, text, *_ in self.rows():
            state = DeliveryState(text)
            was = self.seen.get(id)
            if was in deliveries.ENDS and id not in self.may_leave:
                assert state is was
            self.seen[id] = state
        self.may_leave.clear()

    @invariant()
    def only_a_head_that_nobody_sends_has_a_moment(self) -> None:
        heads: dict[str, int | None] = {}
        retries = []
        for _, destination, state, head_at, next_try_at, attempts in self.rows():
            assert attempts >= 0
            if DeliveryState(state) in OPEN and destination not in heads:
                heads[destination] = head_at
                assert head_at == (None if state == "sending" else next_try_at)
                if state == "retrying":
                    retries.append(next_try_at)
            else:
                assert head_at is None
        expected = {destination for destination, at in heads.items() if at is not None and at <= self.now}
        assert set(deliveries.destinations_due(self.db, self.now)) == expected
        assert due.next_due(self.db) == min(retries, default=None)
        for destination in heads:
            head = deliveries.next_for(self.db, destination, self.now)
            assert head is not None and head.id == self.oldest(destination)


TestMessages = Messages.TestCase
TestMessages.settings = QUICK
TestParts = Parts.TestCase
TestParts.settings = QUICK
