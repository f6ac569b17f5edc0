"""Which messages start a turn, and what becomes of the others (messaging.md 2.3, 2.4)."""

from __future__ import annotations

import time

import pytest

from tests.harness.exchange import Exchange


@pytest.fixture(scope="module")
def exchange(exchange_hall: Exchange) -> Exchange:
    exchange_hall.add_agent("berta")
    exchange_hall.add_agent("carl")
    return exchange_hall


def say_in_group(exchange: Exchange, chat: str, text: str, addressed: str = "none", **more: object) -> None:
    exchange.say(chat, text, is_group=True, addressed=addressed, **more)


def test_an_agent_that_always_engages_answers_unaddressed_words(exchange: Exchange) -> None:
    exchange.join("always", is_group=True)
    say_in_group(exchange, "always", "anybody here?")
    assert exchange.wait_sent("always", 1)[0]["text"] == "You said: anybody here?"


def test_a_chat_that_was_never_seen_is_taken_for_a_group_by_its_name(exchange: Exchange) -> None:
    """An agent that answers every word of an IRC channel is what nobody asked for."""
    made = exchange.op("wire.add", chat="postbox:box:#garden", group="andy")
    assert made["wiring"]["engage"] == "mention-sticky"


def test_a_pattern_engages_what_it_matches_anywhere_in_the_text(exchange: Exchange) -> None:
    exchange.join("pattern", is_group=True, pattern=r"\bweather\b")
    say_in_group(exchange, "pattern", "whether it rains")
    say_in_group(exchange, "pattern", "and the weather?")
    assert exchange.wait_sent("pattern", 1)[0]["text"] == "You said: and the weather?"
    assert exchange.audit("pattern") == {"no_agent_engaged": 1}


def test_an_expensive_pattern_delays_nobody(exchange: Exchange) -> None:
    """C048."""
    exchange.join("costly", is_group=True, pattern="(a+)+$")
    exchange.join("cheap", is_group=True)
    say_in_group(exchange, "costly", "a" * 9000 + "!")
    say_in_group(exchange, "cheap", "quick")
    assert exchange.wait_sent("cheap", 1)[0]["text"] == "You said: quick"
    exchange.wait_for(lambda: exchange.audit("costly") == {"no_agent_engaged": 1}, "the audit of the costly chat")


def test_with_mention_only_words_to_the_agent_start_a_turn(exchange: Exchange) -> None:
    """C042."""
    exchange.join("mention", is_group=True, engage="mention")
    say_in_group(exchange, "mention", "who has the keys?")
    say_in_group(exchange, "mention", "@otherbot help")
    say_in_group(exchange, "mention", "@ourbot status", "mention")
    say_in_group(exchange, "mention", "and tomorrow?", "reply")
    said = " ".join(item["text"] for item in exchange.wait_sent("mention", 1))
    exchange.wait_text("mention", "and tomorrow?")
    assert "keys" not in said and "help" not in said
    assert exchange.state_of("mention") == [("completed", None)] * 2
    assert exchange.audit("mention") == {"no_agent_engaged": 2}


def test_a_mentioned_agent_goes_on_listening_until_that_expires(exchange: Exchange) -> None:
    exchange.join("sticky", is_group=True, engage="mention-sticky")
    say_in_group(exchange, "sticky", "too early")
    say_in_group(exchange, "sticky", "@bot hello", "mention")
    exchange.wait_text("sticky", "@bot hello")
    say_in_group(exchange, "sticky", "and another thing")
    exchange.wait_text("sticky", "and another thing")
    ends = "SELECT max(until) FROM sticky s JOIN wirings w ON w.id = s.wiring_id JOIN messaging_groups m " + (
        "ON m.id = w.messaging_group_id WHERE m.platform_id = 'sticky'"
    )
    until = exchange.query(ends)[0][0]
    exchange.wait_for(lambda: time.time() * 1000 > until, "the end of its attention")
    say_in_group(exchange, "sticky", "too late")
    exchange.wait_for(lambda: exchange.audit("sticky") == {"no_agent_engaged": 2}, "the audit")
    assert not any("too" in text for text in exchange.texts("sticky"))


def test_what_accumulates_neither_engages_the_agent_nor_is_lost_to_it(exchange: Exchange) -> None:
    """Appendix D.5 and bug A of messaging.md 2.3."""
    exchange.join("gather", is_group=True, engage="mention-sticky", ignored="accumulate")
    say_in_group(exchange, "gather", "first of two")
    say_in_group(exchange, "gather", "second of two")
    exchange.wait_for(lambda: len(exchange.state_of("gather")) == 2, "both in the ledger")
    assert exchange.state_of("gather") == [("context", None)] * 2
    say_in_group(exchange, "gather", "mock: show prompt", "mention")
    prompt = exchange.wait_sent("gather", 1)[0]["text"]
    assert prompt.index("first of two") < prompt.index("second of two") < prompt.index("mock: show prompt")
    assert prompt.count("<messages>") == 1
    exchange.wait_for(lambda: exchange.state_of("gather") == [("completed", None)] * 3, "an end for all three")
    assert len(exchange.sent("gather")) == 1


def test_what_is_dropped_never_reaches_the_agent(exchange: Exchange) -> None:
    exchange.join("drop", is_group=True, engage="mention")
    say_in_group(exchange, "drop", "among ourselves")
    say_in_group(exchange, "drop", "mock: show prompt", "mention")
    assert "among ourselves" not in exchange.wait_sent("drop", 1)[0]["text"]
    assert not any("among ourselves" in text for text in exchange.mailbox_texts(exchange.session_of("drop")))


def test_every_agent_of_a_chat_decides_for_itself_in_the_order_of_priority(exchange: Exchange) -> None:
    """Appendix D.5."""
    exchange.join("fan", "andy", is_group=True, priority=1)
    exchange.join("fan", "berta", is_group=True, priority=5)
    exchange.join("fan", "carl", is_group=True, engage="mention", ignored="accumulate", priority=9)
    say_in_group(exchange, "fan", "who is it?")
    exchange.wait_sent("fan", 2)
    states = exchange.query(
        "SELECT g.folder, i.state FROM inbound i JOIN wirings w ON w.id = i.wiring_id JOIN messaging_groups m "
        "ON m.id = w.messaging_group_id JOIN agent_groups g ON g.id = w.agent_group_id "
        "WHERE m.platform_id = 'fan' ORDER BY i.ord"
    )
    assert [folder for folder, _ in states] == ["carl", "berta", "andy"]
    assert dict(states)["carl"] == "context"
    say_in_group(exchange, "fan", "all of you", "mention")
    exchange.wait_for(lambda: sum("all of you" in text for text in exchange.texts("fan")) == 3, "three answers")
    assert sum("who is it?" in text for text in exchange.texts("fan")) == 3


def test_an_agent_that_cannot_be_given_a_message_keeps_no_other_from_it(exchange: Exchange) -> None:
    exchange.add_agent("unreachable")
    group = next(group for group in exchange.op("group.list") if group["folder"] == "unreachable")
    blocked = exchange.home.sessions / group["id"]
    blocked.write_text("a file where the sessions of that agent would lie")
    exchange.join("isolated", "unreachable", is_group=True, priority=9)
    exchange.join("isolated", "andy", is_group=True)
    say_in_group(exchange, "isolated", "hello both")
    assert exchange.wait_sent("isolated", 1)[0]["text"] == "You said: hello both"
    assert exchange.query("SELECT count(*) FROM events WHERE state = 'received'") == [(1,)]
    blocked.unlink()
    exchange.run("reload")
    assert len(exchange.wait_sent("isolated", 2)) == 2


def test_a_chat_that_nobody_is_wired_to_is_noted_only_when_it_spoke_to_the_agent(exchange: Exchange) -> None:
    """Appendix D.1."""
    say_in_group(exchange, "unknown", "just chatting")
    say_in_group(exchange, "unknown2", "@bot hello", "mention")
    exchange.wait_for(lambda: exchange.audit("unknown2") == {"no_agent_wired": 1}, "the audit")
    assert exchange.audit("unknown") == {}
    known = {chat["platform_id"]: chat["policy"] for chat in exchange.op("channel.chats")}
    assert "unknown" not in known
    assert known["unknown2"] == "request_approval"
