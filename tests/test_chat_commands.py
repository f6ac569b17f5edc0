"""Chat commands and interruptions, recovery after a crash (messaging.md 1.7, appendix D.8; C128)."""

from __future__ import annotations

import pytest

from tests.harness.exchange import Exchange


@pytest.fixture(scope="module")
def exchange(exchange_hall: Exchange) -> Exchange:
    exchange_hall.op("owner.add", user="postbox:boss")
    return exchange_hall


def test_a_command_of_another_program_is_dropped_in_silence(exchange: Exchange) -> None:
    """Appendix D.8."""
    exchange.join("cmd-help")
    exchange.say("cmd-help", "/help")
    exchange.say("cmd-help", "/foo bar")
    assert exchange.wait_sent("cmd-help", 1)[0]["text"] == "You said: /foo bar"
    assert len(exchange.state_of("cmd-help")) == 1


def test_clearing_is_for_admins_and_forgets_the_conversation(exchange: Exchange) -> None:
    """Appendix D.8."""
    exchange.join("cmd-clear")
    exchange.say("cmd-clear", "remember the blue door")
    exchange.wait_sent("cmd-clear", 1)
    exchange.say("cmd-clear", "/clear")
    exchange.wait_text("cmd-clear", "/clear is for admins of this agent.")
    exchange.say("cmd-clear", "mock: recall")
    assert "blue door" in exchange.wait_sent("cmd-clear", 3)[2]["text"]
    exchange.say("cmd-clear", "/clear", sender="boss")
    exchange.wait_text("cmd-clear", "Session cleared.")
    exchange.say("cmd-clear", "mock: recall mock: say and that is all")
    assert "blue door" not in exchange.wait_text("cmd-clear", "and that is all")


def test_a_denial_is_said_once_and_keeps_the_command_from_no_other_agent(exchange: Exchange) -> None:
    """messaging.md 1.7: straight through the channel, however many agents are wired; one of them knows the sender."""
    exchange.join("cmd-two")
    for folder in ("cmd-ours", "cmd-theirs"):
        exchange.add_agent(folder)
        exchange.join("cmd-two", folder)
    exchange.op("admin.add", user="postbox:ada", group="cmd-ours")
    exchange.say("cmd-two", "/clear", sender="ada")
    exchange.wait_text("cmd-two", "Session cleared.")
    exchange.wait_for(lambda: exchange.audit("cmd-two") == {"denied /clear": 1}, "the refusal")
    exchange.say("cmd-two", "that was all", sender="ada")
    exchange.wait_for(lambda: len([one for one in exchange.texts("cmd-two") if "was all" in one]) == 3, "all answers")
    assert exchange.texts("cmd-two").count("/clear is for admins of this agent.") == 1


def test_only_who_began_a_turn_or_an_admin_stops_it(exchange: Exchange) -> None:
    """C128."""
    exchange.join("cmd-stop", is_group=True)

    def say(sender: str, text: str) -> None:
        exchange.say("cmd-stop", text, sender=sender, is_group=True, addressed="mention")

    say("anna", "mock: sleep 300 mock: say the long import is done")
    exchange.wait_for(lambda: [state for state, _ in exchange.state_of("cmd-stop")] == ["claimed"], "the turn")
    say("ben", "hi from ben")
    say("ben", "/stop")
    exchange.wait_text("cmd-stop", "Only the person who began this, or an admin, can stop it.")
    say("anna", "/stop")
    exchange.wait_text("cmd-stop", "Stopped.")
    exchange.wait_text("cmd-stop", "hi from ben")
    exchange.wait_for(lambda: {state for state, _ in exchange.state_of("cmd-stop")} == {"completed"}, "all ends")
    assert not any("import is done" in text for text in exchange.texts("cmd-stop"))
    say("anna", "mock: sleep 300")
    exchange.wait_for(lambda: exchange.state_of("cmd-stop")[-1][0] == "claimed", "the second turn")
    say("boss", "/stop")
    exchange.wait_for(lambda: exchange.texts("cmd-stop").count("Stopped.") == 2, "the admin's stop")


def test_a_later_message_reaches_a_running_turn_in_order(exchange: Exchange) -> None:
    """C019."""
    exchange.join("cmd-follow")
    exchange.say("cmd-follow", "mock: sleep 0.5 mock: say begun")
    for text in ("the blue folder", "a photo", "no, the red one"):
        exchange.say("cmd-follow", f"mock: say {text}")
    exchange.wait_for(lambda: exchange.state_of("cmd-follow") == [("completed", None)] * 4, "all four ends")
    exchange.wait_for(lambda: "red one" in " ".join(exchange.texts("cmd-follow")), "the last answer")
    said = " ".join(exchange.texts("cmd-follow"))
    places = [said.index(text) for text in ("begun", "blue folder", "a photo", "red one")]
    assert places == sorted(places)


def test_after_a_crash_the_next_turn_knows_what_was_sent_and_sends_it_no_second_time(exchange: Exchange) -> None:
    """Architecture 7; appendix D.16."""
    exchange.join("cmd-crash")
    exchange.say(
        "cmd-crash",
        'mock: tool send_message {"text": "halfway there"} mock: crash kill times=1 mock: show prompt',
    )
    prompt = exchange.wait_text("cmd-crash", "<context")
    assert "halfway there" in prompt
    assert "<notice" in prompt
    exchange.wait_for(lambda: exchange.state_of("cmd-crash") == [("completed", None)], "the message's end")
    assert exchange.texts("cmd-crash").count("halfway there") == 1
    assert exchange.query("SELECT attempts FROM inbound WHERE preview LIKE '%halfway there%'") == [(2,)]


def test_a_lost_conversation_begins_anew_with_a_recap(exchange: Exchange) -> None:
    """C124."""
    exchange.join("cmd-lost")
    exchange.say("cmd-lost", "the first thing")
    exchange.wait_sent("cmd-lost", 1)
    exchange.say("cmd-lost", "mock: lose restart mock: say lost")
    exchange.wait_text("cmd-lost", "lost")
    exchange.op("session.stop", id=exchange.session_of("cmd-lost")["id"])
    exchange.wait_for(lambda: exchange.session_of("cmd-lost")["runner"] == "none", "the runner's end")
    exchange.say("cmd-lost", "mock: show prompt")
    prompt = exchange.wait_text("cmd-lost", "<context")
    assert "the first thing" in prompt
    exchange.say("cmd-lost", "and on it goes")
    exchange.wait_text("cmd-lost", "and on it goes")
    exchange.wait_for(lambda: exchange.state_of("cmd-lost") == [("completed", None)] * 4, "all ends")
    assert exchange.query("SELECT max(attempts) FROM inbound WHERE preview LIKE '%on it goes'") == [(1,)]


def test_an_agents_new_settings_count_from_the_next_message(exchange: Exchange) -> None:
    exchange.add_agent("cora")
    exchange.join("cmd-cora", "cora")
    exchange.say("cmd-cora", "one")
    assert exchange.wait_sent("cmd-cora", 1)[0]["text"] == "You said: one"
    exchange.wait_for(lambda: exchange.session_of("cmd-cora")["runner"] == "idle", "the turn's end")
    exchange.run("group", "set", "cora", "providers.mock.reply", "Heard: {text}")
    exchange.say("cmd-cora", "two")
    assert exchange.wait_sent("cmd-cora", 2)[1]["text"] == "Heard: two"


def test_a_file_that_can_not_be_used_is_not_accepted(exchange: Exchange) -> None:
    exchange.add_agent("dora")
    agent = exchange.home.groups / "dora" / "agent.toml"
    agent.write_text("name = \n", encoding="utf-8")
    done = exchange.run("group", "accept", "dora", check=False)
    assert done.returncode == 2
    assert "agent.toml:1" in done.stderr
