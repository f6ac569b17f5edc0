"""Events, messages in, parts out, questions, and what is due next."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jackfield.api.channels import Cursor
from jackfield.clock import SystemClock, UnixMs
from jackfield.errors import NotFound
from jackfield.ids import (
    AgentGroupId,
    DeliveryId,
    EventId,
    InboundId,
    QuestionId,
    SessionId,
    UserId,
    WiringId,
    new_id,
)
from jackfield.models import (
    Address,
    AgentGroup,
    Delivery,
    DeliveryState,
    EventState,
    InboundState,
    SessionMode,
    UnknownSenderPolicy,
)
from jackfield.store import Store, chats, deliveries, due, events, groups, inbound, questions, sessions
from jackfield.store.opening import open_database

NOW = UnixMs(1_700_000_000_000)
CHAT = Address("telegram", "main", "-100")
OTHER = Address("slack", "work", "C1", "171.2")
SESSION = SessionId("ses_1")
State = DeliveryState


def later(seconds: int) -> UnixMs:
    return UnixMs(NOW + seconds * 1000)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    db = open_database(tmp_path / "state.db", SystemClock(), backups=tmp_path)
    yield db
    db.close()


# Events


def accept(db: sqlite3.Connection, key: str, cursor: Cursor | None = None) -> events.Accepted:
    return events.accept(db, "telegram", "main", key, "MessageReceived", '{"text":"hi"}', NOW, cursor)


def test_an_event_is_stored_once_and_a_duplicate_says_how_far_it_is(db: sqlite3.Connection) -> None:
    first = accept(db, "m:1")
    assert not first.duplicate and first.state is EventState.RECEIVED
    assert accept(db, "m:1") == replace(first, duplicate=True)
    assert events.finish(db, first.event_id, EventState.ROUTED, now=later(1)) is True
    assert events.finish(db, first.event_id, EventState.FAILED, now=later(2)) is False
    assert accept(db, "m:1") == events.Accepted(first.event_id, EventState.ROUTED, duplicate=True)
    stored = events.event(db, first.event_id)
    assert stored is not None and stored.finished_at == later(1) and stored.body == '{"text":"hi"}'


def test_the_same_key_of_another_instance_is_another_event(db: sqlite3.Connection) -> None:
    accept(db, "m:1")
    assert not events.accept(db, "telegram", "second", "m:1", "MessageReceived", "{}", NOW).duplicate


def test_the_cursor_moves_with_the_event(db: sqlite3.Connection) -> None:
    assert events.get_cursor(db, "telegram", "main", "updates") is None
    accept(db, "m:1", Cursor("updates", "10"))
    accept(db, "m:1", Cursor("updates", "11"))
    assert events.get_cursor(db, "telegram", "main", "updates") == "11"
    assert events.get_cursor(db, "telegram", "second", "updates") is None


def test_unfinished_events_come_in_their_order_page_by_page(db: sqlite3.Connection) -> None:
    made = [accept(db, f"m:{n}").event_id for n in range(6)]
    events.finish(db, made[1], EventState.IGNORED, "no_agent_wired", now=NOW)
    assert [one.id for one in events.unfinished(db, 3)] == [made[0], made[2], made[3]]
    assert [one.id for one in events.unfinished(db, 3, after=made[3])] == [made[4], made[5]]
    assert events.reopen(db, made[1]) is True
    assert [one.id for one in events.unfinished(db, 2)] == [made[0], made[1]]
    with pytest.raises(ValueError, match="no end"):
        events.finish(db, made[0], EventState.RECEIVED, now=NOW)


def test_only_finished_old_events_are_pruned(db: sqlite3.Connection) -> None:
    done, unfinished = accept(db, "m:1").event_id, accept(db, "m:2").event_id
    events.finish(db, done, EventState.ROUTED, now=NOW)
    assert events.prune_events(db, NOW) == 0
    assert events.prune_events(db, later(1), limit=10) == 1
    assert events.event(db, done) is None and events.event(db, unfinished) is not None


def test_drops_are_counted_by_chat_sender_and_reason(db: sqlite3.Connection) -> None:
    """messaging.md 17.4, pitfall 12."""
    for sender, name in (("x:1", "Ann"), ("x:1", None), ("x:2", "Bob")):
        events.audit_drop(db, CHAT, sender, "unknown_sender", later(int(sender[-1])), sender_name=name)
    events.audit_drop(db, CHAT, "x:1", "no_agent_engaged", NOW)
    found = events.drops(db, 10)
    assert [(one.sender, one.reason, one.count, one.sender_name) for one in found] == [
        ("x:2", "unknown_sender", 1, "Bob"),
        ("x:1", "unknown_sender", 2, "Ann"),
        ("x:1", "no_agent_engaged", 1, None),
    ]
    assert found[0].address == CHAT


# Messages in


def record(db: sqlite3.Connection, id: str, state: InboundState = InboundState.QUEUED, **changes: str) -> bool:
    return inbound.record(
        db,
        id=InboundId(id),
        event_id=EventId("ev_1"),
        wiring_id=WiringId(changes.get("wiring", "wr_1")),
        session_id=SessionId(changes.get("session", SESSION)),
        state=state,
        preview=changes.get("preview", "hello"),
        now=NOW,
    )


def test_a_message_is_recorded_once(db: sqlite3.Connection) -> None:
    assert record(db, "in_1") is True
    inbound.set_state(db, InboundId("in_1"), InboundState.COMPLETED, later(1))
    assert record(db, "in_1", preview="changed") is False
    entry = inbound.entry(db, InboundId("in_1"))
    assert entry is not None and entry.state is InboundState.COMPLETED and entry.preview == "hello"


def test_attempts_stay_when_not_given_and_a_retry_has_its_moment(db: sqlite3.Connection) -> None:
    record(db, "in_1")
    id = InboundId("in_1")
    inbound.set_state(db, id, InboundState.RETRYING, later(1), attempts=2, next_try_at=later(10), reason="overloaded")
    assert inbound.due_entries(db, later(9)) == []
    assert [one.id for one in inbound.due_entries(db, later(10))] == [id]
    inbound.set_state(db, id, InboundState.QUEUED, later(11))
    entry = inbound.entry(db, id)
    assert entry is not None and (entry.attempts, entry.next_try_at, entry.reason) == (2, None, None)
    assert inbound.due_entries(db, later(99)) == []


def test_an_ended_message_waits_for_nothing(db: sqlite3.Connection) -> None:
    record(db, "in_1")
    inbound.set_state(db, InboundId("in_1"), InboundState.FAILED, NOW, next_try_at=later(1), reason="auth")
    assert inbound.due_entries(db, later(9)) == []
    assert inbound.set_state(db, InboundId("in_unknown"), InboundState.QUEUED, NOW) is False


def test_entries_are_listed_newest_first_and_open_ones_oldest_first(db: sqlite3.Connection) -> None:
    for n in range(4):
        record(db, f"in_{n}", session="ses_1" if n < 3 else "ses_2")
    inbound.set_state(db, InboundId("in_1"), InboundState.COMPLETED, NOW)
    assert [one.id for one in inbound.entries(db)] == ["in_3", "in_2", "in_1", "in_0"]
    assert [one.id for one in inbound.entries(db, session_id=SESSION, limit=2)] == ["in_2", "in_1"]
    assert [one.id for one in inbound.entries(db, state=InboundState.QUEUED)] == ["in_3", "in_2", "in_0"]
    assert [one.id for one in inbound.open_entries(db, SESSION)] == ["in_0", "in_2"]
    assert inbound.counts(db) == {"queued": 3, "completed": 1}
    assert set(inbound.sessions_with_open(db)) == {"ses_1", "ses_2"}


def test_context_is_open_but_starts_nothing(db: sqlite3.Connection) -> None:
    group = AgentGroup(id=AgentGroupId("ag_1"), name="a", folder="a", created_at=NOW)
    groups.add_agent_group(db, group)
    chat = chats.ensure_messaging_group(db, CHAT, name=None, is_group=False, policy=UnknownSenderPolicy.STRICT, now=NOW)
    db.execute(
        "INSERT INTO wirings VALUES ('wr_1', ?, 'ag_1', 'always', NULL, 'all', 'drop', 'shared', 0, 'trusted', 0)",
        (chat.id,),
    )
    record(db, "in_1", InboundState.CONTEXT)
    assert inbound.active_in_chat(db, chat.id) == 0
    record(db, "in_2")
    record(db, "in_3", wiring="wr_other")
    assert inbound.active_in_chat(db, chat.id) == 1
    assert [one.id for one in inbound.open_entries(db, SESSION)] == ["in_1", "in_2", "in_3"]


@pytest.mark.parametrize("state", list(InboundState))
def test_only_failed_and_dropped_messages_are_revived(db: sqlite3.Connection, state: InboundState) -> None:
    record(db, "in_1", state)
    revived = inbound.revive(db, InboundId("in_1"), later(1), attempts=0)
    assert revived is (state in (InboundState.FAILED, InboundState.DROPPED))
    entry = inbound.entry(db, InboundId("in_1"))
    assert entry is not None and entry.state is (InboundState.QUEUED if revived else state)


# Parts out


def part(out_seq: int, number: int = 1, of: int = 1, address: Address = CHAT, **changes: object) -> Delivery:
    row = Delivery(
        id=DeliveryId(new_id("dl")),
        session_id=SESSION,
        out_seq=out_seq,
        out_id=f"out_{out_seq}",
        part=number,
        parts=of,
        kind="message",
        address=address,
        content='{"text":"hi"}',
        state=State.PENDING,
        attempts=0,
        next_try_at=NOW,
        first_try_at=None,
        platform_ids=(),
        reason=None,
        last_error=None,
        maybe_duplicate=False,
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(row, **changes)  # type: ignore[arg-type]  # the values' types vary


def state_of(db: sqlite3.Connection, row: Delivery) -> DeliveryState:
    found = deliveries.delivery(db, row.id)
    assert found is not None
    return found.state


def heads(db: sqlite3.Connection) -> dict[str, tuple[int, int | None]]:
    """For each destination: the head's order and its moment; and that nothing behind a head has one."""
    found: dict[str, tuple[int, int | None]] = {}
    rows = db.execute("SELECT destination, ord, head_at, state FROM deliveries ORDER BY ord")
    for destination, order, head_at, state in rows:
        if state in ("pending", "sending", "retrying", "waiting") and destination not in found:
            found[destination] = (order, head_at)
            assert (head_at is None) is (state == "sending")
        else:
            assert head_at is None
    return found


def test_adding_with_start_begins_the_first_part_only(db: sqlite3.Connection) -> None:
    rows = [part(1, 1, 2), part(1, 2, 2), part(3, address=OTHER)]
    added = deliveries.add(db, rows, start=True, now=NOW)
    assert added.destinations == [str(CHAT), str(OTHER)]
    assert added.started == [deliveries.delivery(db, rows[0].id), deliveries.delivery(db, rows[2].id)]
    assert added.started[0] == replace(rows[0], state=State.SENDING, attempts=1, first_try_at=NOW)
    assert deliveries.delivery(db, rows[1].id) == rows[1]
    assert heads(db) == {str(CHAT): (1, None), str(OTHER): (3, None)}


def test_adding_again_changes_and_starts_nothing(db: sqlite3.Connection) -> None:
    rows = [part(1, 1, 2), part(1, 2, 2)]
    deliveries.add(db, rows, start=True, now=NOW)
    again = [replace(row, id=DeliveryId(new_id("dl"))) for row in rows]
    assert deliveries.add(db, again, start=True, now=NOW).started == []
    deliveries.sent(db, rows[0].id, ["1"], State.SENT, NOW, start_next=False)
    deliveries.sent(db, rows[1].id, ["2"], State.SENT, NOW)
    assert deliveries.add(db, again, start=True, now=NOW).started == []
    assert [one.state for one in deliveries.parts_of(db, SESSION, 1)] == [State.SENT, State.SENT]
    assert heads(db) == {}


def test_adding_behind_something_unfinished_starts_nothing(db: sqlite3.Connection) -> None:
    first, second = part(1), part(3)
    deliveries.add(db, [first], start=True, now=NOW)
    added = deliveries.add(db, [second], start=True, now=NOW)
    assert added == ([], [str(CHAT)])
    assert state_of(db, second) is State.PENDING


def test_parts_that_arrive_with_an_end_hold_up_nobody(db: sqlite3.Connection) -> None:
    blocked = part(1, state=State.BLOCKED, reason="guard")
    fine, failed = part(3), part(5, state=State.FAILED, reason="no file")
    added = deliveries.add(db, [blocked, fine, failed], start=True, now=NOW)
    assert ([begun.id for begun in added.started], added.destinations) == ([fine.id], [str(CHAT)])
    assert deliveries.delivery(db, blocked.id) == blocked
    assert deliveries.sent(db, fine.id, ["1"], State.SENT, NOW) is None


def test_adding_without_start_leaves_a_head_that_is_due(db: sqlite3.Connection) -> None:
    row = part(1)
    assert deliveries.add(db, [row], start=False, now=NOW) == ([], [str(CHAT)])
    assert deliveries.destinations_due(db, NOW) == [str(CHAT)]
    assert deliveries.next_for(db, str(CHAT), NOW) == row
    begun = deliveries.intent(db, row.id, later(1))
    assert begun is not None and (begun.state, begun.attempts, begun.first_try_at) == (State.SENDING, 1, later(1))
    assert deliveries.destinations_due(db, later(9)) == []
    assert deliveries.left_open(db) == [begun]


def test_a_part_for_later_is_not_started_when_it_is_added(db: sqlite3.Connection) -> None:
    row = part(1, next_try_at=later(10))
    assert deliveries.add(db, [row], start=True, now=NOW).started == []
    assert deliveries.delivery(db, row.id) == row
    assert deliveries.destinations_due(db, later(9)) == []
    assert deliveries.destinations_due(db, later(10)) == [str(CHAT)]


def test_a_sent_part_hands_over_to_the_next_in_the_same_transaction(db: sqlite3.Connection) -> None:
    rows = [part(1, 1, 3), part(1, 2, 3), part(1, 3, 3)]
    deliveries.add(db, rows, start=True, now=NOW)
    second = deliveries.sent(db, rows[0].id, ["10", "11"], State.SENT, later(1))
    assert second is not None and second.id == rows[1].id
    assert (second.state, second.attempts, second.first_try_at) == (State.SENDING, 1, later(1))
    third = deliveries.sent(db, rows[1].id, ["12"], State.ACCEPTED, later(2), start_next=False)
    assert third is not None and third.id == rows[2].id and third.state is State.PENDING
    assert deliveries.destinations_due(db, later(2)) == [str(CHAT)]
    assert deliveries.sent(db, rows[2].id, [], State.SENT, later(3)) is None
    assert deliveries.platform_ids_of(db, SESSION, 1) == ("10", "11", "12")
    assert [state_of(db, row) for row in rows] == [State.SENT, State.ACCEPTED, State.SENT]
    assert heads(db) == {}


def test_the_platform_ids_of_a_sent_part_may_change_and_nothing_else(db: sqlite3.Connection) -> None:
    """channels.md R8: an edit may have needed another message."""
    row, behind = part(1), part(3)
    deliveries.add(db, [row, behind], start=True, now=NOW)
    deliveries.sent(db, row.id, ["1"], State.ACCEPTED, NOW, start_next=False)
    deliveries.sent(db, row.id, ["1", "2"], State.SENT, later(1), start_next=False)
    assert deliveries.platform_ids_of(db, SESSION, 1) == ("1", "2")
    assert state_of(db, row) is State.ACCEPTED and state_of(db, behind) is State.PENDING


def test_a_next_part_that_is_not_due_is_not_started(db: sqlite3.Connection) -> None:
    first, second = part(1), part(3, next_try_at=later(60))
    deliveries.add(db, [first, second], start=True, now=NOW)
    following = deliveries.sent(db, first.id, ["1"], State.SENT, NOW)
    assert following is not None and following.state is State.PENDING
    assert deliveries.destinations_due(db, later(59)) == []
    assert deliveries.destinations_due(db, later(60)) == [str(CHAT)]


def test_a_retry_holds_back_its_destination_and_no_other(db: sqlite3.Connection) -> None:
    """messaging.md 17.4, pitfall 43."""
    first, second, elsewhere = part(1), part(3), part(5, address=OTHER)
    deliveries.add(db, [first, second, elsewhere], start=True, now=NOW)
    assert deliveries.retry_at(db, first.id, later(60), "Transient", "503", later(1), counts=True)
    deliveries.sent(db, elsewhere.id, ["1"], State.SENT, later(1))
    head = deliveries.next_for(db, str(CHAT), later(2))
    assert head is not None and head.id == first.id
    assert (head.state, head.attempts, head.reason, head.last_error) == (State.RETRYING, 1, "Transient", "503")
    assert deliveries.destinations_due(db, later(59)) == []
    assert due.next_due(db) == later(60)


def test_a_rate_limit_and_a_channel_that_is_not_ready_use_up_no_attempt(db: sqlite3.Connection) -> None:
    """C077, C084."""
    row = part(1)
    deliveries.add(db, [row], start=True, now=NOW)
    deliveries.retry_at(db, row.id, later(60), "RateLimited", None, NOW, counts=False)
    assert (found := deliveries.delivery(db, row.id)) is not None and found.attempts == 0
    deliveries.intent(db, row.id, later(60))
    assert deliveries.waiting(db, row.id, later(61), "not ready") is True
    assert deliveries.waiting(db, row.id, later(62)) is True
    assert (found := deliveries.delivery(db, row.id)) is not None and found.attempts == 0
    assert found.state is State.WAITING and deliveries.destinations_due(db, later(62)) == [str(CHAT)]
    assert due.next_due(db) is None


def test_a_possible_duplicate_stays_marked(db: sqlite3.Connection) -> None:
    """C081."""
    row = part(1)
    deliveries.add(db, [row], start=True, now=NOW)
    deliveries.retry_at(db, row.id, NOW, "Ambiguous", None, NOW, counts=True, maybe_duplicate=True)
    deliveries.retry_at(db, row.id, NOW, "Transient", None, NOW, counts=True)
    deliveries.sent(db, row.id, ["1"], State.SENT, NOW)
    found = deliveries.delivery(db, row.id)
    assert found is not None and found.maybe_duplicate and found.reason is None


def test_a_failed_part_lets_the_destination_go_on(db: sqlite3.Connection) -> None:
    first, second, third = part(1), part(3), part(5)
    deliveries.add(db, [first, second, third], start=True, now=NOW)
    following = deliveries.failed(db, first.id, "ChatNotFound", "gone", later(1))
    assert following is not None and following.id == second.id and following.state is State.PENDING
    assert deliveries.destinations_due(db, later(1)) == [str(CHAT)]
    following = deliveries.failed(db, second.id, "ChatNotFound", "gone", later(2), start_next=True)
    assert following is not None and following.id == third.id and following.state is State.SENDING


def test_an_ended_part_is_not_moved_by_anything_late(db: sqlite3.Connection) -> None:
    row = part(1)
    deliveries.add(db, [row], start=True, now=NOW)
    assert deliveries.drop(db, row.id, NOW) is True
    assert deliveries.drop(db, row.id, NOW) is False
    assert deliveries.intent(db, row.id, NOW) is None
    assert deliveries.waiting(db, row.id, NOW) is False
    assert deliveries.retry_at(db, row.id, NOW, "Transient", None, NOW, counts=True) is False
    deliveries.failed(db, row.id, "x", None, NOW)
    deliveries.sent(db, row.id, ["7"], State.SENT, NOW)
    assert state_of(db, row) is State.DROPPED
    assert deliveries.is_own_message(db, "telegram", "main", "7")  # it was sent after all


@pytest.mark.parametrize("state", list(State))
def test_only_failed_and_dropped_parts_are_revived(db: sqlite3.Connection, state: DeliveryState) -> None:
    row, behind = part(1, state=state, attempts=3), part(3)
    deliveries.add(db, [row, behind], start=False, now=NOW)
    revived = deliveries.revive(db, row.id, later(5))
    assert revived is (state in (State.FAILED, State.DROPPED))
    if revived:
        head = deliveries.next_for(db, str(CHAT), later(5))
        assert head is not None and (head.id, head.state, head.attempts) == (row.id, State.PENDING, 0)
    heads(db)


def test_a_report_settles_an_accepted_part_only(db: sqlite3.Connection) -> None:
    """C009."""
    row, other = part(1), part(3)
    deliveries.add(db, [row, other], start=True, now=NOW)
    deliveries.sent(db, row.id, ["1"], State.ACCEPTED, NOW)
    assert deliveries.reported(db, other.id, State.SENT, NOW) is False
    assert deliveries.reported(db, row.id, State.FAILED, NOW, reason="undelivered") is True
    assert deliveries.reported(db, row.id, State.SENT, NOW) is False
    assert state_of(db, row) is State.FAILED


def test_a_platform_message_is_found_in_its_chat_whatever_the_thread(db: sqlite3.Connection) -> None:
    row = part(1, address=OTHER)
    deliveries.add(db, [row], start=True, now=NOW)
    deliveries.sent(db, row.id, ["171.9", "171.10"], State.SENT, NOW)
    found = deliveries.by_platform_id(db, OTHER.chat, "171.10")
    assert found is not None and found.id == row.id and found.platform_ids == ("171.9", "171.10")
    assert deliveries.by_platform_id(db, Address("slack", "work", "C2"), "171.10") is None
    assert deliveries.is_own_message(db, "slack", "work", "171.9")
    assert not deliveries.is_own_message(db, "slack", "other", "171.9")


def test_open_parts_of_a_chat_count_in_all_its_threads(db: sqlite3.Connection) -> None:
    near = Address("telegram", "main", "-1002")
    rows = [part(1), part(3, address=replace(CHAT, thread_id="7")), part(5, address=near)]
    deliveries.add(db, rows, start=True, now=NOW)
    assert deliveries.open_in_chat(db, replace(CHAT, thread_id="x")) == 2
    deliveries.sent(db, rows[1].id, [], State.SENT, NOW)
    assert deliveries.open_in_chat(db, CHAT) == 1
    assert deliveries.counts(db) == {"sending": 2, "sent": 1}


def test_what_waits_for_a_moved_chat_follows_it(db: sqlite3.Connection) -> None:
    new = Address("telegram", "main", "-200")
    waiting, threaded = part(1), part(3, address=replace(CHAT, thread_id="7"))
    already = part(5, address=new)
    done = part(7)
    deliveries.add(db, [already, waiting, threaded], start=False, now=NOW)
    deliveries.add(db, [replace(done, state=State.SENT)], start=False, now=NOW)
    assert deliveries.redirect(db, CHAT, new) == 2
    assert deliveries.destinations_due(db, NOW) == [str(new), str(replace(new, thread_id="7"))]
    assert heads(db)[str(new)][0] == 1
    kept = deliveries.delivery(db, done.id)
    assert kept is not None and kept.address == CHAT


def test_old_ended_parts_are_pruned_with_their_platform_ids(db: sqlite3.Connection) -> None:
    rows = [part(1), part(3), part(5, created_at=later(100))]
    deliveries.add(db, rows, start=True, now=NOW)
    deliveries.sent(db, rows[0].id, ["1"], State.SENT, NOW)
    deliveries.drop(db, rows[2].id, NOW)
    assert deliveries.prune_deliveries(db, later(10)) == 1
    assert deliveries.delivery(db, rows[0].id) is None
    assert not deliveries.is_own_message(db, "telegram", "main", "1")
    assert deliveries.delivery(db, rows[1].id) is not None


def test_deliveries_are_listed_newest_first(db: sqlite3.Connection) -> None:
    rows = [part(1, 1, 2), part(1, 2, 2), part(3)]
    deliveries.add(db, rows, start=True, now=NOW)
    assert [one.id for one in deliveries.deliveries(db)] == [row.id for row in reversed(rows)]
    assert [one.id for one in deliveries.deliveries(db, session_id=SESSION, limit=1)] == [rows[2].id]
    assert [one.id for one in deliveries.deliveries(db, state=State.SENDING)] == [rows[0].id]


def test_an_unknown_delivery_is_named_in_the_error(db: sqlite3.Connection) -> None:
    for call in (deliveries.intent, deliveries.drop, deliveries.revive):
        with pytest.raises(NotFound, match="dl_x"):
            call(db, DeliveryId("dl_x"), NOW)


# Questions


def ask(db: sqlite3.Connection, id: str = "qst_1", expires_at: UnixMs | None = None) -> bool:
    return questions.add(db, QuestionId(id), SESSION, 3, OTHER, '{"title":"?"}', expires_at, NOW)


def test_a_question_is_decided_once(db: sqlite3.Connection) -> None:
    assert ask(db) is True and ask(db) is False
    id = QuestionId("qst_1")
    assert questions.decide(db, id, "yes", UserId("x:1"), later(1)) == "decided"
    assert questions.decide(db, id, "no", UserId("x:2"), later(2)) == "already"
    assert questions.decide(db, QuestionId("qst_x"), "no", None, NOW) == "unknown"
    question = questions.question(db, id)
    assert question is not None and (question.value, question.decided_by, question.address) == ("yes", "x:1", OTHER)


async def test_of_many_who_answer_at_once_one_decides(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db")
    await store.open()
    await store.write(ask)
    answers = await asyncio.gather(
        *(store.write(questions.decide, QuestionId("qst_1"), str(n), None, NOW) for n in range(20))
    )
    assert sorted(answers) == ["already"] * 19 + ["decided"]
    await store.close()


def test_a_question_expires_into_neither_yes_nor_no(db: sqlite3.Connection) -> None:
    ask(db, "qst_1", later(300))
    ask(db, "qst_2", later(100))
    ask(db, "qst_3")
    assert [one.id for one in questions.open_questions(db, SESSION)] == ["qst_1", "qst_2", "qst_3"]
    assert due.next_due(db) == later(100)
    assert questions.decide(db, QuestionId("qst_2"), "yes", None, later(100)) == "expired"
    assert [one.id for one in questions.expire_due(db, later(300))] == ["qst_2", "qst_1"]
    assert questions.expire_due(db, later(300)) == []
    assert questions.decide(db, QuestionId("qst_1"), "yes", None, later(301)) == "expired"
    question = questions.question(db, QuestionId("qst_1"))
    assert question is not None and question.value is None and due.next_due(db) is None


# What is due next


def test_the_next_moment_is_the_earliest_of_everything(db: sqlite3.Connection) -> None:
    assert due.next_due(db) is None
    groups.add_agent_group(db, AgentGroup(id=AgentGroupId("ag_1"), name="a", folder="a", created_at=NOW))
    session, _ = sessions.session_for(
        db,
        AgentGroupId("ag_1"),
        "k",
        mode=SessionMode.SHARED,
        messaging_group_id=None,
        thread_id=None,
        now=NOW,
    )
    sessions.park_scope(db, "provider", "claude", later(50), "x")
    assert due.next_due(db) == later(50)
    sessions.park(db, session.id, later(40), "x")
    assert due.next_due(db) == later(40)
    ask(db, expires_at=later(30))
    assert due.next_due(db) == later(30)
    row = part(1)
    deliveries.add(db, [row, part(3)], start=True, now=NOW)
    deliveries.retry_at(db, row.id, later(20), "Transient", None, NOW, counts=True)
    assert due.next_due(db) == later(20)
    record(db, "in_1")
    inbound.set_state(db, InboundId("in_1"), InboundState.RETRYING, NOW, next_try_at=later(10))
    assert due.next_due(db) == later(10)
    assert [due.next_due(db, after=later(n)) for n in (9, 10, 20, 30, 40, 50)] == [
        later(10),
        later(20),
        later(30),
        later(40),
        later(50),
        None,
    ]
