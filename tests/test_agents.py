"""Agents among themselves: real sessions, real runners, scripted agents (messaging.md 11; appendix D.20)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jackfield.cli.setup import group_files

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange, prepared

LIMITS = "\n[agents]\nmax_hops = 6\nmax_messages = 8\n"


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("agents"), host_settings="max_runners = 12", postbox_settings=LIMITS) as made:
        made.start()
        yield made


FAILING = """
[[providers.mock.script]]
match = "impossible"
actions = [{ fail = "protocol", retryable = false }]
[[providers.mock.script]]
match = "long"
actions = [{ wait = 60 }]
"""


def agent(exchange: Exchange, folder: str, reply: str = "", settings: str = "") -> None:
    """An agent group of the mock provider: with what it says to everything, or it does what it is told."""
    at = exchange.home.groups / folder
    group_files(at, name=folder.title(), provider="mock", runtime="process")
    if reply:
        settings = f"[providers.mock]\ncommands = false\nreply = {json.dumps(reply)}\n"
    toml = at / "agent.toml"
    toml.write_text(toml.read_text(encoding="utf-8") + f"\n{settings}", encoding="utf-8")
    exchange.op("group.add", name=folder.title(), folder=folder)


def knows(exchange: Exchange, group: str, target: str, **options: Any) -> None:
    exchange.op("destination.add", group=group, target=target, **options)


def pair(exchange: Exchange, asks: str, answers: str) -> None:
    """Two agents that know each other by their folders; the first one has a chat of its name."""
    agent(exchange, asks)
    agent(exchange, answers)
    exchange.join(asks, asks)
    knows(exchange, asks, answers, both=True)


def tool(name: str, /, **arguments: Any) -> str:
    return f"mock: tool {name} {json.dumps(arguments)}"


def to(name: str, text: str) -> str:
    return f'mock: say <message to="{name}">{text}</message>'


def settled(exchange: Exchange) -> None:
    """Wait until nothing waits any more."""
    queries = (
        "SELECT 1 FROM inbound WHERE state IN ('queued', 'claimed', 'retrying', 'parked')",
        "SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending', 'retrying', 'waiting')",
        "SELECT 1 FROM events WHERE state = 'received'",
    )
    exchange.wait_for(lambda: not any(exchange.query(query) for query in queries), "an end for everything", 120)


def sessions(exchange: Exchange, folder: str, *, chat: bool) -> list[dict[str, Any]]:
    """An agent's conversations: those of chats, or those with other agents."""
    found = exchange.op("session.list", group=folder)
    return [exchange.op("session.show", id=one["id"]) for one in found if one["key"].startswith("agent:") is not chat]


def between(exchange: Exchange, *folders: str) -> list[tuple[Any, ...]]:
    """Who wrote to whom, after how many hops, and what became of it, in order; only among these agents."""
    rows = exchange.query(
        "SELECT w.folder, r.folder, i.hops, i.state FROM inbound i JOIN sessions ws ON ws.id = i.source "
        "JOIN agent_groups w ON w.id = ws.agent_group_id JOIN sessions rs ON rs.id = i.session_id "
        "JOIN agent_groups r ON r.id = rs.agent_group_id ORDER BY i.ord"
    )
    return [row for row in rows if row[0] in folders]


def test_an_agent_asks_another_and_the_answer_returns_to_the_conversation_that_asked(exchange: Exchange) -> None:
    """Appendix D.20: the answer goes on where the question was asked, so that its plain words reach the person."""
    pair(exchange, "anna", "bert")
    exchange.say("anna", to("bert", "what is the capital of France?"))
    # bert says what it was asked; anna says what bert said, to the chat.
    exchange.wait_text("anna", "You said: You said: what is the capital of France?")
    settled(exchange)
    assert between(exchange, "anna", "bert") == [("anna", "bert", 1, "completed"), ("bert", "anna", 2, "completed")]
    assert len(exchange.sent("anna")) == 1, "nobody said anything else"
    exchange.say("anna", to("bert", "and of Spain?"))
    exchange.wait_text("anna", "You said: You said: and of Spain?")
    (conversation,) = sessions(exchange, "bert", chat=False)
    assert conversation["mode"] == "agent-shared", "the second question goes into the conversation of the first"
    (anna,) = exchange.query("SELECT id FROM agent_groups WHERE folder = 'anna'")
    asked = [json.loads(text) for text in exchange.mailbox_texts(conversation)]
    assert [(one["sender"], one["sender_id"]) for one in asked] == [("Anna", f"agent:{anna[0]}")] * 2


def test_the_ledger_shows_both_ends_of_a_message_between_agents(exchange: Exchange) -> None:
    pair(exchange, "carl", "dora")
    exchange.say("carl", to("dora", "mock: quiet"))
    exchange.wait_for(lambda: between(exchange, "carl"), "the message")
    settled(exchange)
    (session,) = sessions(exchange, "carl", chat=True)
    (out,) = [one for one in exchange.op("message.list", session=session["id"]) if one["direction"] == "out"]
    sent = exchange.op("message.show", id=out["id"])
    assert (sent["state"], sent["to_agent"], sent["arrived_state"]) == ("sent", "dora", "completed")
    arrived = exchange.op("message.show", id=sent["arrived_as"])
    assert (arrived["from_agent"], arrived["from_delivery"], arrived["hops"]) == ("carl", out["id"], 1)


def test_permission_follows_the_operator_at_once_and_an_answer_needs_none(exchange: Exchange) -> None:
    """C147: a destination is the permission to write; the one that asked may be answered all the same."""
    agent(exchange, "emil")
    agent(exchange, "frida")
    exchange.join("emil", "emil")
    exchange.say("emil", tool("send_message", text="psst", to="frida") + " mock: say it said {result}")
    assert "there is no destination" in exchange.wait_text("emil", "it said")
    knows(exchange, "emil", "frida", name="helper")
    exchange.say("emil", tool("send_message", text="hello", to="helper"))
    exchange.wait_text("emil", "You said: You said: hello")
    settled(exchange)
    exchange.op("destination.remove", group="emil", name="helper")
    exchange.say("emil", tool("send_message", text="psst", to="helper") + " mock: say then it said {result}")
    assert "there is no destination" in exchange.wait_text("emil", "then it said")
    assert [row[:2] for row in between(exchange, "emil", "frida")] == [("emil", "frida"), ("frida", "emil")]


def test_files_go_along_whole_and_what_is_for_people_does_not(exchange: Exchange) -> None:
    pair(exchange, "gina", "hugo")
    exchange.say("gina", "mock: write plan.txt step one " + tool("send_file", path="plan.txt", to="hugo", text="see"))
    exchange.wait_for(lambda: len(between(exchange, "gina", "hugo")) == 2, "the file and an answer")
    settled(exchange)
    (conversation,) = sessions(exchange, "hugo", chat=False)
    (arrived,) = [path for path in (Path(conversation["folder"]) / "inbox").rglob("*") if path.is_file()]
    assert (arrived.name, arrived.read_text(encoding="utf-8").strip()) == ("plan.txt", "step one")
    copies = exchange.home.root / "outgoing"
    exchange.wait_for(lambda: not any(copies.iterdir()), "no copies left")
    for number, call in enumerate(
        [
            tool("send_card", title="x", to="hugo"),
            tool("ask_user_question", title="x", question="y", options=["z"], to="hugo"),
        ]
    ):
        exchange.say("gina", call + f" mock: say {number} it said {{result}}")
        assert "for people" in exchange.wait_text("gina", f"{number} it said")


def test_a_loop_of_three_agents_ends_at_the_hop_limit_and_is_told_once(exchange: Exchange) -> None:
    """C170: each pair alone would never have met a limit."""
    for name, follows in (("ines", "jan"), ("jan", "kim"), ("kim", "ines")):
        agent(exchange, name, f'<message to="{follows}">{{text}}</message>')
    for name, follows in (("ines", "jan"), ("jan", "kim"), ("kim", "ines")):
        knows(exchange, name, follows)
    exchange.join("ines", "ines")
    exchange.say("ines", "pass it on")
    blocked = "SELECT session_id FROM deliveries WHERE state = 'blocked' AND reason = 'TooManyHops'"
    exchange.wait_for(lambda: exchange.query(blocked), "the stop", 120)
    settled(exchange)
    went = between(exchange, "ines", "jan", "kim")
    assert [hops for _, _, hops, _ in went] == [1, 2, 3, 4, 5, 6]
    ((stopped,),) = exchange.query(blocked)
    told = [text for text in exchange.mailbox_texts(exchange.op("session.show", id=stopped)) if "TooManyHops" in text]
    assert len(told) == 1
    assert any(
        one["reason"] == "TooManyHops" and one["agent"] == "ines" for one in exchange.op("status")["stopped_chains"]
    )


def test_an_agent_that_writes_to_itself_meets_its_own_limit(exchange: Exchange) -> None:
    """C168."""
    agent(exchange, "lena", '<message to="myself">noted</message>')
    exchange.join("lena", "lena")
    knows(exchange, "lena", "lena", name="myself")
    exchange.say("lena", "hello")
    blocked = "SELECT reason FROM deliveries WHERE state = 'blocked' AND reason = 'TooOftenToItself'"
    exchange.wait_for(lambda: exchange.query(blocked), "the stop", 120)
    settled(exchange)
    assert len(between(exchange, "lena")) == 3


def test_a_message_elsewhere_is_no_reply_to_the_agent_that_woke_the_session(exchange: Exchange) -> None:
    """C172: it is delivered, as an answer to nothing."""
    pair(exchange, "mia", "nils")
    exchange.join("news", "nils")
    name = next(one["name"] for one in exchange.op("destination.list", group="nils") if "news" in one["target"])
    exchange.say("mia", to("nils", tool("send_message", text="for all", to=name)))
    exchange.wait_text("news", "for all")
    settled(exchange)
    assert exchange.texts("news") == ["for all"], "test_host_delivery.py shows that it names no message"


def test_who_asked_learns_that_no_answer_will_come(exchange: Exchange) -> None:
    """The other agent fails, its conversation is cleared, it is removed: each ends in words for the person."""
    agent(exchange, "olga")
    agent(exchange, "paul", settings=FAILING)
    exchange.join("olga", "olga")
    knows(exchange, "olga", "paul")
    exchange.say("olga", to("paul", "something impossible"))
    exchange.wait_text("olga", "You said: Paul: The agent could not answer this message (protocol).")
    exchange.say("olga", to("paul", "something long"))
    exchange.wait_for(lambda: between(exchange, "olga")[-1][3] == "claimed", "paul's turn")
    (conversation,) = sessions(exchange, "paul", chat=False)
    exchange.op("session.clear", id=conversation["id"])
    exchange.wait_text("olga", "session cleared")
    exchange.say("olga", to("paul", "something long again"))
    exchange.wait_for(lambda: between(exchange, "olga")[-1][3] == "claimed", "paul's next turn")
    exchange.op("group.remove", name="paul", force=True)
    exchange.wait_text("olga", "was removed")
    exchange.say("olga", tool("send_message", text="x", to="paul") + " mock: say it said {result}")
    assert "there is no destination" in exchange.wait_text("olga", "it said")


def test_an_agent_that_can_not_be_started_is_told_of_and_keeps_the_message(exchange: Exchange) -> None:
    agent(exchange, "vera")
    agent(exchange, "walt")
    toml = exchange.home.groups / "walt" / "agent.toml"
    text = toml.read_text(encoding="utf-8")
    toml.write_text(text.replace('tools = ["messaging"]', 'tools = ["no-such"]'), encoding="utf-8")
    exchange.op("group.accept", name="walt")
    exchange.join("vera", "vera")
    knows(exchange, "vera", "walt")
    exchange.say("vera", to("walt", "are you there?"))
    assert "can't be started" in exchange.wait_text("vera", "You said: Walt: The agent can't be started")
    toml.write_text(text, encoding="utf-8")
    exchange.op("group.accept", name="walt")
    exchange.op("host.reload")
    exchange.wait_text("vera", "You said: You said: are you there?")


@pytest.mark.slow
def test_five_agents_that_tell_everything_to_all_others_come_to_an_end(exchange: Exchange) -> None:
    """C170, with real runners: no more than eight messages follow from the one."""
    names = ("xa", "xb", "xc", "xd", "xe")
    for name in names:
        agent(exchange, name, "".join(f'<message to="{one}">{{text}}</message>' for one in names if one != name))
    for name in names:
        for other in names:
            if other != name:
                knows(exchange, name, other)
    exchange.join("xa", "xa")
    exchange.say("xa", "tell everybody")
    blocked = "SELECT 1 FROM deliveries WHERE state = 'blocked' AND reason = 'ChainTooLong'"
    exchange.wait_for(lambda: exchange.query(blocked), "the stop", 120)
    settled(exchange)
    assert len(between(exchange, *names)) == 8


@pytest.mark.parametrize(
    "point",
    [
        "host.agents.after_enqueue",
        *(
            pytest.param(point, marks=pytest.mark.slow)
            for point in ("host.collect.after_commit:2", "host.deliver.after_intent", "host.agents.after_enqueue:2")
        ),
    ],
)
def test_a_host_killed_between_two_agents_loses_and_doubles_nothing(make_exchange: MakeExchange, point: str) -> None:
    """C209: the ledger has both ends or none, and the inbox takes a message once."""
    exchange = make_exchange()
    pair(exchange, "quin", "rosa")
    exchange.start(JACKFIELD_KILL_AT=point)
    exchange.say("quin", to("rosa", "are you there?"))
    exchange.wait_for(exchange.process_ended, f"the host's death at {point}")
    exchange.start()
    exchange.wait_text("quin", "You said: You said: are you there?")
    settled(exchange)
    assert between(exchange, "quin", "rosa") == [("quin", "rosa", 1, "completed"), ("rosa", "quin", 2, "completed")]
    assert exchange.texts("quin") == ["You said: You said: are you there?"]


def maker(exchange: Exchange, folder: str, more: str = "") -> None:
    """An agent that may ask for others; the operator's own terminal is a chat of its owner."""
    agent(exchange, folder)
    toml = exchange.home.groups / folder / "agent.toml"
    text = toml.read_text(encoding="utf-8").replace('tools = ["messaging"]', 'tools = ["messaging", "agents"]')
    toml.write_text('model = "m-1"\n' + text + more, encoding="utf-8")
    exchange.op("group.accept", name=folder)
    exchange.join(folder, folder)


def approval_of(exchange: Exchange, folder: str) -> dict[str, Any]:
    exchange.wait_for(
        lambda: [one for one in exchange.op("approval.list") if one["group"] == folder], f"a request of {folder}"
    )
    return next(one for one in exchange.op("approval.list") if one["group"] == folder)


def test_an_agent_is_created_once_a_person_says_yes_and_works_with_its_maker(exchange: Exchange) -> None:
    """C143, appendix D.20: folder, rows both ways, a notice; the new one reaches its maker as `parent`."""
    maker(exchange, "sven")
    (exchange.home.groups / "research-bot").mkdir()
    exchange.say("sven", tool("create_agent", name="Research Bot", instructions="Look things up."))
    exchange.wait_text("sven", "Asked a person to allow")
    asked = approval_of(exchange, "sven")
    assert exchange.query("SELECT 1 FROM agent_groups WHERE folder LIKE 'research-bot%'") == []
    shown = exchange.op("approval.show", id=asked["id"])
    assert {"Look things up.", "Research Bot", "mock m-1"} <= {field["value"] for field in shown["fields"]}
    exchange.op("approval.decide", id=asked["id"])
    exchange.wait_text("sven", "was created")
    places = {one["name"]: one["target"] for one in exchange.op("destination.list", group="research-bot-2")}
    assert places == {"parent": "sven"}, "no chat comes along"
    assert "research-bot" in {one["name"] for one in exchange.op("destination.list", group="sven")}
    shown = exchange.op("group.show", name="research-bot-2")
    assert shown["created_by"] == "sven"
    settings = shown["settings"]
    assert (settings["provider"], settings["model"], settings["tools"]) == ("mock", "m-1", ["messaging"])
    words = (exchange.home.groups / "research-bot-2" / "AGENTS.md").read_text(encoding="utf-8")
    assert "Look things up." in words and "`parent`" in words
    exchange.say("sven", to("research-bot", tool("send_message", text="found it", to="parent")))
    exchange.wait_text("sven", "You said: found it")
    exchange.say("sven", tool("list_agents"))
    exchange.wait_text("sven", "- research-bot (Research Bot)")


def test_a_no_and_a_limit_leave_nothing_behind(exchange: Exchange) -> None:
    """C143: what was not allowed was not begun."""
    maker(exchange, "tilda")
    exchange.say("tilda", tool("create_agent", name="Spy"))
    exchange.op("approval.decide", id=approval_of(exchange, "tilda")["id"], reject=True)
    exchange.wait_text("tilda", "rejected")
    exchange.say("tilda", tool("create_agent", name="\u2026") + " mock: say it said {result}")
    assert "no letter or digit" in exchange.wait_text("tilda", "it said")
    assert not list(exchange.home.groups.glob("*spy*")) and not list(exchange.home.groups.glob(".new-*"))


def test_a_host_killed_while_it_makes_an_agent_has_made_it_after_the_next_start(make_exchange: MakeExchange) -> None:
    exchange = make_exchange()
    maker(exchange, "ursula", '\n[permissions]\ncreate_agent = "allow"\n')
    exchange.start(JACKFIELD_KILL_AT="host.agents.after_rows")
    exchange.say("ursula", tool("create_agent", name="Helper"))
    exchange.wait_for(exchange.process_ended, "the host's death")
    assert not (exchange.home.groups / "helper").exists()
    exchange.start()
    exchange.wait_text("ursula", "was created")
    assert (exchange.home.groups / "helper" / "AGENTS.md").is_file()
    assert len(exchange.query("SELECT 1 FROM agent_groups WHERE folder = 'helper'")) == 1
    assert not list(exchange.home.groups.glob(".new-*"))
