"""Routing what waits in a chat together: the same as one after the other, and cheaper."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import BOUND, CAPABLE, Bench, open_bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import MailboxFull
from jackfield.host.inbox import Inbox
from jackfield.host.intake import LANES, Intake, StoredEvent
from jackfield.host.router import Router
from jackfield.host.routing import Facts
from jackfield.host.spool import Spool
from jackfield.host.verdicts import Judged
from jackfield.ids import AgentGroupId, EventId, InboundId, QuestionId, UserId, derive_id, new_id
from jackfield.models import (
    Address,
    Addressed,
    AgentGroup,
    Attachment,
    EngageMode,
    Event,
    IgnoredPolicy,
    InboundRow,
    Member,
    MessageDeleted,
    MessageEdited,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    ReactionChanged,
    SenderScope,
    Session,
    SessionMode,
    Threads,
    UnknownSenderPolicy,
    Wiring,
    WiringOrigin,
    dumps,
)
from jackfield.store import chats, events, groups, people, questions, sessions, wirings

CHAT = Address("fake", "fake", "room")
ASKED = QuestionId("q_open")
MEMBER, STRANGER = "ann", "zoe"


class World:
    """A router over a real store and real mailboxes; what it does outside of them is written down."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.log: list[tuple[str, str]] = []
        self.puts: list[int] = []
        self.names: dict[str, str] = {}
        """What ids that each world makes up for itself are called in `end_of`."""
        self.broken: set[str] = set()
        """Texts of messages that no inbox takes."""
        self.living = False
        """Whether the sessions have runners."""
        hub, directory = bench.hub, cast(Any, bench.directory)
        world = self

        class Watched(Inbox):
            async def deliver(
                self, session: Session, rows: Sequence[InboundRow], ring: Callable[[], None] = lambda: None
            ) -> list[InboundId]:
                if any(getattr(row.content, "text", "") in world.broken for row in rows):
                    raise MailboxFull("no space, for the test")
                known = await super().deliver(session, rows, ring)
                world.puts.append(len(rows))
                world.log += [(session.id, f"row {getattr(row.content, 'text', '')}") for row in rows]
                return known

        async def nothing(*_: object) -> None: ...

        spool = Spool(hub)
        inbox = Watched(hub, directory, spool, wake=lambda session: None, unblock=nothing, on_damaged=nothing)
        self.router = Router(
            hub,
            directory,
            inbox,
            on_action=nothing,
            on_report=nothing,
            on_text_answer=self._answered,
            say=self._say,
            ask=self._ask,
            claim=nothing,
            before=nothing,
            ring=self._ring,
            wake=lambda session, origin, rung: self.log.append((session.id, "wake" if not rung else "was rung")),
            entered=nothing,
        )
        self.intake = Intake(hub, self.router, spool)

    def _ring(self, session_id: str) -> bool:
        if self.living:
            self.log.append((session_id, "ring"))
        return self.living

    async def _answered(self, event: MessageReceived, user: UserId) -> bool:
        if event.text != "yes":
            return False
        now = self.bench.clock.now()
        decided = await self.bench.hub.store.write(questions.decide, ASKED, "yes", user, now)
        self.log.append(("", f"answer {decided.value}"))
        return decided.value == "decided"

    async def _ask(self, judged: Judged, facts: Facts | None) -> bool:
        return False

    async def _say(self, address: Address, message: OutMessage, **_: object) -> None:
        self.log.append(("", f"say {message.text}"))

    async def end_of(self) -> dict[str, object]:
        """All that the routed events left behind."""
        await self.bench.hub.store.write(lambda db: None)  # what nobody waits for is committed before it
        end: dict[str, Any] = self._named(await self.bench.hub.store.read(self._end_of))
        return {**end, **{table: sorted(map(str, end[table])) for table in ("audit", "sticky", "woken")}}

    def _named(self, value: Any) -> Any:
        if isinstance(value, str):
            for id, name in self.names.items():
                value = value.replace(id, name)
            return value
        if isinstance(value, dict):
            return {self._named(key): self._named(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._named(item) for item in value]
        return value

    def _end_of(self, db: Any) -> dict[str, object]:
        keys = dict(db.execute("SELECT id, agent_group_id || ' ' || key FROM sessions").fetchall())
        inboxes: dict[str, list[object]] = {}
        for session, key in keys.items():
            file = self.bench.hub.home.sessions / key.partition(" ")[0] / session / "inbound.db"
            if file.exists():
                with closing(sqlite3.connect(file)) as box:
                    rows = box.execute('SELECT seq, id, kind, content, "trigger", origin FROM messages_in ORDER BY seq')
                    inboxes[key] = rows.fetchall()
        effects = {
            key: [what for who, what in self.log if who in ("", session) and what != "wake"]
            for session, key in keys.items()
        }
        ledger = db.execute("SELECT id, event_id, wiring_id, session_id, state, preview FROM inbound ORDER BY ord")
        return {
            "inboxes": inboxes,
            "effects": effects,
            "woken": [keys[who] for who in {who for who, what in self.log if what == "wake"}],
            "ledger": [(*row[:3], keys[row[3]], *row[4:]) for row in ledger],
            "events": db.execute("SELECT id, state, reason, body FROM events ORDER BY ord").fetchall(),
            "audit": db.execute("SELECT sender, reason, agent_group_id, count FROM drops").fetchall(),
            "people": db.execute("SELECT id, display_name FROM users ORDER BY id").fetchall(),
            "sticky": db.execute("SELECT wiring_id, thread_key FROM sticky").fetchall(),
            "question": db.execute("SELECT state FROM questions").fetchall(),
        }


@asynccontextmanager
async def a_world(root: Path) -> AsyncIterator[World]:
    async with open_bench(root, replace(CAPABLE, threads=Threads.NATIVE)) as bench:
        yield World(bench)


async def prepared(
    world: World, said: Sequence[Event], policy: UnknownSenderPolicy, *, asked: bool
) -> list[StoredEvent]:
    """A chat with two agents, one that always answers and one that sticks to who mentioned it; `said` is accepted."""
    bench = world.bench
    now = bench.clock.now()
    other = AgentGroup(id=AgentGroupId(new_id("ag")), name="Other", folder="other", created_at=now)

    def prepare(db: Any) -> list[EventId]:
        groups.add_agent_group(db, other)
        chat = chats.ensure_messaging_group(db, CHAT, name="room", is_group=True, policy=policy, now=now)
        for group, mode, ignored, kind in (
            (bench.group.id, EngageMode.ALWAYS, IgnoredPolicy.DROP, SessionMode.SHARED),
            (other.id, EngageMode.MENTION_STICKY, IgnoredPolicy.ACCUMULATE, SessionMode.PER_THREAD),
        ):
            wirings.add_wiring(
                db,
                Wiring(
                    id=cast(Any, new_id("wr")),
                    messaging_group_id=chat.id,
                    agent_group_id=group,
                    engage_mode=mode,
                    engage_pattern=None,
                    sender_scope=SenderScope.ALL,
                    ignored_policy=ignored,
                    session_mode=kind,
                    priority=1 if group == bench.group.id else 0,  # of equal ones the ids decide, which are by chance
                    origin=WiringOrigin.TRUSTED,
                    created_at=now,
                ),
            )
        user = UserId(f"fake:{MEMBER}")
        people.ensure_user(db, user, "fake", "Ann", now)
        people.add_member(db, Member(user_id=user, agent_group_id=bench.group.id, added_by=None, added_at=now))
        people.add_member(db, Member(user_id=user, agent_group_id=other.id, added_by=None, added_at=now))
        if asked:
            session, _ = sessions.session_for(
                db, bench.group.id, "asker", mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=now
            )
            questions.add(db, ASKED, session.id, 1, CHAT, "{}", UnixMs(now + 60_000), now)
        return [
            events.accept(db, "fake", "fake", event.dedupe_key, type(event).__name__, dumps(event), now).event_id
            for event in said
        ]

    ids = await bench.hub.store.write(prepare)
    chat = await bench.hub.store.read(chats.messaging_group_at, CHAT)
    assert chat is not None
    world.names = {bench.group.id: "helper", other.id: "other", chat.id: "chat"}
    for wired in await bench.hub.store.read(lambda db: db.execute("SELECT id, agent_group_id FROM wirings").fetchall()):
        world.names[wired[0]] = f"wiring of {world.names[wired[1]]}"
        for number, id in enumerate(ids):
            world.names[id] = f"event {number}"
            world.names[derive_id("in", id, wired[0])] = f"row {number} for {world.names[wired[1]]}"
    return [StoredEvent(id, event) for id, event in zip(ids, said, strict=True)]


def message(number: int, text: str = "hello", **more: Any) -> MessageReceived:
    sender = more.pop("sender", MEMBER)
    thread = more.pop("thread", None)
    address = replace(CHAT, thread_id=thread)
    usual: dict[str, Any] = {
        "address": address,
        "dedupe_key": f"m{number}",
        "occurred_at": UnixMs(number),
        "ref": MessageRef(address, (f"p{number}",)),
        "sender": Person(sender, display_name=sender.title()),
        "text": f"{text} {number}" if text == "hello" else text,
        "is_group": True,
    }
    return MessageReceived(**{**usual, **more})


@st.composite
def conversations(draw: st.DrawFn) -> list[Event]:
    said: list[Event] = []
    for number in range(draw(st.integers(1, 12))):
        if draw(st.integers(0, 11)) == 0:
            ref = MessageRef(CHAT, (f"p{number}",))
            said.append(
                ReactionChanged(
                    address=CHAT,
                    dedupe_key=f"r{number}",
                    occurred_at=UnixMs(number),
                    ref=ref,
                    user=Person(MEMBER),
                    emoji="+1",
                )
            )
            continue
        sender = draw(st.sampled_from([MEMBER, MEMBER, MEMBER, STRANGER]))
        person = Person(sender, display_name=sender.title(), is_bot=draw(st.integers(0, 9)) == 0)
        files = (Attachment(id="f", name="f.txt"),) if draw(st.integers(0, 9)) == 0 else ()
        said.append(
            message(
                number,
                draw(st.sampled_from(["hello", "hello", "hello", "yes", "/clear", "/login"])),
                sender=sender,
                thread=draw(st.sampled_from([None, None, "t"])),
                addressed=draw(st.sampled_from([Addressed.NONE, Addressed.NONE, Addressed.MENTION])),
                attachments=files,
            )
        )
        said[-1] = replace(cast(MessageReceived, said[-1]), sender=person)
    return said


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    said=conversations(),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    policy=st.sampled_from(UnknownSenderPolicy),
    asked=st.booleans(),
)
def test_events_routed_together_leave_what_they_leave_one_by_one(
    said: list[Event], sizes: list[int], policy: UnknownSenderPolicy, asked: bool
) -> None:
    async def routed(root: Path, sizes: list[int]) -> dict[str, object]:
        async with a_world(root) as world:
            left, turn = await prepared(world, said, policy, asked=asked), 0
            while left:
                waiting = left[: sizes[turn % len(sizes)]]
                done = await world.router.route(waiting[: world.router.together(waiting)])
                left, turn = left[done:], turn + 1
            return await world.end_of()

    with tempfile.TemporaryDirectory() as root:
        alone = asyncio.run(routed(Path(root) / "alone", [1]))
        together = asyncio.run(routed(Path(root) / "together", sizes))
        assert alone == together


async def test_an_edit_starts_no_turn_however_often_it_comes(tmp_path: Path) -> None:
    """C056: an edit is recorded, and changes nothing that an agent was told; nor do reactions and deletions."""
    said = message(1)
    facts: dict[str, Any] = {"address": CHAT, "occurred_at": UnixMs(2), "ref": said.ref}
    changes: list[Event] = [
        *(
            MessageEdited(**facts, dedupe_key=f"e{n}", sender=Person(MEMBER), text="@bot summarise", version=str(n))
            for n in range(3)
        ),
        ReactionChanged(**facts, dedupe_key="r", user=Person(MEMBER), emoji="👍", added=True),
        MessageDeleted(**facts, dedupe_key="d"),
    ]
    async with a_world(tmp_path / "home") as world:
        await route_all(world, await prepared(world, [said, *changes], UnknownSenderPolicy.STRICT, asked=False))
        end = await world.end_of()
        assert all(len(rows) == 1 for rows in cast(dict[str, list[object]], end["inboxes"]).values())
        ends = [(state, reason) for _, state, reason, _ in cast(list[tuple[str, str, str, str]], end["events"])]
        assert ends[1:] == [("ignored", "not_for_agents")] * 5


async def route_all(world: World, stored: Sequence[StoredEvent]) -> None:
    """As the intake does, which found all of them waiting."""
    for one in stored:
        world.intake._enqueue(one)
    world.intake.open()
    async with asyncio.timeout(BOUND):
        await world.intake._idle.wait()


async def test_a_runner_that_lives_is_rung_once_and_with_the_commit(tmp_path: Path) -> None:
    async with a_world(tmp_path / "home") as world:
        stored = await prepared(world, [message(n) for n in range(2)], UnknownSenderPolicy.STRICT, asked=False)
        await world.router.route(stored[:1])  # makes the sessions, which the ledger must have first
        world.log.clear()
        world.living = True
        await world.router.route(stored[1:])
        # The one whose agent only gets to know of it is not rung.
        assert [what for _, what in world.log] == ["ring", "row hello 1", "row hello 1", "was rung"]


async def test_what_waits_in_a_chat_goes_into_the_inbox_in_one_transaction(tmp_path: Path) -> None:
    async with a_world(tmp_path / "home") as world:
        stored = await prepared(world, [message(n) for n in range(9)], UnknownSenderPolicy.STRICT, asked=False)
        await route_all(world, stored)
        # The first makes the sessions, and is alone; the rest goes together, to each of the two agents.
        assert world.puts == [1, 1, 8, 8]
        end = await world.end_of()
        assert all(len(rows) == 9 for rows in cast(dict[str, list[object]], end["inboxes"]).values())


async def test_one_that_no_inbox_takes_holds_up_none_of_those_it_came_with(tmp_path: Path) -> None:
    async with a_world(tmp_path / "home") as world:
        stored = await prepared(world, [message(n) for n in range(6)], UnknownSenderPolicy.STRICT, asked=False)
        world.broken = {"hello 3"}
        await route_all(world, stored)
        end = cast(dict[str, dict[str, list[str]]], await world.end_of())
        unfinished = await world.bench.hub.store.read(events.unfinished, 10)
        assert [event.id for event in unfinished] == [stored[3].id], "only that one is not done with"
        for effects in end["effects"].values():
            rows = [what for what in dict.fromkeys(effects) if what.startswith("row")]
            assert rows == ["row hello 0", "row hello 1", "row hello 2", "row hello 4", "row hello 5"]
        world.broken = set()
        await world.intake.retake()
        async with asyncio.timeout(BOUND):
            await world.intake._idle.wait()
        await world.end_of()
        assert await world.bench.hub.store.read(events.unfinished, 10) == []


async def test_chats_that_are_slow_to_route_keep_no_other_chat_waiting(tmp_path: Path) -> None:
    """Architecture 5, rule 6: as many slow ones as there are lanes."""

    class Slow:
        def __init__(self) -> None:
            self.quick = asyncio.Event()

        def foresee(self, event: Event) -> None: ...

        def together(self, waiting: Sequence[StoredEvent]) -> int:
            return 1

        async def route(self, waiting: Sequence[StoredEvent]) -> int:
            if waiting[0].event.address.platform_id != "quick":
                await self.quick.wait()
            self.quick.set()
            return 1

    async with a_world(tmp_path / "home") as world:
        intake = Intake(world.bench.hub, Slow(), Spool(world.bench.hub))
        intake.open()
        for chat in [*(f"slow {number}" for number in range(LANES)), "quick"]:
            event = message(0, address=Address("fake", "fake", chat))
            intake._enqueue(StoredEvent(EventId(new_id("ev")), event))
        async with asyncio.timeout(BOUND):
            await intake._idle.wait()


@pytest.mark.parametrize("meanwhile", [False, True])
async def test_what_was_foreseen_of_a_message_counts_unless_something_was_written_since(
    tmp_path: Path, meanwhile: bool
) -> None:
    """An echo of our own message, say, may be accepted before its sending is recorded; it is routed after."""
    async with a_world(tmp_path / "home") as world:
        store = world.bench.hub.store
        stored = await prepared(world, [message(n) for n in range(2)], UnknownSenderPolicy.STRICT, asked=False)
        await world.router.route(stored[:1])
        await store.write(lambda db: None)
        foreseen = world.router.foresee(stored[1].event)
        if meanwhile:
            await store.write(lambda db: db.execute("UPDATE messaging_groups SET platform_id = 'elsewhere'"))
        world.log.clear()
        await world.router.route([replace(stored[1], foreseen=foreseen)])
        assert bool(world.log) is not meanwhile


async def test_a_follow_up_that_waited_with_the_mention_finds_the_agent_sticking(tmp_path: Path) -> None:
    said = [message(n, addressed=Addressed.MENTION if n == 1 else Addressed.NONE) for n in range(4)]
    async with a_world(tmp_path / "home") as world:
        stored = await prepared(world, said, UnknownSenderPolicy.STRICT, asked=False)
        await route_all(world, stored)
        inboxes = cast(dict[str, list[Any]], (await world.end_of())["inboxes"])
        sticking = next(rows for key, rows in inboxes.items() if key.startswith("other"))
        assert [row[4] for row in sticking] == [0, 1, 1, 1]
