"""Disks that are full, files that are locked, torn, forged or swapped: the rest goes on (cases, area 28)."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange


@pytest.fixture
def exchange(exchange_hall: Exchange) -> Exchange:
    return exchange_hall


def resting(exchange: Exchange, chat: str) -> Path:
    """The folder of a chat's session that has answered once and has no runner."""
    exchange.join(chat)
    exchange.say(chat, "before")
    exchange.wait_sent(chat, 1)
    session = exchange.session_of(chat)
    exchange.op("session.stop", id=session["id"])
    exchange.wait_for(lambda: exchange.session_of(chat)["runner"] == "none", "the runner's end")
    return Path(session["folder"])


@pytest.mark.parametrize("name", ["inbound.db", "outbound.db"])
def test_a_torn_mailbox_is_set_aside_and_the_conversation_goes_on(exchange: Exchange, name: str) -> None:
    chat = f"torn-{name.split('.')[0]}"
    folder = resting(exchange, chat)
    data = bytearray((folder / name).read_bytes())
    data[:100] = b"this is no database " * 5
    (folder / name).write_bytes(bytes(data))
    exchange.say(chat, "mock: say after the damage")
    exchange.wait_text(chat, "after the damage")
    exchange.wait_for(lambda: exchange.state_of(chat)[-1] == ("completed", None), "the message's end")
    aside = [path for path in folder.parent.iterdir() if path.name != folder.name and folder.name in path.name]
    assert aside or list(folder.glob("*damaged*")), f"the damaged files are kept: {sorted(folder.parent.iterdir())}"
    exchange.say(chat, "mock: say and on")
    exchange.wait_text(chat, "and on")


def test_rows_that_are_forged_are_refused_one_by_one(exchange: Exchange) -> None:
    """The host reads a runner's file as the work of a hostile writer."""
    folder = resting(exchange, "forged-rows")
    exchange.join("victim")
    db = sqlite3.connect(folder / "outbound.db")
    columns = [row[1] for row in db.execute("PRAGMA table_info(messages_out)")]
    good = dict(zip(columns, db.execute("SELECT * FROM messages_out LIMIT 1").fetchone(), strict=True))
    db.execute("PRAGMA ignore_check_constraints = ON")

    def forge(seq: int, **changed: object) -> None:
        row = {**good, "seq": seq, "id": f"out_forged{seq}", **changed}
        marks = ", ".join("?" for _ in row)
        db.execute(f"INSERT INTO messages_out ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    forge(1001, content="no json at all")
    forge(1003, content='{"type":"MessageContent","text":"' + "x" * 2_000_000 + '"}')
    forge(1005, content='{"type":"MessageContent","text":"to a stranger"}', address="postbox:box:victim-of-another")
    forge(1007, content='{"type":"MessageContent","text":"forged but fine"}')
    db.commit()
    db.close()
    exchange.say("forged-rows", "mock: say still here")
    exchange.wait_text("forged-rows", "still here")
    assert exchange.sent("victim-of-another") == []
    assert not any("to a stranger" in text for item in exchange.sent() for text in [str(item.get("text"))])


def test_a_file_in_the_outbox_that_is_a_link_is_never_followed(exchange: Exchange) -> None:
    """Appendix D.25."""
    folder = resting(exchange, "outbox-link")
    db = sqlite3.connect(folder / "outbound.db")
    columns = [row[1] for row in db.execute("PRAGMA table_info(messages_out)")]
    good = dict(zip(columns, db.execute("SELECT * FROM messages_out LIMIT 1").fetchone(), strict=True))
    for seq, row_id in ((2001, "out_linked"), (2003, "../../../escape")):
        content = '{"type":"MessageContent","text":"see file","files":["master.key"]}'
        row = {**good, "seq": seq, "id": row_id, "content": content}
        db.execute(
            f"INSERT INTO messages_out ({', '.join(row)}) VALUES ({', '.join('?' for _ in row)})", list(row.values())
        )
    db.commit()
    db.close()
    (folder / "outbox" / "out_linked").mkdir()
    (folder / "outbox" / "out_linked" / "master.key").symlink_to(exchange.home.state_db)
    exchange.say("outbox-link", "mock: say done")
    exchange.wait_text("outbox-link", "done")
    assert all(item["files"] == [] for item in exchange.sent("outbox-link") if "files" in item)
    assert exchange.home.state_db.exists()


def test_an_inbox_that_somebody_locks_is_written_once_it_is_free(exchange: Exchange) -> None:
    folder = resting(exchange, "locked")
    db = sqlite3.connect(folder / "inbound.db", isolation_level=None, check_same_thread=False)
    db.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(3.0, db.execute, ["ROLLBACK"])
    timer.start()
    exchange.say("locked", "mock: say through at last")
    exchange.join("not-locked")
    exchange.say("not-locked", "mock: say at once")
    exchange.wait_text("not-locked", "at once")
    exchange.wait_text("locked", "through at last")
    timer.join()
    db.close()


@pytest.mark.slow
def test_a_runner_killed_in_mid_transaction_leaves_what_it_committed(make_exchange: MakeExchange) -> None:
    """C209: its journal is rolled back by a child, never by the host."""
    exchange = make_exchange()
    exchange.start(JACKFIELD_KILL_RUNNER_AT="mailbox.runner.mid_transaction:2")
    exchange.join("c1")
    exchange.say("c1", "mock: say one")
    exchange.say("c1", "mock: say two")
    exchange.wait_text("c1", "one")
    exchange.wait_text("c1", "two")
    exchange.wait_for(lambda: exchange.state_of("c1") == [("completed", None)] * 2, "both ends")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", folder]).returncode:
        pytest.skip("a small file system can't be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_loses_nothing_and_is_left_behind_when_space_returns(
    small_disk: Path, make_exchange: MakeExchange
) -> None:
    """C213."""
    exchange = make_exchange(home_at=small_disk / "home")
    exchange.join("c1")
    exchange.start()
    exchange.say("c1", "mock: say with space")
    exchange.wait_text("c1", "with space")
    filler, log = small_disk / "filler", exchange.root / "host.out"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 512):
            pass
    for number in range(40):
        exchange.say("c1", f"mock: say without space {number} " + "y" * 3000)
    exchange.wait_for(lambda: "disk is full" in log.read_text(errors="replace"), "the report of the full disk")
    assert not exchange.process_ended()
    filler.unlink()
    exchange.wait_for(lambda: "without space 39" in " ".join(exchange.texts("c1")), "the last answer", bound=90)
    said = " ".join(exchange.texts("c1"))
    assert [number for number in range(40) if said.count(f"without space {number} ") != 1] == []
