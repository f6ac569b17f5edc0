"""The engine: one decision, one deed, bound to what was shown."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from approval_kit import FIELDS, Desk, open_desk
from jackfield.api import ApprovalChoice, ApprovalField, ApprovalState
from jackfield.errors import Conflict, MalformedData, NotAllowed, NotFound, StoreError, TooLarge, UnsafePath
from jackfield.host.approvals import Decision, HostKind
from jackfield.host.approvals.digest import canonical
from jackfield.host.approvals.requests import MAX_FILES_SIZE
from jackfield.host.retention import Retention
from jackfield.host.spool import Spool
from jackfield.ids import ApprovalId
from jackfield.store import approvals, groups
from jackfield.store.approvals import DeedOutcome, Via

BY = "fake:ann"


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path / "home") as made:
        yield made


async def yes(desk: Desk, id: ApprovalId, by: str = BY) -> bool:
    decided: tuple[Any, bool] = await desk.engine.decide(id, "approve", by, Via.CARD)
    return decided[1]


async def begun(desk: Desk, id: ApprovalId) -> None:
    """Wait until its deed is under way."""

    def look() -> bool:
        item = desk.bench.hub.store.peek(approvals.approval, id)
        return item is not None and item.outcome is DeedOutcome.RUNNING

    await desk.until(look)


# ---- one decision, one deed


async def test_what_is_approved_is_done_once_and_told(desk: Desk) -> None:
    ticket = await desk.request(payload={"command": "npx", "args": ["-y"]})
    assert ticket.state is ApprovalState.PENDING
    await desk.quiet()
    assert desk.shown == [ticket.id]
    assert desk.done == []
    assert await yes(desk, ticket.id)
    await desk.quiet()
    assert desk.done == [{"command": "npx", "args": ["-y"], "files": []}]
    item = await desk.item(ticket.id)
    assert (item.state, item.outcome, item.decided_by, item.via) == ("approved", "done", BY, "card")
    assert item.finished_at is not None
    assert [text for _, text in desk.told] == [
        f"Your request 'Do act' ({ticket.id}) was approved by {BY}, and it is done: it works."
    ]
    assert [one.outcome for one in desk.refreshed] == [None, "done"]


async def test_what_is_rejected_is_never_done(desk: Desk) -> None:
    ticket = await desk.request()
    item, counts = await desk.engine.decide(ticket.id, "reject", BY, Via.CLI, note="not today")
    assert counts
    await desk.quiet()
    assert (desk.done, item.outcome) == ([], None)
    assert "was rejected by fake:ann: not today" in desk.told[0][1]
    assert not await yes(desk, ticket.id)
    await desk.quiet()
    assert desk.done == []


async def test_of_many_racing_clicks_exactly_one_counts(desk: Desk) -> None:
    """C153: two identical clicks, and a no beside them."""
    for _ in range(10):
        ticket = await desk.request(payload={"n": len(desk.told)})
        choices = ["approve", "reject", "approve", "approve", "reject", "approve"]
        done = await asyncio.gather(
            *(desk.engine.decide(ticket.id, value, f"fake:{at}", Via.CARD) for at, value in enumerate(choices))
        )
        assert sum(counts for _, counts in done) == 1
        await desk.quiet()
        item = await desk.item(ticket.id)
        deeds = [one for one in desk.done if one["n"] == len(desk.told) - 1]
        assert len(deeds) == (1 if item.state is ApprovalState.APPROVED else 0)
        assert {(one.state, one.decided_by) for one, _ in done} == {(item.state, item.decided_by)}


async def test_a_click_that_comes_again_after_a_restart_does_nothing(desk: Desk) -> None:
    """C153."""
    ticket = await desk.request()
    await yes(desk, ticket.id)
    await desk.quiet()
    await desk.crash()
    assert not await yes(desk, ticket.id)
    await desk.quiet()
    assert len(desk.done) == 1
    assert len(desk.told) == 1


async def test_after_its_time_it_is_neither_yes_nor_no(desk: Desk) -> None:
    """C153: a click after expiry."""
    ticket = await desk.request()
    desk.bench.clock.seconds += 24 * 3600
    assert not await yes(desk, ticket.id)
    await desk.engine.due()
    await desk.quiet()
    assert (await desk.item(ticket.id)).state is ApprovalState.EXPIRED
    assert desk.done == []
    assert "neither yes nor no" in desk.told[0][1]
    await desk.engine.due()
    await desk.quiet()
    assert len(desk.told) == 1


async def test_what_ran_out_while_no_host_ran_is_expired_by_the_next_and_told(desk: Desk) -> None:
    """messaging.md 11.5: swept at the start, the agent is told; C153: an old click decides nothing."""
    ticket = await desk.request()
    await desk.quiet()
    desk.bench.clock.seconds += 3 * 24 * 3600
    await desk.crash()
    await desk.engine.due()
    await desk.quiet()
    assert (await desk.item(ticket.id)).state is ApprovalState.EXPIRED
    assert desk.refreshed[-1].state is ApprovalState.EXPIRED, "its card says so"
    assert ["neither yes nor no" in text for _, text in desk.told] == [True]
    assert not await yes(desk, ticket.id)
    await desk.quiet()
    assert desk.done == []


async def test_a_cancelled_one_is_neither_too_and_may_be_asked_again(desk: Desk) -> None:
    first = await desk.request()
    same = await desk.request()
    assert same.id == first.id, "the same question while it is open"
    _, counts = await desk.engine.cancel(first.id, BY, Via.CLI)
    assert counts
    again = await desk.request()
    assert again.id != first.id


async def test_the_same_request_gets_the_same_ticket_always(desk: Desk) -> None:
    ticket = await desk.request(request_id="req_1")
    await yes(desk, ticket.id)
    await desk.quiet()
    again = await desk.request(request_id="req_1", payload={"command": "rm"})
    assert (again.id, again.state) == (ticket.id, ApprovalState.APPROVED)
    assert len(desk.done) == 1


# ---- crashes


async def test_a_host_that_dies_between_the_decision_and_the_deed_does_it_at_its_next_start(desk: Desk) -> None:
    ticket = await desk.request()
    await desk.bench.hub.store.write(
        approvals.decide,
        ticket.id,
        ApprovalState.APPROVED,
        desk.bench.clock.now(),
        value="approve",
        by=BY,
        via=Via.CARD,
    )
    await desk.crash()
    await desk.quiet()
    assert len(desk.done) == 1
    await desk.crash()
    await desk.quiet()
    assert len(desk.done) == 1


async def test_a_deed_that_the_hosts_end_cut_off_is_not_done_again_and_everybody_knows(desk: Desk) -> None:
    """C153: kill between state change and execution: at most once, and visible."""
    ticket = await desk.request()
    desk.gate.clear()
    await yes(desk, ticket.id)
    await begun(desk, ticket.id)
    await desk.crash()
    desk.gate.set()
    await desk.quiet()
    item = await desk.item(ticket.id)
    assert (desk.done, item.outcome) == ([], DeedOutcome.INTERRUPTED)
    assert "not done again" in desk.told[0][1]
    assert desk.refreshed[-1].outcome is DeedOutcome.INTERRUPTED


async def test_a_deed_that_may_be_repeated_is_taken_up_again(desk: Desk) -> None:
    ticket = await desk.request("again")
    desk.gate.clear()
    await yes(desk, ticket.id)
    await begun(desk, ticket.id)
    await desk.crash()
    desk.gate.set()
    await desk.quiet()
    assert len(desk.done) == 1
    assert (await desk.item(ticket.id)).outcome is DeedOutcome.DONE


async def test_a_deed_whose_end_the_store_could_not_take_is_told_once_it_can(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, say, while it was being done."""

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    ticket = await desk.request()
    with monkeypatch.context() as broken:
        broken.setattr(approvals, "end_deed", full)
        await yes(desk, ticket.id)
        await desk.quiet()
        assert ((await desk.item(ticket.id)).outcome, desk.told) == (DeedOutcome.RUNNING, [])
    await desk.engine.sweep()
    await desk.quiet()
    assert (await desk.item(ticket.id)).outcome is DeedOutcome.DONE
    assert (len(desk.done), len(desk.told)) == (1, 1)


async def test_a_deed_that_fails_is_told_with_its_reason(desk: Desk) -> None:
    ticket = await desk.request()
    desk.fails = Conflict("there is one already", fix="choose another name")
    await yes(desk, ticket.id)
    await desk.quiet()
    assert "was not done: there is one already (choose another name)." in desk.told[0][1]
    assert desk.bench.hub.troubles == {"approval act": 1}


async def test_what_breaks_inside_a_deed_is_the_operators_to_know(desk: Desk) -> None:
    ticket = await desk.request()
    desk.fails = ValueError("secret inside")
    await yes(desk, ticket.id)
    await desk.quiet()
    assert "the host's log says why" in desk.told[0][1]
    assert "secret" not in desk.told[0][1]


# ---- bound to what was shown


@pytest.mark.parametrize(
    "swap",
    [
        {"payload": canonical({"command": "evil"})},
        {"payload": "no json"},
        {"fields": json.dumps([["command", "harmless"]])},
        {"kind": "again"},
        {"session_id": "ses_00000000000000000000"},
        {"title": "Something else"},
    ],
)
async def test_what_was_swapped_while_it_waited_is_not_done(desk: Desk, swap: dict[str, str]) -> None:
    """C151: the payload is another one after the card was shown."""
    ticket = await desk.request()
    await desk.tamper(ticket.id, **swap)
    await yes(desk, ticket.id)
    await desk.quiet()
    assert desk.done == []
    item = await desk.item(ticket.id)
    assert item.outcome is DeedOutcome.FAILED
    assert "not the one that was shown" in (item.outcome_text or "")


async def test_a_file_that_is_rewritten_while_it_waits_changes_nothing(desk: Desk) -> None:
    """C151: what is approved is what the file held when it was asked for."""
    script = desk.bench.hub.home.groups / "helper" / "workspace" / "bin" / "setup.sh"
    script.parent.mkdir(parents=True)
    script.write_text("echo A")
    ticket = await desk.request(files=[script])
    script.write_text("echo B")
    await yes(desk, ticket.id)
    await desk.quiet()
    assert desk.done[0]["files"] == ["echo A"]


async def test_a_swapped_copy_of_a_file_is_refused(desk: Desk) -> None:
    """C151: no "B"."""
    script = desk.bench.hub.home.groups / "helper" / "workspace" / "setup.sh"
    script.parent.mkdir(parents=True)
    script.write_text("echo A")
    ticket = await desk.request(files=[script])
    copy = desk.bench.hub.home.root / "approvals" / ticket.id / "setup.sh"
    copy.write_text("echo B")
    await yes(desk, ticket.id)
    await desk.quiet()
    assert desk.done == []
    assert "setup.sh is not the one" in ((await desk.item(ticket.id)).outcome_text or "")


async def test_files_of_what_nobody_wanted_are_not_kept(desk: Desk) -> None:
    workspace = desk.bench.hub.home.groups / "helper" / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "setup.sh").write_text("echo")
    ticket = await desk.request(files=[workspace / "setup.sh"])
    kept = desk.bench.hub.home.root / "approvals" / ticket.id
    assert kept.is_dir()
    await desk.engine.decide(ticket.id, "reject", BY, Via.CARD)
    await desk.quiet()
    assert not kept.exists()


async def test_files_from_elsewhere_can_not_be_part_of_a_request(desk: Desk, tmp_path: Path) -> None:
    workspace = desk.bench.hub.home.groups / "helper" / "workspace"
    workspace.mkdir(parents=True)
    (tmp_path / "key").write_text("secret")
    (workspace / "link").symlink_to(tmp_path / "key")
    (workspace / "folder").symlink_to(tmp_path)
    (workspace / "other").hardlink_to(tmp_path / "key")
    for file in (
        tmp_path / "key", workspace / "link", workspace / "other", workspace / "folder" / "key",
        workspace / ".." / "agent.toml", workspace / "missing", workspace,
    ):  # fmt: skip
        with pytest.raises(UnsafePath):
            await desk.request(files=[file])
    assert not list(tmp_path.glob("home/approvals/*/*"))


# ---- what can be asked


async def test_the_files_of_a_request_are_few_bytes_together_and_in_nobodys_way(desk: Desk) -> None:
    """Empty bytes cost an agent nothing, and the host's disk as much as others."""
    workspace = desk.bench.hub.home.groups / desk.bench.group.folder / "workspace"
    workspace.mkdir(parents=True)
    files = [workspace / "one", workspace / "two"]
    for file in files:
        with file.open("wb") as empty:
            empty.truncate(MAX_FILES_SIZE * 2 // 3)
    with pytest.raises(TooLarge):
        await desk.request(files=files)
    shown = workspace / "Shown"
    shown.write_text("echo")
    with pytest.raises(UnsafePath):
        await desk.request(files=[shown])
    assert list((desk.bench.hub.home.root / "approvals").iterdir()) == []


async def test_an_unknown_kind_is_refused(desk: Desk) -> None:
    with pytest.raises(NotFound, match="no kind of approval 'acts'") as told:
        await desk.request("acts")
    assert told.value.fix == "did you mean 'act'?"


async def test_a_kind_that_is_gone_when_it_is_approved_is_told(desk: Desk) -> None:
    ticket = await desk.request()
    desk.bench.plugins.kinds = []
    await yes(desk, ticket.id)
    await desk.quiet()
    assert "there is no kind of approval" in desk.told[0][1]


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        ({"fields": ()}, MalformedData),
        ({"fields": (ApprovalField(label="", value="x"),)}, MalformedData),
        ({"fields": (ApprovalField(label="x", value="y" * 70_000),)}, TooLarge),
        ({"fields": (ApprovalField(label="x", value="\ud800"),)}, MalformedData),
        ({"payload": {"x": float("nan")}}, MalformedData),
        ({"payload": {"x": "y" * 300_000}}, TooLarge),
    ],
)
async def test_what_can_not_be_shown_whole_is_refused(desk: Desk, wish: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        await desk.request(**wish)
    assert await desk.bench.hub.store.read(approvals.approvals) == []


async def test_an_agent_can_not_flood_people(desk: Desk) -> None:
    for number in range(30):
        await desk.request(payload={"n": number})
    with pytest.raises(Conflict, match="30 decisions"):
        await desk.request(payload={"n": 31})


# ---- permissions


async def test_asking_depends_on_the_kind_the_permissions_and_the_people(desk: Desk) -> None:
    """C143."""
    modes = {"": None, "ask": "ask", "always": "always", "allow": "allow", "never": "never"}
    numbers = itertools.count()
    for mode, kind in itertools.product(modes, ("act", "gentle")):
        desk.permit(**({kind: mode} if mode else {}))
        await desk.bench.hub.accept_agent_settings(desk.bench.group)
        meant = mode or ("always" if kind == "act" else "ask")
        for role in ("owner", "admin", "member", ""):
            request = desk.request(kind, {"n": next(numbers)}, context=desk.context(role, [BY]))
            if meant == "never":
                with pytest.raises(NotAllowed):
                    await request
                continue
            ticket = await request
            passes = meant == "allow" or (meant == "ask" and role in ("owner", "admin"))
            assert (ticket.state is ApprovalState.APPROVED) == passes, (mode, kind, role)
            if passes:
                await desk.quiet()
                item = await desk.item(ticket.id)
                assert (item.via, item.decided_by, item.outcome) == ("policy", BY, "done")
            else:
                await desk.engine.cancel(ticket.id, BY, Via.CLI)


async def test_permissions_that_nobody_accepted_make_nothing_easier(desk: Desk) -> None:
    """An agent without a sandbox can write its own `agent.toml`."""
    desk.permit(act="always")
    await desk.bench.hub.accept_agent_settings(desk.bench.group)
    desk.permit(act="allow")
    assert (await desk.request()).state is ApprovalState.PENDING


# ---- nobody there


async def test_when_nobody_can_be_asked_the_agent_hears_how_it_can_be_decided(desk: Desk) -> None:
    desk.reachable = False
    ticket = await desk.request()
    await desk.quiet()
    assert f"`jackfield approval approve {ticket.id}`" in desk.told[0][1]
    assert (await desk.item(ticket.id)).state is ApprovalState.PENDING


# ---- ends that nobody chose, and forgetting


async def test_a_conversation_that_is_closed_waits_for_nothing(desk: Desk) -> None:
    ticket = await desk.request()
    await desk.bench.hub.store.write(approvals.cancel_of_session, desk.session.id, desk.bench.clock.now())
    await desk.engine.sweep()
    await desk.quiet()
    item = await desk.item(ticket.id)
    assert (item.state, item.finished_at is not None) == (ApprovalState.CANCELLED, True)
    assert not await yes(desk, ticket.id)


async def test_a_group_that_is_removed_takes_its_questions_along(desk: Desk) -> None:
    ticket = await desk.request()
    await desk.bench.hub.store.write(groups.remove_agent_group, desk.bench.group.id, desk.bench.clock.now())
    assert (await desk.item(ticket.id)).state is ApprovalState.CANCELLED


async def test_what_ended_long_ago_is_forgotten_with_its_files(desk: Desk) -> None:
    script = desk.bench.hub.home.groups / "helper" / "workspace" / "setup.sh"
    script.parent.mkdir(parents=True)
    script.write_text("echo A")
    old, waits = await desk.request(files=[script]), await desk.request(payload={"n": 2})
    await yes(desk, old.id)
    await desk.quiet()
    copies = desk.bench.hub.home.root / "approvals" / old.id
    assert copies.is_dir()
    retention = Retention(desk.bench.hub, Spool(desk.bench.hub))
    await retention.forget()
    assert (await desk.item(old.id)).outcome is DeedOutcome.DONE
    desk.bench.clock.seconds += 8 * 86_400
    os.utime(copies, (1, 1))
    await retention.forget()
    assert not copies.exists()
    assert [one.id for one in await desk.bench.hub.store.read(approvals.approvals)] == [waits.id]


# ---- the host's own kinds


async def test_the_hosts_own_kinds_hear_every_choice(desk: Desk) -> None:
    heard: list[Decision] = []

    async def apply(decision: Decision) -> str:
        heard.append(decision)
        return f"{decision.value} it is"

    desk.engine.kinds.register(HostKind(name="sender", title="New sender", apply=apply))
    choices = (
        ApprovalChoice(value="allow", label="Allow", approves=True),
        ApprovalChoice(value="open", label="Allow, and open the chat", approves=True),
        ApprovalChoice(value="deny", label="Deny", approves=False),
    )
    for number, value in enumerate(("open", "deny")):
        ask: dict[str, Any] = {"key": f"mg {number}", "fields": FIELDS, "choices": choices, "group": desk.bench.group}
        ticket = await desk.engine.ask("sender", {"n": number}, **ask)
        assert (await desk.engine.ask("sender", {"n": 99}, **ask)).id == ticket.id
        await desk.engine.decide(ticket.id, value, BY, Via.CARD)
        await desk.quiet()
        item = await desk.item(ticket.id)
        assert (item.outcome, item.outcome_text) == ("done", f"{value} it is")
    assert [(one.value, one.approved, one.payload) for one in heard] == [
        ("open", True, {"n": 0}),
        ("deny", False, {"n": 1}),
    ]
    assert desk.told == []


async def test_a_choice_that_there_is_not_is_no_decision(desk: Desk) -> None:
    ticket = await desk.request()
    with pytest.raises(NotFound, match="no choice"):
        await desk.engine.decide(ticket.id, "yes", BY, Via.CLI)
    assert (await desk.item(ticket.id)).state is ApprovalState.PENDING
