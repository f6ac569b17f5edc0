"""Connections that come back, and the guards against echoes and loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.errors import AuthFailed, RateLimited, Transient
from jackfield.models import ChannelState, ChannelStatus
from jackfield.testing.clock import ManualClock
from jackfield.testing.waiting import let_run, soon
from jackfield_channel_kit.reconnect import Watchdog, backoff, supervise
from jackfield_channel_kit.selfguard import SelfGuard

Ready = Callable[[], None]


class Line:
    """A connection whose fate a test decides, and what was reported about it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.statuses: list[ChannelStatus] = []
        self.connected: list[float] = []
        self.fate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.readily = True
        self.task = asyncio.create_task(supervise(self.connect, self.statuses.append, clock=clock, random=lambda: 1.0))

    async def connect(self, ready: Ready) -> None:
        self.connected.append(self.clock.monotonic())
        if self.readily:
            ready()
            ready()
        self.fate = asyncio.get_running_loop().create_future()
        await self.fate

    async def end(self, problem: BaseException | None) -> None:
        """The connection ends: with this problem, or quietly."""
        await let_run()
        if problem is None:
            self.fate.set_result(None)
        else:
            self.fate.set_exception(problem)
        await let_run()

    @property
    def wait(self) -> float:
        (seconds,) = self.clock.sleepers
        return seconds

    @property
    def states(self) -> list[ChannelState]:
        return [status.state for status in self.statuses]


async def test_waits_grow_to_a_minute_and_begin_anew_after_a_stable_one() -> None:
    """C236: a conflict with another poller is tried again and again, and the status says so."""
    line = Line(ManualClock())
    waits = []
    for _ in range(8):
        await line.end(Transient("another instance is polling"))
        waits.append(line.wait)
        await line.clock.advance(line.wait)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
    assert "another instance is polling (8 in a row); next try in 60 s" in line.statuses[-2].detail
    await line.clock.advance(59)
    await line.end(None)
    assert line.wait == pytest.approx(60)
    await line.clock.advance(60)
    await line.clock.advance(60)
    await line.end(OSError("cut"))
    assert line.wait == pytest.approx(1)
    assert line.states[:4] == ["ready", "reconnecting", "ready", "reconnecting"]
    line.task.cancel()
    await asyncio.gather(line.task, return_exceptions=True)


async def test_a_connection_that_never_gets_ready_is_not_stable_however_long_it_tries() -> None:
    line = Line(ManualClock())
    line.readily = False
    for expected in (1, 2):
        await let_run()
        await line.clock.advance(100)
        await line.end(Transient("no answer"))
        assert line.wait == pytest.approx(expected)
        await line.clock.advance(line.wait)
    assert ChannelState.READY not in line.states
    line.task.cancel()
    await asyncio.gather(line.task, return_exceptions=True)


async def test_a_wait_that_the_platform_names_is_kept() -> None:
    """C077."""
    line = Line(ManualClock())
    await line.end(RateLimited("slow", retry_after=300))
    assert line.wait == 300
    line.task.cancel()
    await asyncio.gather(line.task, return_exceptions=True)


async def test_a_revoked_login_ends_it_and_is_reported_once() -> None:
    """C234."""
    line = Line(ManualClock())
    await line.end(AuthFailed("token revoked"))
    await soon(line.task, "the end")
    assert line.states == ["ready", "auth_failed"]
    assert line.statuses[-1].detail == "token revoked"


async def test_a_failure_that_nobody_expected_is_logged_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    line = Line(ManualClock())
    await line.end(KeyError("ts"))
    assert line.statuses[-1].detail == "KeyError: 'ts'; next try in 1 s"
    assert "nobody expected" in caplog.text
    line.task.cancel()
    await asyncio.gather(line.task, return_exceptions=True)


async def test_cancelling_ends_the_connection_at_once() -> None:
    line = Line(ManualClock())
    await let_run()
    line.task.cancel()
    await asyncio.gather(line.task, return_exceptions=True)
    assert line.task.cancelled()
    assert line.fate.cancelled()


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_wait_is_never_zero_and_never_above_the_most(failures: int, chance: float) -> None:
    assert 0.5 <= backoff(failures, 1.0, 60.0, chance) <= 60.0


async def test_a_silent_connection_is_noticed_and_a_talking_one_is_left_alone() -> None:
    clock = ManualClock()
    dog = Watchdog(30, clock=clock)
    ended = asyncio.Event()

    async def read() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return "never"

    guarded = asyncio.create_task(dog.guard(read()))
    for _ in range(5):
        await clock.until_sleeping()
        await clock.advance(29)
        dog.heard()
    await clock.advance(29)
    assert not guarded.done()
    await clock.advance(1)
    with pytest.raises(Transient, match="nothing was heard for 30 s"):
        await soon(guarded, "the alarm")
    assert ended.is_set()


async def test_a_guarded_reader_gives_its_result_or_its_error_and_takes_cancelling() -> None:
    clock = ManualClock()
    dog = Watchdog(30, clock=clock)

    async def fails() -> None:
        raise OSError("cut")

    async def works() -> int:
        return 7

    assert await dog.guard(works()) == 7
    with pytest.raises(OSError, match="cut"):
        await dog.guard(fails())
    inner = asyncio.get_running_loop().create_future()
    guarded = asyncio.create_task(dog.guard(inner))
    await clock.until_sleeping()
    guarded.cancel()
    await asyncio.gather(guarded, return_exceptions=True)
    assert inner.cancelled()
    assert clock.sleepers == ()


def test_own_events_are_known_by_account_and_by_what_was_sent() -> None:
    """C230: comments, edits and labels of the own app; C232: another bot's copies are not ours."""
    guard = SelfGuard(["bot-1", "app-1"], size=2)
    for sent in ("m1", "m2", "m3"):
        guard.sent(sent)
    assert guard.is_own("app-1")
    assert guard.is_own("somebody", "m3")
    assert not guard.is_own("somebody", "m1")
    assert not guard.is_own("bridge", "m9", "[A] ann: hi")
    assert not guard.is_own(None)


def test_with_a_shared_account_the_marker_decides() -> None:
    """C230: a person and the bot share one login."""
    guard = SelfGuard(["octo"], marker="<!-- jackfield -->")
    guard.sent("m1")
    assert guard.is_own("octo", "m1", "edited by hand")
    assert guard.is_own("octo", "m2", "Done. <!-- jackfield -->")
    assert not guard.is_own("octo", "m3", "please look at this")
    assert not guard.is_own("octo", "m4")
