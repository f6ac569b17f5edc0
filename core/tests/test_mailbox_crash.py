"""Kill -9 in mid-transaction, two processes at once, full disks (runtime.md 3.5; C209, C211)."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield.clock import UnixMs
from jackfield.errors import MailboxDamaged, MailboxError, RecoveryNeeded
from jackfield.ids import InboundId
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder
from jackfield.models import ChatContent, InboundKind, InboundRow, MessageContent
from jackfield.points import VARIABLE

NOW = UnixMs(1_700_000_000_000)

WRITER = """
import sys
from pathlib import Path
from jackfield.clock import UnixMs
from jackfield.ids import InboundId, OutboundId, TurnId
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder
from jackfield.models import *

folder = SessionFolder(Path(sys.argv[1]))
side, start, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chat = Address("terminal", "terminal", "x")
if side == "host":
    host = HostMailbox(folder)
    for number in range(start, start + count):
        rows = [
            InboundRow(id=InboundId(f"in_{number}_{part}"), kind=InboundKind.CHAT, at=UnixMs(1), origin=chat,
                       content=ChatContent(text="x" * 3000))
            for part in "ab"
        ]
        host.enqueue(rows)
        print(number, flush=True)
else:
    runner = RunnerMailbox(folder, start)
    for number in range(start, start + count):
        rows = [
            OutboundRow(id=OutboundId(f"out_{number}_{part}"), kind=OutboundKind.MESSAGE, at=UnixMs(1), epoch=start,
                        turn=TurnId("trn_1"), address=chat, content=MessageContent(text="x" * 3000))
            for part in "ab"
        ]
        acks = [Ack(message_id=InboundId(f"in_{number}"), status=AckStatus.COMPLETED, attempt=1, epoch=start,
                    at=UnixMs(1))]
        runner.write(messages=rows, acks=acks)
        print(number, flush=True)
print("done", flush=True)
"""

HOT = """
# The recipe of the case: a cache that spills makes the journal really hot.
import os, signal, sys
from pathlib import Path
from jackfield.clock import UnixMs
from jackfield.ids import OutboundId
from jackfield.mailbox import RunnerMailbox, SessionFolder
from jackfield.models import *

runner = RunnerMailbox(SessionFolder(Path(sys.argv[1])), 1)
row = OutboundRow(id=OutboundId("row1"), kind=OutboundKind.MESSAGE, at=UnixMs(1), epoch=1,
                  address=Address("terminal", "terminal", "x"), content=MessageContent(text="old" * 170_000))
runner.write(messages=[row])
database = runner._connection()
database.execute("PRAGMA cache_size=10")
database.execute("BEGIN IMMEDIATE")
database.execute(
    "INSERT INTO messages_out (seq, id, kind, content, at, epoch) VALUES (3, 'row2', 'message', ?, 1, 1)",
    ("y" * 3_000_000,),
)
database.execute("UPDATE messages_out SET content = ? WHERE seq = 1", ("new" * 170_000,))
os.kill(os.getpid(), signal.SIGKILL)
"""


_children: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    yield
    while _children:
        process = _children.pop()
        process.kill()
        process.communicate(timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> SessionFolder:
    made = SessionFolder(tmp_path / "ag" / "ses")
    made.create()
    return made


def child(script: str, *arguments: object, kill_at: str | None = None) -> subprocess.Popen[str]:
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    if kill_at is not None:
        environment[VARIABLE] = kill_at
    process = subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    _children.append(process)
    return process


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def recover(folder: SessionFolder) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jackfield.mailbox.recovery", str(folder.root)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def leave_hot_journal(folder: SessionFolder) -> None:
    code, _, err = finished(child(HOT, folder.root))
    assert code == -signal.SIGKILL, err
    assert folder.outbound_journal.read_bytes()[:1] != b"\0"


def test_after_a_kill_in_mid_transaction_a_throw_away_child_brings_the_committed_rows_back(
    folder: SessionFolder,
) -> None:
    """C209."""
    leave_hot_journal(folder)
    host = HostMailbox(folder)
    before = folder.outbound_db.read_bytes()
    for _ in range(3):
        with pytest.raises(RecoveryNeeded):
            host.read_outbound()
    with pytest.raises(RecoveryNeeded):
        host.check()
    assert folder.outbound_db.read_bytes() == before  # the host never rolls back itself
    done = recover(folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    batch = host.read_outbound()
    (row,) = batch.rows
    assert row.id == "row1" and isinstance(row.content, MessageContent)
    assert row.content.text == "old" * 170_000
    assert batch.bad == [] and host.check() is None
    assert folder.outbound_journal.read_bytes()[:28] in (b"", bytes(28))  # nothing to roll back any more
    host.close()


def test_the_next_runner_brings_the_committed_rows_back_by_opening(folder: SessionFolder) -> None:
    """C209."""
    leave_hot_journal(folder)
    RunnerMailbox(folder, 2).close()
    host = HostMailbox(folder)
    assert [row.id for row in host.read_outbound().rows] == ["row1"]
    host.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("by", ["recovery", "runner"])
def test_a_journal_is_rolled_back_where_only_the_files_are_writable(
    folder: SessionFolder, tmp_path: Path, by: str
) -> None:
    """C209.  In a sandbox the session folder is read-only: SQLite can't unlink the journal there."""
    leave_hot_journal(folder)
    for path in (folder.outbound_db, folder.outbound_journal):
        os.chown(path, 65534, 65534)
    for path in (tmp_path, *tmp_path.parents):
        if path == Path("/tmp"):
            break
        path.chmod(0o755)
    folder.root.chmod(0o755)
    folder.root.parent.chmod(0o755)
    folder.inbound_db.chmod(0o644)
    script = """
import os, sys
from pathlib import Path
from jackfield.mailbox import RunnerMailbox, SessionFolder
from jackfield.mailbox.recovery import recover
os.setgid(65534)
os.setuid(65534)
folder = SessionFolder(Path(sys.argv[1]))
if sys.argv[2] == "recovery":
    recover(folder)
else:
    runner = RunnerMailbox(folder, 2)
    runner.write(keys={"a": "b"})
    runner.close()
"""
    code, _, err = finished(child(script, folder.root, by))
    assert code == 0, err
    host = HostMailbox(folder)
    assert [row.id for row in host.read_outbound().rows] == ["row1"]
    host.close()


def test_a_hot_journal_of_the_hosts_keeps_the_runner_waiting_until_the_host_is_back(folder: SessionFolder) -> None:
    host = HostMailbox(folder)
    host.enqueue([big_row("m1")])
    host.close()
    script = HOT.replace("RunnerMailbox(SessionFolder(Path(sys.argv[1])), 1)", "None")
    script = script[: script.index("row = ")] + (
        "from jackfield.mailbox import HostMailbox\n"
        "database = HostMailbox(SessionFolder(Path(sys.argv[1])))._open()\n"
        'database.execute("PRAGMA cache_size=10")\n'
        'database.execute("BEGIN IMMEDIATE")\n'
        "database.execute(\"UPDATE messages_in SET content = ?\", ('y' * 900_000,))\n"
        "database.execute(\"INSERT INTO responses VALUES ('r', 'ok', ?, 1)\", ('z' * 900_000,))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    code, _, err = finished(child(script, folder.root))
    assert code == -signal.SIGKILL, err
    with pytest.raises(RecoveryNeeded):
        RunnerMailbox(folder, 1)
    assert not host.enqueue([big_row("m1")])[0].inserted
    runner = RunnerMailbox(folder, 1)
    (row,) = runner.pending(NOW)
    assert row.content == ChatContent(text="m1" * 100_000)
    runner.close()
    host.close()


def big_row(id_: str) -> InboundRow:
    return InboundRow(
        id=InboundId(id_), kind=InboundKind.CHAT, content=ChatContent(text=id_ * 100_000), at=NOW, due_at=UnixMs(0)
    )


@pytest.mark.parametrize("side", ["host", "runner"])
@pytest.mark.parametrize("visit", [1, 2, 5])
def test_a_kill_point_in_a_transaction_leaves_nothing_of_it(folder: SessionFolder, side: str, visit: int) -> None:
    process = child(WRITER, folder.root, side, 1, 10, kill_at=f"mailbox.{side}.mid_transaction:{visit}")
    code, out, err = finished(process)
    assert code == -signal.SIGKILL, err
    # The first visit is in the transaction that makes the tables.
    assert out.split() == [str(number) for number in range(1, visit - 1)]
    assert_whole(folder, side, acknowledged=visit - 2)


def assert_whole(folder: SessionFolder, side: str, acknowledged: int) -> int:
    """Every acknowledged pair is there, in order, and no half of a pair; how many pairs."""
    host = HostMailbox(folder)
    if side == "host":
        host.enqueue([])
        host.depth(NOW)  # opens, and so rolls back
        assert host.check() is None
        runner = RunnerMailbox(folder, 10**9)
        found = [row.id.split("_")[1:] for row in runner.pending(NOW, limit=10**6)]
        runner.close()
    else:
        try:
            host.read_outbound()
        except RecoveryNeeded:
            assert recover(folder).returncode == 0
        batch = host.read_outbound(limit=10**6)
        assert batch.bad == [] and not batch.more
        assert host.check() is None
        found = [row.id.split("_")[1:] for row in batch.rows]
        assert [ack.message_id for ack in batch.acks] == [f"in_{number}" for number, part in found if part == "b"]
        assert [row.seq for row in batch.rows] == sorted(row.seq for row in batch.rows)
    host.close()
    pairs = len(found) // 2
    assert found == [[str(number), part] for number in range(1, pairs + 1) for part in "ab"]
    assert pairs >= acknowledged
    return pairs


@pytest.mark.parametrize("side", ["host", "runner"])
def test_killed_writers_lose_no_acknowledged_row_and_leave_no_half_one(folder: SessionFolder, side: str) -> None:
    """runtime.md 3.5."""
    chance = random.Random(7)
    there = 0
    for _ in range(8):
        process = child(WRITER, folder.root, side, there + 1, 10_000)
        assert process.stdout is not None
        acknowledged = there
        for _ in range(chance.randrange(1, 30)):
            acknowledged = int(process.stdout.readline())
        spin = time.perf_counter() + chance.random() * 0.003
        while time.perf_counter() < spin:
            pass
        process.kill()
        _, out, _ = finished(process)
        rest = out.split()
        there = assert_whole(folder, side, int(rest[-1]) if rest else acknowledged)


def test_a_reader_sees_every_commit_and_never_half_of_one_while_the_other_side_writes(folder: SessionFolder) -> None:
    """runtime.md 3.2."""
    process = child(WRITER, folder.root, "runner", 1, 150)
    host = HostMailbox(folder)
    seen: list[str] = []
    seq = change = 0
    reads = 0
    while len(seen) < 300:
        assert reads < 1_000_000
        batch = host.read_outbound(after_seq=seq, after_change=change, limit=1000)
        reads += 1
        assert batch.bad == [] and not batch.more
        assert len(batch.rows) == 2 * len(batch.acks)
        seen += [row.id for row in batch.rows]
        seq, change = batch.last_seq, max(change, batch.last_change)
        if process.poll() is not None and not batch.rows and process.returncode != 0:
            break
    code, _, err = finished(process)
    assert code == 0, err
    assert seen == [f"out_{number}_{part}" for number in range(1, 151) for part in "ab"]
    host.close()


def test_two_processes_count_without_a_lock_error_or_a_lost_update(tmp_path: Path) -> None:
    """C211, with the mailbox's own connections and transactions: 2 processes x 8 threads."""
    folder = SessionFolder(tmp_path / "s")
    folder.create()
    RunnerMailbox(folder, 1).close()
    script = """
import sys, threading
from pathlib import Path
from jackfield.mailbox import SessionFolder
from jackfield.mailbox.database import open_writer, transaction
folder = SessionFolder(Path(sys.argv[1]))
problems = []
def work():
    database = None
    try:
        database = open_writer(folder.outbound_db)
        for _ in range(12):
            with transaction(database, "mailbox.runner.mid_transaction", "count"):
                found = database.execute("SELECT value FROM session_state WHERE key = 'n'").fetchone()
                value = int(found[0]) + 1 if found else 1
                database.execute("INSERT OR REPLACE INTO session_state VALUES ('n', ?, 0)", (str(value),))
    except Exception as problem:
        problems.append(problem)
        raise
    finally:
        if database is not None:
            database.close()
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
sys.exit(len(problems))
"""
    processes = [child(script.replace("import sys", PATIENT + "import sys", 1), folder.root) for _ in range(2)]
    for process in processes:
        code, _, err = finished(process)
        assert code == 0, err
    runner = RunnerMailbox(folder, 1)
    assert runner.key("n") == str(2 * 8 * 12)
    runner.close()


# Sixteen writers at one file starve each other for longer than the mailbox's 2 s, which is meant for one on each side.
PATIENT = "import jackfield.mailbox.database as d; d.BUSY_SECONDS = 60.0\n"


@pytest.mark.parametrize("side", ["host", "runner"])
def test_a_full_disk_is_a_typed_error_and_the_mailbox_goes_on_when_there_is_room(
    folder: SessionFolder, side: str
) -> None:
    script = (
        WRITER.replace("folder = SessionFolder", PROLOGUE + "folder = SessionFolder", 1)
        + "raise SystemExit('it did not get full')\n"
    )
    code, out, err = finished(child(script, folder.root, side, 1, 1000))
    assert code == 1
    assert "jackfield.errors.MailboxFull" in err.splitlines()[-1], err
    acknowledged = int(out.split()[-1])
    assert acknowledged > 3
    there = assert_whole(folder, side, acknowledged)
    code, out, err = finished(child(WRITER, folder.root, side, there + 1, 2))
    assert code == 0, err
    assert assert_whole(folder, side, there + 2) == there + 2


PROLOGUE = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"


def test_the_same_connection_goes_on_after_a_full_disk(folder: SessionFolder) -> None:
    script = """
import resource, sys
from pathlib import Path
from jackfield.clock import UnixMs
from jackfield.errors import MailboxFull
from jackfield.ids import InboundId
from jackfield.mailbox import HostMailbox, SessionFolder
from jackfield.models import *
host = HostMailbox(SessionFolder(Path(sys.argv[1])))
def row(number):
    content = ChatContent(text="x" * 9000)
    return InboundRow(id=InboundId(f"m{number}"), kind=InboundKind.CHAT, at=UnixMs(1), content=content)
host.enqueue([row(0)])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
number = 0
try:
    while True:
        number += 1
        host.enqueue([row(number)])
except MailboxFull:
    pass
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(number, host.enqueue([row(number)])[0].seq, host.check())
"""
    code, out, err = finished(child(script, folder.root))
    assert code == 0, err
    number, seq, problem = out.split()
    assert int(seq) == 2 * int(number) + 2 and problem == "None"


def test_recovery_says_what_is_wrong_and_fails(folder: SessionFolder) -> None:
    folder.outbound_db.write_bytes(b"garbage" * 1000)
    done = recover(folder)
    assert done.returncode == 1 and "outbound.db" in done.stderr
    bare = subprocess.run([sys.executable, "-m", "jackfield.mailbox.recovery"], capture_output=True, timeout=60)
    assert bare.returncode == 2


def test_a_forged_journal_that_names_a_super_journal_deletes_nothing(folder: SessionFolder, tmp_path: Path) -> None:
    """runtime.md 3.7: opened for writing, SQLite would delete the file that the journal names."""
    leave_hot_journal(folder)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    forge_super_journal(folder.outbound_journal, victim)
    host = HostMailbox(folder)
    with pytest.raises(MailboxError):
        host.read_outbound()
    host.close()
    assert victim.exists()
    assert recover(folder).returncode == 1
    assert victim.exists()
    with pytest.raises(MailboxDamaged, match="super-journal"):
        RunnerMailbox(folder, 2)
    assert victim.read_text() == "precious"


def test_the_forgery_of_this_test_is_real(folder: SessionFolder, tmp_path: Path) -> None:
    """Without our look at the journal the victim is gone; otherwise the test above would prove nothing."""
    leave_hot_journal(folder)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    forge_super_journal(folder.outbound_journal, victim)
    database = sqlite3.connect(folder.outbound_db)
    database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    database.close()
    assert not victim.exists()


def forge_super_journal(journal: Path, victim: Path) -> None:
    """Append the record that names a super-journal: page number, name, length, checksum, magic."""
    name = str(victim).encode()
    content = journal.read_bytes()
    page_size = int.from_bytes(content[24:28], "big")
    lock_page = (1 << 30) // page_size + 1
    record = lock_page.to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    record += (sum(name) & 0xFFFFFFFF).to_bytes(4, "big") + bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(content + record)
