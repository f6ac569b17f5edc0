"""What leaves the host: waits, retries, doubt, parts, order (messaging.md 8; cases, area 10)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    root = tmp_path_factory.mktemp("deliveries")
    with prepared(root, host_settings="max_runners = 20", postbox_settings="text_limit = 100\ngate = true") as exchange:
        yield exchange.start()


@pytest.fixture(scope="module", autouse=True)
def opened(exchange: Exchange) -> None:
    """C084: what is said and answered while the channel is not connected waits for it."""
    exchange.join("gate")
    exchange.say("gate", "anybody home?")
    exchange.wait_for(lambda: exchange.state_of("gate") == [("completed", None)], "the answer in the ledger")
    exchange.wait_for(lambda: deliveries_of(exchange, "gate")[0]["state"] == "waiting", "the waiting answer")
    assert exchange.sent("gate") == []
    (exchange.box / "open").touch()


def deliveries_of(exchange: Exchange, chat: str) -> list[dict[str, Any]]:
    """The parts that were to leave for a chat, the oldest first."""
    parts = exchange.op("message.list", direction="out", limit=1000)
    return [part for part in reversed(parts) if part["to"] == f"postbox:box:{chat}"]


def notices_of(exchange: Exchange, chat: str) -> list[str]:
    """What the host told the agent of that chat."""
    if not deliveries_of(exchange, chat):
        return []
    return [text for text in exchange.mailbox_texts(exchange.session_of(chat)) if '"NoticeContent"' in text]


def test_an_answer_for_a_channel_that_is_not_connected_yet_is_sent_once_it_is(exchange: Exchange) -> None:
    """C084."""
    assert exchange.wait_sent("gate", 1)[0]["text"] == "You said: anybody home?"


def test_a_platform_that_is_busy_is_given_the_time_it_asks_for(exchange: Exchange) -> None:
    """C077."""
    exchange.join("busy")
    exchange.order("busy", {"fail": "rate", "retry_after": 1.2}, {"fail": "rate", "retry_after": 0.35})
    exchange.say("busy", "patience")
    began = time.time()
    exchange.wait_sent("busy", 1)
    assert time.time() - began >= 1.5, "neither wait was cut short"
    exchange.wait_for(lambda: deliveries_of(exchange, "busy")[0]["state"] == "sent", "the end")
    assert deliveries_of(exchange, "busy")[0]["attempts"] == 1
    assert exchange.texts("busy") == ["You said: patience"]


def test_a_passing_failure_is_tried_again(exchange: Exchange) -> None:
    """Appendix D.13."""
    exchange.join("passing")
    exchange.order("passing", {"fail": "transient"}, {"fail": "transient"})
    exchange.say("passing", "third time lucky")
    exchange.wait_sent("passing", 1)
    exchange.wait_for(lambda: deliveries_of(exchange, "passing")[0]["state"] == "sent", "the end")
    assert deliveries_of(exchange, "passing")[0]["attempts"] == 3
    assert len(exchange.sent("passing")) == 1


def test_a_final_failure_is_in_the_ledger_and_told_to_the_agent_exactly_once(exchange: Exchange) -> None:
    """C001."""
    exchange.join("trip-42")
    exchange.order("trip-42", {"fail": "permanent"})
    exchange.say("trip-42", "mock: say Your train leaves at 07:42 from platform 3.")
    exchange.wait_for(lambda: len(notices_of(exchange, "trip-42")) == 1, "the notice")
    part = deliveries_of(exchange, "trip-42")[0]
    assert (part["state"], part["reason"]) == ("failed", "ChatNotFound")
    assert "chat not reachable" in part["error"]
    assert exchange.sent("trip-42") == []
    exchange.say("trip-42", "mock: show prompt")
    prompt = "".join(item["text"] for item in exchange.wait_sent("trip-42", 4))
    assert prompt.count('subject="delivery failed"') == 1
    exchange.op("message.retry", id=part["id"])
    exchange.wait_text("trip-42", "Your train leaves at 07:42")
    assert len(notices_of(exchange, "trip-42")) == 1


def test_a_send_without_an_answer_is_sent_once_more_and_marked(exchange: Exchange) -> None:
    """C081: this platform has no idempotent send and no history."""
    exchange.join("doubt")
    exchange.order("doubt", {"fail": "after"})
    exchange.say("doubt", "did it arrive?")
    first, second = exchange.wait_sent("doubt", 2)
    assert (first["maybe_duplicate"], second["maybe_duplicate"]) == (False, True)
    assert first["text"] == second["text"]
    exchange.wait_for(lambda: deliveries_of(exchange, "doubt")[0]["state"] == "sent", "the end")


def test_a_second_doubt_is_final_and_not_silent(exchange: Exchange) -> None:
    """C081."""
    exchange.join("doubts")
    exchange.order("doubts", {"fail": "lost"}, {"fail": "lost"})
    exchange.say("doubts", "and now?")
    exchange.wait_for(lambda: len(notices_of(exchange, "doubts")) == 1, "the notice")
    assert deliveries_of(exchange, "doubts")[0]["state"] == "failed"
    assert exchange.sent("doubts") == []


def five_parts(word: str) -> str:
    return "\n\n".join(f"{word} part {number} " + "x" * 70 for number in range(1, 6))


def test_all_parts_arrive_in_order_after_a_limit_in_the_middle(exchange: Exchange) -> None:
    """C079."""
    exchange.join("parts")
    exchange.order("parts", {}, {}, {"fail": "rate", "retry_after": 0.4})
    exchange.say("parts", f"mock: say {five_parts('whole')}")
    exchange.wait_text("parts", "part 5")
    texts = exchange.texts("parts")
    assert all(len(text) <= 100 for text in texts)
    places = ["".join(texts).index(f"part {number}") for number in range(1, 6)]
    assert places == sorted(places)


def test_a_final_failure_in_the_middle_says_how_many_parts_arrived(exchange: Exchange) -> None:
    """C079."""
    exchange.join("torn")
    exchange.order("torn", {}, {}, {"fail": "permanent"})
    exchange.say("torn", f"mock: say {five_parts('torn')}")
    exchange.wait_for(lambda: len(notices_of(exchange, "torn")) == 1, "the notice")
    assert "2 of 5 parts" in notices_of(exchange, "torn")[0]
    assert len(exchange.sent("torn")) == 2
    states = [part["state"] for part in deliveries_of(exchange, "torn")]
    assert states == ["sent", "sent", "failed", "failed", "failed"]


def test_two_agents_in_one_chat_are_heard_in_the_order_in_which_they_spoke(exchange: Exchange) -> None:
    """C017; and a slow chat holds up no other."""
    exchange.add_agent("second")
    exchange.join("duet", is_group=True, engage="pattern", pattern="first")
    exchange.join("duet", "second", is_group=True, engage="pattern", pattern="second")
    exchange.join("solo")
    exchange.order("duet", {"until": "go"})
    exchange.say("duet", "first", is_group=True)
    exchange.wait_for(lambda: deliveries_of(exchange, "duet"), "the slow send")
    exchange.say("duet", "second", is_group=True)
    exchange.wait_for(lambda: len(deliveries_of(exchange, "duet")) == 2, "the second answer in the ledger")
    exchange.say("solo", "elsewhere")
    exchange.wait_sent("solo", 1)
    assert exchange.sent("duet") == []
    (exchange.box / "go").touch()
    exchange.wait_sent("duet", 2)
    assert exchange.texts("duet") == ["You said: first", "You said: second"]


def test_a_failed_message_does_not_hold_up_what_comes_after_it(exchange: Exchange) -> None:
    exchange.join("onward")
    exchange.order("onward", {"fail": "permanent"})
    exchange.say("onward", "lost")
    exchange.wait_for(lambda: exchange.state_of("onward") == [("completed", None)], "the first turn")
    exchange.say("onward", "mock: say found")
    exchange.wait_text("onward", "found")


def test_what_was_being_sent_when_the_host_was_killed_is_sent_again_and_marked(exchange: Exchange) -> None:
    """C081, appendix D.26.  The last of this module: it kills the host."""
    exchange.join("cut")
    exchange.order("cut", {"until": "never"})
    exchange.say("cut", "mid-air")
    exchange.wait_for(lambda: [part["state"] for part in deliveries_of(exchange, "cut")] == ["sending"], "the send")
    exchange.kill()
    exchange.start()
    sent = exchange.wait_sent("cut", 1)
    assert [(item["text"], item["maybe_duplicate"]) for item in sent] == [("You said: mid-air", True)]
    outbox = list(Path(exchange.session_of("cut")["folder"]).joinpath("outbox").iterdir())
    assert outbox == []
