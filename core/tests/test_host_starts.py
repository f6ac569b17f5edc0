"""Runners that break off when they begin: started again with growing rests, and told of once (C207)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jackfield.host.supervisor import BACKOFF, TELL_AFTER, Runner, Supervisor
from jackfield.ids import AgentGroupId, SessionId
from jackfield.testing import ManualClock

SESSION = SessionId("ses_1")


@dataclass
class Falling:
    """The handle of a runner that lives for so many seconds and ends with a code."""

    clock: ManualClock
    lives: float
    code: int
    peer_uid: int | None = None
    epoch: int = 1

    async def wait(self) -> int:
        await self.clock.sleep(self.lives)
        return self.code

    def logs(self) -> list[str]:
        return ["Traceback", "ModuleNotFoundError: no module named 'newer_thing'"]


class Bell:
    def expect(self, uid: int | None) -> None: ...

    def ring(self) -> None: ...

    async def close(self) -> None: ...


class Stand:
    """A supervisor whose runners fall over, on a clock that the test moves; `starts` are the moments of launches."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lives, self.code, self.worked = 0.4, 1, False
        self.starts: list[float] = []
        self.told: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        hub = SimpleNamespace(
            clock=self.clock, settings=SimpleNamespace(runner_cap=4), store=self, spawn=self._spawn,
            trouble=lambda name: None, folder_of=lambda session: None,
        )  # fmt: skip
        self.supervisor = Supervisor(
            cast(Any, hub), cast(Any, self), on_ring=lambda id: None, parked=self._no, before_launch=self._nothing,
            on_ended=self._ended, on_cannot_start=self._tell, on_damaged=lambda *args: None, nudge=lambda: None,
        )  # fmt: skip

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        return task

    async def read(self, question: Any, id: str) -> Any:
        return SimpleNamespace(id=id, agent_group_id=AgentGroupId("ag_1"))

    async def _no(self, session: Any) -> bool:
        return False

    async def _nothing(self, session: Any) -> None: ...

    async def _ended(self, runner: Runner, code: int) -> bool:
        runner.worked = self.worked
        return True  # its message is still unanswered

    async def _tell(self, session: Any, reason: str) -> None:
        self.told.append(reason)

    async def launch(self, session: Any, make_bell: Any) -> Any:
        self.starts.append(self.clock.monotonic())
        handle = Falling(self.clock, self.lives, self.code)
        return SimpleNamespace(session=session, handle=handle, runtime=None, bell=Bell())

    async def run(self, *, until: int) -> None:
        """Let time pass, as the host's timer does, until so many were launched."""
        self.supervisor.wake(SESSION, AgentGroupId("ag_1"))
        for _ in range(20_000):
            if len(self.starts) >= until:
                return
            await self.clock.advance(0.5)
            at = self.supervisor.soonest()
            if at is not None and at <= self.clock.monotonic():
                await self.supervisor.due()
        raise AssertionError(f"{len(self.starts)} starts only")


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    made = Stand()
    made.supervisor.open()
    yield made
    for task in made.tasks:
        task.cancel()


async def test_a_runner_that_breaks_off_twenty_times_is_started_with_growing_rests_and_told_of_once(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    """C207: exit 1 after 0.4 s."""
    await stand.run(until=TELL_AFTER)
    assert stand.told == [], "the first ones may be an accident"
    await stand.run(until=21)
    rests = [later - at for at, later in pairwise(stand.starts)]
    expected = [*BACKOFF, *([BACKOFF[-1]] * 20)]
    assert all(wait <= rest < wait + 2 for rest, wait in zip(rests, expected, strict=False)), rests
    assert stand.told == ["it breaks off when it begins"], "once, and without what a program wrote"
    assert "no module named 'newer_thing'" in caplog.text, "the operator sees its last lines"


async def test_a_message_that_comes_meanwhile_does_not_shorten_the_rest_and_a_change_does(stand: Stand) -> None:
    """C207: only an operator's change is a reason to try at once."""
    await stand.run(until=4)
    await stand.clock.advance(1)
    for _ in range(10):
        stand.supervisor.wake(SESSION, AgentGroupId("ag_1"))
        await stand.clock.advance(0.1)
    assert len(stand.starts) == 4
    stand.supervisor.forgive()
    await stand.clock.advance(0.1)
    assert len(stand.starts) == 5


@pytest.mark.parametrize(("lives", "code", "worked"), [(0.4, 0, False), (60.0, 1, False), (0.4, 1, True)])
async def test_a_runner_that_ended_well_lived_a_while_or_had_work_is_no_failed_start(
    stand: Stand, lives: float, code: int, worked: bool
) -> None:
    """What it had in its hands has its own retries, with their own rests."""
    stand.lives, stand.code, stand.worked = lives, code, worked
    await stand.run(until=6)
    assert stand.told == []
    assert all(later - at < lives + 2 for at, later in pairwise(stand.starts))
