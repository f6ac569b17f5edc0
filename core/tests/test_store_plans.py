"""What is asked while messages flow never looks through a table."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jackfield.api.approvals import ApprovalState
from jackfield.api.channels import Cursor
from jackfield.clock import SystemClock, UnixMs
from jackfield.ids import (
    AgentGroupId,
    ApprovalId,
    DeliveryId,
    EventId,
    InboundId,
    MessagingGroupId,
    QuestionId,
    RequestId,
    SessionId,
    TaskId,
    TaskRunId,
    TurnId,
    UserId,
    WiringId,
)
from jackfield.models import (
    Address,
    Delivery,
    DeliveryState,
    EventState,
    InboundState,
    RunState,
    SessionMode,
    TaskRun,
    UnknownSenderPolicy,
)
from jackfield.store import (
    approval_cards,
    approvals,
    chains,
    chats,
    deliveries,
    dms,
    due,
    events,
    groups,
    inbound,
    people,
    questions,
    sessions,
    tasks,
    wirings,
)
from jackfield.store.opening import open_database

NOW = UnixMs(1_700_000_000_000)
CHAT = Address("telegram", "main", "-100", "7")
SCAN = re.compile(r"\bSCAN (?!\d+ CONSTANT ROW|CONSTANT ROW)")


class Explained(sqlite3.Connection):
    """Notes the plan of every statement before running it."""

    plans: list[tuple[str, str]]
    statements = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if sql.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE") and hasattr(self, "plans"):
            self.statements += 1
            for row in super().execute(f"EXPLAIN QUERY PLAN {sql}", parameters):
                self.plans.append((sql, row[3]))
        return super().execute(sql, parameters)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Explained]:
    open_database(tmp_path / "state.db", SystemClock(), backups=tmp_path).close()
    db = sqlite3.connect(tmp_path / "state.db", isolation_level=None, factory=Explained)
    db.execute(
        "INSERT INTO agent_groups (id, name, folder, created_at) VALUES ('ag_1', 'a', 'a', 0)",
    )
    deliveries.add(db, [part("dl_1", 1), part("dl_2", 3)], start=True, now=NOW)
    db.plans = []
    yield db
    db.close()


def part(id: str, out_seq: int, address: Address = CHAT, state: DeliveryState = DeliveryState.PENDING) -> Delivery:
    return Delivery(
        id=DeliveryId(id),
        session_id=SessionId("ses_1"),
        out_seq=out_seq,
        out_id="out",
        part=1,
        parts=1,
        kind="message",
        address=address,
        content="{}",
        state=state,
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


DELIVERY, SESSION, GROUP = DeliveryId("dl_1"), SessionId("ses_1"), AgentGroupId("ag_1")
MESSAGE, CHAT_ID, WIRING, PERSON = InboundId("in_1"), MessagingGroupId("mg_1"), WiringId("wr_1"), UserId("x:1")

QUESTION = questions.Question(
    id=QuestionId("qst_1"), session_id=SESSION, out_seq=1, address=CHAT, prompt="{}",
    state=questions.QuestionState.DECIDED, value=None, decided_by=None, created_at=NOW, expires_at=None,
    decided_at=None, turn=TurnId("trn_1"),
)  # fmt: skip

TASK = TaskId("tsk_1")
RUN = TaskRun(
    id=TaskRunId("run_1"), task_id=TASK, due_at=NOW, session_id=SESSION, state=RunState.CLAIMED, created_at=NOW
)  # fmt: skip

HOT: dict[str, Callable[[sqlite3.Connection], object]] = {
    "due.next_due": lambda db: due.next_due(db),
    "due.next_due after": lambda db: due.next_due(db, after=NOW),
    "deliveries.add": lambda db: deliveries.add(db, [part("dl_9", 9)], start=True, now=NOW),
    "deliveries.next_for": lambda db: deliveries.next_for(db, str(CHAT), NOW),
    "deliveries.destinations_due": lambda db: deliveries.destinations_due(db, NOW),
    "deliveries.left_open": lambda db: deliveries.left_open(db),
    "deliveries.intent": lambda db: deliveries.intent(db, DELIVERY, NOW),
    "deliveries.sent": lambda db: deliveries.sent(db, DELIVERY, ["1"], DeliveryState.SENT, NOW),
    "deliveries.failed": lambda db: deliveries.failed(db, DELIVERY, "x", None, NOW),
    "deliveries.retry_at": lambda db: deliveries.retry_at(db, DELIVERY, NOW, "x", None, NOW, counts=True),
    "deliveries.waiting": lambda db: deliveries.waiting(db, DELIVERY, NOW),
    "deliveries.drop": lambda db: deliveries.drop(db, DELIVERY, NOW),
    "deliveries.parts_of": lambda db: deliveries.parts_of(db, SESSION, 1),
    "deliveries.by_platform_id": lambda db: deliveries.by_platform_id(db, CHAT, "1"),
    "deliveries.is_own_message": lambda db: deliveries.is_own_message(db, "telegram", "main", "1"),
    "deliveries.open_in_chat": lambda db: deliveries.open_in_chat(db, CHAT),
    "deliveries.deliveries of a session": lambda db: deliveries.deliveries(db, session_id=SESSION),
    "deliveries.deliveries by state": lambda db: deliveries.deliveries(db, state=DeliveryState.FAILED),
    "events.accept": lambda db: events.accept(db, "t", "i", "k", "M", "{}", NOW, Cursor("c", "1")),
    "events.unfinished": lambda db: events.unfinished(db, 100),
    "events.unfinished after": lambda db: events.unfinished(db, 100, after=EventId("ev_1")),
    "events.finish": lambda db: events.finish(db, EventId("ev_1"), EventState.ROUTED, now=NOW),
    "events.get_cursor": lambda db: events.get_cursor(db, "t", "i", "c"),
    "events.audit_drop": lambda db: events.audit_drop(db, CHAT, "x", "y", NOW),
    "events.prune_events": lambda db: events.prune_events(db, NOW),
    "inbound.set_state": lambda db: inbound.set_state(db, MESSAGE, InboundState.CLAIMED, NOW),
    "inbound.entry": lambda db: inbound.entry(db, MESSAGE),
    "inbound.open_entries": lambda db: inbound.open_entries(db, SESSION),
    "inbound.due_entries": lambda db: inbound.due_entries(db, NOW),
    "inbound.active_in_chat": lambda db: inbound.active_in_chat(db, CHAT_ID),
    "inbound.entries of a session": lambda db: inbound.entries(db, session_id=SESSION),
    "inbound.entries by state": lambda db: inbound.entries(db, state=InboundState.FAILED),
    "sessions.session_for": lambda db: sessions.session_for(
        db, GROUP, "k", mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=NOW
    ),
    "sessions.session": lambda db: sessions.session(db, SESSION),
    "sessions.active_session": lambda db: sessions.active_session(db, GROUP, "k"),
    "sessions.cursors": lambda db: sessions.cursors(db, SESSION),
    "sessions.move_cursors": lambda db: sessions.move_cursors(db, SESSION, sessions.OutCursor(1, 1, 1)),
    "sessions.parked_due": lambda db: sessions.parked_due(db, NOW),
    "sessions.unpark_due": lambda db: sessions.unpark_due(db, NOW),
    "sessions.parked_scope": lambda db: sessions.parked_scope(db, "provider", "p"),
    "chats.messaging_group_at": lambda db: chats.messaging_group_at(db, CHAT),
    "chats.ensure_messaging_group": lambda db: chats.ensure_messaging_group(
        db, CHAT, name="n", is_group=True, policy=UnknownSenderPolicy.STRICT, now=NOW
    ),
    "wirings.wirings_of_chat": lambda db: wirings.wirings_of_chat(db, CHAT_ID),
    "wirings.is_stuck": lambda db: wirings.is_stuck(db, WIRING, "t", NOW),
    "wirings.may_send": lambda db: wirings.may_send(db, GROUP, CHAT),
    "wirings.destinations": lambda db: wirings.destinations(db, GROUP),
    "people.ensure_user": lambda db: people.ensure_user(db, PERSON, "x", "n", NOW),
    "people.roles_of": lambda db: people.roles_of(db, PERSON),
    "people.is_member": lambda db: people.is_member(db, GROUP, PERSON),
    "questions.expire_due": lambda db: questions.expire_due(db, NOW),
    "questions.decide": lambda db: questions.decide(db, QuestionId("qst_1"), "y", None, NOW),
    "questions.is_awaited": lambda db: questions.is_awaited(db, QUESTION, NOW),
    "approvals.any_due": lambda db: approvals.any_due(db, NOW),
    "approvals.expire_due": lambda db: approvals.expire_due(db, NOW),
    "approvals.remind_due": lambda db: approvals.remind_due(db, NOW),
    "approvals.decide": lambda db: approvals.decide(db, ApprovalId("ap_1"), ApprovalState.REJECTED, NOW),
    "approvals.by_request": lambda db: approvals.by_request(db, SESSION, RequestId("req_1")),
    "approval_cards.waits_in_chat": lambda db: approval_cards.waits_in_chat(db, CHAT, NOW),
    "approval_cards.cards_of": lambda db: approval_cards.cards_of(db, ApprovalId("ap_1")),
    "approval_cards.stale": lambda db: approval_cards.stale(db, NOW),
    "chains.grow": lambda db: chains.grow(db, "in_1", NOW),
    "chains.count_written": lambda db: chains.count_written(db, GROUP, GROUP, NOW),
    "chains.bad_ends": lambda db: chains.bad_ends(db, NOW),
    "wirings.may_write_to": lambda db: wirings.may_write_to(db, GROUP, GROUP),
    "dms.find": lambda db: dms.find(db, PERSON, "x", "i"),
    "tasks.due": lambda db: tasks.due(db, NOW, 10),
    "tasks.task": lambda db: tasks.task(db, TASK),
    "tasks.add_runs": lambda db: tasks.add_runs(db, [RUN]),
    "tasks.is_run": lambda db: tasks.is_run(db, MESSAGE),
    "tasks.make_room": lambda db: tasks.make_room(db, GROUP, "k", 10),
    "tasks.of_conversation": lambda db: tasks.of_conversation(db, GROUP, "k", "ag_1 k"),
    "tasks.open_runs": lambda db: tasks.open_runs(db, TASK),
    "tasks.open_runs_of_session": lambda db: tasks.open_runs_of_session(db, SESSION),
    "tasks.end_run": lambda db: tasks.end_run(db, RUN.id, RunState.COMPLETED, NOW),
    "tasks.runs": lambda db: tasks.runs(db, TASK),
    "tasks.run_after": lambda db: tasks.run_after(db, NOW),
    "tasks.count_live": lambda db: tasks.count_live(db, GROUP),
    "tasks.forgettable": lambda db: tasks.forgettable(db, NOW),
    "groups.agent_group": lambda db: groups.agent_group(db, GROUP),
}


@pytest.mark.parametrize("name", HOT)
def test_no_table_is_scanned(db: Explained, name: str) -> None:
    HOT[name](db)
    assert db.statements
    scans = [(sql, step) for sql, step in db.plans if SCAN.search(step)]
    assert scans == []


@pytest.mark.parametrize(
    "name",
    [
        "due.next_due",
        "due.next_due after",
        "deliveries.next_for",
        "deliveries.destinations_due",
        "events.unfinished",
        "inbound.open_entries",
        "inbound.due_entries",
        "deliveries.left_open",
        "tasks.due",
    ],
)
def test_nothing_is_sorted_that_an_index_gives_in_order(db: Explained, name: str) -> None:
    HOT[name](db)
    assert [step for _, step in db.plans if "TEMP B-TREE" in step] == []


def steps_of(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], object]) -> int:
    """How many times SQLite's machine reports progress: a count of its steps, not of time."""
    seen = 0

    def tick() -> int:
        nonlocal seen
        seen += 1
        return 0

    db.set_progress_handler(tick, 1)
    try:
        work(db)
    finally:
        db.set_progress_handler(None, 0)
    return seen


def test_a_hundred_times_as_much_history_and_queue_costs_the_same(tmp_path: Path) -> None:
    names = ["due.next_due", "due.next_due after", "deliveries.next_for", "events.unfinished", "inbound.due_entries"]
    names.append("tasks.due")
    db = open_database(tmp_path / "state.db", SystemClock(), backups=tmp_path)
    try:
        costs = []
        for rows in (1_000, 100_000):
            fill(db, rows)
            costs.append({name: steps_of(db, HOT[name]) for name in names})
        assert costs[0] == costs[1]
    finally:
        db.close()


def fill(db: sqlite3.Connection, rows: int) -> None:
    """That many finished events, messages and tasks that are not due, and a queue that long behind one retry."""
    db.execute("BEGIN")
    for table in ("deliveries", "inbound", "events", "tasks"):
        db.execute(f"DELETE FROM {table}")
    db.execute("INSERT OR IGNORE INTO agent_groups (id, name, folder, created_at) VALUES ('ag_1', 'a', 'a', 0)")
    deliveries.add(db, [part("dl_0", 0)], start=True, now=NOW)
    deliveries.retry_at(db, DeliveryId("dl_0"), UnixMs(NOW + 1000), "x", None, NOW, counts=True)
    series = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
    db.execute(
        f"{series} INSERT INTO deliveries (id, session_id, out_seq, out_id, part, parts, kind, destination, content, "
        "state, attempts, next_try_at, platform_ids, maybe_duplicate, created_at, updated_at) "
        "SELECT 'dl_' || i, 'ses_1', i, 'o', 1, 1, 'message', ?, '{}', 'pending', 0, 0, '[]', 0, 0, 0 FROM n",
        (str(CHAT),),
    )
    db.execute(
        f"{series} INSERT INTO inbound (id, session_id, state, preview, created_at, updated_at) "
        "SELECT 'in_' || i, 'ses_1', iif(i % 2, 'completed', 'queued'), '', 0, 0 FROM n"
    )
    db.execute(
        f"{series} INSERT INTO events (id, channel_type, instance, dedupe_key, type, body, state, received_at) "
        "SELECT 'ev_' || i, 't', 'i', i, 'M', '{}', 'routed', 0 FROM n"
    )
    db.execute(
        f"{series} INSERT INTO tasks (id, agent_group_id, session_key, session_mode, prompt, timezone, catch_up, "
        "state, next_at, look_at, created_at, updated_at) "
        "SELECT 'tsk_' || i, 'ag_1', 'k' || i % 100, 'shared', '', 'UTC', 'latest', 'active', ?, ?, 0, 0 FROM n",
        (NOW + 60_000, NOW + 60_000),
    )
    db.execute("COMMIT")
