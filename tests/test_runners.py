"""The life of runners: idle end, the cap and its fairness, adoption (architecture 2 and 10; C016, C086)."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange


def runner_of(exchange: Exchange, chat: str) -> int | None:
    return exchange.processes().get(str(exchange.session_of(chat)["id"]))


@pytest.mark.parametrize("count", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_many_sessions_share_two_runners_fairly(make_exchange: MakeExchange, count: int) -> None:
    """Appendix D.30: never more than the cap at once, all answered, group by group in turn."""
    exchange = make_exchange(host_settings="max_runners = 2")
    exchange.add_agent("rare")
    exchange.start()
    for number in range(count):
        exchange.join(f"many-{number}")
    exchange.join("rare-0", "rare")
    for number in range(count):
        exchange.say(f"many-{number}", f"n{number}")
    exchange.say("rare-0", "me too")
    most = 0

    def all_answered() -> bool:
        nonlocal most
        most = max(most, len(exchange.processes()))
        return len(exchange.sent()) == count + 1

    exchange.wait_for(all_answered, "all answers", bound=150)
    assert most <= 2
    chats = [item["chat"] for item in exchange.sent()]
    assert chats.index("rare-0") < 7, f"the small group had to wait for the big one: {chats}"
    assert {f"many-{number}" for number in range(count)} <= set(chats)


def test_a_runner_that_works_keeps_its_place_although_others_wait(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(host_settings="max_runners = 2")
    exchange.start()
    for chat in ("busy", "other-1", "other-2"):
        exchange.join(chat)
    exchange.say("busy", "wake up")
    exchange.wait_sent("busy", 1)
    working = runner_of(exchange, "busy")
    exchange.say("busy", "mock: sleep 5 mock: say finished")
    exchange.wait_for(lambda: exchange.state_of("busy")[-1][0] == "claimed", "the long turn")
    exchange.say("other-1", "hello")
    exchange.say("other-2", "hello")
    exchange.wait_sent("other-1", 1)
    exchange.wait_sent("other-2", 1)
    exchange.wait_text("busy", "finished")
    assert runner_of(exchange, "busy") == working
    assert exchange.session_of("busy")["epoch"] == 1


def test_an_idle_runner_ends_and_the_next_message_starts_another(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(host_settings="idle_exit = 1")
    exchange.start()
    exchange.join("c1")
    exchange.say("c1", "one")
    exchange.wait_sent("c1", 1)
    exchange.wait_for(lambda: exchange.session_of("c1")["runner"] == "none", "the idle end")
    assert exchange.processes() == {}
    exchange.say("c1", "mock: recall")
    assert "one" in exchange.wait_sent("c1", 2)[1]["text"]
    assert exchange.session_of("c1")["epoch"] == 2
    assert exchange.op("status")["troubles"] == {}


def test_a_runner_that_is_left_goes_on_while_no_host_runs_and_is_taken_over(make_exchange: MakeExchange) -> None:
    exchange = make_exchange(host_settings='on_stop = "leave"')
    exchange.start()
    exchange.join("c1")
    exchange.say("c1", "one")
    exchange.wait_sent("c1", 1)
    left = runner_of(exchange, "c1")
    exchange.say("c1", "mock: sleep 2 mock: say worked alone")
    exchange.wait_for(lambda: exchange.state_of("c1")[-1][0] == "claimed", "the turn")
    assert exchange.stop() == 0
    assert left in exchange.processes().values()
    exchange.start()
    exchange.wait_text("c1", "worked alone")
    exchange.say("c1", "three")
    exchange.wait_text("c1", "You said: three")
    assert runner_of(exchange, "c1") == left
    assert exchange.session_of("c1")["epoch"] == 1
    assert left is not None
    os.kill(left, signal.SIGTERM)
    exchange.wait_for(lambda: exchange.session_of("c1")["runner"] == "none", "the host to see its end")


def test_a_stopping_host_gives_back_what_is_not_answered_and_loses_nothing(make_exchange: MakeExchange) -> None:
    """On SIGTERM a turn gets a moment to end; what does not is taken up by the next host."""
    exchange = make_exchange()
    exchange.start()
    exchange.join("c1")
    exchange.join("c2")
    exchange.say("c1", "mock: sleep 600 mock: say after the sleep")
    exchange.say("c2", "quick")
    exchange.wait_sent("c2", 1)
    exchange.wait_for(lambda: exchange.state_of("c1") == [("claimed", None)], "the turn")
    assert exchange.stop() == 0
    assert exchange.processes() == {}
    assert exchange.state_of("c1")[0][0] == "queued"
    exchange.say("c2", "while you were away")
    exchange.start()
    exchange.wait_text("c2", "while you were away")
    exchange.wait_for(lambda: exchange.state_of("c1")[0][0] == "claimed", "the turn again")
    assert exchange.query("SELECT attempts FROM inbound WHERE preview LIKE '%sleep 600%'") == [(1,)]
    exchange.op("session.clear", id=exchange.session_of("c1")["id"])


def test_a_runner_of_another_version_is_taken_over_for_its_turn_only(make_exchange: MakeExchange) -> None:
    """Architecture 6: what it works on is finished; then one of this version takes its place."""
    exchange = make_exchange(host_settings='on_stop = "leave"')
    exchange.start()
    exchange.join("c1")
    exchange.say("c1", "mock: sleep 4 mock: say worked alone")
    exchange.wait_for(lambda: exchange.state_of("c1") == [("claimed", None)], "the turn")
    left = runner_of(exchange, "c1")
    assert exchange.stop() == 0
    (spec,) = exchange.home.sessions.rglob("session.json")
    told = json.loads(spec.read_text(encoding="utf-8"))
    spec.write_text(json.dumps({**told, "protocol": told.get("protocol", 1) + 1}), encoding="utf-8")
    exchange.start()
    exchange.wait_text("c1", "worked alone")
    exchange.wait_for(lambda: left not in exchange.processes().values(), "the end of the old runner")
    exchange.say("c1", "two")
    exchange.wait_text("c1", "You said: two")
    assert exchange.session_of("c1")["epoch"] == 2
    assert exchange.texts("c1") == ["worked alone", "You said: two"]
