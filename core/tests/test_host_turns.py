"""Who gets the next free place for a runner: what people wrote takes turns with what has time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from jackfield.clock import SystemClock
from jackfield.host.supervisor import Supervisor
from jackfield.ids import AgentGroupId, SessionId


class Places:
    """A supervisor with one place, which notes whose turn it is."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        hub = SimpleNamespace(
            clock=SystemClock(), settings=SimpleNamespace(runner_cap=1), store=self, spawn=self._spawn, trouble=print
        )
        self.supervisor = Supervisor(
            cast(Any, hub), cast(Any, self), on_ring=print, parked=self._parked, before_launch=cast(Any, None),
            on_ended=cast(Any, None), on_cannot_start=cast(Any, None), on_damaged=cast(Any, None), nudge=lambda: None,
        )  # fmt: skip

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        return task

    async def read(self, question: Any, session_id: str) -> Any:
        return SimpleNamespace(id=session_id)

    async def _parked(self, session: Any) -> bool:
        """Every session is found to rest when its turn has come, which gives the place to the next."""
        self.order.append(session.id)
        await asyncio.sleep(0)
        return True


@pytest.fixture
async def places() -> AsyncIterator[Places]:
    made = Places()
    yield made
    for task in made.tasks:
        task.cancel()


def wake(places: Places, session: str, *, group: str = "a", patient: bool = False) -> None:
    places.supervisor.wake(SessionId(session), AgentGroupId(group), patient=patient)


async def started(places: Places, count: int) -> list[str]:
    places.supervisor.open()
    async with asyncio.timeout(30):
        while len(places.order) < count:
            await asyncio.sleep(0)
    return places.order


async def test_a_message_does_not_wait_behind_a_thousand_tasks_of_its_own_agent(places: Places) -> None:
    for number in range(1000):
        wake(places, f"task{number}", patient=True)
    for number in range(3):
        wake(places, f"chat{number}")
    order = await started(places, 1003)
    assert [order.index(f"chat{number}") for number in range(3)] == [1, 3, 5]
    assert sorted(order) == sorted({*order}), "each once"


async def test_tasks_do_not_wait_for_ever_behind_messages(places: Places) -> None:
    wake(places, "task", patient=True)
    for number in range(100):
        wake(places, f"chat{number}")
    assert (await started(places, 101)).index("task") <= 1


async def test_a_session_that_had_time_has_none_any_more_when_somebody_writes(places: Places) -> None:
    for number in range(50):
        wake(places, f"task{number}", patient=True)
    wake(places, "task49")
    wake(places, "task49", patient=True)
    order = await started(places, 50)
    assert order.index("task49") <= 1
    assert order.count("task49") == 1


async def test_other_agents_get_their_turn_beside_one_with_many_tasks(places: Places) -> None:
    for number in range(50):
        wake(places, f"task{number}", patient=True)
    wake(places, "other", group="b")
    assert (await started(places, 51)).index("other") <= 1
