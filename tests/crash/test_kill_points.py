"""Kill -9 at every named point of the message path: nothing is lost, at most the send in flight is doubled.

Architecture, section 10; C088, C209; messaging.md appendix D.26.
"""

from __future__ import annotations

import time
from collections import Counter

import pytest
from jackfield.points import POINTS

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange

CHATS = ("c1", "c2")
ROUNDS = 3
APART = ("host.agents.", "host.approval.", "host.schedule.")
"""Not on the path of a message; the tests of these rooms visit them."""
PASSED = {point for point in POINTS if not point.startswith(APART)}
HOST_POINTS = sorted(point for point in PASSED if point.startswith(("host.", "store.", "mailbox.host.")))
RUNNER_POINTS = sorted(PASSED - set(HOST_POINTS))
VISITS = (1, 2)


def say_everything(exchange: Exchange) -> dict[str, list[str]]:
    """Three messages to each chat, the last using a tool; what must arrive there, in order."""
    expected: dict[str, list[str]] = {chat: [] for chat in CHATS}
    for number in range(ROUNDS):
        for chat in CHATS:
            text = f"{chat}-{number}"
            if number == ROUNDS - 1:
                exchange.say(chat, f'mock: tool send_message {{"text": "tool {text}"}} mock: say end {text}')
                expected[chat] += [f"tool {text}", f"end {text}"]
            else:
                exchange.say(chat, f"mock: say {text}")
                expected[chat].append(text)
    return expected


def assert_all_arrived(exchange: Exchange, expected: dict[str, list[str]]) -> None:
    for chat, texts in expected.items():
        exchange.wait_for(
            lambda chat=chat, texts=texts: all(any(text in got for got in exchange.texts(chat)) for text in texts),  # type: ignore[misc]  # mypy infers no lambda with a default
            f"{texts} in {chat}, got {exchange.texts(chat)}",
            bound=90,
        )
    exchange.wait_for(lambda: settled(exchange), "an end for every message")
    for chat, texts in expected.items():
        got = exchange.texts(chat)
        doubled = [text for text, count in Counter(got).items() if count > 1]
        assert len(doubled) <= 1, f"{chat}: more than the send in flight was doubled: {got}"
        assert all(Counter(got)[text] <= 2 for text in doubled), got
        assert all(sum(text in item for item in got) <= 2 for text in texts), got
        # Several messages may be answered in one turn; there the tool's words leave before the turn's.
        everything = "\n".join(got)
        said = [everything.index(text) for text in texts if not text.startswith("tool ")]
        assert said == sorted(said), f"{chat}: out of order: {got}"


def settled(exchange: Exchange) -> bool:
    open_in = exchange.query("SELECT id FROM inbound WHERE state IN ('queued', 'claimed', 'retrying', 'parked')")
    open_out = exchange.query("SELECT id FROM deliveries WHERE state IN ('pending', 'sending', 'retrying', 'waiting')")
    unrouted = exchange.query("SELECT id FROM events WHERE state = 'received'")
    return not (open_in or open_out or unrouted)


def wired(make_exchange: MakeExchange) -> Exchange:
    exchange = make_exchange()
    for chat in CHATS:
        exchange.join(chat)
    return exchange


@pytest.mark.slow
@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("point", HOST_POINTS)
def test_a_host_killed_at_any_point_loses_nothing(make_exchange: MakeExchange, point: str, visit: int) -> None:
    """C209, architecture 10."""
    exchange = wired(make_exchange)
    early = point.startswith(("store.", "mailbox."))
    # The store's own points are passed while the host starts, too; die there well inside the message path.
    exchange.start(JACKFIELD_KILL_AT=f"{point}:{visit + 6 if early else visit}")
    expected = say_everything(exchange)
    exchange.wait_for(exchange.process_ended, f"the host's death at {point}")
    exchange.start()
    assert_all_arrived(exchange, expected)


@pytest.mark.slow
@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("point", RUNNER_POINTS)
def test_a_runner_killed_at_any_point_loses_nothing(make_exchange: MakeExchange, point: str, visit: int) -> None:
    """C088, C209."""
    exchange = wired(make_exchange)
    exchange.start(JACKFIELD_KILL_RUNNER_AT=f"{point}:{visit}")
    expected = say_everything(exchange)
    assert_all_arrived(exchange, expected)


@pytest.mark.parametrize("point", ["host.accept.after_commit", "host.deliver.after_send"])
def test_a_host_killed_between_two_steps_takes_them_up_again(make_exchange: MakeExchange, point: str) -> None:
    """The two most telling points, in the default suite; the slow ones visit all."""
    exchange = wired(make_exchange)
    exchange.start(JACKFIELD_KILL_AT=point)
    expected = say_everything(exchange)
    exchange.wait_for(exchange.process_ended, f"the host's death at {point}")
    exchange.start()
    assert_all_arrived(exchange, expected)


def test_what_a_runner_committed_before_it_died_leaves_at_once_and_in_order(make_exchange: MakeExchange) -> None:
    """C003: the end of the runner is the sign; no bell was rung, and the sweep comes only every 60 s."""
    exchange = wired(make_exchange)
    exchange.start(JACKFIELD_KILL_RUNNER_AT="runner.turn.after_commit")
    exchange.say(
        "c1",
        'mock: tool send_message {"text": "1/2 backup started"} mock: tool send_message {"text": "2/2 backup done"} '
        "mock: say and that is all",
    )
    exchange.wait_for(exchange.processes, "the runner")
    exchange.wait_for(lambda: not exchange.processes(), "the runner's end")
    ended = time.monotonic()
    exchange.wait_sent("c1", 3)
    assert time.monotonic() - ended < 10, "the sweep took it, not the end of the runner"
    assert [text for text in exchange.texts("c1") if "backup" in text] == ["1/2 backup started", "2/2 backup done"]
    assert exchange.wait_text("c1", "and that is all")
