"""Strangers, new chats, the owner's claim and loops, in a whole exchange (messaging.md 1.4, 1.5, 13.6; C228)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jackfield.errors import Conflict, NotFound, UsageError

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange, prepared

DESK = "desk"
"""Where the owner sits alone with the bot."""


def settle(exchange: Exchange) -> Exchange:
    """An owner, and the chat in which they are asked."""
    exchange.op("owner.add", user="postbox:olga", name="Olga")
    exchange.join(DESK, policy="strict")
    exchange.say(DESK, "here I am", sender="olga")
    return exchange


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("strangers"), host_settings="loop_turns = 10") as made:
        settle(made).start()
        made.wait_text(DESK, "here I am")
        yield made


def card(exchange: Exchange, about: str) -> dict[str, Any]:
    """The pending approval whose card tells of `about`, once it lies on the owner's desk."""

    def found() -> list[dict[str, Any]]:
        shown = [exchange.op("approval.show", id=one["id"]) for one in exchange.op("approval.list")]
        return [one for one in shown if any(about in field["value"] for field in one["fields"])]

    exchange.wait_for(found, f"an approval about {about}")
    (one,) = found()
    exchange.wait_for(
        lambda: any(sent.get("prompt") == one["id"] for sent in exchange.sent(DESK)), f"the card of {one['id']}"
    )
    return one


def test_a_stranger_is_let_in_by_whoever_may_and_by_nobody_else(exchange: Exchange) -> None:
    """Appendix D.3; C145, C149."""
    exchange.join("lobby", policy="request_approval")
    exchange.say("lobby", "let me in", sender="mallory", name="Mallory")
    exchange.say("lobby", "please", sender="mallory", name="Mallory")
    asked = card(exchange, "postbox:mallory")
    exchange.click(DESK, asked["id"], "allow", sender="mallory")
    exchange.click("lobby", asked["id"], "allow", sender="olga")
    exchange.wait_for(lambda: len([one for one in exchange.sent() if "answer" in one]) >= 2, "both clicks' answers")
    assert exchange.texts("lobby") == [] and exchange.state_of("lobby") == []
    exchange.click(DESK, asked["id"], "allow", sender="olga")
    assert exchange.wait_text("lobby", "let me in") == "You said: let me in"
    exchange.say("lobby", "thank you", sender="mallory")
    exchange.wait_text("lobby", "thank you")
    assert exchange.texts("lobby") == ["You said: let me in", "You said: thank you"]
    assert exchange.audit("lobby") == {"unknown_sender_request_approval": 1}, "the first one was taken after all"
    (member,) = [one for one in exchange.op("member.list", group="andy") if one["user"] == "postbox:mallory"]
    assert member["added_by"] == "postbox:olga"


def test_who_had_the_message_already_keeps_it_and_its_file_as_they_were(exchange: Exchange, tmp_path: Path) -> None:
    """messaging.md 1.4, pc#96, pc#97: the message is routed again for the agent that was asked about; the other one
    has it, and a file of the same name may hold something else by then."""
    given = tmp_path / "given.txt"
    given.write_text("first", encoding="utf-8")
    exchange.add_agent("berta")
    exchange.op("member.add", user="postbox:paula", group="andy")
    for group in ("andy", "berta"):
        exchange.join("annex", group, policy="request_approval")
    exchange.say("annex", "look", sender="paula", files=[{"name": "given.txt", "path": str(given)}])
    asked = card(exchange, "postbox:paula")
    exchange.wait_sent("annex", 1)
    given.write_text("swapped", encoding="utf-8")
    exchange.click(DESK, asked["id"], "allow", sender="olga")
    exchange.wait_sent("annex", 2)
    exchange.say("annex", "that is all", sender="paula")
    exchange.wait_sent("annex", 4)
    assert len([text for text in exchange.texts("annex") if "look" in text]) == 2, "one answer of each"
    kept = {path.parents[4].name: path for path in exchange.home.sessions.rglob("given.txt")}
    found = sorted(path.read_text(encoding="utf-8") for path in exchange.home.sessions.rglob("given.txt"))
    assert found == ["first", "swapped"], kept


def test_a_new_chat_is_connected_by_a_click_and_its_message_answered(exchange: Exchange) -> None:
    """Appendix D.1, D.2."""
    exchange.say("plaza", "nobody is meant", sender="nina", is_group=True, addressed="none")
    exchange.say("plaza", "hello bot", sender="nina", is_group=True, addressed="mention")
    exchange.say("plaza", "hello again", sender="nina", is_group=True, addressed="mention")
    asked = card(exchange, "postbox:box:plaza")
    exchange.wait_for(lambda: exchange.audit("plaza") == {"no_agent_wired": 2}, "the audit")
    connect = asked["choices"][0]["value"]
    exchange.click(DESK, asked["id"], connect, sender="olga")
    exchange.wait_text("plaza", "hello bot")
    (wiring,) = [one for one in exchange.op("wire.list") if one["chat"] == "postbox:box:plaza"]
    assert (wiring["origin"], wiring["engage"]) == ("cautious", "mention-sticky")
    exchange.say("plaza", "and now", sender="nina", is_group=True, addressed="mention")
    exchange.wait_text("plaza", "and now")
    assert exchange.texts("plaza") == ["You said: hello bot", "You said: and now"]


def test_the_command_line_says_who_waits_and_takes_a_choice_by_its_words(exchange: Exchange) -> None:
    """Of several ways to say yes none is guessed: else a stranger would be joined to whichever agent comes first."""
    exchange.add_agent("clara")
    exchange.say("forum", "hello bot", sender="quinn")
    asked = card(exchange, "postbox:box:forum")
    assert "postbox:box:forum" in exchange.run("approval", "list").stdout
    words = [one["label"] for one in asked["choices"]]
    assert all(f"'{one}'" in exchange.run("approval", "show", asked["id"]).stdout for one in words)
    guessed = exchange.run("approval", "approve", asked["id"], check=False)
    assert guessed.returncode == 2 and all(one in guessed.stderr for one in words), guessed.stderr
    (clara,) = [one for one in words if "lara" in one]
    exchange.run("approval", "approve", asked["id"], "--choice", clara)
    exchange.wait_text("forum", "hello bot")
    assert [one["group"] for one in exchange.op("wire.list") if one["chat"] == "postbox:box:forum"] == ["clara"]


def test_a_denied_stranger_and_an_ignored_chat_are_remembered_and_forgiven(exchange: Exchange) -> None:
    """C145; appendix D.2."""
    exchange.join("gate", policy="request_approval")
    exchange.say("gate", "let me in", sender="dora")
    asked = card(exchange, "postbox:dora")
    exchange.op("approval.decide", id=asked["id"], reject=True)
    exchange.wait_for(lambda: exchange.op("user.denied")["senders"], "the memory of it")
    exchange.say("gate", "let me in", sender="dora")
    exchange.wait_for(lambda: exchange.audit("gate").get("sender_denied") == 1, "the refusal")
    assert not any("let me in" in body for (body,) in exchange.query("SELECT body FROM events WHERE state = 'ignored'"))
    shown = exchange.run("user", "denied").stdout
    assert "postbox:box:gate" in shown and "postbox:dora" in shown
    assert exchange.op("user.forgive", chat="postbox:box:gate", user="postbox:dora")["forgiven"] == 1
    exchange.say("gate", "let me in at last", sender="dora")
    card(exchange, "postbox:dora")


def test_commands_find_people_by_a_name_that_one_of_them_has(exchange: Exchange) -> None:
    """C141: a name finds somebody; what is granted is granted to the id."""
    exchange.join("names", policy="public")
    exchange.say("names", "hi", sender="17", name="Robin", aliases=["@Robin"])
    exchange.wait_text("names", "hi")
    exchange.wait_for(lambda: exchange.query("SELECT 1 FROM user_aliases"), "the alias")
    said = exchange.run("member", "add", "postbox:@robin", "andy").stdout
    assert "postbox:17 is a member" in said
    with pytest.raises(NotFound):
        exchange.op("member.add", user="postbox:@nobody", group="andy")
    exchange.say("names", "I am Robin now", sender="99", name="Robin", aliases=["@robin"])
    exchange.wait_text("names", "I am Robin now")
    exchange.wait_for(lambda: len(exchange.query("SELECT 1 FROM user_aliases")) == 2, "the second one")
    with pytest.raises(Conflict):
        exchange.op("owner.add", user="postbox:@robin")
    shown = exchange.run("user", "show", "postbox:17").stdout
    assert "@robin" in shown and "andy" in shown
    assert exchange.op("user.timezone", user="postbox:17", timezone="Asia/Tokyo")["timezone"] == "Asia/Tokyo"
    with pytest.raises(UsageError):
        exchange.op("user.timezone", user="postbox:17", timezone="Tokyo")
    assert exchange.op("user.show", user="postbox:17")["timezone"] == "Asia/Tokyo"
    assert exchange.op("user.timezone", user="postbox:17")["timezone"] is None
    exchange.join("closed", policy="strict")
    exchange.say("closed", "let Robin in", sender="99", name="Robin", aliases=["@robin", "17"])
    exchange.wait_for(lambda: exchange.audit("closed") == {"unknown_sender_strict": 1}, "the refusal")


def test_the_operator_claims_ownership_from_a_chat(make_exchange: MakeExchange) -> None:
    """The first run: nobody becomes an owner by being first; messaging.md 13.6."""
    exchange = make_exchange()
    exchange.join("house", policy="public")
    exchange.start()
    assert exchange.op("status")["unowned"] == ["box"]
    assert "owner claim" in exchange.run("status").stdout
    (finding,) = exchange.op("doctor.check", name="people")
    assert finding["level"] == "warning" and "owner claim" in finding["fix"]
    exchange.say("house", "I was here first", sender="mallory")
    exchange.wait_text("house", "I was here first")
    told = exchange.run("owner", "claim").stdout
    code = told.split()[1]
    exchange.say("unwired", "/claim 22222-22222", sender="mallory")
    exchange.wait_text("unwired", "not valid")
    exchange.say("unwired", f"/claim {code}", sender="olga", name="Olga")
    exchange.wait_text("unwired", "You are an owner now")
    assert {one["user"] for one in exchange.op("owner.list")} >= {"postbox:olga"}
    assert exchange.op("status")["unowned"] == []
    exchange.say("house", f"/claim {code}", sender="mallory")
    exchange.wait_text("house", "not valid")
    assert "postbox:mallory" not in {one["user"] for one in exchange.op("owner.list")}
    logs = "".join(path.read_text(encoding="utf-8") for path in exchange.home.logs.glob("*")) + exchange.tail()
    assert code not in logs


@pytest.mark.parametrize(
    "point",
    [
        "host.approval.after_decide",
        pytest.param("host.approval.before_deed", marks=pytest.mark.slow),
        pytest.param("host.approval.after_deed", marks=pytest.mark.slow),
    ],
)
def test_a_message_that_was_let_in_arrives_once_across_a_crash(make_exchange: MakeExchange, point: str) -> None:
    """C153: the host dies between the decision and its end, and goes on with it."""
    exchange = settle(make_exchange())
    exchange.join("lobby", policy="request_approval")
    exchange.start(JACKFIELD_KILL_AT=point)
    exchange.wait_text(DESK, "here I am")
    exchange.say("lobby", "let me in", sender="mallory")
    asked = card(exchange, "postbox:mallory")
    exchange.click(DESK, asked["id"], "allow", sender="olga")
    exchange.wait_ended()
    exchange.start()
    exchange.wait_text("lobby", "let me in")
    exchange.say("lobby", "that is all", sender="mallory")
    exchange.wait_text("lobby", "that is all")
    assert exchange.texts("lobby") == ["You said: let me in", "You said: that is all"]


def test_a_program_that_answers_every_answer_is_left_alone(exchange: Exchange) -> None:
    """C228, C230: a bot that no platform marks; the person beside it goes on."""
    exchange.join("echoes")
    exchange.say("echoes", "hi", sender="echo")
    for turn in range(1, 30):
        exchange.wait_sent("echoes", turn)
        if "two programs" in exchange.texts("echoes")[-1]:
            break
        exchange.say("echoes", f"you said {turn}", sender="echo")
    answered = exchange.texts("echoes")
    assert len(answered) == 12 and "two programs" in answered[-1]
    exchange.say("echoes", "you said: stop", sender="echo")
    exchange.wait_for(lambda: exchange.audit("echoes").get("loop") == 2, "the audit")
    exchange.say("echoes", "is anybody there", sender="ann")
    exchange.wait_text("echoes", "is anybody there")
    assert len(exchange.texts("echoes")) == 13, "it was told once"
