"""Messages between agents in the ledger: who may write to whom, how far, and how much (messaging.md 11.1)."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.config import AgentsSettings
from jackfield.host.agents import places
from jackfield.host.agents.budget import Counts, judge
from jackfield.host.agents.ends import other_end, stopped_chains
from jackfield.host.agents.entering import Entered, arrival_id, enter, send_again
from jackfield.ids import AgentGroupId, DeliveryId, InboundId, OutboundId, SessionId, TaskId, TaskRunId, TurnId, new_id
from jackfield.models import (
    Address,
    Addressed,
    AgentGroup,
    Delivery,
    DeliveryState,
    Destination,
    DestinationKind,
    InboundState,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    RunState,
    Session,
    SessionMode,
    Task,
    TaskRun,
    UnknownSenderPolicy,
    dumps,
)
from jackfield.store import chains, chats, deliveries, events, groups, inbound, sessions, tasks, wirings
from jackfield.store.migrations import MIGRATIONS

NOW = UnixMs(1_760_000_000_000)
BUDGET = AgentsSettings()


class Ledger:
    """A store's connection, and agents by their folders."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.now = NOW
        self._seqs = itertools.count(1, 2)
        self._turns: dict[str, TurnId] = {}

    def agent(self, folder: str) -> AgentGroup:
        group = AgentGroup(id=AgentGroupId(new_id("ag")), name=folder.title(), folder=folder, created_at=NOW)
        groups.add_agent_group(self.db, group)
        return group

    def knows(self, group: AgentGroup, target: AgentGroup) -> None:
        to = Destination(
            name=target.folder, kind=DestinationKind.AGENT, display_name=target.name, agent_group_id=target.id
        )
        wirings.add_destination(self.db, group.id, to, NOW)

    def chat(self, group: AgentGroup) -> Session:
        """A conversation of the agent with a person, and a message of theirs in it."""
        address = Address("postbox", "box", group.folder)
        chat = chats.ensure_messaging_group(
            self.db, address, name=None, is_group=False, policy=UnknownSenderPolicy.STRICT, now=NOW
        )
        session, _ = sessions.session_for(
            self.db, group.id, f"shared:{chat.id}", mode=SessionMode.SHARED, messaging_group_id=chat.id, thread_id=None,
            now=NOW,
        )  # fmt: skip
        self.hears(session)
        return session

    def hears(self, session: Session) -> None:
        """A person's message arrives."""
        inbound.record(
            self.db, id=InboundId(new_id("in")), event_id=None, wiring_id=None, session_id=session.id,
            state=InboundState.QUEUED, preview="hi", now=self.now,
        )  # fmt: skip

    def takes(self, session: Session) -> TurnId:
        """The session's runner takes all that waits, in one turn."""
        turn = TurnId(new_id("trn"))
        for entry in inbound.open_entries(self.db, session.id):
            inbound.set_state(self.db, entry.id, InboundState.COMPLETED, self.now, turn=turn)
        return turn

    def part(self, session: Session, address: Address, text: str = "hi") -> Delivery:
        seq = next(self._seqs)
        return Delivery(
            id=DeliveryId(new_id("dl")), session_id=session.id, out_seq=seq, out_id=OutboundId(new_id("out")), part=1,
            parts=1, kind="message", address=address, content=dumps(OutMessage(text=text)),
            state=DeliveryState.PENDING, attempts=0, next_try_at=self.now, first_try_at=None, platform_ids=(),
            reason=None, last_error=None, maybe_duplicate=False, created_at=self.now, updated_at=self.now,
        )  # fmt: skip

    def writes(
        self, session: Session, to: AgentGroup | Address, turn: TurnId | None = None, budget: AgentsSettings = BUDGET
    ) -> Entered:
        """What the collector does with one message."""
        address = to if isinstance(to, Address) else places.place_of_group(to.id)
        entered = enter(self.db, session, self.part(session, address), turn, budget, self.now)
        deliveries.add(self.db, [entered.part], start=False, now=self.now)
        return entered

    def reader(self, entered: Entered) -> Session:
        found = sessions.session(self.db, SessionId(entered.part.address.thread_id or ""))
        assert found is not None
        return found

    def entry(self, entered: Entered) -> Any:
        return inbound.entry(self.db, arrival_id(entered.part.id))


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    db = in_memory()
    yield Ledger(db)
    db.close()


def in_memory() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    for step in MIGRATIONS:
        for statement in step.statements:
            db.execute(statement)
    return db


def refusal(entered: Entered) -> str | None:
    return entered.part.reason if entered.part.state is DeliveryState.BLOCKED else None


# ---- who may write to whom


def test_a_question_and_its_answer_stay_in_the_conversation_of_the_one_that_asked(ledger: Ledger) -> None:
    """Appendix D.20."""
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    asking = ledger.chat(anna)
    question = ledger.writes(asking, bert, ledger.takes(asking))
    answering = ledger.reader(question)
    assert (answering.agent_group_id, answering.key) == (bert.id, f"agent:{asking.id}")
    answer = ledger.writes(answering, places.address_of(asking), ledger.takes(answering))
    assert ledger.reader(answer).id == asking.id, "an answer needs no destination"
    first, second = ledger.entry(question), ledger.entry(answer)
    assert (first.hops, first.source) == (1, asking.id)
    assert (second.hops, second.source, second.chain) == (2, answering.id, first.chain)
    again = ledger.writes(asking, bert, ledger.takes(asking))
    assert ledger.reader(again).id == answering.id, "one conversation for each that asks"


def test_what_two_people_ask_of_one_agent_never_meets_in_another(ledger: Ledger) -> None:
    anna, bert, carl = ledger.agent("anna"), ledger.agent("bert"), ledger.agent("carl")
    ledger.knows(anna, carl)
    ledger.knows(bert, carl)
    one, two = ledger.chat(anna), ledger.chat(bert)
    readers = {ledger.reader(ledger.writes(session, carl, ledger.takes(session))).id for session in (one, two)}
    assert len(readers) == 2


def test_nobody_writes_where_no_destination_leads(ledger: Ledger) -> None:
    """C147: a hostile runner names any id that it likes."""
    anna, bert, carl = ledger.agent("anna"), ledger.agent("bert"), ledger.agent("carl")
    ledger.knows(bert, carl)
    session, other = ledger.chat(anna), ledger.chat(bert)
    theirs = ledger.reader(ledger.writes(other, carl, ledger.takes(other)))
    assert refusal(ledger.writes(session, carl)) == "DestinationNotAllowed"
    assert refusal(ledger.writes(session, places.address_of(other))) == "DestinationNotAllowed"
    assert refusal(ledger.writes(session, places.address_of(session))) == "DestinationNotAllowed", (
        "itself is no exception"
    )
    ledger.knows(anna, carl)
    assert refusal(ledger.writes(session, places.address_of(theirs))) == "DestinationNotAllowed", "others' words"
    for junk in ("ag_00000000000000000000", "../..", "x" * 5000, "\x00"):
        assert refusal(ledger.writes(session, Address("agent", "agent", junk, junk))) == "AgentGone"
    assert ledger.db.execute("SELECT count(*) FROM inbound WHERE source = ?", (session.id,)).fetchone() == (0,)


def test_a_conversation_that_was_ended_is_told_of_and_another_can_begin(ledger: Ledger) -> None:
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    ledger.knows(bert, anna)
    asking = ledger.chat(anna)
    answering = ledger.reader(ledger.writes(asking, bert, ledger.takes(asking)))
    sessions.close_session(ledger.db, asking.id, NOW)
    turn = ledger.takes(answering)
    assert refusal(ledger.writes(answering, places.address_of(asking), turn)) == "ConversationEnded"
    by_name = ledger.writes(answering, anna, turn)
    assert ledger.reader(by_name).key == f"agent:{answering.id}", "by its name, as something new"
    sessions.close_session(ledger.db, answering.id, NOW)
    fresh = ledger.chat(anna)
    wrote = ledger.writes(fresh, bert, ledger.takes(fresh))
    sessions.close_session(ledger.db, ledger.reader(wrote).id, NOW)
    assert refusal(ledger.writes(fresh, wrote.part.address)) == "ConversationEnded"


# ---- how far, and how much


def test_entering_the_same_row_again_changes_nothing(ledger: Ledger) -> None:
    """A crash between a row and its cursor has it collected twice (C209)."""
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    asking = ledger.chat(anna)
    turn = ledger.takes(asking)
    part = ledger.part(asking, places.place_of_group(bert.id))
    for _ in range(3):
        entered = enter(ledger.db, asking, part, turn, BUDGET, NOW)
        deliveries.add(ledger.db, [entered.part], start=False, now=NOW)
    entry = inbound.entry(ledger.db, arrival_id(part.id))
    assert entry is not None and entry.chain is not None
    chain = chains.chain(ledger.db, entry.chain)
    assert chain is not None and chain.messages == 1
    assert ledger.db.execute("SELECT count(*) FROM inbound WHERE source IS NOT NULL").fetchone() == (1,)


def test_an_agent_may_write_to_itself_three_times_a_minute(ledger: Ledger) -> None:
    """C168."""
    lena = ledger.agent("lena")
    ledger.knows(lena, lena)
    session = ledger.chat(lena)
    for minute in range(3):
        ledger.now = UnixMs(NOW + minute * 61_000)
        ledger.hears(session)
        wrote = [ledger.writes(session, lena, ledger.takes(session)) for _ in range(10)]
        assert [refusal(one) for one in wrote] == [None] * 3 + ["TooOftenToItself"] * 7
        assert len({one.notice for one in wrote[3:]}) == 1, "told once"


def test_one_agent_may_not_flood_another_from_however_many_conversations(ledger: Ledger) -> None:
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    budget = AgentsSettings(per_minute=5)
    chats_of_anna = [ledger.chat(anna)]
    for number in range(3):
        session, _ = sessions.session_for(
            ledger.db, anna.id, f"x{number}", mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=NOW
        )
        ledger.hears(session)
        chats_of_anna.append(session)
    wrote = [ledger.writes(session, bert, None, budget) for session in chats_of_anna for _ in range(3)]
    assert [refusal(one) for one in wrote] == [None] * 5 + ["TooOften"] * 7


class Stubs:
    """Agents that write to all that they know, whatever they are told."""

    def __init__(self, ledger: Ledger, edges: set[tuple[int, int]], count: int, budget: AgentsSettings) -> None:
        self.ledger = ledger
        self.budget = budget
        self.agents = [ledger.agent(f"a{number}") for number in range(count)]
        self.knows: dict[str, list[AgentGroup]] = {agent.id: [] for agent in self.agents}
        for writer, reader in sorted(edges):
            ledger.knows(self.agents[writer], self.agents[reader])
            self.knows[self.agents[writer].id].append(self.agents[reader])
        self.stopped: list[Entered] = []

    def run(self, session: Session, *, lies: bool = False) -> int:
        """Let everything go on until nobody has anything to do; how many turns that took."""
        turns = 0
        waiting = [session]
        while waiting:
            now = waiting.pop(0)
            turn = self.ledger.takes(now)
            turns += 1
            assert turns < 5000, "it does not end"
            for reader in self.knows[now.agent_group_id]:
                said = TurnId(new_id("trn")) if lies else turn
                entered = self.ledger.writes(now, reader, said, self.budget)
                if refusal(entered) is None:
                    waiting.append(self.ledger.reader(entered))
                else:
                    self.stopped.append(entered)
        return turns

    def hops(self) -> list[int]:
        rows = self.ledger.db.execute("SELECT hops FROM inbound WHERE source IS NOT NULL")
        return [hops for (hops,) in rows]


RING = {(0, 1), (1, 2), (2, 0)}
ALL_TO_ALL = {(writer, reader) for writer in range(5) for reader in range(5) if writer != reader}


@pytest.mark.parametrize(("edges", "count"), [(RING, 3), (ALL_TO_ALL, 5)], ids=["a ring", "all to all"])
def test_whatever_follows_from_one_message_comes_to_an_end(
    ledger: Ledger, edges: set[tuple[int, int]], count: int
) -> None:
    """C170: hops at most 8, messages at most 40, in any topology; and it is told."""
    stubs = Stubs(ledger, edges, count, AgentsSettings(max_hops=8, max_messages=40, per_minute=1000))
    stubs.run(ledger.chat(stubs.agents[0]))
    assert len(stubs.hops()) == (8 if edges is RING else 40)
    assert max(stubs.hops()) <= 8
    (stopped,) = stopped_chains(ledger.db)
    assert (stopped["reason"], stopped["agent"]) == ("TooManyHops" if edges is RING else "ChainTooLong", "a0")
    told = {(one.notice, one.part.session_id) for one in stubs.stopped}
    assert len({notice for notice, _ in told}) == len(told), "each notice is one session's"
    ledger.now = UnixMs(ledger.now + 61_000)
    session = ledger.chat(stubs.agents[0])
    assert refusal(ledger.writes(session, stubs.agents[1], ledger.takes(session))) is None, "another request is free"


@settings(max_examples=40, deadline=None)
@given(
    edges=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20),
    hops=st.integers(1, 6),
    messages=st.integers(1, 30),
    lies=st.booleans(),
)
def test_no_graph_of_agents_and_no_lie_of_a_runner_goes_beyond_the_budget(
    edges: set[tuple[int, int]], hops: int, messages: int, lies: bool
) -> None:
    """C170: a runner that names turns of its own making begins no chain anew."""
    ledger = Ledger(in_memory())
    budget = AgentsSettings(max_hops=hops, max_messages=messages, per_minute=1000, to_itself_per_minute=3)
    stubs = Stubs(ledger, edges, 6, budget)
    stubs.run(ledger.chat(stubs.agents[0]), lies=lies)
    assert len(stubs.hops()) <= messages
    assert max(stubs.hops(), default=0) <= hops
    ledger.db.close()


def test_a_session_that_nobody_wrote_to_is_a_chain_by_itself(ledger: Ledger) -> None:
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    session, _ = sessions.session_for(
        ledger.db, anna.id, "x", mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=NOW
    )
    budget = AgentsSettings(max_messages=2)
    wrote = [ledger.writes(session, bert, TurnId(new_id("trn")), budget) for _ in range(3)]
    assert [refusal(one) for one in wrote] == [None, None, "ChainTooLong"]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({}, None),
        ({"hops": 11}, "TooManyHops"),
        ({"chain": 100}, "ChainTooLong"),
        ({"lately": 30}, "TooOften"),
        ({"lately": 3, "to_itself": True}, "TooOftenToItself"),
        ({"lately": 29, "hops": 10, "chain": 99}, None),
    ],
)
def test_the_budget_stops_at_its_numbers_and_says_what_is_to_be_done(
    counts: dict[str, Any], reason: str | None
) -> None:
    usual: dict[str, Any] = {"hops": 1, "chain": 0, "lately": 0, "to_itself": False}
    stopped = judge(Counts(**{**usual, **counts}), BUDGET)
    assert (stopped.reason if stopped is not None else None) == reason
    assert stopped is None or "Don't send it again" in stopped.text or "wait with it" in stopped.text


# ---- what operators see, and what is forgotten


def test_both_ends_are_found_from_each_other(ledger: Ledger) -> None:
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    asking = ledger.chat(anna)
    question = ledger.writes(asking, bert, ledger.takes(asking))
    part, entry = question.part, ledger.entry(question)
    assert other_end(ledger.db, part) == {
        "to_agent": "bert", "to_session": entry.session_id, "arrived_as": entry.id, "arrived_state": "queued",
    }  # fmt: skip
    deliveries.sent(ledger.db, part.id, [entry.id], DeliveryState.SENT, NOW)
    assert other_end(ledger.db, entry) == {"from_agent": "anna", "from_delivery": part.id}
    assert other_end(ledger.db, inbound.entries(ledger.db, session_id=asking.id)[0]) == {}


def test_a_message_of_a_lost_mailbox_is_delivered_again_and_a_persons_is_not_ours_to_send(ledger: Ledger) -> None:
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    asking = ledger.chat(anna)
    question = ledger.writes(asking, bert, ledger.takes(asking))
    entry, reader = ledger.entry(question), ledger.reader(question)
    deliveries.sent(ledger.db, question.part.id, [entry.id], DeliveryState.SENT, NOW)
    assert send_again(ledger.db, reader, entry, NOW)
    again = deliveries.delivery(ledger.db, question.part.id)
    assert again is not None and again.state is DeliveryState.PENDING
    assert not send_again(ledger.db, asking, inbound.entries(ledger.db, session_id=asking.id)[0], NOW)


def test_whoever_writes_to_an_agent_is_known_however_many_agents_lie_between(ledger: Ledger) -> None:
    """For the rule that an agent which nothing isolates is reached by the terminal only."""
    anna, bert, carl = ledger.agent("anna"), ledger.agent("bert"), ledger.agent("carl")
    ledger.knows(anna, bert)
    ledger.knows(bert, carl)
    asking = ledger.chat(anna)
    between = ledger.reader(ledger.writes(asking, bert, ledger.takes(asking)))
    last = ledger.reader(ledger.writes(between, carl, ledger.takes(between)))
    for session in (asking, between, last):
        chat = places.root_chat(ledger.db, session)
        assert chat is not None and chat.id == asking.messaging_group_id
    assert places.home_of(ledger.db, last) == places.address_of(between)
    assert places.home_of(ledger.db, asking) == Address("postbox", "box", "anna")
    sessions.close_session(ledger.db, asking.id, NOW)
    ledger.db.execute("DELETE FROM sessions WHERE id = ?", (asking.id,))
    assert places.root_chat(ledger.db, last) is None
    assert places.home_of(ledger.db, between) is None


def test_an_answer_is_wanted_where_all_began(ledger: Ledger) -> None:
    """In a session of several chats that is the chat that asked; for a run of a task, where its answers go."""
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    session = ledger.chat(anna)
    there = Address("slack", "work", "C1", "7")
    event = MessageReceived(
        address=there, ref=MessageRef(there, ("1",)), sender=Person("ann"), text="hi", occurred_at=NOW, dedupe_key="1",
        is_group=True, addressed=Addressed.MENTION,
    )  # fmt: skip
    accepted = events.accept(ledger.db, "slack", "work", "1", "MessageReceived", dumps(event), NOW)
    first = InboundId(new_id("in"))
    inbound.record(
        ledger.db, id=first, event_id=accepted.event_id, wiring_id=None, session_id=session.id,
        state=InboundState.QUEUED, preview="", now=NOW,
    )  # fmt: skip
    assert places.where_asked(ledger.db, session, first) == there
    run, series = TaskRunId(new_id("run")), TaskId(new_id("tsk"))
    task = Task(
        id=series, agent_group_id=anna.id, session_key=session.key, session_mode=session.mode, messaging_group_id=None,
        thread_id=None, origin=there.chat, prompt="x", timezone="UTC", next_at=NOW, created_at=NOW, updated_at=NOW,
    )  # fmt: skip
    tasks.add(ledger.db, task)
    tasks.add_run(
        ledger.db,
        TaskRun(id=run, task_id=series, due_at=NOW, session_id=session.id, state=RunState.QUEUED, created_at=NOW),
    )
    by_task = InboundId(run.replace("run_", "in_"))
    inbound.record(
        ledger.db, id=by_task, event_id=None, wiring_id=None, session_id=session.id, state=InboundState.QUEUED,
        preview="", now=NOW,
    )  # fmt: skip
    assert places.where_asked(ledger.db, session, by_task) == there.chat
    assert places.where_asked(ledger.db, session, None) == Address("postbox", "box", "anna")
    other = ledger.reader(ledger.writes(session, bert, ledger.takes(session)))
    assert places.where_asked(ledger.db, other, first) == places.address_of(session), "it began elsewhere"


def test_conversations_whose_asker_is_gone_are_closed_after_a_while(ledger: Ledger) -> None:
    anna, bert = ledger.agent("anna"), ledger.agent("bert")
    ledger.knows(anna, bert)
    asking = ledger.chat(anna)
    answering = ledger.reader(ledger.writes(asking, bert, ledger.takes(asking)))
    later = UnixMs(NOW + 1)
    assert chains.close_unasked(ledger.db, later) == 0
    sessions.close_session(ledger.db, asking.id, NOW)
    assert chains.close_unasked(ledger.db, NOW) == 0, "not yet"
    assert chains.close_unasked(ledger.db, later) == 1
    closed = sessions.session(ledger.db, answering.id)
    assert closed is not None and closed.status == "closed"
    assert chains.forget_chains(ledger.db, later) == 1
