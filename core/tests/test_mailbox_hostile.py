"""An `outbound.db` and its rows as a hostile runner would make them (runtime.md 3.7)."""

from __future__ import annotations

import json
import os
import random
import resource
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import MailboxBlocked, MailboxDamaged, MailboxError, RecoveryNeeded
from jackfield.ids import InboundId, OutboundId
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder
from jackfield.mailbox.schema import OUTBOUND
from jackfield.models import Ack, AckStatus, Address, MessageContent, OutboundKind, OutboundRow, RunnerState, dumps

NOW = UnixMs(1_700_000_000_000)
CHAT = Address("terminal", "terminal", "x")
MIB = 1 << 20


def message(id_: str, text: str = "hello") -> OutboundRow:
    return OutboundRow(
        id=OutboundId(id_),
        kind=OutboundKind.MESSAGE,
        content=MessageContent(text=text),
        at=NOW,
        epoch=1,
        address=CHAT,
    )


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    made = SessionFolder(tmp_path / "ag" / "ses")
    made.create()
    return made


@pytest.fixture
def host(folder: SessionFolder) -> Iterator[HostMailbox]:
    made = HostMailbox(folder)
    yield made
    made.close()


@pytest.fixture
def spoken(folder: SessionFolder) -> SessionFolder:
    """A mailbox in which a good runner has said something."""
    runner = RunnerMailbox(folder, 1)
    runner.write(messages=[message("o1"), message("o2")], state=RunnerState(tool="t"))
    runner.close()
    return folder


def raw(folder: SessionFolder) -> sqlite3.Connection:
    database = sqlite3.connect(folder.outbound_db, isolation_level=None)
    database.execute("PRAGMA journal_mode=TRUNCATE")
    database.execute("PRAGMA synchronous=OFF")
    database.execute("PRAGMA ignore_check_constraints=ON")
    return database


def forge(folder: SessionFolder, *statements: str) -> None:
    database = raw(folder)
    for statement in statements:
        database.execute(statement)
    database.close()


def replace_schema(folder: SessionFolder, table: str, statement: str) -> None:
    """Put another text into sqlite_master, as anyone can who writes the file byte by byte."""
    forge(
        folder,
        "PRAGMA writable_schema=ON",
        f"UPDATE sqlite_master SET sql = {statement!r} WHERE name = '{table}'",
        "PRAGMA schema_version=1000",
    )


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n AS seq, n AS id FROM c"


def test_a_view_in_the_place_of_a_table_is_never_asked(spoken: SessionFolder, host: HostMailbox) -> None:
    forge(spoken, "DROP TABLE messages_out", f"CREATE VIEW messages_out AS {ENDLESS}")
    begun = time.thread_time()
    with pytest.raises(MailboxDamaged, match="messages_out"):
        host.read_outbound()
    assert time.thread_time() - begun < 0.5
    assert "messages_out" in (host.check() or "")


@pytest.mark.parametrize(
    "statements",
    [
        ("DROP TABLE messages_out", "CREATE TABLE messages_out (seq, id, kind)"),
        ("DROP TABLE messages_out", "CREATE TABLE other (a)", "CREATE INDEX messages_out ON other (a)"),
        ("CREATE INDEX mine ON messages_out (abs(seq))",),
        ("CREATE TRIGGER mine AFTER INSERT ON messages_out BEGIN SELECT 1; END",),
        ("DROP TABLE messages_out",),
        ("DROP TABLE meta",),
        ("DROP TABLE draft", "CREATE VIRTUAL TABLE draft USING fts5(turn, block, address, text, at)"),
        (
            "DROP TABLE processing_ack",
            "CREATE TABLE processing_ack (change INTEGER PRIMARY KEY, message_id AS (zeroblob(1000000000)))",
        ),
    ],
)
def test_tables_of_another_shape_are_refused(
    spoken: SessionFolder, host: HostMailbox, statements: tuple[str, ...]
) -> None:
    assert len(host.read_outbound().rows) == 2  # the connection that is kept must notice too
    try:
        forge(spoken, *statements)
    except sqlite3.OperationalError as problem:
        pytest.skip(f"this SQLite lacks it: {problem}")
    with pytest.raises(MailboxDamaged):
        host.read_outbound()
    with pytest.raises(MailboxDamaged):
        host.read_state()


def test_a_forged_schema_text_is_refused(spoken: SessionFolder, host: HostMailbox) -> None:
    replace_schema(spoken, "messages_out", f"CREATE VIEW messages_out AS {ENDLESS}")
    with pytest.raises(MailboxDamaged):
        host.read_outbound()


def test_foreign_tables_beside_ours_do_no_harm(spoken: SessionFolder, host: HostMailbox) -> None:
    forge(spoken, "CREATE TABLE other (a)", f"CREATE VIEW v AS {ENDLESS}")
    assert len(host.read_outbound().rows) == 2


def test_a_huge_row_is_stepped_over_without_being_loaded(spoken: SessionFolder, host: HostMailbox) -> None:
    """A blob of 300 MB; the rows around it arrive."""
    forge(
        spoken,
        "INSERT INTO messages_out (seq, id, kind, content, at, epoch) "
        f"VALUES (5, 'big', 'message', zeroblob({300 * MIB}), 1, 1)",
        "INSERT INTO processing_ack (change, message_id, status, attempt, epoch, at, turn) "
        f"VALUES (7, 'm', 'completed', 1, 1, 1, zeroblob({30 * MIB}))",
        f"INSERT INTO activity VALUES (1, zeroblob({30 * MIB}), 't', 's', 1)",
    )
    runner = RunnerMailbox(spoken, 1)
    runner.write(messages=[message("o3")])
    runner.close()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch = host.read_outbound()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
    assert [row.id for row in batch.rows] == ["o1", "o2", "o3"]
    assert [(bad.table, bad.seq) for bad in batch.bad] == [
        ("messages_out", 5),
        ("processing_ack", 7),
        ("activity", 1),
    ]
    assert (batch.last_seq, batch.last_change, batch.last_activity) == (7, 7, 1)


def test_only_huge_rows_still_move_the_cursor(spoken: SessionFolder, host: HostMailbox) -> None:
    for number in range(5, 25, 2):
        forge(
            spoken,
            "INSERT INTO messages_out (seq, id, kind, content, at, epoch) "
            f"VALUES ({number}, 'b{number}', 'message', zeroblob({5 * MIB}), 1, 1)",
        )
    seq, bad = 0, 0
    for _ in range(20):
        batch = host.read_outbound(after_seq=seq, limit=3)
        seq, bad = batch.last_seq, bad + len(batch.bad)
        if not batch.more:
            break
    assert (seq, bad) == (23, 10)


GOOD = {
    "id": "o9",
    "kind": "message",
    "content": '{"type":"MessageContent","text":"x"}',
    "at": 1,
    "epoch": 1,
    "address": "a:b:c",
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"content": "{"}, "JSON"),
        ({"content": "[" * 100_000}, "JSON"),
        ({"content": "9" * 5000}, "JSON"),
        ({"content": "NaN"}, "expected"),
        ({"content": "null"}, "expected"),
        ({"content": '{"type":"MessageContent","text":5}'}, "text"),
        ({"content": '{"type":"Exception"}'}, "expected"),
        ({"content": '{"type":"EditContent","target_seq":1,"text":""}'}, "EditContent"),
        ({"content": b"\xff\xfe{}"}, "UTF-8"),
        ({"content": 5}, "expected"),
        ({"content": '"' + "x" * (MIB + 1) + '"'}, "more than"),
        ({"id": "../../etc/passwd"}, "separator"),
        ({"id": ".."}, "no file"),
        ({"id": "a\0b"}, "control"),
        ({"id": "x" * 300}, "more than"),
        ({"id": b"\xff"}, "UTF-8"),
        ({"kind": "system"}, "none of"),
        ({"kind": "action"}, "MessageContent"),
        ({"kind": "x" * 2_000_000}, "more than"),
        ({"at": -1}, "at"),
        ({"at": 2**62}, "moment"),
        ({"at": 1.5}, "at"),
        ({"at": "soon"}, "at"),
        ({"epoch": "x"}, "epoch"),
        ({"address": "a:b"}, "address"),
        ({"address": "a:b: "}, "address"),
        ({"address": None}, "exactly one"),
        ({"agent_group_id": "ag_1"}, "exactly one"),
        ({"address": "x" * 5000}, "more than"),
        ({"turn": b"\x80"}, "UTF-8"),
        ({"draft_block": "x"}, "draft_block"),
        ({"draft_block": -4}, "draft_block"),
        ({"seq": 6}, "even"),
        ({"destination": b"\xff"}, "destination"),
    ],
)
def test_a_bad_row_is_told_of_and_the_others_arrive(
    spoken: SessionFolder, host: HostMailbox, change: dict[str, object], problem: str
) -> None:
    row: dict[str, object] = {"seq": 5, **GOOD, **change}
    database = raw(spoken)
    database.execute(
        f"INSERT INTO messages_out ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
    )
    database.execute(
        "INSERT INTO messages_out (seq, id, kind, content, at, epoch, address) VALUES (7, 'last', ?, ?, 1, 1, 'a:b:c')",
        (GOOD["kind"], GOOD["content"]),
    )
    database.close()
    batch = host.read_outbound()
    assert [got.id for got in batch.rows] == ["o1", "o2", "last"]
    (bad,) = batch.bad
    assert (bad.seq, bad.table) == (row["seq"], "messages_out")
    assert problem in bad.problem
    assert len(bad.problem) < 1000
    assert batch.last_seq == 7


@pytest.mark.parametrize(
    "values",
    [
        (1, "m", "done", 1, 1, 1, None, None),
        (1, b"\xff", "completed", 1, 1, 1, None, None),
        (1, "m", "failed", -1, 1, 1, None, None),
        (1, "m", "failed", 1, "x", 1, None, None),
        (1, "m", "failed", 1, 1, 1, None, "{}"),
        (1, "m", "failed", 1, 1, 1, None, '{"type":"TurnError","kind":"sudo","message":"x"}'),
        (-5, "m", "failed", 1, 1, 1, None, None),
    ],
)
def test_a_bad_acknowledgement_is_told_of(spoken: SessionFolder, host: HostMailbox, values: tuple[object, ...]) -> None:
    database = raw(spoken)
    database.execute("INSERT INTO processing_ack VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
    database.execute("INSERT INTO processing_ack VALUES (9, 'good', 'processing', 1, 1, 1, NULL, NULL)")
    database.close()
    batch = host.read_outbound(after_change=-10)
    assert [ack.message_id for ack in batch.acks] == ["good"]
    assert [(bad.table, bad.seq) for bad in batch.bad] == [("processing_ack", values[0])]
    assert [ack.message_id for ack in host.claims()] == ["good"]


def test_nonsense_in_state_and_drafts_is_nothing(spoken: SessionFolder, host: HostMailbox) -> None:
    database = raw(spoken)
    database.execute("UPDATE session_state SET value = '[1]' WHERE key = 'runner_state'")
    database.execute("INSERT INTO draft VALUES ('t', 1, 'nowhere', 'x', 1)")
    database.execute("INSERT INTO draft VALUES ('t', 2, 'a:b:c', 'x', 1)")
    database.execute("INSERT INTO draft VALUES ('t', 'x', 'a:b:c', 'x', 1)")
    assert host.read_state() == RunnerState()
    assert [draft.block for draft in host.read_drafts()] == [2]
    database.execute(f"UPDATE session_state SET value = zeroblob({9 * MIB})")
    database.execute(f"INSERT INTO draft VALUES ('t', 3, 'a:b:c', zeroblob({9 * MIB}), 1)")
    database.close()
    assert host.read_state() == RunnerState()
    assert len(host.read_drafts()) <= 1


def test_a_million_rows_cost_a_batch_only(spoken: SessionFolder, host: HostMailbox) -> None:
    forge(
        spoken,
        "INSERT INTO messages_out (seq, id, kind, content, at, epoch) "
        "WITH RECURSIVE c(n) AS (SELECT 5 UNION ALL SELECT n + 2 FROM c LIMIT 300000) "
        "SELECT n, n, 'message', '', 1, 1 FROM c",
    )
    batch = host.read_outbound()
    assert len(batch.rows) + len(batch.bad) == 200 and batch.more


def test_a_schema_of_countless_tables_runs_into_the_deadline_or_is_read(
    spoken: SessionFolder, host: HostMailbox
) -> None:
    database = raw(spoken)
    database.execute("BEGIN")
    for number in range(3000):
        database.execute(f"CREATE TABLE t{number} (a)")
    database.execute("COMMIT")
    database.close()
    begun = time.thread_time()
    with suppress(MailboxDamaged):
        host.read_outbound()
    assert time.thread_time() - begun < 10


@pytest.mark.parametrize("content", [b"x", b"garbage" * 10_000, b"SQLite format 3\0", b"\0" * 4096, b"\xff" * 100_000])
def test_garbage_is_a_damaged_mailbox(folder: SessionFolder, host: HostMailbox, content: bytes) -> None:
    folder.outbound_db.write_bytes(content)
    with pytest.raises(MailboxDamaged):
        host.read_outbound()
    problem = host.check()
    assert problem is not None and "outbound.db" in problem
    if len(content) > 1:  # to SQLite, less than a page is an empty file
        with pytest.raises(MailboxError):
            RunnerMailbox(folder, 2)


def test_random_pages_never_do_more_than_raise_a_mailbox_error(spoken: SessionFolder, host: HostMailbox) -> None:
    chance = random.Random(11)
    database = raw(spoken)
    for number in range(5, 405, 2):
        database.execute(
            "INSERT INTO messages_out (seq, id, kind, content, at, epoch, address) "
            "VALUES (?, ?, 'message', ?, 1, 1, 'a:b:c')",
            (number, f"o{number}", dumps(MessageContent(text="x" * chance.randrange(9000)))),
        )
    database.close()
    good = spoken.outbound_db.read_bytes()
    outcomes = set()
    for _ in range(300):
        content = bytearray(good)
        for _ in range(chance.choice([1, 3, 30])):
            if chance.random() < 0.5:
                page = chance.randrange(len(content) // 4096) * 4096
                content[page : page + 4096] = chance.randbytes(4096)
            else:
                content[chance.randrange(len(content))] = chance.randrange(256)
        spoken.outbound_db.write_bytes(content)
        try:
            batch = host.read_outbound()
            outcomes.add("read" if not batch.bad else "bad rows")
        except MailboxError as problem:
            outcomes.add(type(problem).__name__)
        with suppress(MailboxError):
            host.check()
    assert {"read", "MailboxDamaged"} <= outcomes


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cells=st.lists(
        st.one_of(
            st.none(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(),
            st.text(max_size=20),
            st.binary(max_size=20),
            st.sampled_from(["message", "a:b:c", '{"type":"MessageContent"}', "o", 1]),
            st.recursive(
                st.none() | st.text(max_size=5), lambda inner: st.dictionaries(st.text(max_size=5), inner)
            ).map(json.dumps),
        ),
        min_size=11,
        max_size=11,
    )
)
def test_whatever_a_row_holds_the_read_ends_with_a_row_or_a_bad_row(
    spoken: SessionFolder, host: HostMailbox, cells: list[object]
) -> None:
    database = raw(spoken)
    database.execute("DELETE FROM messages_out WHERE seq > 3")
    try:
        database.execute("INSERT INTO messages_out VALUES (5, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", cells)
    except (sqlite3.IntegrityError, UnicodeEncodeError):
        return
    finally:
        database.close()
    batch = host.read_outbound()
    assert len(batch.rows) + len(batch.bad) == 3 and batch.last_seq == 5


@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "missing", "socket"])
@pytest.mark.parametrize("name", ["outbound.db", "outbound.db-journal", "inbound.db"])
def test_something_else_in_the_place_of_a_file_is_refused_at_once(
    spoken: SessionFolder, tmp_path: Path, name: str, kind: str
) -> None:
    """A link would be followed and a FIFO would block."""
    import socket

    secret = tmp_path / "secret.db"
    RunnerMailbox(spoken, 1).close()
    secret.write_bytes(spoken.outbound_db.read_bytes())
    path = spoken.root / name
    path.unlink()
    held = None
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        held = socket.socket(socket.AF_UNIX)
        here = Path.cwd()
        os.chdir(path.parent)
        held.bind(path.name)
        os.chdir(here)
    host = HostMailbox(spoken)
    try:
        if kind == "missing" and name != "outbound.db":
            assert host.check() is None
            assert len(host.read_outbound().rows) == 2
            return
        assert name.split("-")[0] in (host.check() or "")
        if name.startswith("outbound"):
            with pytest.raises(MailboxDamaged):
                host.read_outbound()
            with pytest.raises(MailboxDamaged):
                RunnerMailbox(spoken, 2)
        else:
            with pytest.raises(MailboxDamaged):
                host.depth(NOW)
    finally:
        host.close()
        if held is not None:
            held.close()
    assert secret.read_bytes()[:16] == b"SQLite format 3\0"


def test_a_file_that_is_replaced_while_the_host_keeps_it_open_is_noticed(
    spoken: SessionFolder, host: HostMailbox, tmp_path: Path
) -> None:
    assert len(host.read_outbound().rows) == 2
    spoken.outbound_db.unlink()
    spoken.outbound_db.symlink_to(tmp_path)
    with pytest.raises(MailboxDamaged):
        host.read_outbound()
    spoken.outbound_db.unlink()
    spoken.outbound_db.touch()
    assert host.read_outbound().rows == []


def test_wal_mode_is_refused_and_no_shared_memory_is_mapped(spoken: SessionFolder, host: HostMailbox) -> None:
    """runtime.md 3.7: truncating a mapped -shm file would kill the host by SIGBUS."""
    assert len(host.read_outbound().rows) == 2
    header = bytearray(spoken.outbound_db.read_bytes())
    header[18:20] = b"\x02\x02"
    spoken.outbound_db.write_bytes(header)
    with pytest.raises(MailboxDamaged, match="rollback mode"):
        host.read_outbound()
    assert not (spoken.root / "outbound.db-shm").exists()
    assert not (spoken.root / "outbound.db-wal").exists()


def test_a_lock_that_a_runner_never_gives_back_does_not_hold_the_host_for_ever(
    spoken: SessionFolder, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.mailbox.database.BUSY_SECONDS", 0.05)
    database = raw(spoken)
    database.execute("BEGIN EXCLUSIVE")
    with pytest.raises(MailboxBlocked):
        host.read_outbound()
    database.execute("ROLLBACK")
    database.close()
    assert len(host.read_outbound().rows) == 2


def test_a_journal_that_looks_live_without_any_lock_is_not_believed(
    spoken: SessionFolder, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """runtime.md 3.6: where locks don't cross, only the stamp tells that a commit is under way."""
    monkeypatch.setattr("jackfield.mailbox.database.BUSY_SECONDS", 0.05)
    spoken.outbound_journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + bytes(504) + b"x" * 5000)
    with pytest.raises((MailboxBlocked, RecoveryNeeded)):
        host.read_outbound()
    spoken.outbound_journal.write_bytes(bytes(512) + b"x" * 5000)  # never synced: the database is untouched
    assert len(host.read_outbound().rows) == 2
    spoken.outbound_journal.write_bytes(b"")
    assert len(host.read_outbound().rows) == 2


def test_a_commit_during_the_read_is_discarded_and_read_again(
    spoken: SessionFolder, host: HostMailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """runtime.md 3.6, with a lock that does not cross: the file changes under the reader's hands."""
    reader = host._outbound
    stamp = reader._stamp
    answers: list[Callable[[], bytes | None]] = [stamp, lambda: b"other"]
    monkeypatch.setattr(reader, "_stamp", lambda: (answers.pop(0) if answers else stamp)())
    assert len(host.read_outbound().rows) == 2
    assert answers == []


def test_reading_from_several_mailboxes_at_once_is_possible(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            folder = SessionFolder(tmp_path / str(number))
            folder.create()
            runner, host = RunnerMailbox(folder, 1), HostMailbox(folder)
            for turn in range(10):
                runner.write(messages=[message(f"o{turn}")])
                assert len(host.read_outbound(after_seq=2 * turn).rows) == 1
            runner.close()
            host.close()
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_the_inbound_file_with_foreign_triggers_is_refused(spoken: SessionFolder, host: HostMailbox) -> None:
    """An unconfined runner can write it; the host would run the trigger."""
    host.depth(NOW)
    host.close()
    database = sqlite3.connect(spoken.inbound_db)
    database.execute("CREATE TRIGGER mine AFTER INSERT ON messages_in BEGIN DELETE FROM responses; END")
    database.commit()
    database.close()
    with pytest.raises(MailboxDamaged, match="trigger"):
        host.depth(NOW)


def test_the_schema_of_a_new_file_is_the_one_that_is_compared(spoken: SessionFolder) -> None:
    database = raw(spoken)
    found = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
    database.close()
    assert found == OUTBOUND


def test_a_hostile_acknowledgement_settles_no_row_of_a_later_attempt(spoken: SessionFolder, host: HostMailbox) -> None:
    from jackfield.models import ChatContent, InboundKind, InboundRow

    row = InboundRow(id=InboundId("m"), kind=InboundKind.CHAT, content=ChatContent(text="x"), at=NOW)
    host.enqueue([row])
    host.retry("m", 3, UnixMs(0))
    runner = RunnerMailbox(spoken, 1)
    runner.write(acks=[Ack(message_id=InboundId("m"), status=AckStatus.COMPLETED, attempt=2, epoch=1, at=NOW)])
    host.read_outbound()
    host.record_delivered([])
    host.withdraw(["other"])
    assert [got.id for got in runner.pending(NOW)] == ["m"]
    runner.close()
