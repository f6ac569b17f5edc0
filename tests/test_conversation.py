"""Conversations through every real part: host and runner processes, the mock provider, a platform of files."""

from __future__ import annotations

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange


def test_what_a_person_writes_is_answered_in_their_chat(exchange: Exchange) -> None:
    exchange.wire("c1")
    exchange.start()
    exchange.say("c1", "hello")
    assert exchange.wait_sent("c1", 1)[0]["text"] == "You said: hello"


def test_a_piped_chat_prints_the_answer_and_ends(exchange: Exchange) -> None:
    """`echo hi | jackfield chat`, the first thing that anybody tries; no host runs before it."""
    done = exchange.run("chat", stdin="hi\n")
    assert done.stdout.strip() == "You said: hi"


def test_twenty_messages_at_once_get_their_answers_in_order_by_one_runner(exchange: Exchange) -> None:
    """C016, C019; appendix D.9."""
    exchange.wire("c1")
    exchange.start()
    for number in range(20):
        exchange.say("c1", f"mock: say n{number}")
    exchange.wait_for(lambda: any("n19" in text for text in exchange.texts("c1")), "the last answer")
    said = " ".join(exchange.texts("c1"))
    places = [said.index(f"n{number}") for number in range(20)]
    assert places == sorted(places)
    assert exchange.query("SELECT max(epoch) FROM sessions") == [(1,)]


def test_two_chats_have_two_sessions_and_two_groups_answer_apart(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()
    exchange.run("group", "add", "Berta", "--folder", "berta")
    exchange.wire("c1")
    exchange.run("wire", "postbox:box:c1", "berta", "--engage", "mention")
    exchange.wire("c2")
    exchange.start()
    exchange.say("c1", "to both", addressed="mention", is_group=True)
    exchange.say("c2", "only andy")
    assert len(exchange.wait_sent("c1", 2)) == 2
    assert exchange.wait_sent("c2", 1)[0]["text"] == "You said: only andy"
    assert exchange.query("SELECT count(*) FROM sessions WHERE status = 'active'") == [(3,)]


def test_the_same_event_three_times_also_after_a_restart_is_one_message(exchange: Exchange) -> None:
    """C012, C090."""
    exchange.wire("c1")
    exchange.start()
    exchange.say("c1", "once", id="Ev-0042")
    exchange.say("c1", "once", id="Ev-0042")
    exchange.wait_sent("c1", 1)
    exchange.stop()
    exchange.start()
    exchange.say("c1", "once", id="Ev-0042")
    exchange.say("c1", "after", id="Ev-0043")
    exchange.wait_for(lambda: "You said: after" in exchange.texts("c1"), "the answer to the new message")
    assert exchange.texts("c1") == ["You said: once", "You said: after"]
