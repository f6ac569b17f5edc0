"""The doubles of the kit behave as what they stand for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import jackfield.testing
import pytest
from jackfield.api import (
    Accepted,
    ChannelContext,
    Cursor,
    HostContext,
    RuntimeContext,
    ToolContext,
    ToolFailed,
    tool,
)
from jackfield.clock import Clock, UnixMs
from jackfield.errors import JackfieldError, MalformedData, NotFound
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import Address, ChannelState, ChannelStatus, MessageReceived, MessageRef, Person
from jackfield.testing import ChannelRecorder, HostRecorder, ManualClock, ToolRecorder, bind_tools
from jackfield.testing.runtimes import BenchContext
from jackfield.testing.waiting import soon, until

HERE = Address("carrier", "main", "loft")


def said(text: str, key: str = "1", address: Address = HERE) -> MessageReceived:
    return MessageReceived(
        address=address,
        dedupe_key=key,
        occurred_at=UnixMs(1_800_000_000_000),
        ref=MessageRef(address, (key,)),
        sender=Person("ann"),
        text=text,
    )


# ---- importing


def test_every_public_name_is_there() -> None:
    for name in jackfield.testing.__all__:
        assert getattr(jackfield.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="nobody"):
        _ = jackfield.testing.nobody


def test_what_needs_no_pytest_imports_none() -> None:
    code = (
        "import sys; from jackfield.testing import ManualClock, Site, ChannelRecorder, ToolRecorder, bind_tools;"
        " import jackfield.testing.distributions, jackfield.testing.runtimes, jackfield.testing.trial;"
        " print('pytest' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# ---- the clock


async def test_the_clock_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(1000)
    manual = clock
    assert isinstance(manual, ManualClock)
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleeper("late", 5)), asyncio.create_task(sleeper("early", 2))]
    await manual.until_sleeping(2)
    assert manual.sleepers == (2.0, 5.0)
    await manual.advance(1.9)
    assert woken == []
    await manual.advance(10)
    assert woken == ["early", "late"]
    assert (manual.now(), round(manual.monotonic(), 3)) == (12_900, 1011.9)
    await asyncio.gather(*tasks)


async def test_a_loop_that_sleeps_runs_as_often_as_it_would_have() -> None:
    clock = ManualClock(0)
    ticks: list[int] = []

    async def tick() -> None:
        while True:
            await clock.sleep(10)
            ticks.append(clock.now())

    ticking = asyncio.create_task(tick())
    await clock.until_sleeping()
    await clock.advance(35)
    assert ticks == [10_000, 20_000, 30_000]
    ticking.cancel()
    await asyncio.wait({ticking})
    assert clock.sleepers == ()


async def test_a_jump_wakes_nobody_and_leaves_the_monotonic_clock_alone() -> None:
    clock = ManualClock(10_000)
    sleeping = asyncio.create_task(clock.sleep(1))
    await clock.until_sleeping()
    before = clock.monotonic()
    clock.jump(3600)
    clock.jump(-7200)
    assert (clock.now(), clock.monotonic(), sleeping.done()) == (10_000 - 3_600_000, before, False)
    await clock.advance(1)
    assert sleeping.done()
    await clock.sleep(0)
    await clock.sleep(-1)


# ---- waiting


async def test_waiting_in_vain_says_for_what() -> None:
    with pytest.raises(AssertionError, match=r"waited 0\.01 s in vain for rain"):
        await soon(asyncio.Event().wait(), "rain", 0.01)
    with pytest.raises(AssertionError, match="snow"):
        await until(lambda: False, "snow", 0.01)


# ---- the contexts


async def test_an_event_is_stored_once_and_comes_back_as_it_was(tmp_path: Path) -> None:
    context = ChannelRecorder("carrier", "main", tmp_path / "folder")
    _: ChannelContext = context
    first = await context.accept(said("hi"), Cursor("updates", "7"))
    assert not first.duplicate
    assert await context.accept(said("hi")) == Accepted(event_id=first.event_id, duplicate=True)
    assert context.events == [said("hi")]
    assert len(context.offered) == 2
    assert await context.cursor("updates") == "7"
    again = ChannelRecorder("carrier", "main", tmp_path / "folder", memory=context.memory)
    assert await again.cursor("updates") == "7"
    assert await again.accept(said("hi")) == Accepted(event_id=first.event_id, duplicate=True)
    assert context.folder.is_dir()


async def test_an_event_of_another_instance_is_refused(tmp_path: Path) -> None:
    context = ChannelRecorder("carrier", "main", tmp_path)
    with pytest.raises(MalformedData, match="carrier:main"):
        await context.accept(said("hi", address=Address("carrier", "other", "loft")))
    assert context.events == []


async def test_a_context_refuses_and_delays_as_it_is_told(tmp_path: Path) -> None:
    context = ChannelRecorder("carrier", "main", tmp_path)
    context.fail(JackfieldError("full"))
    with pytest.raises(JackfieldError, match="full"):
        await context.accept(said("hi"), Cursor("updates", "7"))
    assert (context.events, context.refused, await context.cursor("updates")) == ([], 1, None)
    context.mend()
    with context.held():
        accepting = asyncio.create_task(context.accept(said("hi")))
        await context.until(lambda: context.waiting == 1, "a call")
        assert not accepting.done()
    assert not (await accepting).duplicate


async def test_a_context_sees_states_wakes_secrets_and_broken_tasks(tmp_path: Path) -> None:
    context = ChannelRecorder("carrier", "main", tmp_path, secrets={"token": "x"})
    assert context.state is None
    context.report(ChannelStatus(state=ChannelState.READY))
    await context.until_ready()
    context.wake(HERE)
    assert context.woken == [HERE]
    assert (await context.secret("token"), await context.secret("other")) == ("x", None)

    async def breaks() -> None:
        raise ValueError("no")

    context.spawn(breaks(), "poll")
    context.spawn(asyncio.sleep(60), "endless")
    await context.until(lambda: bool(context.failed), "the task to break")
    assert [(name, str(problem)) for name, problem in context.failed] == [("poll", "no")]
    await context.close()


async def test_a_tools_context_takes_notes(tmp_path: Path) -> None:
    context = ToolRecorder(tmp_path / "w", answers={"count": lambda arguments: len(arguments), "fixed": [1]})
    _: ToolContext = context
    (tmp_path / "w" / "a.txt").write_text("A")
    sent = await context.send(text="hi", to="home", files=[tmp_path / "w" / "a.txt"])
    assert (sent.seq, context.sent[0].files) == (1, (("a.txt", b"A"),))
    with pytest.raises(ToolFailed, match="home, family"):
        await context.send(text="hi", to="nobody")
    assert await context.act("count", {"a": 1}) == 1
    assert await context.act("fixed", {}) == [1]
    with pytest.raises(ToolFailed, match="no action 'other'"):
        await context.act("other", {})
    assert [one.name for one in await context.destinations()] == ["home", "family"]


async def test_bound_tools_answer_like_those_of_a_session(tmp_path: Path) -> None:
    @tool
    async def halve(context: ToolContext, number: int) -> str:
        """Halve a number."""
        if number % 2:
            raise ToolFailed("it is odd")
        return str(number // 2)

    bound = bind_tools([halve], ToolRecorder(tmp_path))["halve"]
    assert (await bound.call({"number": 4})).text == "2"
    assert (await bound.call({"number": 3})).text == "Error: it is odd"
    assert (await bound.call({})).is_error


async def test_a_host_reaches_its_sessions_only() -> None:
    group, session = AgentGroupId("ag_00000000000000000000"), SessionId("ses_00000000000000000000")
    host = HostRecorder(sessions={session: group})
    _: HostContext = host
    await host.notify(session, "hi", wake=True)
    assert await host.broadcast(group, "all") == 1
    with pytest.raises(NotFound):
        await host.notify(SessionId("ses_00000000000000000001"), "hi")
    assert [notice.text for notice in host.notices] == ["hi", "all"]
    host.error = JackfieldError("full")
    with pytest.raises(JackfieldError):
        await host.agent_groups()


def test_a_bench_is_a_runtimes_context(tmp_path: Path) -> None:
    context: RuntimeContext = BenchContext(tmp_path)
    assert context.folder.is_relative_to(tmp_path)


# ---- fixtures


def test_the_fixtures_are_there(tmp_path: Path) -> None:
    """In a process of their own: this suite does not load the plugin."""
    (tmp_path / "test_them.py").write_text(_FIXTURE_TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "jackfield.testing.pytest", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_a_contract_run_gives_no_advice_about_settings_of_other_projects(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "jackfield.testing.pytest", "-p", "no:cacheprovider",
         "--pyargs", "jackfield.testing.contracts", "--plugin", "nothing-of-this-name"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "no plugin 'nothing-of-this-name' is installed" in done.stdout
    assert "Deprecat" not in done.stdout + done.stderr


_FIXTURE_TESTS = """
import os
import pytest
from jackfield.mailbox import RunnerMailbox
from jackfield.plugins import PluginRegistry

def test_homes(jackfield_home, session_folder):
    assert os.environ["JACKFIELD_HOME"] == str(jackfield_home.root)
    assert jackfield_home.initialised
    assert session_folder.root.is_relative_to(jackfield_home.root)
    mailbox = RunnerMailbox(session_folder, session_folder.read_spec().epoch)
    assert mailbox.pending(0) == []
    mailbox.close()

@pytest.mark.asyncio
async def test_contexts(make_channel_context, tool_context, host_context, manual_clock):
    context = make_channel_context("carrier", "main", secrets={"a": "b"})
    assert (context.instance, await context.secret("a")) == ("main", "b")
    assert host_context.clock is manual_clock
    assert (await tool_context.send(text="x")).seq == 1

def test_sites(plugin_site):
    plugin_site.add("jackfield-x", entry_points={"jackfield.tools": {"x": "x_module"}}, files={"x_module.py": ""})
    assert [one.name for one in PluginRegistry(state_file=plugin_site.state_file).listing() if one.name == "x"] == ["x"]
"""
