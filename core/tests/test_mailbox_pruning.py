"""What leaves a mailbox once the ledger has forgotten it (architecture 5, rule 2; messaging.md 3.4)."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.clock import SystemClock, UnixMs
from jackfield.errors import UnsafePath
from jackfield.ids import InboundId, OutboundId, TurnId
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder, Watermark
from jackfield.models import (
    Ack,
    AckStatus,
    ActivityKind,
    ActivityRow,
    Address,
    ChatContent,
    Delivered,
    InboundKind,
    InboundRow,
    MessageContent,
    OutboundKind,
    OutboundRow,
)
from runner_kit import chat, place
from runner_kit import done as answered_by

OLD = UnixMs(1_700_000_000_000)
YOUNG = UnixMs(OLD + 8 * 86_400_000)
BETWEEN = UnixMs(OLD + 86_400_000)
TURN = TurnId("trn_1")


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    made = SessionFolder(tmp_path / "session")
    made.create()
    return made


def said(id: str, at: UnixMs) -> InboundRow:
    return InboundRow(id=InboundId(id), kind=InboundKind.CHAT, content=ChatContent(text=id), at=at)


def answered(id: str, at: UnixMs) -> OutboundRow:
    return OutboundRow(
        id=OutboundId(id),
        kind=OutboundKind.MESSAGE,
        content=MessageContent(text=id),
        at=at,
        epoch=1,
        turn=TURN,
        address=Address("terminal", "terminal", "chat"),
    )


def done(id: str, at: UnixMs) -> Ack:
    return Ack(message_id=InboundId(id), status=AckStatus.COMPLETED, attempt=1, epoch=1, at=at, turn=TURN)


def exchange(folder: SessionFolder, moments: dict[str, UnixMs]) -> tuple[HostMailbox, RunnerMailbox]:
    """One message and its answer at each moment; the host has read it all and noted what became of the answers."""
    host = HostMailbox(folder)
    host.enqueue([said(name, at) for name, at in moments.items()])
    runner = RunnerMailbox(folder, 1)
    for name, at in moments.items():
        work = ActivityRow(kind=ActivityKind.TOOL_CALL, target="t", summary=name, at=at)
        (seq,) = runner.write(messages=[answered(f"out-{name}", at)], acks=[done(name, at)], activity=[work])
        host.record_delivered([Delivered(out_seq=seq, state="sent", platform_ids=("p",), at=at)])
    host.read_outbound()
    return host, runner


def column(folder: SessionFolder, file: str, sql: str) -> list[object]:
    db = sqlite3.connect(folder.root / file)
    try:
        return [row[0] for row in db.execute(sql)]
    finally:
        db.close()


def everything(host: HostMailbox, before: UnixMs = BETWEEN) -> Watermark:
    batch = host.read_outbound()
    return Watermark(seq=batch.last_seq, change=batch.last_change, activity=batch.last_activity, before=before)


def test_each_side_deletes_from_its_own_file_what_the_ledger_has_forgotten(folder: SessionFolder) -> None:
    host, runner = exchange(folder, {"a": OLD, "b": OLD, "c": YOUNG})
    assert runner.prune() == 0, "nothing is let go of yet"
    assert host.prune(BETWEEN, ["a", "b"], everything(host)) == 4
    assert column(folder, "inbound.db", "SELECT id FROM messages_in") == ["c"]
    assert column(folder, "inbound.db", "SELECT out_seq FROM delivered") == [11]
    assert runner.prune() == 6
    assert runner.prune() == 0
    assert column(folder, "outbound.db", "SELECT id FROM messages_out") == ["out-c"]
    assert column(folder, "outbound.db", "SELECT message_id FROM processing_ack") == ["c"]
    assert column(folder, "outbound.db", "SELECT summary FROM activity") == ["c"]


def test_the_runner_keeps_what_the_host_has_not_read(folder: SessionFolder) -> None:
    host, runner = exchange(folder, {"a": OLD, "b": OLD, "c": OLD})
    host.prune(BETWEEN, ["a", "b", "c"], Watermark(seq=7, change=1, activity=0, before=BETWEEN))
    runner.prune()
    assert column(folder, "outbound.db", "SELECT id FROM messages_out") == ["out-b", "out-c"]
    assert column(folder, "outbound.db", "SELECT message_id FROM processing_ack") == ["b", "c"]
    assert column(folder, "outbound.db", "SELECT summary FROM activity") == ["a", "b", "c"]


def test_an_acknowledgement_stays_while_its_message_does_so_that_nothing_is_answered_twice(
    folder: SessionFolder,
) -> None:
    host, runner = exchange(folder, {"a": OLD, "b": OLD, "c": OLD})
    host.prune(BETWEEN, ["b"], everything(host))
    runner.prune()
    assert column(folder, "outbound.db", "SELECT message_id FROM processing_ack") == ["a", "c"]
    assert runner.pending(YOUNG) == []


def test_no_number_is_used_twice_after_pruning_everything(folder: SessionFolder) -> None:
    host, runner = exchange(folder, {"a": OLD, "b": OLD})
    before = everything(host)
    host.prune(BETWEEN, ["a", "b"], before)
    while runner.prune():
        pass
    (enqueued,) = host.enqueue([said("d", YOUNG)])
    assert enqueued.seq == 6
    runner.close()
    again = RunnerMailbox(folder, 2)
    assert [row.id for row in again.pending(YOUNG)] == ["d"]
    (seq,) = again.write(messages=[answered("out-d", YOUNG)], acks=[done("d", YOUNG)])
    batch = host.read_outbound(after_seq=before.seq, after_change=before.change, after_activity=before.activity)
    assert [row.id for row in batch.rows] == ["out-d"]
    assert seq > before.seq
    assert [ack.message_id for ack in batch.acks] == ["d"]


def test_only_the_named_files_go_and_never_what_a_link_leads_to(folder: SessionFolder, tmp_path: Path) -> None:
    """C067: an agent's outbox may hold anything."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("keep")
    folder.store_inbox("in-1", "a.txt", b"1")
    folder.store_inbox("in-2", "a.txt", b"2")
    folder.remove_inbox("in-1")
    folder.remove_inbox("never-there")
    assert [path.name for path in folder.inbox.iterdir()] == ["in-2"]
    folder.store_outbox("old", "a.txt", b"1")
    folder.store_outbox("young", "a.txt", b"1")
    (folder.outbox / "link").symlink_to(outside)
    (folder.outbox / "strange\nname").write_text("x")
    for name in ("old", "link", "strange\nname"):
        os.utime(folder.outbox / name, (OLD / 1000, OLD / 1000), follow_symlinks=False)
    folder.remove_old_outbox(BETWEEN)
    assert [path.name for path in folder.outbox.iterdir()] == ["young"]
    (folder.outbox / "link").symlink_to(outside)
    folder.remove_all()
    folder.remove_all()
    assert not folder.root.exists()
    assert (outside / "keep").read_text() == "keep"
    with pytest.raises(UnsafePath):
        folder.remove_inbox("../outside")


async def test_a_runner_that_ends_deletes_what_the_host_let_go_of(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        process = await here.start()
        rows = [chat(f"say {word}") for word in ("one", "two")]
        for row in rows:
            here.put(row)
            await here.until(lambda row=row: answered_by(here, row))  # type: ignore[misc]  # mypy infers no lambda with a default
        mark = everything(here.host, UnixMs(SystemClock().now() + 1))
        here.host.prune(mark.before, [row.id for row in rows], mark)
        assert here.texts() == ["one", "two"], "not while it works"
        assert await here.stop(process) == 0
        assert here.texts() == ["two"], "the newest row stays"
        here.again()
        await here.start()
        here.put(chat("say three"))
        await here.until(lambda: here.texts() == ["two", "three"])
