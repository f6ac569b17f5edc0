"""What an agent may do with tasks, by the conversation through which it asks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.api import ApprovalTicket, TaskChange, TaskInfo, TaskWish
from jackfield.errors import Conflict, JackfieldError, MalformedData, NotAllowed, NotFound
from jackfield.host.approvals import Decision
from jackfield.host.schedule import desk as desk_module
from jackfield.host.schedule.places import place_in_chat
from jackfield.host.schedule.wishes import PROMPT_LENGTH, read_wish
from jackfield.ids import AgentGroupId, ApprovalId, RequestId, UserId, new_id
from jackfield.models import Address, AgentGroup, Destination, DestinationKind, NoticeContent, Session, TaskState
from jackfield.store import groups, people, sessions, tasks, wirings

sys.path.insert(0, str(Path(__file__).parent))

from schedule_kit import Office, ms, open_office

NOW = ms("2027-01-01T00:00Z")


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path / "home") as office:
        yield office


def request() -> RequestId:
    return RequestId(new_id("req"))


async def entered(office: Office, wish: TaskWish, session: Session | None = None, **more: Any) -> TaskInfo:
    made = await office.desk.schedule(office.context(session, **more), request(), wish)
    assert isinstance(made, TaskInfo)
    return made


async def elsewhere(office: Office) -> tuple[str, Session]:
    """The name by which the agent knows another chat, and its session there."""
    chat = await office.bench.chat("stage")
    name = (await office.bench.hub.store.read(wirings.destinations, office.bench.group.id))[-1].name
    found = await office.bench.hub.store.read(place_in_chat, office.bench.group, chat)
    return name, await office.bench.session(chat, found.session_key)


async def decide(office: Office, payload: dict[str, Any], *, approved: bool = True) -> str | None:
    assert office.people.kind is not None
    decision = Decision(
        id=ApprovalId(new_id("ap")), value="approve" if approved else "reject", approved=approved, by="terminal:root",
        payload=payload, agent_group_id=office.bench.group.id, session_id=office.session.id, origin=None,
    )  # fmt: skip
    return await office.people.kind.apply(decision)


# ---- time zones


async def test_the_zone_is_the_tasks_own_the_persons_the_groups_or_the_hosts(office: Office) -> None:
    """C109, in that order; it is kept with the task."""
    hub, daily = office.bench.hub, TaskWish(prompt="x", cron="26 7 * * *")
    host = await entered(office, daily)
    assert (host.timezone, host.next_local) == ("UTC", "Jan 1, 2027, 7:26 AM (UTC)")

    folder = hub.home.groups / office.bench.group.folder
    folder.mkdir(parents=True)
    (folder / "agent.toml").write_text('name = "Helper"\nprovider = "mock"\ntimezone = "Asia/Ho_Chi_Minh"\n')
    group = await entered(office, daily)
    assert group.next_at == ms("2027-01-01T00:26Z")

    user = UserId("fake:ann")
    await hub.store.write(people.ensure_user, user, "fake", "Ann", NOW)
    await hub.store.write(people.set_timezone, user, "America/Vancouver")
    person = await entered(office, daily, users=[user])
    assert (person.timezone, person.next_at) == ("America/Vancouver", ms("2027-01-01T15:26Z"))
    assert (await entered(office, daily, users=[user, "fake:bob"])).timezone == "Asia/Ho_Chi_Minh", "of two, nobody's"

    own = await entered(office, replace(daily, timezone="Asia/Tokyo"), users=[user])
    assert own.next_at == ms("2027-01-01T22:26Z")


async def test_a_naive_time_is_the_zones_and_stays_it_over_a_change_of_the_clock(office: Office) -> None:
    """D.18"""
    wish = TaskWish(prompt="x", at="2027-01-04T09:00", cron="0 9 * * 1-5", timezone="Asia/Tokyo")
    assert (await entered(office, wish)).next_at == ms("2027-01-04T00:00Z")
    berlin = await entered(office, replace(wish, timezone="Europe/Berlin", at="2027-03-26T09:00"))
    hand = await office.hand()
    await office.tick("2027-03-26T08:00Z")
    await hand.work()
    after = await office.bench.hub.store.read(tasks.task, berlin.id)
    assert after is not None and after.next_at == ms("2027-03-29T07:00Z"), "Monday 9:00, an hour earlier by UTC"
    assert len(await office.bench.hub.store.read(tasks.open_runs, berlin.id)) == 0


# ---- what is refused


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({}, "has no time"),
        ({"at": "2026-12-31T23:58Z"}, "has passed"),
        ({"cron": "61 * * * *"}, "no cron expression"),
        ({"at": "1h", "timezone": "Mars/Base"}, "no time zone"),
        ({"at": "1h", "catch_up": "some"}, "catch_up"),
        ({"at": "1h", "stop_after": -1}, "stop_after"),
        ({"at": "1h", "prompt": "  "}, "no prompt"),
        ({"at": "1h", "prompt": "x" * (PROMPT_LENGTH + 1)}, "more than"),
        ({"at": "1h", "script": "x" * 64_001}, "more than"),
    ],
)
def test_a_wish_that_makes_no_sense_is_refused_with_what_to_do(wish: dict[str, Any], told: str) -> None:
    with pytest.raises(MalformedData, match=told) as refused:
        read_wish(TaskWish(**{"prompt": "x", **wish}), "UTC", NOW)
    assert refused.value.fix


def test_a_turn_every_few_minutes_must_be_meant() -> None:
    """Each run costs a turn of the model: five minutes apart, unless a script spares it or somebody says so."""
    often = TaskWish(prompt="x", cron="*/4 * * * *")
    with pytest.raises(NotAllowed, match="every 240 s"):
        read_wish(often, "UTC", NOW)
    for fine in (replace(often, script="true"), replace(often, often=True), replace(often, cron="*/5 * * * *")):
        read_wish(fine, "UTC", NOW)
    with pytest.raises(NotAllowed):
        read_wish(replace(often, cron="0,1 9 * * 1"), "UTC", NOW)


texts = st.one_of(st.none(), st.text(max_size=30))


@given(at=texts, cron=texts, zone=texts, catch_up=texts, count=st.one_of(st.none(), st.integers()))
def test_any_wish_is_read_or_refused(
    at: str | None, cron: str | None, zone: str | None, catch_up: str | None, count: int | None
) -> None:
    wish = TaskWish(prompt="x", at=at, cron=cron, timezone=zone, catch_up=catch_up, stop_after=count)
    try:
        reading = read_wish(wish, "UTC", NOW)
    except JackfieldError as refused:
        assert refused.fix
        return
    assert reading.next_at > NOW - 60_000


async def test_an_update_can_not_make_it_run_too_often(office: Office) -> None:
    made = await entered(office, TaskWish(prompt="x", cron="* * * * *", script="true"))
    context = office.context()
    with pytest.raises(NotAllowed):
        await office.desk.update(context, made.id, TaskChange(script=""))
    with pytest.raises(NotAllowed):
        await office.desk.update(
            context, (await entered(office, TaskWish(prompt="x", at="1h"))).id, TaskChange(cron="* * * * *")
        )
    assert (await office.desk.update(context, made.id, TaskChange(script="", often=True))).task.script is None


async def test_a_group_has_so_many_tasks_at_most(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "MAX_LIVE", 2)
    first = await entered(office, TaskWish(prompt="one", at="1h"))
    await entered(office, TaskWish(prompt="two", at="1h"))
    with pytest.raises(Conflict, match="2 tasks already"):
        await entered(office, TaskWish(prompt="three", at="1h"))
    await office.desk.cancel(office.context(), first.id)
    await entered(office, TaskWish(prompt="three", at="1h"))


async def test_wishes_at_the_same_moment_are_counted_together(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "MAX_LIVE", 2)
    name, _ = await elsewhere(office)
    await office.desk.schedule(office.context(), request(), TaskWish(prompt="there", at="1h", to=name))
    made = await asyncio.gather(
        *(entered(office, TaskWish(prompt=str(n), at="1h")) for n in range(5)), return_exceptions=True
    )
    assert [type(one) for one in made if not isinstance(one, TaskInfo)] == [Conflict] * 3
    assert "2 tasks already" in (await decide(office, office.people.asked[0][0]) or "")
    assert len(await office.bench.hub.store.read(tasks.tasks)) == 2


# ---- whose


async def test_the_same_request_schedules_once(office: Office) -> None:
    """C113: a crash may deliver a request twice."""
    again, wish = request(), TaskWish(prompt="x", at="1h")
    first = await office.desk.schedule(office.context(), again, wish)
    second = await office.desk.schedule(office.context(), again, replace(wish, prompt="other"))
    assert isinstance(first, TaskInfo) and isinstance(second, TaskInfo) and first == second
    assert len(await office.desk.tasks(office.context())) == 1


async def test_a_conversation_reaches_its_own_tasks_only(office: Office) -> None:
    made = await entered(office, TaskWish(prompt="mine", at="1h"))
    _, stranger = await elsewhere(office)
    theirs = office.context(stranger)
    assert await office.desk.tasks(theirs) == []
    for attempt in (
        office.desk.cancel(theirs, made.id),
        office.desk.pause(theirs, made.id),
        office.desk.resume(theirs, made.id),
        office.desk.update(theirs, made.id, TaskChange(prompt="theirs")),
    ):
        with pytest.raises(NotFound):
            await attempt
    other_id = AgentGroupId(office.bench.group.id.replace("ag_", "ag_0")[:23])
    foreign = AgentGroup(id=other_id, name="B", folder="b", created_at=NOW)
    with pytest.raises(NotFound):
        await office.desk.cancel(replace(office.context(), agent_group=foreign), made.id)
    assert (await office.desk.tasks(office.context()))[0].prompt == "mine"
    assert (await office.desk.pause(office.context(), f" {made.id.upper()} ")).task.state is TaskState.PAUSED


async def test_a_task_with_a_conversation_of_its_own_answers_in_the_same_chat(office: Office) -> None:
    made = await entered(office, TaskWish(prompt="alone", at="1h", own_session=True))
    await office.tick(made.next_at)
    (woken,) = office.woken
    assert woken.id != office.session.id and woken.messaging_group_id == office.session.messaging_group_id
    (row,) = (await office.hand(woken)).pending()
    assert row.origin == office.chat
    assert [one.id for one in await office.desk.tasks(office.context())] == [made.id]
    assert not (await office.desk.tasks(office.context()))[0].elsewhere
    assert [one.id for one in await office.desk.tasks(office.context(woken))] == [made.id], "it may end itself"


# ---- elsewhere


async def test_another_conversation_is_asked_about_with_everything_and_entered_after_a_yes(office: Office) -> None:
    """C143, C149"""
    name, there = await elsewhere(office)
    wish = TaskWish(prompt="curtain up", cron="0 9 * * *", script="true", stop_after=3, to=name)
    ticket = await office.desk.schedule(office.context(), request(), wish)
    assert isinstance(ticket, ApprovalTicket)
    assert await office.desk.tasks(office.context()) == []
    ((payload, fields),) = office.people.asked
    assert fields["Prompt"] == "curtain up" and fields["Script"] == "true" and fields["Repeats"] == "0 9 * * * (UTC)"
    assert "fake:fake:stage" in fields["Conversation"] and "3 failures" in fields["Stops after"]

    assert await decide(office, payload, approved=False) is None
    assert await office.bench.hub.store.read(tasks.tasks) == []
    for _ in range(2):  # a host that dies in between does it again
        assert "was scheduled" in (await decide(office, payload) or "")
    (made,) = await office.desk.tasks(office.context())
    assert made.elsewhere and made.place == "fake:fake:stage"
    with pytest.raises(NotAllowed, match="approved as it is"):
        await office.desk.update(office.context(), made.id, TaskChange(prompt="something else"))
    await office.tick("2027-01-01T09:00Z")
    assert (await (await office.hand(there)).work()) == ["curtain up"]
    assert (await office.desk.cancel(office.context(), made.id)).task.state is TaskState.CANCELLED


async def test_a_task_for_a_chat_that_the_agent_may_no_longer_write_to_is_refused_at_its_run(office: Office) -> None:
    """Its agent is told; in that chat nothing is said."""
    hub = office.bench.hub
    name, there = await elsewhere(office)
    await office.desk.schedule(office.context(), request(), TaskWish(prompt="show", cron="0 9 * * *", to=name))
    await decide(office, office.people.asked[0][0])
    await office.tick("2027-01-01T09:00Z")
    assert await (await office.hand(there)).work() == ["show"]
    assert await hub.store.write(wirings.remove_destination, office.bench.group.id, name)

    await office.tick("2027-01-02T09:00Z")
    (task,) = await hub.store.read(tasks.tasks)
    assert task.state is TaskState.STOPPED and "no destination there" in (task.reason or "")
    assert (await office.hand(there)).pending() == [] and office.told == []
    assert [one.run.reason for one in await office.runs(task)] == [None, task.reason]
    (notice,) = (await office.hand()).mailbox.pending(office.now)
    assert isinstance(notice.content, NoticeContent) and task.id in notice.content.text
    with pytest.raises(NotAllowed):
        await office.series.run(task.id)

    own = await entered(office, TaskWish(prompt="here", cron="0 9 * * *"))
    for one in await hub.store.read(wirings.destinations, office.bench.group.id):
        await hub.store.write(wirings.remove_destination, office.bench.group.id, one.name)
    await office.tick("2027-01-03T09:00Z")
    assert len(await hub.store.read(tasks.runs, own.id, 9)) == 1, "its own conversation needs no destination"


async def test_a_reminder_whose_time_passed_before_the_yes_is_not_given(office: Office) -> None:
    name, _ = await elsewhere(office)
    await office.desk.schedule(office.context(), request(), TaskWish(prompt="x", at="1h", to=name))
    office.set_clock("2027-01-02T00:00Z")
    assert "passed before" in (await decide(office, office.people.asked[0][0]) or "")
    assert await office.bench.hub.store.read(tasks.tasks) == []


async def test_a_series_that_was_allowed_late_begins_with_its_next_occurrence(office: Office) -> None:
    name, _ = await elsewhere(office)
    await office.desk.schedule(office.context(), request(), TaskWish(prompt="x", cron="0 9 * * *", to=name))
    office.set_clock("2027-01-03T12:00Z")
    assert "runs first Jan 4, 2027, 9:00 AM" in (await decide(office, office.people.asked[0][0]) or "")
    await office.tick()
    assert office.woken == []


async def test_to_the_own_chat_needs_nobody_and_an_unknown_name_is_refused(office: Office) -> None:
    own = next(
        one.name
        for one in await office.bench.hub.store.read(wirings.destinations, office.bench.group.id)
        if one.address == office.chat
    )
    await entered(office, TaskWish(prompt="x", at="1h", to=own.upper()))
    assert office.people.asked == []
    with pytest.raises(NotFound) as refused:
        await office.desk.schedule(office.context(), request(), TaskWish(prompt="x", at="1h", to="nobody"))
    assert own in (refused.value.fix or "")
    name, _ = await elsewhere(office)
    with pytest.raises(MalformedData):
        await office.desk.schedule(
            office.context(), request(), TaskWish(prompt="x", at="1h", to=name, own_session=True)
        )


async def test_a_task_for_another_agent_runs_in_its_conversation_with_the_asking_one(office: Office) -> None:
    """Its answers come back to who asked; when that conversation ends, so does the task."""
    hub = office.bench.hub
    other = AgentGroup(id=AgentGroupId(new_id("ag")), name="Clerk", folder="clerk", created_at=NOW)
    await hub.store.write(groups.add_agent_group, other)
    place = Destination(name="clerk", kind=DestinationKind.AGENT, display_name="Clerk", agent_group_id=other.id)
    await hub.store.write(wirings.add_destination, office.bench.group.id, place, NOW)
    await office.desk.schedule(office.context(), request(), TaskWish(prompt="count", cron="0 9 * * *", to="clerk"))
    payload, fields = office.people.asked[0]
    assert fields["Conversation"].startswith("Clerk")
    await decide(office, payload)
    await office.tick("2027-01-01T09:00Z")
    (woken,) = office.woken
    assert woken.agent_group_id == other.id
    hand = await office.hand(woken)
    (row,) = hand.pending()
    assert row.origin == Address("agent", "agent", office.bench.group.id, office.session.id)
    await hand.work()
    await hub.store.write(sessions.close_session, office.session.id, office.now)
    await office.tick("2027-01-02T09:00Z")
    (task,) = await hub.store.read(tasks.tasks)
    assert (task.state, task.reason) == (TaskState.STOPPED, "the conversation that scheduled it was ended")
