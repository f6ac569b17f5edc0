"""The machine's clock is set while messages are on their way, or the machine slept."""

from __future__ import annotations

import textwrap

import pytest

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange

DAY = 86_400
pytestmark = pytest.mark.slow


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    """Its host reads the clock through a file that says by how much it is moved."""
    made = make_exchange(host_settings="silent_ceiling = 60")
    (made.root / "site" / "sitecustomize.py").write_text(
        textwrap.dedent(f"""
            import time
            real = time.time_ns
            def moved():
                try:
                    with open({str(made.root / "moved")!r}) as file:
                        return real() + int(file.read()) * 1_000_000_000
                except OSError:  # a runner, which does not see it
                    return real()
            time.time_ns = moved
        """),
        encoding="utf-8",
    )
    (made.root / "moved").write_text("0")
    made.join("c1")
    return made.start()


def move(exchange: Exchange, seconds: int) -> None:
    part = exchange.root / "moved.part"
    part.write_text(str(seconds))
    part.replace(exchange.root / "moved")


@pytest.mark.parametrize("seconds", [DAY, -DAY])
def test_a_turn_outlives_a_clock_that_is_moved(exchange: Exchange, seconds: int) -> None:
    """A machine that slept for a night must not stop every runner when it wakes."""
    exchange.say("c1", "mock: say begun mock: sleep 23 mock: say done")
    exchange.wait_for(exchange.processes, "the runner")
    move(exchange, seconds)
    exchange.wait_text("c1", "done")
    exchange.wait_for(lambda: exchange.state_of("c1") == [("completed", None)], "the end")
    assert sum("done" in text for text in exchange.texts("c1")) == 1
    assert "no sign of life" not in exchange.tail()


def test_a_retry_comes_although_the_clock_was_set_back(exchange: Exchange) -> None:
    exchange.say("c1", "mock: fail overloaded times=1 mock: say at last")
    exchange.wait_for(lambda: [state for state, _ in exchange.state_of("c1")] == ["retrying"], "the failure")
    move(exchange, -DAY)
    exchange.wait_for(lambda: exchange.state_of("c1") == [("completed", None)], "the end", bound=100)
    exchange.wait_text("c1", "at last")  # it is sent after the turn's end is recorded
