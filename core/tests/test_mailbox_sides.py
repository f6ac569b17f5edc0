"""What host and runner tell each other through the two files (architecture, section 6; messaging.md 3)."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from jackfield.clock import UnixMs
from jackfield.errors import MailboxBlocked, MailboxDamaged, MailboxError, MailboxFormat, MalformedData
from jackfield.ids import AgentGroupId, InboundId, OutboundId, RequestId, TurnId
from jackfield.mailbox import Enqueued, HostMailbox, RunnerMailbox, SessionFolder
from jackfield.mailbox import schema as mailbox_schema
from jackfield.mailbox.inbound import begin_above
from jackfield.models import (
    MAILBOX_FORMAT,
    Ack,
    AckStatus,
    ActionRequest,
    ActivityKind,
    ActivityRow,
    Address,
    ChatContent,
    Delivered,
    Destination,
    DestinationKind,
    Draft,
    EditContent,
    EventContent,
    InboundContent,
    InboundKind,
    InboundRow,
    MessageContent,
    NoticeContent,
    OutboundContent,
    OutboundKind,
    OutboundRow,
    Quote,
    ReactionContent,
    Response,
    ResponseStatus,
    RunnerState,
    StoredFile,
    TaskContent,
    TurnError,
    UsageEntry,
    WebhookContent,
)

NOW = UnixMs(1_700_000_000_000)
LATER = UnixMs(NOW + 60_000)
CHAT = Address("terminal", "terminal", "grüße:& %/x", "thread 1")
TURN = TurnId("trn_1")


def inbound(
    id_: str, content: InboundContent | None = None, *, trigger: bool = True, due_at: int = 0, attempt: int = 1
) -> InboundRow:
    return InboundRow(
        id=InboundId(id_),
        kind=InboundKind.CHAT,
        content=content or ChatContent(text=f"text of {id_}"),
        at=NOW,
        origin=CHAT,
        trigger=trigger,
        due_at=UnixMs(due_at),
        attempt=attempt,
    )


def outbound(id_: str, text: str = "", *, turn: TurnId | None = TURN, epoch: int = 1) -> OutboundRow:
    return OutboundRow(
        id=OutboundId(id_),
        kind=OutboundKind.MESSAGE,
        content=MessageContent(text=text or f"text of {id_}"),
        at=NOW,
        epoch=epoch,
        turn=turn,
        address=CHAT,
    )


def ack(id_: str, status: AckStatus, *, attempt: int = 1, epoch: int = 1) -> Ack:
    return Ack(message_id=InboundId(id_), status=status, attempt=attempt, epoch=epoch, at=NOW, turn=TURN)


def ids(rows: list[InboundRow]) -> list[str]:
    return [row.id for row in rows]


class Pair:
    """Both sides of one mailbox."""

    def __init__(self, folder: SessionFolder) -> None:
        folder.create()
        self.folder = folder
        self.host = HostMailbox(folder)
        self.runner = RunnerMailbox(folder, 1)

    def restart(self, epoch: int) -> None:
        self.runner.close()
        self.runner = RunnerMailbox(self.folder, epoch)

    def close(self) -> None:
        self.host.close()
        self.runner.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(SessionFolder(tmp_path / "ag" / "ses"))
    yield made
    made.close()


EVERY_CONTENT: list[tuple[InboundKind, InboundContent]] = [
    (
        InboundKind.CHAT,
        ChatContent(
            text="hello \0 \ud83d\ude00 </message> \ud800 end",
            sender="Ann",
            sender_id="terminal:ann",
            sender_role="owner",
            quote=Quote("p1", "Bob", "before"),
            files=(StoredFile("a.txt", path="inbox/m/a.txt", size=3), StoredFile("b", problem="too big")),
            command="/clear",
        ),
    ),
    (InboundKind.TASK, TaskContent(prompt="p", script="s", series_id="ser")),
    (InboundKind.WEBHOOK, WebhookContent(source="s", event="e", payload="{}")),
    (InboundKind.NOTICE, NoticeContent(text="t", subject="s")),
    (InboundKind.EVENT, EventContent(level="wake", source="doc_1", text="t")),
]


@pytest.mark.parametrize(("kind", "content"), EVERY_CONTENT)
def test_a_row_arrives_as_it_was_sent(pair: Pair, kind: InboundKind, content: InboundContent) -> None:
    row = InboundRow(
        id=InboundId("m1"),
        kind=kind,
        content=content,
        at=NOW,
        origin=None if kind is InboundKind.TASK else CHAT,
        due_at=UnixMs(NOW - 5),
        trigger=False,
        attempt=2,
        platform_message_id="p\ud8001",
        source_session_id="ses_2",
        hops=3,
    )
    assert pair.host.enqueue([row]) == [Enqueued(InboundId("m1"), 2, True, False)]
    (got,) = pair.runner.pending(NOW)
    expected_text = "hello \0 \U0001f600 </message> ? end"
    if isinstance(got.content, ChatContent) and isinstance(content, ChatContent):
        assert got.content.text in (expected_text, expected_text.replace("\U0001f600", "??"))
        assert got.content.files == content.files and got.content.quote == content.quote
    else:
        assert got.content == content
    assert got.platform_message_id == "p?1"
    assert (got.seq, got.origin, got.trigger, got.attempt, got.hops) == (2, row.origin, False, 2, 3)
    assert pair.runner.message_at(2) == got


EVERY_ANSWER: list[tuple[OutboundKind, OutboundContent]] = [
    (OutboundKind.MESSAGE, MessageContent(text="x" * 100_000, files=("a.txt",))),
    (OutboundKind.EDIT, EditContent(target_seq=1, text="t")),
    (OutboundKind.REACTION, ReactionContent(target_seq=2, emoji="👍", added=False)),
    (OutboundKind.ACTION, ActionRequest(request_id=RequestId("req_1"), name="send", arguments="{}")),
]


@pytest.mark.parametrize(("kind", "content"), EVERY_ANSWER)
def test_an_answer_arrives_as_it_was_written(pair: Pair, kind: OutboundKind, content: OutboundContent) -> None:
    row = OutboundRow(
        id=OutboundId("o1"),
        kind=kind,
        content=content,
        at=NOW,
        epoch=1,
        turn=TURN,
        destination="boss",
        address=None if kind is OutboundKind.ACTION else CHAT,
        in_reply_to=InboundId("m1"),
        draft_block=2,
    )
    assert pair.runner.write(messages=[row]) == [1]
    batch = pair.host.read_outbound()
    assert batch.bad == [] and not batch.more
    (got,) = batch.rows
    assert got.seq == 1
    assert (got.content, got.destination, got.address) == (content, "boss", row.address)
    assert pair.runner.message_at(1) == got
    assert pair.runner.sent_in(TURN) == [got]


def test_both_sides_files_are_empty_before_anything_was_said(pair: Pair) -> None:
    assert pair.host.read_outbound().rows == []
    assert pair.host.read_state() == RunnerState()
    assert pair.host.claims() == [] and pair.host.read_drafts() == []
    assert pair.runner.pending(NOW) == [] and pair.runner.next_due(NOW) is None
    assert pair.runner.destinations() == [] and pair.runner.routing() is None
    assert pair.runner.delivered(1) is None and pair.runner.response(RequestId("req_1")) is None
    assert (
        pair.runner.message_at(1) is None and pair.runner.message_at(2) is None and pair.runner.message_at(-1) is None
    )
    assert pair.runner.broken_turn() is None and pair.runner.key("x") is None
    assert pair.host.check() is None


def test_a_host_reads_an_outbound_file_that_no_runner_ever_opened(tmp_path: Path) -> None:
    folder = SessionFolder(tmp_path / "s")
    folder.create()
    host = HostMailbox(folder)
    batch = host.read_outbound(after_seq=7, after_change=8, after_activity=9)
    assert (batch.rows, batch.last_seq, batch.last_change, batch.last_activity) == ([], 7, 8, 9)
    assert host.check() is None
    host.close()


def test_numbers_tell_the_side_and_never_go_back(pair: Pair) -> None:
    assert [done.seq for done in pair.host.enqueue([inbound("a"), inbound("b")])] == [2, 4]
    pair.runner.pending(NOW)
    assert pair.runner.write(messages=[outbound("o1"), outbound("o2")]) == [5, 7]
    assert [done.seq for done in pair.host.enqueue([inbound("c")])] == [6]
    pair.runner.pending(NOW)
    assert pair.runner.write(messages=[outbound("o3")]) == [9]
    assert [done.seq for done in pair.host.enqueue([inbound(str(n)) for n in range(10)])][-1] == 26
    pair.restart(2)
    assert pair.runner.write(messages=[outbound("o4", epoch=2)]) == [27]


def test_a_duplicate_stays_as_it_is_and_only_raises_the_trigger(pair: Pair) -> None:
    """messaging.md 3.6."""
    pair.host.enqueue([inbound("a", trigger=False)])
    again = pair.host.enqueue([inbound("a", ChatContent(text="other"), trigger=False), inbound("b")])
    assert again == [Enqueued(InboundId("a"), 2, False, False), Enqueued(InboundId("b"), 4, True, False)]
    assert pair.host.enqueue([inbound("a")]) == [Enqueued(InboundId("a"), 2, False, True)]
    assert pair.host.enqueue([inbound("a")]) == [Enqueued(InboundId("a"), 2, False, False)]
    assert pair.host.enqueue([inbound("a", trigger=False)]) == [Enqueued(InboundId("a"), 2, False, False)]
    first, second = pair.runner.pending(NOW)
    assert first.trigger and first.content == ChatContent(text="text of a") and second.id == "b"


def test_a_duplicate_inside_one_call_is_one_row(pair: Pair) -> None:
    done = pair.host.enqueue([inbound("a", trigger=False), inbound("a")])
    assert done == [Enqueued(InboundId("a"), 2, True, False), Enqueued(InboundId("a"), 2, False, True)]
    assert len(pair.runner.pending(NOW)) == 1


def test_a_call_that_changes_nothing_commits_nothing(pair: Pair) -> None:
    pair.host.enqueue([inbound("a")])
    pair.host.project([], CHAT)
    before = pair.folder.inbound_db.read_bytes()
    pair.host.enqueue([inbound("a")])
    pair.host.project([], CHAT)
    pair.host.record_delivered([])
    pair.host.withdraw([])
    assert pair.folder.inbound_db.read_bytes() == before


def test_rows_wait_for_their_time(pair: Pair) -> None:
    pair.host.enqueue([inbound("later", due_at=LATER), inbound("now", due_at=NOW), inbound("last", due_at=LATER + 9)])
    assert ids(pair.runner.pending(NOW)) == ["now"]
    assert pair.runner.next_due(NOW) == LATER
    assert ids(pair.runner.pending(LATER)) == ["later", "now"]
    assert pair.runner.next_due(LATER) == LATER + 9
    assert pair.host.depth(NOW) == 1


def test_the_oldest_rows_come_first_and_finished_ones_do_not_fill_the_batch(pair: Pair) -> None:
    pair.host.enqueue([inbound(f"{n:03}") for n in range(50)])
    pair.runner.write(acks=[ack(f"{n:03}", AckStatus.COMPLETED) for n in range(40)])
    assert ids(pair.runner.pending(NOW, limit=3)) == ["040", "041", "042"]


@pytest.mark.parametrize("settled", [False, True])
def test_acknowledged_rows_are_not_taken_again_until_the_host_raises_the_attempt(pair: Pair, settled: bool) -> None:
    pair.host.enqueue([inbound("a"), inbound("b"), inbound("c"), inbound("d")])
    pair.runner.write(
        acks=[ack("a", AckStatus.COMPLETED), ack("b", AckStatus.FAILED), ack("c", AckStatus.RELEASED)],
    )
    if settled:
        pair.host.read_outbound()
        pair.host.enqueue([inbound("e", due_at=LATER)])
        assert pair.host.depth(NOW) == 3
    assert ids(pair.runner.pending(NOW)) == ["c", "d"]
    assert pair.host.retry("b", 2, LATER)
    assert ids(pair.runner.pending(NOW)) == ["c", "d"]
    assert ids(pair.runner.pending(LATER))[:3] == ["b", "c", "d"]
    assert pair.host.retry("a", 2, NOW)
    assert ids(pair.runner.pending(NOW)) == ["a", "c", "d"]
    pair.runner.write(acks=[ack("a", AckStatus.COMPLETED, attempt=2)])
    assert ids(pair.runner.pending(NOW)) == ["c", "d"]
    assert not pair.host.retry("a", 1, NOW)
    assert not pair.host.retry("unknown", 2, NOW)


def test_claims_of_a_dead_runner_count_for_nothing(pair: Pair) -> None:
    pair.host.enqueue([inbound("a"), inbound("b")])
    rows = pair.runner.pending(NOW)
    pair.runner.claim(rows[:1], TURN)
    assert ids(pair.runner.pending(NOW)) == ["b"]
    (claim,) = pair.host.claims()
    assert (claim.message_id, claim.status, claim.epoch, claim.turn) == ("a", AckStatus.PROCESSING, 1, TURN)
    assert pair.runner.broken_turn() is None
    pair.restart(2)
    assert ids(pair.runner.pending(NOW)) == ["a", "b"]
    assert pair.runner.broken_turn() == TURN
    pair.runner.write(acks=[ack("a", AckStatus.COMPLETED, epoch=2)])
    assert pair.runner.broken_turn() is None


def test_a_replaced_runner_can_write_nothing_any_more(pair: Pair) -> None:
    """Architecture 10."""
    newer = RunnerMailbox(pair.folder, 2)
    with pytest.raises(MailboxError, match="epoch 2"):
        pair.runner.write(messages=[outbound("o1")])
    with pytest.raises(MailboxError, match="epoch 2"):
        RunnerMailbox(pair.folder, 1)
    newer.write(messages=[outbound("o2", epoch=2)])
    newer.close()
    assert [row.id for row in pair.host.read_outbound().rows] == ["o2"]


def test_withdrawn_rows_are_not_taken_unless_revived(pair: Pair) -> None:
    pair.host.enqueue([inbound("a"), inbound("b")])
    assert pair.host.withdraw(["a", "unknown"]) == 1
    assert pair.host.withdraw(["a"]) == 0
    assert ids(pair.runner.pending(NOW)) == ["b"]
    assert not pair.host.retry("a", 2, NOW)
    assert ids(pair.runner.pending(NOW)) == ["b"]
    assert pair.host.retry("a", 2, NOW, revive=True)
    assert ids(pair.runner.pending(NOW)) == ["a", "b"]


def test_the_first_answer_to_a_request_stays(pair: Pair) -> None:
    first = Response(request_id=RequestId("req_1"), status=ResponseStatus.OK, body='{"a": 1}', at=NOW)
    second = Response(request_id=RequestId("req_1"), status=ResponseStatus.EXPIRED, body="{}", at=LATER)
    assert pair.host.respond(first)
    assert not pair.host.respond(second)
    assert pair.runner.response(RequestId("req_1")) == first


def test_what_became_of_a_message_can_change(pair: Pair) -> None:
    sending = Delivered(out_seq=3, state="sending", platform_ids=(), at=NOW)
    done = Delivered(out_seq=3, state="delivered", platform_ids=("p1", "p:2"), at=LATER)
    pair.host.record_delivered([sending])
    assert pair.runner.delivered(3) == sending
    pair.host.enqueue([inbound("a")], delivered=[done])
    assert pair.runner.delivered(3) == done


def test_destinations_are_replaced_as_a_whole(pair: Pair) -> None:
    """messaging.md 3.5."""
    boss = Destination(name="boss", kind=DestinationKind.CHANNEL, display_name="The boss", address=CHAT)
    peer = Destination(
        name="peer", kind=DestinationKind.AGENT, display_name="Peer", agent_group_id=AgentGroupId("ag_2")
    )
    pair.host.project([peer, boss], CHAT)
    assert pair.runner.destinations() == [boss, peer]
    assert pair.runner.routing() == CHAT
    pair.host.project([peer], None)
    assert pair.runner.destinations() == [peer]
    assert pair.runner.routing() is None


def test_a_message_is_written_once_however_often_it_is_tried(pair: Pair) -> None:
    assert pair.runner.write(messages=[outbound("o1"), outbound("o2")]) == [1, 3]
    assert pair.runner.write(messages=[outbound("o2"), outbound("o3"), outbound("o1")]) == [3, 5, 1]
    assert [row.id for row in pair.host.read_outbound().rows] == ["o1", "o2", "o3"]


def test_cursors_give_everything_once_and_in_order(pair: Pair) -> None:
    pair.runner.write(
        messages=[outbound(f"o{n}") for n in range(7)],
        acks=[ack(f"a{n}", AckStatus.PROCESSING) for n in range(5)],
        activity=[ActivityRow(kind=ActivityKind.TOOL_CALL, target=f"t{n}", summary="s", at=NOW) for n in range(3)],
    )
    seen, acks, activity = [], [], []
    seq = change = number = 0
    more = True
    while more:
        batch = pair.host.read_outbound(after_seq=seq, after_change=change, after_activity=number, limit=2)
        seen += [row.id for row in batch.rows]
        acks += [one.message_id for one in batch.acks]
        activity += [one.target for one in batch.activity]
        seq, change, number, more = batch.last_seq, batch.last_change, batch.last_activity, batch.more
    assert seen == [f"o{n}" for n in range(7)]
    assert acks == [f"a{n}" for n in range(5)]
    assert activity == ["t0", "t1", "t2"]
    pair.runner.write(acks=[ack("a1", AckStatus.COMPLETED), ack("a9", AckStatus.PROCESSING)])
    batch = pair.host.read_outbound(after_seq=seq, after_change=change, after_activity=number)
    assert [(one.message_id, one.status) for one in batch.acks] == [
        ("a1", AckStatus.COMPLETED),
        ("a9", AckStatus.PROCESSING),
    ]
    assert batch.rows == [] and batch.activity == []


def test_a_batch_stays_within_some_megabytes(pair: Pair) -> None:
    for number in range(20):
        pair.runner.write(messages=[outbound(f"o{number}", "x" * 900_000)])
    first = pair.host.read_outbound()
    assert 8 <= len(first.rows) < 12 and first.more
    rest = pair.host.read_outbound(after_seq=first.last_seq)
    assert [row.id for row in first.rows + rest.rows][:18] == [f"o{n}" for n in range(18)]


def test_an_error_crosses_with_its_acknowledgement(pair: Pair) -> None:
    error = TurnError(kind="overloaded", message="busy", retryable=True, retry_after=3.5, scope="credential")
    failed = Ack(message_id=InboundId("a"), status=AckStatus.FAILED, attempt=2, epoch=1, at=NOW, turn=TURN, error=error)
    pair.runner.write(acks=[failed])
    (got,) = pair.host.read_outbound().acks
    assert got.error == error and got.change == 1


def test_state_keys_and_drafts_are_replaced_and_removed(pair: Pair) -> None:
    state = RunnerState(tool="Bash", tool_started_at=NOW, tool_deadline_at=LATER)
    pair.runner.write(state=state, keys={"continuation:mock": "c1", "last_turn": "t"})
    assert pair.host.read_state() == state
    assert pair.runner.key("continuation:mock") == "c1"
    pair.runner.write(keys={"continuation:mock": None})
    assert pair.runner.key("continuation:mock") is None and pair.runner.key("last_turn") == "t"
    pair.runner.put_draft(Draft(turn=TURN, block=0, address=CHAT, text="Hel", at=NOW))
    pair.runner.put_draft(Draft(turn=TURN, block=0, address=CHAT, text="Hello", at=NOW))
    pair.runner.put_draft(Draft(turn=TURN, block=1, address=CHAT, text="two", at=NOW))
    assert [draft.text for draft in pair.host.read_drafts()] == ["Hello", "two"]
    pair.runner.write(messages=[outbound("o1")], end_drafts_of=TURN)
    assert pair.host.read_drafts() == []
    pair.runner.put_draft(Draft(turn=TURN, block=0, address=CHAT, text="left", at=NOW))
    pair.restart(2)
    assert pair.host.read_drafts() == []


def test_a_row_over_the_limit_is_refused_and_nothing_of_its_call_is_written(pair: Pair) -> None:
    big = ChatContent(text="ä" * 600_000)
    with pytest.raises(MalformedData, match="1048576"):
        pair.host.enqueue([inbound("a"), inbound("b", big)])
    assert pair.runner.pending(NOW) == []
    with pytest.raises(MalformedData, match="1048576"):
        pair.runner.write(messages=[outbound("o1"), outbound("o2", "x" * (1 << 20))])
    assert pair.host.read_outbound().rows == []


def test_a_message_needs_exactly_one_addressee(pair: Pair) -> None:
    nobody = OutboundRow(
        id=OutboundId("o1"), kind=OutboundKind.MESSAGE, content=MessageContent(text="x"), at=NOW, epoch=1
    )
    with pytest.raises(MalformedData, match="exactly one"):
        pair.runner.write(messages=[nobody])


def test_pruning_takes_what_is_named_or_old_and_never_the_last_number(pair: Pair) -> None:
    pair.host.enqueue(
        [inbound("a"), inbound("b"), inbound("c")], [Delivered(out_seq=1, state="s", platform_ids=(), at=NOW)]
    )
    pair.host.respond(Response(request_id=RequestId("r"), status=ResponseStatus.OK, body="{}", at=LATER))
    assert pair.host.prune(LATER, ["a", "c"]) == 2
    assert ids(pair.runner.pending(NOW)) == ["b", "c"]
    assert pair.runner.delivered(1) is None
    assert pair.runner.response(RequestId("r")) is not None
    assert pair.host.enqueue([inbound("d")])[0].seq == 8


def test_a_fresh_mailbox_counts_on_from_the_old_ones_numbers(tmp_path: Path) -> None:
    folder = SessionFolder(tmp_path / "s")
    folder.create()
    begin_above(folder, 41)
    pair = Pair(folder)
    assert pair.host.enqueue([inbound("a")])[0].seq == 44
    assert pair.runner.write(messages=[outbound("o1")], acks=[ack("a", AckStatus.PROCESSING)]) == [43]
    assert pair.host.read_outbound(after_seq=41, after_change=41).acks[0].change == 42
    pair.close()


@pytest.mark.parametrize("side", ["inbound", "outbound"])
def test_another_format_is_refused_and_left_alone(pair: Pair, side: str) -> None:
    """C207."""
    pair.host.enqueue([inbound("a")])
    pair.close()
    path = pair.folder.inbound_db if side == "inbound" else pair.folder.outbound_db
    database = sqlite3.connect(path)
    database.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    database.commit()
    database.close()
    before = path.read_bytes()
    with pytest.raises(MailboxFormat, match="99"):
        RunnerMailbox(pair.folder, 2)
    with pytest.raises(MailboxFormat, match="99"):
        pair.host.enqueue([inbound("b")]) if side == "inbound" else pair.host.read_outbound()
    problem = pair.host.check()
    assert problem is not None and "99" in problem
    assert path.read_bytes() == before


def test_the_tables_are_those_of_the_declared_format() -> None:
    """Changing a statement without raising MAILBOX_FORMAT would shut out every runner that is alive."""
    first = {name: text for name, text in mailbox_schema.OUTBOUND.items() if name not in mailbox_schema.LATER}
    text = "\n".join([*mailbox_schema.INBOUND.values(), *first.values()])
    known = {1: "a7210603d585d26f"}
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == known[MAILBOX_FORMAT]


def test_a_file_of_the_first_version_is_read_as_it_is_and_gets_the_tables_that_came_later(pair: Pair) -> None:
    """C207."""
    pair.close()
    database = sqlite3.connect(pair.folder.outbound_db)
    for name in mailbox_schema.LATER:
        database.execute(f"DROP TABLE {name}")
    database.commit()
    database.close()
    assert pair.host.read_outbound().usage == []
    used = UsageEntry(at=UnixMs(5), provider="mock", model="m", output=3)
    runner = RunnerMailbox(pair.folder, 2)
    runner.write(usage=[used])
    runner.close()
    batch = pair.host.read_outbound()
    assert batch.usage == [replace(used, seq=1)] and batch.last_usage == 1
    assert pair.host.read_outbound(after_usage=1).usage == []


def test_a_missing_file_is_a_damaged_mailbox(pair: Pair) -> None:
    pair.runner.close()
    pair.folder.outbound_db.unlink()
    with pytest.raises(MailboxDamaged, match=r"outbound\.db"):
        RunnerMailbox(pair.folder, 2)
    with pytest.raises(MailboxDamaged, match=r"outbound\.db"):
        pair.host.read_outbound()


def test_a_lock_that_stays_is_a_blocked_mailbox(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jackfield.mailbox.database.BUSY_SECONDS", 0.05)
    pair.close()
    holder = sqlite3.connect(pair.folder.inbound_db, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(MailboxBlocked, match="locked"):
        pair.host.enqueue([inbound("a")])
    holder.execute("ROLLBACK")
    holder.close()
    assert pair.host.enqueue([inbound("a")])[0].inserted


def test_a_reader_that_does_not_end_blocks_the_commit_and_nothing_is_half_written(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.mailbox.database.BUSY_SECONDS", 0.05)
    pair.host.enqueue([inbound("a")])
    pair.host.close()
    reader = sqlite3.connect(pair.folder.inbound_db, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM messages_in").fetchone()
    with pytest.raises(MailboxBlocked):
        pair.host.enqueue([inbound("b"), inbound("c")])
    reader.execute("ROLLBACK")
    reader.close()
    assert [done.seq for done in pair.host.enqueue([inbound("b")])] == [4]
    assert ids(pair.runner.pending(NOW)) == ["a", "b"]


def test_every_connection_is_in_truncate_mode_and_synchronous_in_full(pair: Pair) -> None:
    """runtime.md 3.5."""
    pair.host.enqueue([inbound("a")])
    for database in (pair.host._open(), pair.runner._connection()):
        assert database.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
        assert database.execute("PRAGMA locking_mode").fetchone() == ("normal",)
    assert not list(pair.folder.root.glob("*-wal")) and not list(pair.folder.root.glob("*-shm"))


def test_a_row_of_the_wrong_side_cannot_be_stored_at_all(pair: Pair) -> None:
    pair.host.enqueue([inbound("a")])
    with pytest.raises(sqlite3.IntegrityError):
        pair.host._open().execute("UPDATE messages_in SET seq = 3")
    with pytest.raises(sqlite3.IntegrityError):
        pair.runner._connection().execute(
            "INSERT INTO messages_out (seq, id, kind, content, at, epoch) VALUES (2, 'x', 'message', '', 0, 0)"
        )


def test_importing_the_mailbox_loads_nothing_but_the_standard_library() -> None:
    child = """
import sys
from jackfield.mailbox import *
own = {name.partition(".")[0] for name in sys.modules}
print(sorted(own & {"pydantic", "pluggy", "importlib_metadata", "structlog", "click", "rich", "tomlkit"}))
print(sorted(name for name in sys.modules if name.startswith("jackfield.") and name.count(".") == 1))
"""
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "[]",
        str([f"jackfield.{name}" for name in ("clock", "errors", "ids", "mailbox", "models", "points")]),
    ]


def test_the_package_offers_what_it_names() -> None:
    import jackfield.mailbox

    assert all(hasattr(jackfield.mailbox, name) for name in jackfield.mailbox.__all__)
