"""How fast messages leave: a session's own rate, whatever its chats allow (messaging.md 8.2)."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from hypothesis import given
from hypothesis import strategies as st
from jackfield.config import HostSettings
from jackfield.host.pacing import Bucket, Rate, next_free


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


def allow(bench: Bench, messages_per_minute: int) -> None:
    host = HostSettings(messages_per_minute=messages_per_minute)
    bench.hub.configuration = replace(bench.hub.configuration, host=host)


async def test_a_runaway_agent_gets_a_minutes_worth_out_and_then_one_after_the_other(bench: Bench) -> None:
    """To however many chats; another session is not held up by it."""
    allow(bench, 6)
    chats = [await bench.chat(f"c-{number}") for number in range(2)]
    calm = await bench.chat("c-calm")
    session, other = await bench.session(chats[0]), await bench.session(calm)
    for number in range(10):
        await bench.post(session, chats[number % 2], f"m{number}")
    await bench.post(other, calm, "calm")
    await bench.quiet()
    times = sorted(call.at for call in bench.channel.arrived if call.text != "calm")
    assert len(times) == 10
    assert times[5] - times[0] < 45, "a minute's worth needs no minute"
    assert all(later - earlier >= 9.9 for earlier, later in itertools.pairwise(times[5:]))
    (at,) = [call.at for call in bench.channel.arrived if call.text == "calm"]
    assert at <= times[6], "another session does not wait for it"


async def test_a_reload_changes_it_for_what_still_waits(bench: Bench) -> None:
    allow(bench, 600)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    for number in range(30):
        await bench.post(session, chat, f"m{number}")
    await bench.quiet()
    assert bench.channel.arrived[-1].at < 58, "all at once, as far as the rate goes"
    allow(bench, 1)
    for number in range(2):
        await bench.post(session, chat, f"later {number}")
    await bench.quiet()
    assert bench.channel.arrived[-1].at - bench.channel.arrived[-2].at >= 59


@given(count=st.integers(1, 1000), sends=st.lists(st.floats(0, 10), min_size=1, max_size=100))
def test_no_minute_sees_more_than_twice_what_a_minute_allows(count: int, sends: list[float]) -> None:
    """A full bucket and what flows in meanwhile."""
    rate, bucket, now, went = Rate.per_minute(count), Bucket(), 0.0, list[float]()
    for pause in sends:
        now += pause
        at, bucket = next_free(bucket, rate, now)
        assert at >= now
        went.append(at)
    for start in went:
        assert sum(start <= at < start + 60 for at in went) <= 2 * count
