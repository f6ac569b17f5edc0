"""Somebody sets the machine's clock, or it slept: what waits goes on waiting as long as it would have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from jackfield.clock import UnixMs
from jackfield.config.home import Home
from jackfield.host.application import open_hub
from jackfield.host.timer import DueTimer
from jackfield.host.wall_clock import WallClock
from jackfield.store import due, sessions
from jackfield.testing import ManualClock

DAY = 86_400.0


@pytest.mark.parametrize("seconds", [DAY, -DAY, 6.0, -6.0])
async def test_a_clock_that_was_moved_is_noticed_once(seconds: float) -> None:
    clock = ManualClock()
    wall = WallClock(clock)
    await clock.advance(3600)
    assert wall.jumped() == 0
    clock.jump(seconds)
    await clock.advance(10)
    assert wall.jumped() == pytest.approx(seconds)
    assert wall.jumped() == 0


async def test_what_waits_does_not_wait_a_day_longer_when_the_clock_is_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    home = Home(tmp_path / "home")
    home.create()
    home.jackfield_toml.touch()
    async with open_hub(home, clock=clock) as hub:
        moved = asyncio.Event()

        async def set_back(seconds: float) -> None:
            assert seconds == pytest.approx(DAY)
            await hub.store.write(due.move, round(-seconds * 1000), clock.now())
            moved.set()

        until = UnixMs(clock.now() + 60_000)
        await hub.store.write(sessions.park_scope, "provider", "mock", until, "busy")
        timer = DueTimer(hub, due=(), sweep=(), set_back=set_back)
        timer.start()
        await asyncio.sleep(0)  # it looks at the clock once before that is set back
        clock.jump(-DAY)
        timer.nudge()
        await asyncio.wait_for(moved.wait(), 30)
        await timer.stop()
        assert await hub.store.read(due.next_due) == clock.now() + 60_000
