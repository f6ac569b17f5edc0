"""Taking over what runners wrote, also when it is far too much."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.clock import UnixMs
from jackfield.host import collect
from jackfield.host.agents.entering import Entered
from jackfield.host.collect import Collector
from jackfield.ids import InboundId, RequestId, new_id
from jackfield.mailbox import RunnerMailbox
from jackfield.models import (
    Ack,
    AckStatus,
    ActionRequest,
    ActivityKind,
    ActivityRow,
    Address,
    AgentGroup,
    ChatContent,
    InboundKind,
    InboundRow,
    InboundState,
    OutboundKind,
    OutboundRow,
    Session,
)
from jackfield.models.server_states import server_target
from jackfield.redaction import REDACTOR
from jackfield.store import activity, deliveries, inbound, sessions


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


def collector(bench: Bench, on_action: Any = None) -> Collector:
    async def nothing(*args: Any) -> None: ...

    async def no_drafts(session: Session) -> bool:
        return False

    async def no_action(session: Session, group: AgentGroup, row: OutboundRow) -> None: ...

    def silent(*args: Any) -> None: ...

    def nobody(*args: Any) -> Entered:
        raise AssertionError("nothing here is for another agent")

    return Collector(
        bench.hub, bench.delivery, on_action=on_action or no_action, on_acks=silent, on_tell=nothing,
        on_damaged=nothing, on_parked=silent, on_model=silent, on_drafts=no_drafts, nudge=silent, enter=nobody,
        on_refused=nothing,
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


async def test_requests_without_end_are_worked_on_a_few_at_a_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile runner took the host's time from all others, and held up its stop for a minute."""
    monkeypatch.setattr(collect, "BATCH", 4)
    monkeypatch.setattr(collect, "IN_HAND", 4)
    session = await bench.session(await bench.chat("c-1"))
    epoch = await bench.hub.store.write(sessions.begin_epoch, session.id, bench.clock.now())
    mailbox = RunnerMailbox(bench.hub.folder_of(session), epoch)
    requests = [ActionRequest(request_id=RequestId(new_id("req")), name="deploy", arguments="{}") for _ in range(20)]
    rows = [bench.row(session, None, request, kind=OutboundKind.ACTION, epoch=epoch) for request in requests]
    mailbox.write(messages=rows)
    mailbox.close()

    begun: list[int] = []
    gate = asyncio.Event()

    async def slow(session: Session, group: AgentGroup, row: OutboundRow) -> None:
        begun.append(row.seq)
        await gate.wait()
        await collecting.action_done(session.id, row.seq)

    collecting = collector(bench, slow)
    assert not await collecting.collect(session.id), "a stop doesn't wait for them"
    assert len(begun) <= 4
    collecting.hurry = False
    task = asyncio.create_task(collecting.collect(session.id))
    await bench.until(lambda: len(begun) == 8)
    assert not task.done()
    gate.set()
    assert await task
    await bench.until(lambda: len(begun) == 20)


@pytest.mark.parametrize("collected_first", [True, False], ids=["acknowledged-first", "entered-first"])
@pytest.mark.parametrize("host", ["the same", "the next"])
async def test_what_a_runner_ended_before_it_was_in_the_ledger_has_its_end_there(
    bench: Bench, collected_first: bool, host: str
) -> None:
    """A host was killed or had no room between the inbox and the ledger, or the runner was faster (architecture 5)."""
    session = await bench.session(await bench.chat("c-1"))
    epoch = await bench.hub.store.write(sessions.begin_epoch, session.id, bench.clock.now())
    now = bench.clock.now()
    row = InboundRow(id=InboundId(new_id("in")), kind=InboundKind.CHAT, content=ChatContent(text="hi"), at=now)
    folder = bench.hub.folder_of(session)
    await bench.hub.mailboxes.run(folder, lambda box: box.enqueue([row]))
    mailbox = RunnerMailbox(folder, epoch)
    mailbox.write(acks=[Ack(message_id=row.id, status=AckStatus.COMPLETED, attempt=1, epoch=epoch, at=now)])
    mailbox.close()

    collecting = collector(bench)
    if collected_first:
        await collecting.collect(session.id)
    if host == "the next":
        collecting = collector(bench)
    await bench.hub.store.write(
        inbound.record, id=row.id, event_id=None, wiring_id=None, session_id=session.id,
        state=InboundState.QUEUED, preview="hi", now=now,
    )  # fmt: skip
    await collecting.entered(session.id, [row.id], [row.id] if host == "the next" else [])
    await collecting.collect(session.id)

    entry = await bench.hub.store.read(inbound.entry, row.id)
    assert entry is not None and (entry.state, entry.attempts) == (InboundState.COMPLETED, 1)


async def test_a_failing_mcp_server_is_warned_of_and_its_last_state_is_known(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    session = await bench.session(await bench.chat("c-1"))
    epoch = await bench.hub.store.write(sessions.begin_epoch, session.id, bench.clock.now())
    mailbox = RunnerMailbox(bench.hub.folder_of(session), epoch)
    taker, target = collector(bench), server_target("shop")

    async def told(summary: str) -> list[str]:
        caplog.clear()
        row = ActivityRow(kind=ActivityKind.MCP_CALL, target=target, summary=summary, at=bench.clock.now())
        mailbox.write(activity=[row])
        await taker.collect(session.id)
        return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]

    assert await told("works: it offers 3 tools") == []
    assert await told("failed: it ended") == [f"session {session.id}: MCP server shop failed: it ended"]
    assert await told("failed: it ended") == [], "each try of many is no news"
    (given_up,) = await told("off: it ended")
    assert "failed too often and was given up: it ended" in given_up
    last = await bench.hub.store.read(activity.newest_of, session.agent_group_id, target)
    assert last is not None and last.summary == "off: it ended"
    assert await bench.hub.store.read(activity.newest_of, session.agent_group_id, server_target("other")) is None
    mailbox.close()


async def test_what_an_agent_did_is_kept_once_without_secrets_and_not_without_end(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4: activity is drained into the store."""
    monkeypatch.setattr(activity, "KEPT", 3)
    REDACTOR.register("canary-of-activity")
    session = await bench.session(await bench.chat("c-1"))
    epoch = await bench.hub.store.write(sessions.begin_epoch, session.id, bench.clock.now())
    mailbox = RunnerMailbox(bench.hub.folder_of(session), epoch)
    kind = ActivityKind.CMD_EXEC

    def did(*summaries: str) -> None:
        mailbox.write(
            activity=[ActivityRow(kind=kind, target="bash", summary=one, at=bench.clock.now()) for one in summaries]
        )

    did("curl -H canary-of-activity", "ls")
    taker = collector(bench)
    await taker.collect(session.id)
    await collector(bench).collect(session.id)
    assert [one.summary for one in await bench.hub.store.read(activity.entries)] == ["ls", "curl -H [secret]"]
    did("one", "two", "three")
    mailbox.close()
    await taker.collect(session.id)
    found = await bench.hub.store.read(activity.entries, session_id=session.id, kind=kind)
    assert [one.summary for one in found] == ["three", "two", "one"]
    assert await bench.hub.store.read(activity.entries, since=UnixMs(bench.clock.now() + 1)) == []
    assert await bench.hub.store.write(activity.forget_activity, UnixMs(bench.clock.now() + 1)) == 3
