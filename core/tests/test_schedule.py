"""What falls due runs once, whatever happens meanwhile; what fails costs itself only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jackfield.api import TaskChange
from jackfield.clock import UnixMs
from jackfield.errors import Conflict, MalformedData, NotFound
from jackfield.host.diagnosis.checks import run_check
from jackfield.host.schedule.claiming import FEED, claim
from jackfield.host.services.context import ServiceContext
from jackfield.ids import TaskId
from jackfield.models import AckStatus, CatchUp, InboundState, RunState, TaskContent, TaskState
from jackfield.store import groups, inbound, sessions, tasks

sys.path.insert(0, str(Path(__file__).parent))

from schedule_kit import BROKEN, SCRIPT_BROKEN, Office, ms, open_office

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path / "home") as office:
        yield office


# ---- once


async def test_a_long_run_is_started_once_for_each_occurrence(office: Office) -> None:
    """C113: hourly, 150 s each, looked at every 60 s, three hours: three runs."""
    task = await office.add(cron="0 * * * *")
    hand, begun, until = await office.hand(), UnixMs(0), UnixMs(office.now + 3 * HOUR + 5 * MINUTE)
    while office.now < until:
        await office.tick(UnixMs(office.now + MINUTE))
        if hand.take():
            begun = office.now
        elif hand.held and office.now - begun >= 150_000:
            await hand.end()
    assert await office.run_states(task) == [RunState.COMPLETED] * 3
    assert [at % DAY // HOUR for at in await office.due_times(task)] == [1, 2, 3]


async def test_a_run_has_its_own_moment_and_task(office: Office) -> None:
    """C119: the run gets its scheduled time."""
    task = await office.add("Say hello")
    await office.tick("2027-01-01T08:00:00.200+00:00")
    (row,) = (await office.hand()).pending()
    assert row.at == ms("2027-01-01T08:00Z")
    assert row.origin == office.chat
    assert row.content == TaskContent(prompt="Say hello", series_id=task.id)
    assert [session.id for session in office.woken] == [office.session.id]


@pytest.mark.parametrize("died", ["before the inbox", "before it was noted"])
async def test_a_claim_whose_host_died_is_fed_once_by_the_next(office: Office, died: str) -> None:
    """C113: the claim, the ledger and the next moment are one transaction; the rest can be done again."""
    task = await office.add()
    office.set_clock("2027-01-01T08:00Z")
    claimed = await office.bench.hub.store.write(claim, office.now, 10)
    if died == "before it was noted":
        (runs,) = claimed.runs.values()
        assert await office.schedule._put(office.session, runs)
    office.renew()
    await office.schedule.start()
    await office.tick()
    await office.schedule.sweep()
    assert await (await office.hand()).work() == ["Report"]
    await office.tick("2027-01-01T08:05Z")
    assert await office.run_states(task) == [RunState.COMPLETED]
    assert (await office.task(task)).next_at == ms("2027-01-02T08:00Z")


async def test_the_end_that_a_dead_host_did_not_take_over_is_taken_over_by_the_next(office: Office) -> None:
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    hand.take()
    office.collector._on_acks = lambda *args: None  # the host dies right after the ledger has it
    await hand.end()
    assert await office.run_states(task) == [RunState.QUEUED]
    office.renew()
    await office.schedule.start()
    assert await office.run_states(task) == [RunState.COMPLETED]
    assert (await office.task(task)).look_at == ms("2027-01-02T08:00Z")


async def test_a_run_is_completed_only_when_the_agent_said_so(office: Office) -> None:
    """C123: due at minute 2 of a turn of 20 minutes; acknowledged at minute 21."""
    task = await office.add(cron=None, next_at=UnixMs(office.now + 2 * MINUTE))
    await office.tick(UnixMs(office.now + 2 * MINUTE))
    hand = await office.hand()
    for _ in range(19):
        await office.tick(UnixMs(office.now + MINUTE))
        assert await office.run_states(task) == [RunState.QUEUED]
        assert (await office.task(task)).state is TaskState.ACTIVE
    await hand.work()
    assert await office.run_states(task) == [RunState.COMPLETED]
    assert (await office.task(task)).state is TaskState.DONE


async def test_a_series_never_overlaps_itself_and_a_late_result_is_its_own_runs(office: Office) -> None:
    """C121: every five minutes, a run takes ten and a half; none starts before its end, each result counts once."""
    task = await office.add(cron="*/5 * * * *")
    hand = await office.hand()
    await office.tick("2027-01-01T00:05Z")
    assert hand.take() == ["Report"]
    for minute in range(6, 16):
        await office.tick(f"2027-01-01T00:{minute:02d}Z")
        assert hand.pending() == []
    office.set_clock("2027-01-01T00:15:30+00:00")
    await hand.end()
    assert await office.run_states(task) == [RunState.COMPLETED]
    await office.tick("2027-01-01T00:15:40+00:00")  # what fell due meanwhile is one run, the latest
    assert hand.take() == ["Report"]
    assert await office.due_times(task) == [ms("2027-01-01T00:05Z"), ms("2027-01-01T00:15Z")]
    assert (await office.runs(task))[1].run.missed_from == ms("2027-01-01T00:10Z")


async def test_an_operators_drop_ends_the_run_and_a_late_result_does_not_run_it_again(office: Office) -> None:
    """C121"""
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    hand.take()
    (run,) = await office.runs(task)
    await office.bench.hub.store.write(
        inbound.set_state, run.run.inbound_id, InboundState.DROPPED, office.now, reason="dropped by the operator"
    )
    await office.schedule.sweep()
    assert await office.run_states(task) == [RunState.CANCELLED]
    await hand.end()
    assert await office.run_states(task) == [RunState.CANCELLED]
    assert (await office.task(task)).failures == 0


# ---- what was missed


async def test_each_catch_up_policy_after_days_of_sleep(office: Office) -> None:
    """C119: daily at 8:00, asleep from day 1 20:00 to day 4 10:00."""
    series = {policy: await office.add(policy.value, catch_up=policy) for policy in CatchUp}
    minutely = await office.add("minutely", cron="* * * * *")
    hand = await office.hand()
    await office.tick("2027-01-01T20:00Z")
    await hand.work()
    before = {name: len(await office.runs(task)) for name, task in series.items()}
    counted = len(await office.runs(minutely))
    for second in range(0, 60, 5):  # paced: a run that ended is followed a moment later
        await office.tick(UnixMs(ms("2027-01-04T10:00:30+00:00") + second * 1000))
        await hand.work()

    ran = {
        policy: [one.run for one in (await office.runs(task))[before[policy] :] if one.run.state is RunState.COMPLETED]
        for policy, task in series.items()
    }
    assert [run.due_at for run in ran[CatchUp.LATEST]] == [ms("2027-01-04T08:00Z")]
    assert [run.due_at for run in ran[CatchUp.ALL]] == [ms(f"2027-01-0{day}T08:00Z") for day in (2, 3, 4)]
    assert ran[CatchUp.SKIP] == []
    assert (await office.run_states(series[CatchUp.SKIP]))[-1] is RunState.SKIPPED
    assert len(await office.runs(minutely)) == counted + 2  # the newest of 3,720, and the next minute's
    for task in series.values():
        assert (await office.task(task)).next_at == ms("2027-01-05T08:00Z")


async def test_all_catches_up_with_so_many_at_most_and_one_at_a_time(office: Office) -> None:
    """C119: with a limit, in order and paced."""
    task = await office.add(cron="0 * * * *", catch_up=CatchUp.ALL)
    hand = await office.hand()
    office.set_clock("2027-01-11T00:30Z")
    for _ in range(30):
        await office.tick()
        assert len(hand.take()) <= 1
        await hand.end()
        await office.tick()
        assert hand.pending() == [], "the next one is not due at once"
        office.set_clock(UnixMs(office.now + 5000))
    times = await office.due_times(task)
    assert len(times) == 24
    assert times == sorted(times)
    assert times[-1] == ms("2027-01-11T00:00Z")
    assert (await office.runs(task))[0].run.missed_from == ms("2027-01-01T01:00Z")


async def test_a_reminder_that_was_missed_is_given_late_unless_it_is_skipped(office: Office) -> None:
    late = await office.add("late", cron=None, next_at=ms("2027-01-01T08:00Z"))
    never = await office.add("never", cron=None, next_at=ms("2027-01-01T08:00Z"), catch_up=CatchUp.SKIP)
    await office.tick("2027-01-03T00:00Z")
    assert await (await office.hand()).work() == ["late"]
    assert (await office.task(late)).state is TaskState.DONE
    over = await office.task(never)
    assert (over.state, over.next_at) == (TaskState.DONE, None)
    assert over.reason


async def test_a_clock_that_was_wrong_and_is_set_back_does_not_stop_a_series(office: Office) -> None:
    """A clock that was years ahead for a moment: once it is set right, the series go on, and nothing runs twice."""
    daily, often = await office.add("daily"), await office.add("often", cron="*/30 * * * *")
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    await hand.work()
    await office.tick("2031-05-05T12:00Z")
    await hand.work()
    assert (await office.task(daily)).next_at == ms("2031-05-06T08:00Z")
    office.set_clock("2027-01-01T08:10Z")
    await office.schedule.sweep()
    assert (await office.task(daily)).next_at == ms("2027-01-02T08:00Z")
    assert (await office.task(often)).next_at == ms("2027-01-01T08:30Z")
    await office.tick("2027-01-02T08:00Z")
    assert sorted(await hand.work()) == ["daily", "often"]


async def test_a_clock_set_back_a_little_repeats_no_occurrence(office: Office) -> None:
    task = await office.add(cron="*/10 * * * *")
    hand = await office.hand()
    await office.tick("2027-01-01T08:10Z")
    await hand.work()
    office.set_clock("2027-01-01T08:05Z")
    await office.schedule.sweep()
    await office.tick("2027-01-01T08:10Z")
    assert hand.pending() == []
    await office.tick("2027-01-01T08:20Z")
    await hand.work()
    assert len(await office.due_times(task)) == len(set(await office.due_times(task))) == 2


# ---- failures


async def test_a_failed_run_costs_itself_and_people_are_told_once(office: Office) -> None:
    """C117: day 2 crashes until its retries are used up; day 3 runs."""
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    await (await office.hand()).work()
    await office.tick("2027-01-02T08:00Z")
    for _ in range(6):
        hand = await office.hand()
        assert hand.take() == ["Report"]
        await office.crash()
        await office.tick(UnixMs(office.now + 90_000))
    assert await office.run_states(task) == [RunState.COMPLETED, RunState.FAILED]
    await office.tick("2027-01-03T08:00Z")
    assert await (await office.hand()).work() == ["Report"]
    assert (await office.run_states(task))[-1] is RunState.COMPLETED
    assert len(office.told) == 1
    where, text = office.told[0]
    assert where == office.chat
    assert "“Report” failed Jan 2, 2027, 8:00 AM (UTC)" in text
    assert "runs next Jan 3, 2027, 8:00 AM (UTC)" in text
    assert office.replied == [], "nobody wrote a message that could not be answered"


async def test_failures_in_a_row_are_told_once_and_stop_a_series_only_when_it_says_so(office: Office) -> None:
    """C117: with N=3, days 2-4 fail: stopped, with exactly one notice of that."""
    stubborn, careful = await office.add("stubborn"), await office.add("careful", stop_after=3)
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    await hand.work()
    for day in range(2, 8):
        await office.tick(f"2027-01-0{day}T08:00Z")
        await hand.work(BROKEN)
    assert (await office.task(careful)).state is TaskState.STOPPED
    assert (await office.task(careful)).reason == "it failed 3 times in a row"
    assert len(await office.runs(careful)) == 4
    assert [text for _, text in office.told if "was stopped" in text and "careful" in text].__len__() == 1
    assert (await office.task(stubborn)).state is TaskState.ACTIVE
    assert len([text for _, text in office.told if "stubborn" in text]) == 1

    await office.series.resume(careful.id)
    assert (await office.task(careful)).failures == 0
    await office.tick("2027-01-08T08:00Z")
    await hand.work()
    assert (await office.run_states(careful))[-1] is RunState.COMPLETED


async def test_a_success_ends_a_row_of_failures_and_the_next_one_is_told_again(office: Office) -> None:
    task = await office.add()
    hand = await office.hand()
    for day, error in enumerate([BROKEN, BROKEN, None, BROKEN], 1):
        await office.tick(f"2027-01-0{day}T08:00Z")
        await hand.work(error)
    assert (await office.task(task)).failures == 1
    assert len(office.told) == 2


async def test_a_failing_script_is_tried_less_and_less_and_paused_at_last(office: Office) -> None:
    """messaging.md 6.5: back-off of 2, 4, 8 ... 60 minutes, paused after 8."""
    task = await office.add(cron="* * * * *", script="exit 3")
    hand, began = await office.hand(), []
    while (await office.task(task)).state is TaskState.ACTIVE:
        await office.tick(UnixMs(office.now + MINUTE))
        if hand.take():
            began.append(office.now)
            await hand.end(AckStatus.FAILED, SCRIPT_BROKEN)
    rests = [round((later - at) / MINUTE) for at, later in pairwise(began)]
    assert rests == [2, 4, 8, 16, 32, 60, 60]
    paused = await office.task(task)
    assert (paused.state, paused.reason) == (TaskState.PAUSED, "its script failed 8 times in a row")
    assert ["was paused" in text for _, text in office.told] == [False, True]


async def test_a_script_that_says_no_is_a_normal_run(office: Office) -> None:
    """A deliberate false is acknowledged as completed, without a turn."""
    task = await office.add(cron="*/10 * * * *", script="echo '{\"wakeAgent\": false}'")
    hand = await office.hand()
    await office.tick("2027-01-01T00:10Z")
    await hand.work(SCRIPT_BROKEN)
    await office.tick("2027-01-01T00:20Z")
    await hand.work()
    after = await office.task(task)
    assert (after.failures, after.script_failures, after.state) == (0, 0, TaskState.ACTIVE)


async def test_the_agent_is_told_why_a_run_failed(office: Office) -> None:
    await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    await hand.work(BROKEN)
    (row,) = hand.pending()
    assert not row.trigger
    assert "failed: protocol: it broke" in row.content.text  # type: ignore[union-attr]  # a notice has a text


async def test_what_people_were_not_told_before_the_host_died_is_told_by_the_next(office: Office) -> None:
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    office.schedule._tell = _dies  # type: ignore[method-assign]  # the test's own in its place
    await hand.work(BROKEN)
    office.renew()
    await office.schedule.start()
    assert len(office.told) == 1
    assert (await office.task(task)).unsaid is None


async def _dies() -> None: ...


@pytest.mark.parametrize("broken", [{"timezone": "Mars/Base"}, {"cron": "61 * * * *"}])
async def test_a_series_that_means_nothing_any_more_is_stopped_and_harms_no_other(
    office: Office, broken: dict[str, Any]
) -> None:
    """C109, C203: an old row with a zone that is gone, or an expression that is none."""
    good = await office.add("good")
    bad = await office.add("bad", **broken, next_at=ms("2027-01-01T08:00Z"))
    await office.tick("2027-01-01T08:00Z")
    assert await (await office.hand()).work() == ["good"]
    stopped = await office.task(bad)
    assert stopped.state is TaskState.STOPPED
    assert stopped.reason
    assert (await office.task(good)).state is TaskState.ACTIVE
    with pytest.raises(MalformedData):
        await office.series.resume(bad.id)
    await office.series.update(bad.id, TaskChange(timezone="UTC", cron="0 9 * * *"))
    await office.series.resume(bad.id)
    await office.tick("2027-01-01T09:00Z")
    assert await (await office.hand()).work() == ["bad"]


async def test_a_task_of_a_chat_that_is_gone_is_stopped(office: Office) -> None:
    from jackfield.models import Address

    task = await office.add(origin=Address("fake", "fake", "nowhere"))
    await office.tick("2027-01-01T08:00Z")
    stopped = await office.task(task)
    assert stopped.state is TaskState.STOPPED
    assert "not known any more" in (stopped.reason or "")
    (finding,) = await run_check(ServiceContext(office.bench.hub, None), "tasks")
    assert task.id in finding.text and "resume" in (finding.fix or "")


async def test_a_store_that_fails_is_asked_again_after_a_rest_and_nothing_is_lost(office: Office) -> None:
    """C213: the timer asks at once again for what is due; that must not become a busy loop."""
    from jackfield.errors import StoreFull

    task, store, tries = await office.add(), office.bench.hub.store, []
    right = store.write

    async def full(work: Any, *args: Any) -> Any:
        tries.append(work)
        raise StoreFull("no space")

    store.write = full  # type: ignore[method-assign, assignment]  # the test's own in its place
    office.set_clock("2027-01-01T08:00Z")
    for _ in range(5):
        await office.schedule.due()
        await asyncio.sleep(0.01)
    assert len(tries) == 1
    store.write = right  # type: ignore[method-assign]  # the test's own in its place
    office.bench.clock._sleepers[0][2].set_result(None)  # the rest is over
    await office.calm()
    await office.tick()
    assert await (await office.hand()).work() == ["Report"]
    assert await office.due_times(task) == [ms("2027-01-01T08:00Z")]


# ---- changes


async def test_a_cancelled_series_has_no_occurrence_that_waits(office: Office) -> None:
    """C115: queued behind a busy runner, cancelled: no run and no next one."""
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    done = await office.series.cancel(task.id)
    assert not done.begun
    assert hand.pending() == []
    (run,) = await office.runs(task)
    assert (run.run.state, await office.entry(run)) == (RunState.CANCELLED, InboundState.DROPPED)
    await office.tick("2027-01-05T08:00Z")
    assert hand.pending() == []
    with pytest.raises(Conflict):
        await office.series.resume(task.id)
    with pytest.raises(Conflict):
        await office.series.run(task.id)


async def test_cancelling_what_has_begun_says_so_and_it_is_not_tried_again(office: Office) -> None:
    """C115"""
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    hand.take()  # and the host has not heard of it
    assert (await office.series.cancel(task.id)).begun
    await office.crash()
    await office.tick(UnixMs(office.now + HOUR))
    assert (await office.hand()).pending() == []
    await office.schedule.sweep()
    assert await office.run_states(task) == [RunState.CANCELLED]


async def test_a_claim_that_its_runner_gave_back_after_the_cancel_is_settled(office: Office) -> None:
    """C115: the runner saw the withdrawal only after its claim."""
    task = await office.add()
    await office.tick("2027-01-01T08:00Z")
    hand = await office.hand()
    hand.take()
    assert (await office.series.cancel(task.id)).begun
    assert hand.mailbox.withdrawn([row.id for row in hand.held]) == {row.id for row in hand.held}
    await hand.end(AckStatus.RELEASED)
    assert await office.run_states(task) == [RunState.CANCELLED]
    assert hand.pending() == []


async def test_a_cancel_whose_host_died_half_way_is_finished_by_the_next(office: Office) -> None:
    """C115"""
    from dataclasses import replace

    task = await office.add()
    await office.tick("2027-01-01T08:00Z")

    def half(db: Any) -> None:
        fresh = tasks.task(db, task.id)
        assert fresh is not None
        tasks.change(db, fresh, replace(fresh, state=TaskState.CANCELLED, next_at=None, look_at=None))

    await office.bench.hub.store.write(half)
    office.renew()
    await office.schedule.start()
    assert (await office.hand()).pending() == []
    assert await office.run_states(task) == [RunState.CANCELLED]


async def test_cancelling_while_it_is_being_fed_leaves_nothing_in_the_inbox(office: Office) -> None:
    """C115"""
    task = await office.add()
    office.set_clock("2027-01-01T08:00Z")
    claimed = await office.bench.hub.store.write(claim, office.now, 10)
    await asyncio.gather(office.schedule._feed(claimed), office.series.cancel(task.id))
    assert (await office.hand()).pending() == []
    await office.calm()
    assert await office.run_states(task) == [RunState.CANCELLED]


async def test_cancel_by_the_series_id_after_two_runs_ends_it(office: Office) -> None:
    """D.19"""
    task = await office.add()
    hand = await office.hand()
    for day in (1, 2):
        await office.tick(f"2027-01-0{day}T08:00Z")
        await hand.work()
    await office.series.cancel(task.id)
    await office.tick("2027-01-09T08:00Z")
    assert hand.pending() == []
    assert len(await office.runs(task)) == 2


async def test_pause_and_resume_past_the_time_gives_one_run(office: Office) -> None:
    """D.19"""
    task = await office.add()
    hand = await office.hand()
    await office.series.pause(task.id)
    await office.tick("2027-01-03T09:00Z")
    assert hand.pending() == []
    assert (await office.task(task)).next_at == ms("2027-01-01T08:00Z"), "the stored time is kept"
    await office.series.resume(task.id)
    await office.tick()
    assert await hand.work() == ["Report"]
    await office.tick("2027-01-03T10:00Z")
    assert hand.pending() == []


async def test_a_pause_takes_back_what_waits_and_a_resume_gives_it(office: Office) -> None:
    """C115"""
    task = await office.add(cron=None, next_at=ms("2027-01-01T08:00Z"))
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    assert not (await office.series.pause(task.id)).begun
    assert not (await office.series.pause(task.id)).begun, "twice is fine"
    assert hand.pending() == []
    await office.series.resume(task.id)
    await office.tick("2027-01-01T08:01Z")
    assert await hand.work() == ["Report"]
    assert (await office.task(task)).state is TaskState.DONE


@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_a_task_that_ends_itself_from_its_own_run_stays_ended(office: Office, verb: str) -> None:
    """messaging.md 10: the acknowledgement of its run must not undo it."""
    task = await office.add()
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    hand.take()
    await office.collector.collect(office.session.id)
    assert (await getattr(office.series, verb)(task.id)).begun
    await hand.end()
    ended = await office.task(task)
    assert ended.state is (TaskState.PAUSED if verb == "pause" else TaskState.CANCELLED)
    assert await office.run_states(task) == [RunState.COMPLETED]
    await office.tick("2027-01-02T08:00Z")
    assert hand.pending() == []


async def test_a_new_expression_sets_the_next_occurrence_anew(office: Office) -> None:
    """messaging.md 10 (#3705)"""
    task = await office.add()
    after = (await office.series.update(task.id, TaskChange(cron="30 10 * * *", timezone="Asia/Tokyo"))).task
    assert after.next_at == after.look_at == ms("2027-01-01T01:30Z")
    once = (await office.series.update(task.id, TaskChange(cron=""))).task
    assert (once.cron, once.next_at) == (None, ms("2027-01-01T01:30Z"))
    later = (await office.series.update(task.id, TaskChange(at="2h"))).task
    assert later.next_at == office.now + 2 * HOUR


async def test_an_update_reaches_the_occurrence_that_waits(office: Office) -> None:
    task = await office.add("Old words")
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    assert not (await office.series.update(task.id, TaskChange(prompt="New words"))).begun
    assert hand.pending() == []
    await office.tick()
    assert await hand.work() == ["New words"]
    assert await office.due_times(task) == [ms("2027-01-01T08:00Z")]


async def test_an_update_leaves_what_has_begun_as_it_is_and_its_retry_too(office: Office) -> None:
    task = await office.add("Old words")
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    hand.take()
    assert (await office.series.update(task.id, TaskChange(prompt="New words"))).begun
    assert (await office.task(task)).look_at is None, "no second one beside it"
    await office.crash()
    await office.tick(UnixMs(office.now + 30_000))
    assert await (await office.hand()).work() == ["Old words"]
    await office.tick("2027-01-02T08:00Z")
    assert await (await office.hand()).work() == ["New words"]


async def test_an_update_that_is_refused_changes_nothing(office: Office) -> None:
    task = await office.add()
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    for change in (TaskChange(), TaskChange(cron="never"), TaskChange(prompt=" "), TaskChange(timezone="Mars/Base")):
        with pytest.raises(MalformedData):
            await office.series.update(task.id, change)
    assert await hand.work() == ["Report"]
    with pytest.raises(NotFound):
        await office.series.update(TaskId(task.id.replace("tsk_", "tsk_0")[:24]), TaskChange(prompt="x"))


async def test_an_extra_run_changes_nothing_about_the_schedule(office: Office) -> None:
    task = await office.add()
    hand = await office.hand()
    await office.series.pause(task.id)
    office.set_clock("2027-01-01T05:00Z")
    await office.series.run(task.id)
    with pytest.raises(Conflict):
        await office.series.run(task.id)
    assert await hand.work(BROKEN) == ["Report"]
    after = await office.task(task)
    assert (after.state, after.failures, after.next_at) == (TaskState.PAUSED, 0, ms("2027-01-01T08:00Z"))
    await office.series.resume(task.id)
    await office.series.run(task.id)
    await office.tick("2027-01-01T08:00Z")
    assert len(hand.take()) == 1, "not beside the extra one"
    await hand.end()
    await office.tick("2027-01-01T08:00:10+00:00")
    assert len(hand.take()) == 1


# ---- sessions, groups, crowds


@pytest.mark.parametrize("when", ["waiting", "between runs"])
async def test_a_series_outlives_its_cleared_conversation(office: Office, when: str) -> None:
    """`session clear` keeps tasks; also the occurrence that waited in it."""
    task = await office.add()
    if when == "waiting":
        await office.tick("2027-01-01T08:00Z")

    def clear(db: Any) -> None:
        for entry in inbound.open_entries(db, office.session.id):
            inbound.set_state(db, entry.id, InboundState.DROPPED, office.now, reason="session cleared")
        sessions.close_session(db, office.session.id, office.now)

    await office.bench.hub.store.write(clear)
    await office.schedule.settle()
    await office.tick("2027-01-01T08:00:30+00:00")
    fresh = await office.bench.hub.store.read(sessions.active_session, office.bench.group.id, office.session.key)
    assert fresh is not None and fresh.id != office.session.id
    assert await (await office.hand(fresh)).work() == ["Report"]
    assert await office.due_times(task) == [ms("2027-01-01T08:00Z")]


async def test_a_removed_group_takes_its_tasks_along(office: Office) -> None:
    await office.add()
    await office.tick("2027-01-01T08:00Z")

    await office.bench.hub.store.write(groups.remove_agent_group, office.bench.group.id, office.now)
    await office.schedule.settle()
    await office.schedule.sweep()
    await office.tick("2027-01-02T08:00Z")
    assert await office.bench.hub.store.read(tasks.tasks) == []
    assert office.bench.hub.troubles == {}


async def test_a_session_is_fed_a_prompts_worth_at_a_time(office: Office) -> None:
    """Ten thousand due at once: a message that comes in between waits behind one prompt, not behind all of them."""
    for number in range(3 * FEED + 5):
        await office.add(f"task {number:02d}")
    hand, seen = await office.hand(), []
    await office.tick("2027-01-01T08:00Z")
    while rows := hand.pending():
        assert len(rows) <= FEED
        seen += await hand.work()
        await office.tick(UnixMs(office.now + 1000))
    assert sorted(seen) == [f"task {number:02d}" for number in range(3 * FEED + 5)]


async def test_many_sessions_due_at_once_all_get_theirs(office: Office) -> None:
    made = []
    for number in range(40):
        chat = await office.bench.chat(f"c{number}")
        session = await office.bench.session(chat, f"shared:{number}")
        made.append(session)
        for part in range(3):
            await office.add(
                f"{number}.{part}", session_key=session.key, messaging_group_id=session.messaging_group_id, origin=chat
            )
    await office.tick("2027-01-01T08:00Z")
    counts = [len((await office.hand(session)).pending()) for session in made]
    assert counts == [3] * 40
    assert {session.id for session in office.woken} == {session.id for session in made}


async def test_ends_are_forgotten_after_a_month_and_series_that_are_over_with_them(office: Office) -> None:
    kept, over = await office.add("kept"), await office.add("over", cron=None, next_at=ms("2027-01-01T08:00Z"))
    hand = await office.hand()
    await office.tick("2027-01-01T08:00Z")
    await hand.work()
    office.set_clock("2027-01-20T00:00Z")
    await office.schedule.sweep()
    assert len(await office.runs(over)) == 1
    office.set_clock("2027-02-02T00:00Z")
    await office.schedule.sweep()
    assert await office.runs(kept) == []
    assert [task.id for task in await office.bench.hub.store.read(tasks.tasks)] == [kept.id]
