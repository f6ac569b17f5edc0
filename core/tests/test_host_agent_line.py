"""From one agent's outbox to another's inbox: once, whole, and never through a link (messaging.md 11.1; C067)."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.api import EnqueuedMessage, hookimpl
from jackfield.clock import UnixMs
from jackfield.config.settings import AgentsSettings
from jackfield.errors import ChatNotFound, MailboxBlocked, Transient
from jackfield.host.agents import places
from jackfield.host.agents.entering import Entered, arrival_id, enter
from jackfield.host.agents.line import AgentLine
from jackfield.host.agents.outcomes import Outcomes
from jackfield.host.inbox import Inbox
from jackfield.host.spool import Spool
from jackfield.ids import AgentGroupId, InboundId, SessionId, TurnId, new_id
from jackfield.mailbox import SessionFolder
from jackfield.models import (
    Address,
    AgentGroup,
    Card,
    ChatContent,
    DeliveryState,
    Destination,
    DestinationKind,
    InboundRow,
    InboundState,
    MessageContent,
    NoticeContent,
    OutboundRow,
    OutMessage,
    Prompt,
    ReactionContent,
    Session,
    loads,
)
from jackfield.store import deliveries, groups, inbound, sessions, wirings


class Line:
    """A bench with two agents, of which the first may write to the second."""

    def __init__(self, bench: Bench, session: Session, other: AgentGroup) -> None:
        self.bench = bench
        self.asking = session
        self.other = other
        self.woken: list[str] = []
        self.inbox = Inbox(
            bench.hub,
            cast(Any, bench.directory),
            Spool(bench.hub),
            wake=self.wake,
            unblock=self.nothing,
            on_damaged=self.nothing,
        )
        self.line = AgentLine(bench.hub, self.inbox, before=self.nothing, wake=self.wake)
        self.outcomes = Outcomes(bench.hub, self.inbox, wake=self.wake)

    async def nothing(self, *args: Any) -> None: ...

    def wake(self, session: Session) -> None:
        self.woken.append(session.id)

    def row(self, content: MessageContent | str, **more: Any) -> OutboundRow:
        usual = {"agent_group_id": self.other.id, "destination": "other"}
        return self.bench.row(self.asking, None, content, **{**usual, **more})

    async def entered(self, row: OutboundRow, session: Session | None = None) -> Entered:
        """Plan a row and enter it, as the collector does."""
        hub, writer = self.bench.hub, session or self.asking
        group = await hub.store.read(groups.agent_group, writer.agent_group_id)
        assert group is not None
        (part,) = await self.bench.delivery.plan(writer, group, row, self.bench.clock.now())
        if part.state in deliveries.ENDS:
            return Entered(part)
        now = self.bench.clock.now()

        def record(db: Any) -> Entered:
            entered = enter(db, writer, part, row.turn, AgentsSettings(), now)
            deliveries.add(db, [entered.part], start=True, now=now)
            return entered

        return await hub.store.write(record)

    async def send(self, entered: Entered) -> tuple[str, ...]:
        message = loads(OutMessage, entered.part.content)
        return (await self.line.send(entered.part.address, message, idempotency_key=entered.part.id)).ids

    async def reader(self, entered: Entered) -> Session:
        found = await self.bench.hub.store.read(sessions.session, SessionId(entered.part.address.thread_id or ""))
        assert found is not None
        return found

    async def inbox_of(self, session: Session) -> list[InboundRow]:
        folder = self.bench.hub.folder_of(session)
        rows = [
            await self.bench.hub.mailboxes.run(folder, lambda box, seq=seq: box.message_at(seq))  # type: ignore[misc]  # mypy infers no lambda with a default
            for seq in range(2, 20, 2)
        ]
        return [row for row in rows if row is not None]

    def outbox(self, row: OutboundRow, name: str, data: bytes) -> Path:
        folder = self.bench.hub.folder_of(self.asking)
        folder.create()
        folder.store_outbox(row.id, name, data)
        return folder.root / "outbox" / row.id / name


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Line]:
    async with open_bench(tmp_path / "home") as bench:
        other = AgentGroup(id=AgentGroupId(new_id("ag")), name="Other", folder="other", created_at=bench.clock.now())
        to = Destination(name="other", kind=DestinationKind.AGENT, display_name="Other", agent_group_id=other.id)

        def add(db: Any) -> None:
            groups.add_agent_group(db, other)
            wirings.add_destination(db, bench.group.id, to, other.created_at)

        await bench.hub.store.write(add)
        session = await bench.session(await bench.chat("c-1"))
        yield Line(bench, session, other)


async def test_a_message_arrives_once_with_the_host_as_witness_of_who_wrote_it(line: Line) -> None:
    seen: list[EnqueuedMessage] = []

    class Watching:
        @hookimpl
        async def message_enqueued(self, message: EnqueuedMessage) -> None:
            seen.append(message)

    line.bench.plugins.use(("watching", Watching()))
    entered = await line.entered(line.row("hello <system>"))
    first = await line.send(entered)
    assert await line.send(entered) == first, "sent again after a crash"
    reader = await line.reader(entered)
    (row,) = await line.inbox_of(reader)
    assert isinstance(row.content, ChatContent)
    group = line.bench.group
    assert (row.content.text, row.content.sender, row.content.sender_id) == (
        "hello <system>",
        group.name,
        f"agent:{group.id}",
    )
    assert (row.content.sender_role, row.content.command) == ("", None)
    assert (row.id, row.hops, row.source_session_id) == (first[0], 1, line.asking.id)
    assert row.origin == places.address_of(line.asking)
    assert set(line.woken) == {reader.id}
    assert [(one.session.id, one.message_id) for one in seen] == [(reader.id, row.id)]


async def test_a_command_of_an_agent_is_a_text_like_any_other(line: Line) -> None:
    """C128: an agent is nobody who could give such an order."""
    entered = await line.entered(line.row("/clear"))
    await line.send(entered)
    (row,) = await line.inbox_of(await line.reader(entered))
    assert isinstance(row.content, ChatContent) and row.content.command is None


async def test_an_answer_is_wanted_where_the_question_was_asked(line: Line) -> None:
    question = await line.entered(line.row("?"))
    await line.send(question)
    answering = await line.reader(question)
    answer = line.bench.row(answering, places.address_of(line.asking), "!")
    arrived = await line.entered(answer, answering)
    await line.send(arrived)
    (row,) = await line.inbox_of(line.asking)
    assert row.origin == Address("fake", "fake", "c-1")
    assert isinstance(row.content, ChatContent) and row.content.sender == "Other"


async def test_files_are_copied_whole_and_links_are_not_followed(line: Line) -> None:
    row = line.row(MessageContent(text="see", files=("a.txt", "evil.txt", "gone.txt")))
    line.outbox(row, "a.txt", b"fine")
    secret = line.bench.hub.home.root / "master.key"
    secret.write_text("secret", encoding="utf-8")
    line.outbox(row, "evil.txt", b"x").unlink()
    (line.bench.hub.folder_of(line.asking).root / "outbox" / row.id / "evil.txt").symlink_to(secret)
    entered = await line.entered(row)
    await line.send(entered)
    reader = await line.reader(entered)
    (arrived,) = await line.inbox_of(reader)
    assert isinstance(arrived.content, ChatContent)
    (file,) = arrived.content.files
    assert (file.name, file.size, file.problem) == ("a.txt", 4, None)
    root = line.bench.hub.folder_of(reader).root
    assert (root / (file.path or "")).read_bytes() == b"fine"
    assert [path.name for path in (root / "inbox").rglob("*") if path.is_file()] == ["a.txt"]
    assert len(line.bench.degraded) == 1 and len(line.bench.degraded[0]) == 2, "the writer is told of the two others"


async def test_a_hostile_reader_can_not_turn_a_file_elsewhere(line: Line, tmp_path: Path) -> None:
    """C067: the reader's runner may own its inbox folder, and make a link of it."""
    row = line.row(MessageContent(text="see", files=("a.txt",)))
    line.outbox(row, "a.txt", b"fine")
    entered = await line.entered(row)
    reader = await line.reader(entered)
    folder: SessionFolder = line.bench.hub.folder_of(reader)
    folder.create()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder.root / "inbox" / entered_id(entered)).symlink_to(elsewhere)
    await line.send(entered)
    (arrived,) = await line.inbox_of(reader)
    assert isinstance(arrived.content, ChatContent)
    (file,) = arrived.content.files
    assert file.path is None and "could not be handed over" in (file.problem or "")
    assert list(elsewhere.iterdir()) == []


def entered_id(entered: Entered) -> InboundId:
    return arrival_id(entered.part.id)


async def test_a_long_text_goes_as_a_file(line: Line) -> None:
    """C219."""
    entered = await line.entered(line.row("x" * 300_000))
    await line.send(entered)
    (arrived,) = await line.inbox_of(await line.reader(entered))
    assert isinstance(arrived.content, ChatContent)
    assert len(arrived.content.text) < 3000
    assert [(file.name, file.size) for file in arrived.content.files] == [("message.md", 300_000)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (MessageContent(card=Card(title="x")), "Unsupported"),
        (MessageContent(prompt=Prompt(id="q", title="x", question="y", choices=())), "Unsupported"),
        (MessageContent(text="  "), "EmptyMessage"),
        (ReactionContent(target_seq=2, emoji="x"), "Unsupported"),
    ],
)
async def test_what_is_for_people_is_refused_with_a_reason(line: Line, content: Any, reason: str) -> None:
    entered = await line.entered(line.row(content))
    assert (entered.part.state, entered.part.reason) == (DeliveryState.FAILED, reason)
    assert await line.bench.hub.store.read(inbound.entry, entered_id(entered)) is None


async def test_a_mailbox_that_can_not_be_written_now_is_tried_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered = await line.entered(line.row("hello"))

    async def blocked(*args: Any) -> None:
        raise MailboxBlocked("its runner holds it")

    with monkeypatch.context() as patch:
        patch.setattr(line.inbox, "deliver", blocked)
        with pytest.raises(Transient):
            await line.send(entered)
    await line.send(entered)
    assert len(await line.inbox_of(await line.reader(entered))) == 1


@pytest.mark.parametrize("end", ["closed", "gone", "dropped"])
async def test_what_can_not_arrive_any_more_is_final_and_told_in_a_turn(line: Line, end: str) -> None:
    entered = await line.entered(line.row("hello"))
    reader, now = await line.reader(entered), line.bench.clock.now()

    def finish(db: Any) -> None:
        if end == "closed":
            sessions.close_session(db, reader.id, now)
        elif end == "gone":
            groups.remove_agent_group(db, line.other.id, now)
        else:
            inbound.set_state(db, entered_id(entered), InboundState.DROPPED, now, reason="dropped by the operator")

    await line.bench.hub.store.write(finish)
    with pytest.raises(ChatNotFound):
        await line.send(entered)
    assert await line.outcomes.undelivered(entered.part)
    assert await line.outcomes.undelivered(entered.part), "again it tells nothing more"
    (told,) = await line.inbox_of(line.asking)
    assert isinstance(told.content, NoticeContent) and "was not answered" in told.content.text
    assert (told.trigger, told.origin) == (True, Address("fake", "fake", "c-1"))
    assert line.asking.id in line.woken


async def test_an_answer_that_nobody_can_read_any_more_wakes_nobody(line: Line) -> None:
    """Who wrote it finds a word about it beside the next message; people are told of their own agent's failures."""
    question = await line.entered(line.row("?"))
    answering = await line.reader(question)
    arrived = await line.entered(line.bench.row(answering, places.address_of(line.asking), "!"), answering)
    now = line.bench.clock.now()
    await line.bench.hub.store.write(sessions.close_session, line.asking.id, now)
    with pytest.raises(ChatNotFound):
        await line.send(arrived)
    assert not await line.outcomes.undelivered(arrived.part)
    entry = await line.bench.hub.store.read(inbound.entry, entered_id(arrived))
    assert entry is not None and entry.state is InboundState.DROPPED
    assert line.woken == []
    assert not await line.outcomes.tell(line.asking, "x"), "its people are told"


async def test_who_asked_is_told_also_when_a_later_turn_of_the_other_agent_fails(line: Line) -> None:
    """It had asked a third one, or looked at a notice, before it failed."""
    question = await line.entered(line.row("?"))
    answering, now = await line.reader(question), line.bench.clock.now()

    def later(db: Any) -> None:
        inbound.set_state(db, entered_id(question), InboundState.COMPLETED, now)
        inbound.record(
            db, id=InboundId(new_id("in")), event_id=None, wiring_id=None, session_id=answering.id,
            state=InboundState.FAILED, preview="a notice", now=now, hops=2,
        )  # fmt: skip

    await line.bench.hub.store.write(later)
    for _ in range(2):
        assert await line.outcomes.tell(answering, "The agent could not answer this message.")
    (told,) = await line.inbox_of(line.asking)
    assert isinstance(told.content, NoticeContent) and told.content.text.startswith("Other: The agent could not answer")


async def test_a_failure_over_and_over_ends_at_the_hop_limit(line: Line) -> None:
    """C170: who is told that no answer comes may ask again, and be told again, but not for ever."""
    turn, asked, told = None, 0, 0
    for _ in range(50):
        entered = await line.entered(line.row("again?", turn=turn))
        if entered.part.state in deliveries.ENDS:
            break
        asked += 1
        failed = entered_id(entered)
        now = line.bench.clock.now()
        await line.bench.hub.store.write(inbound.set_state, failed, InboundState.FAILED, now, reason="x")
        await line.outcomes.look()
        turn = TurnId(new_id("trn"))

        def take(db: Any, turn: TurnId = turn, now: UnixMs = now) -> int:
            waiting = inbound.open_entries(db, line.asking.id)
            for entry in waiting:
                inbound.set_state(db, entry.id, InboundState.COMPLETED, now, turn=turn)
            return len(waiting)

        told += await line.bench.hub.store.write(take)
    assert entered.part.reason == "TooManyHops"
    assert asked == told == 5


async def test_copies_are_forgotten_when_a_message_is_refused_after_it_was_planned(line: Line) -> None:
    row = line.row(MessageContent(text="see", files=("a.txt",)))
    line.outbox(row, "a.txt", b"fine")
    entered = await line.entered(row)
    copies = line.bench.hub.home.root / "outgoing"
    assert [path.name for path in copies.rglob("*.txt")] == ["a.txt"]
    line.bench.delivery.forget(entered.part)
    await line.bench.until(lambda: not list(copies.rglob("*.txt")))
    assert list(copies.iterdir()) == []
