"""Hooks on the message path: one by one, bounded, and each plugin's trouble its own (C187)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pluggy
import pytest
from jackfield.api import OutboundPart, OutboundVerdict, SendPath, hookimpl
from jackfield.api.hookspecs import HOOKS, PROJECT, HookKind, HookSpecs
from jackfield.errors import HookFailed
from jackfield.models import Address, OutMessage
from jackfield.plugins.dispatcher import PAUSE_AFTER, PAUSE_SECONDS, HookDispatcher

PART = OutboundPart(
    path=SendPath.ANSWER,
    address=Address(channel_type="test", instance="test", platform_id="1"),
    message=OutMessage(text="ok"),
    session=None,
)


def dispatcher(*plugins: tuple[str, Any], seconds: float = 30.0, clock: list[float] | None = None) -> HookDispatcher:
    """With the plugins so that they are called in the order given; pluggy calls the last registered first."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(HookSpecs)
    for name, plugin in reversed(plugins):
        manager.register(plugin, name=name)
    made = HookDispatcher(seconds=seconds, monotonic=(lambda: clock[0]) if clock is not None else time.monotonic)
    made.use(manager)
    return made


def plugin(**hooks: Any) -> SimpleNamespace:
    for name, function in hooks.items():
        function.__name__ = name
    return SimpleNamespace(**{name: hookimpl(function) for name, function in hooks.items()})


async def exclaim(text: str) -> str:
    return text + "!"


async def capitals(text: str) -> str:
    return text.upper()


async def fails(text: str) -> str:
    raise ValueError("filter table missing")


async def hangs() -> None:
    await asyncio.Event().wait()


async def ignores_being_cancelled() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if asyncio.get_running_loop().is_closed() or _released.is_set():
                raise


_released = asyncio.Event()


@pytest.fixture(autouse=True)
def release() -> Iterator[None]:
    _released.clear()
    yield
    _released.set()


async def test_a_failing_hook_drops_neither_the_others_effects_nor_the_text() -> None:
    """C187: A appends "!", B raises, C upper-cases."""
    hooks = dispatcher(
        ("a", plugin(compose_outbound=exclaim)),
        ("b", plugin(compose_outbound=fails)),
        ("c", plugin(compose_outbound=capitals)),
    )
    assert await hooks.compose("compose_outbound", "text", "ok", part=PART) == "OK!"
    assert hooks.failures == {("b", "compose_outbound"): 1}


async def test_a_failure_is_logged_with_plugin_hook_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    """C187."""
    hooks = dispatcher(("jackfield-tools-b", plugin(compose_outbound=fails)))
    await hooks.compose("compose_outbound", "text", "ok", part=PART)
    assert caplog.messages == ["plugin jackfield-tools-b: hook compose_outbound: ValueError: filter table missing"]


async def test_a_guard_that_fails_says_no() -> None:
    """C187: B as a guard blocks, with the reason."""

    async def guard(part: OutboundPart) -> OutboundVerdict:
        raise ValueError("filter table missing")

    hooks = dispatcher(("b", plugin(intercept_outbound=guard)))
    with pytest.raises(HookFailed) as failed:
        await hooks.first("intercept_outbound", part=PART)
    assert (failed.value.plugin, failed.value.hook) == ("b", "intercept_outbound")
    assert "filter table missing" in failed.value.reason
    assert isinstance(failed.value.__cause__, ValueError)


async def test_the_first_answer_that_is_not_none_wins() -> None:
    asked: list[str] = []

    def asking(name: str, answer: OutboundVerdict | None) -> SimpleNamespace:
        async def intercept(part: OutboundPart) -> OutboundVerdict | None:
            asked.append(name)
            return answer

        return plugin(intercept_outbound=intercept)

    wanted = OutboundVerdict(allow=False, reason="b")
    hooks = dispatcher(
        ("a", asking("a", None)), ("b", asking("b", wanted)), ("c", asking("c", OutboundVerdict(allow=True)))
    )
    assert await hooks.first("intercept_outbound", part=PART) is wanted
    assert asked == ["a", "b"]


async def test_without_an_implementation_there_is_no_answer_and_no_change() -> None:
    hooks = dispatcher()
    assert await hooks.first("intercept_outbound", part=PART) is None
    assert await hooks.compose("compose_outbound", "text", "ok", part=PART) == "ok"
    await hooks.notify("turn_ended", turn=None)
    assert not hooks.has("turn_ended")


async def test_an_answer_of_another_type_is_a_failure() -> None:
    async def allows(part: OutboundPart) -> Any:
        return True

    async def forgets(text: str) -> Any:
        return None

    hooks = dispatcher(("a", plugin(intercept_outbound=allows, compose_outbound=forgets)))
    with pytest.raises(HookFailed, match="answered with bool, not with OutboundVerdict"):
        await hooks.first("intercept_outbound", part=PART)
    assert await hooks.compose("compose_outbound", "text", "ok", part=PART) == "ok"
    assert hooks.failures[("a", "compose_outbound")] == 1


async def test_a_hook_that_hangs_is_given_up_at_its_bound() -> None:
    """C187."""

    async def guard() -> Any:
        await hangs()

    async def slow_text() -> Any:
        await hangs()

    hooks = dispatcher(("b", plugin(intercept_outbound=guard, compose_outbound=slow_text)), seconds=0.05)
    with pytest.raises(HookFailed, match=r"did not answer within 0\.05 s"):
        await hooks.first("intercept_outbound", part=PART)
    assert await hooks.compose("compose_outbound", "text", "ok", part=PART) == "ok"
    await hooks.close()


async def test_a_hook_that_ignores_being_cancelled_is_left_behind() -> None:
    async def stubborn() -> Any:
        await ignores_being_cancelled()

    hooks = dispatcher(("b", plugin(intercept_outbound=stubborn)), seconds=0.05)
    with pytest.raises(HookFailed):
        await hooks.first("intercept_outbound", part=PART)
    _released.set()
    await hooks.close()


async def test_a_hook_that_blocks_the_thread_is_measured_and_counts_as_failed() -> None:
    """C187: blocking code can't be cut, but it does not pass for an answer."""
    clock = [0.0]

    async def blocks(part: OutboundPart) -> OutboundVerdict:
        clock[0] += 31.0
        return OutboundVerdict(allow=True)

    hooks = dispatcher(("b", plugin(intercept_outbound=blocks)), clock=clock)
    with pytest.raises(HookFailed, match=r"blocked everything for 31\.0 s"):
        await hooks.first("intercept_outbound", part=PART)


@pytest.mark.parametrize("problem", [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), RecursionError()])
async def test_whatever_a_hook_raises_ends_neither_the_loop_nor_the_caller(problem: BaseException) -> None:
    async def ends(turn: object) -> None:
        raise problem

    hooks = dispatcher(("b", plugin(turn_ended=ends)))
    await hooks.notify("turn_ended", turn=None)
    assert hooks.failures == {("b", "turn_ended"): 1}


async def test_observers_are_told_side_by_side_and_one_failure_stays_alone() -> None:
    both = asyncio.Event()
    told: list[str] = []

    async def waits(turn: object) -> None:
        await asyncio.wait_for(both.wait(), 30)
        told.append("a")

    async def wakes(turn: object) -> None:
        both.set()
        told.append("b")

    async def breaks(turn: object) -> None:
        raise RuntimeError("no")

    hooks = dispatcher(
        ("a", plugin(turn_ended=waits)), ("b", plugin(turn_ended=wakes)), ("c", plugin(turn_ended=breaks))
    )
    await hooks.notify("turn_ended", turn=None)
    assert sorted(told) == ["a", "b"]
    assert hooks.failures == {("c", "turn_ended"): 1}


async def test_an_observer_that_keeps_hanging_is_left_out_for_a_while() -> None:
    clock = [0.0]
    calls: list[int] = []

    async def late(turn: object) -> None:
        calls.append(1)
        clock[0] += 31.0

    hooks = dispatcher(("b", plugin(turn_ended=late)), clock=clock)
    for _ in range(PAUSE_AFTER + 2):
        await hooks.notify("turn_ended", turn=None)
    assert len(calls) == PAUSE_AFTER
    clock[0] += PAUSE_SECONDS
    await hooks.notify("turn_ended", turn=None)
    assert len(calls) == PAUSE_AFTER + 1


async def test_tryfirst_and_trylast_order_the_calls_as_pluggy_would() -> None:
    class First:
        @hookimpl(tryfirst=True)
        async def compose_outbound(self, text: str) -> str:
            return text + "1"

    class Last:
        @hookimpl(trylast=True)
        async def compose_outbound(self, text: str) -> str:
            return text + "3"

    class Middle:
        @hookimpl
        async def compose_outbound(self, text: str) -> str:
            return text + "2"

    hooks = dispatcher(("last", Last()), ("middle", Middle()), ("first", First()))
    assert await hooks.compose("compose_outbound", "text", "", part=PART) == "123"


async def test_a_hook_gets_only_the_arguments_that_it_names() -> None:
    got: list[tuple[str, ...]] = []

    async def named(session_id: str) -> None:
        got.append((session_id,))

    hooks = dispatcher(("a", plugin(activity_recorded=named)))
    await hooks.notify("activity_recorded", session_id="ses_1", activity=None)
    assert got == [("ses_1",)]


async def test_cancelling_the_caller_cancels_the_hook() -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def waits(turn: object) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    hooks = dispatcher(("a", plugin(turn_ended=waits)))
    caller = asyncio.create_task(hooks.notify("turn_ended", turn=None))
    await asyncio.wait_for(began.wait(), 30)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.wait_for(ended.wait(), 30)


def test_every_message_hook_says_what_it_answers_with() -> None:
    """The dispatcher types each answer by its specification."""
    made = HookDispatcher()
    for hook, kind in HOOKS.items():
        if kind in (HookKind.DECIDING, HookKind.COMPOSING):
            assert all(isinstance(one, type) for one in made._expected(hook)), hook
