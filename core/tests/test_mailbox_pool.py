"""Mailboxes for an event loop (architecture 3, 5 rule 6, 10)."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from jackfield.clock import UnixMs
from jackfield.errors import MailboxBlocked, MailboxError
from jackfield.ids import InboundId
from jackfield.mailbox import HostMailbox, MailboxPool, SessionFolder
from jackfield.models import ChatContent, InboundKind, InboundRow

NOW = UnixMs(1_700_000_000_000)


def row(id_: str) -> InboundRow:
    return InboundRow(id=InboundId(id_), kind=InboundKind.CHAT, content=ChatContent(text="x"), at=NOW)


def folder(tmp_path: Path, name: str) -> SessionFolder:
    made = SessionFolder(tmp_path / name)
    made.create()
    return made


@pytest.fixture
async def pool() -> AsyncIterator[MailboxPool]:
    made = MailboxPool(keep=3, workers=2)
    yield made
    await made.close()


async def test_calls_for_one_folder_run_in_order_and_never_at_once(pool: MailboxPool, tmp_path: Path) -> None:
    place = folder(tmp_path, "s")
    running, order = [0], []

    def work(number: int, mailbox: HostMailbox) -> int:
        running[0] += 1
        assert running[0] == 1
        seq = mailbox.enqueue([row(f"m{number}")])[0].seq
        order.append(number)
        running[0] -= 1
        return seq

    calls = [pool.run(place, lambda mailbox, n=n: work(n, mailbox)) for n in range(30)]  # type: ignore[misc]  # mypy infers no lambda with a default
    assert await asyncio.gather(*calls) == [2 * n + 2 for n in range(30)]
    assert order == list(range(30))


async def test_many_folders_share_few_open_mailboxes(pool: MailboxPool, tmp_path: Path) -> None:
    places = [folder(tmp_path, f"s{number}") for number in range(20)]
    for turn in range(3):
        await asyncio.gather(*(pool.run(place, lambda box, t=turn: box.enqueue([row(f"m{t}")])) for place in places))  # type: ignore[misc]  # mypy infers no lambda with a default
    for place in places:
        assert await pool.run(place, lambda mailbox: mailbox.depth(NOW)) == 3
    assert pool.open <= 3 + 2  # each worker may be closing one
    if Path("/proc/self/fd").is_dir():
        held = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        assert len({path for path in held if path.startswith(str(tmp_path))}) <= 5 * 3


async def test_an_error_goes_to_its_caller_only(pool: MailboxPool, tmp_path: Path) -> None:
    place = folder(tmp_path, "s")

    def broken(mailbox: HostMailbox) -> None:
        raise KeyError("mine")

    results = await asyncio.gather(
        pool.run(place, lambda mailbox: mailbox.enqueue([row("a")])),
        pool.run(place, broken),
        pool.run(place, lambda mailbox: mailbox.enqueue([row("b")])),
        return_exceptions=True,
    )
    assert isinstance(results[1], KeyError)
    assert await pool.run(place, lambda mailbox: mailbox.depth(NOW)) == 2


async def test_a_call_that_began_ends_though_its_caller_gave_up(pool: MailboxPool, tmp_path: Path) -> None:
    place = folder(tmp_path, "s")
    begun, go = threading.Event(), threading.Event()

    def slow(mailbox: HostMailbox) -> None:
        begun.set()
        assert go.wait(30)
        mailbox.enqueue([row("a")])

    task = asyncio.create_task(pool.run(place, slow))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    waiting = asyncio.create_task(pool.run(place, lambda mailbox: mailbox.enqueue([row("b")])[0].seq))
    go.set()
    assert await waiting == 4


async def test_blocked_folders_do_not_hold_up_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Architecture 5, rule 6."""
    pool = MailboxPool(workers=2)
    monkeypatch.setattr("jackfield.mailbox.database.BUSY_SECONDS", 0.01)
    blocked = [folder(tmp_path, f"blocked{number}") for number in range(4)]
    good = folder(tmp_path, "good")
    holders = []
    for place in blocked:
        await pool.run(place, lambda mailbox: mailbox.depth(NOW))
        holder = sqlite3.connect(place.inbound_db, isolation_level=None)
        holder.execute("BEGIN EXCLUSIVE")
        holders.append(holder)
        await pool.forget(place)
        with pytest.raises(MailboxBlocked):
            await pool.run(place, lambda mailbox: mailbox.enqueue([row("a")]))
    stuck = threading.Event()
    waiting = [
        asyncio.create_task(pool.run(place, lambda mailbox: stuck.wait(30))) for place in blocked
    ]  # as a 2 s wait would
    assert (await asyncio.wait_for(pool.run(good, lambda mailbox: mailbox.enqueue([row("a")])), 30))[0].inserted
    assert not any(task.done() for task in waiting)
    stuck.set()
    await asyncio.gather(*waiting)
    for holder in holders:
        holder.execute("ROLLBACK")
        holder.close()
    for place in blocked:
        assert (await pool.run(place, lambda mailbox: mailbox.enqueue([row("a")])))[0].inserted
    await pool.close()


async def test_a_closed_pool_finishes_its_work_and_refuses_more(tmp_path: Path) -> None:
    pool = MailboxPool()
    place = folder(tmp_path, "s")
    calls = [
        asyncio.create_task(pool.run(place, lambda mailbox, n=n: mailbox.enqueue([row(f"m{n}")])))  # type: ignore[misc]  # mypy infers no lambda with a default
        for n in range(10)
    ]
    await asyncio.sleep(0)
    await pool.close()
    assert all(task.done() for task in calls)
    with pytest.raises(MailboxError, match="stopping"):
        await pool.run(place, lambda mailbox: None)
    host = HostMailbox(place)
    assert host.depth(NOW) == 10
    host.close()


async def test_forgetting_a_folder_closes_its_files_so_that_it_can_be_moved(pool: MailboxPool, tmp_path: Path) -> None:
    place = folder(tmp_path, "s")
    await pool.run(place, lambda mailbox: mailbox.enqueue([row("a")]))
    await pool.run(place, lambda mailbox: mailbox.read_outbound())
    await pool.forget(place)
    await pool.forget(place)
    assert pool.open == 0
    aside = await asyncio.to_thread(place.set_aside, "test", floor=2)
    assert aside.is_dir()
    assert (await pool.run(place, lambda mailbox: mailbox.enqueue([row("a")])))[0].seq == 4
