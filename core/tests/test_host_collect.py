"""Taking over what runners wrote, also when it is far too much."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.host import collect
from jackfield.host.collect import Collector
from jackfield.mailbox import RunnerMailbox
from jackfield.models import Address, AgentGroup, OutboundRow, Session
from jackfield.store import deliveries, sessions


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


def collector(bench: Bench) -> Collector:
    async def nothing(*args: Any) -> None: ...

    async def no_drafts(session: Session) -> bool:
        return False

    async def no_action(session: Session, group: AgentGroup, row: OutboundRow) -> None: ...

    def silent(*args: Any) -> None: ...

    return Collector(
        bench.hub, bench.delivery, on_action=no_action, on_acks=silent, on_tell=nothing, on_damaged=nothing,
        on_parked=silent, on_drafts=no_drafts, nudge=silent,
    )  # fmt: skip


async def _wrote(bench: Bench, session: Session, address: Address, count: int) -> Session:
    """A session whose runner of epoch 1 has written many messages."""
    epoch = await bench.hub.store.write(sessions.begin_epoch, session.id, bench.clock.now())
    folder = bench.hub.folder_of(session)
    mailbox = RunnerMailbox(folder, epoch)
    mailbox.write(messages=[bench.row(session, address, f"message {number}", epoch=epoch) for number in range(count)])
    mailbox.close()
    return replace(session, epoch=epoch)


async def _taken(bench: Bench, session: Session) -> int:
    return len(await bench.hub.store.read(deliveries.deliveries, session_id=session.id, limit=500))


async def test_a_start_and_a_stop_wait_only_for_a_bounded_part_of_what_a_session_wrote(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One agent that writes without end must keep nobody from stopping the host, or the next one from starting."""
    monkeypatch.setattr(collect, "BATCH", 4)
    here = await bench.chat("c-1")
    session = await _wrote(bench, await bench.session(here), here, 50)

    collecting = collector(bench)
    assert collecting.hurry, "a host begins with a start"
    assert not await collecting.collect(session.id)
    assert await _taken(bench, session) == 4 * collect.HURRIED

    collecting.hurry = False
    assert await collecting.collect(session.id)
    assert await _taken(bench, session) == 50

    assert await collector(bench).collect(session.id), "nothing is taken twice by the next host"
    assert await _taken(bench, session) == 50
