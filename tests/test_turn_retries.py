"""Turns that fail: who tries again, when, how often, and who is told (architecture 5, rule 5).

Everything is said at the beginning, so that the waits of all chats pass at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.exchange import Exchange, prepared

WAIT_TEXT = "The model can't be reached at the moment. Your message is kept and answered later."
FINAL = ["permission", "model_not_found", "output_limit", "refusal", "invalid_request", "budget", "livelock"]
TRANSIENT = ["overloaded", "server", "network", "stalled"]


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    settings = "max_runners = 20\nstuck_claim = 6"
    with prepared(tmp_path_factory.mktemp("retries"), host_settings=settings) as exchange:
        for chat in ("final", "once", "five", "limited", "tools", "hanging", *TRANSIENT):
            exchange.join(chat)
        exchange.start()
        for kind in TRANSIENT:
            exchange.say(kind, f"mock: fail {kind} times=1 mock: say after {kind}")
        exchange.say("hanging", "mock: hang blocking times=1")
        exchange.say("limited", "mock: fail rate_limited retry_after=3600")
        exchange.say(
            "tools", 'mock: tool send_message {"text": "done once"} mock: fail server times=1 mock: say all done'
        )
        for number in range(6):
            exchange.say("five", f"mock: {'fail overloaded times=1' if not number else f'say answer {number}'}")
        yield exchange


@pytest.mark.parametrize("kind", FINAL)
def test_a_failure_that_trying_again_cannot_mend_is_final_and_told(exchange: Exchange, kind: str) -> None:
    before = len(exchange.sent("final"))
    exchange.say("final", f"mock: fail {kind}")
    told = exchange.wait_sent("final", before + 1)[before]["text"]
    assert kind.replace("_", " ") in told
    failed = ("failed", f"{kind}: the mock was told to fail: {kind}")
    exchange.wait_for(lambda: exchange.state_of("final")[-1] == failed, "the failure in the ledger")


def test_what_the_provider_says_for_people_is_what_they_are_told(exchange: Exchange) -> None:
    before = len(exchange.sent("final"))
    exchange.say("final", 'mock: fail refusal message_for_user="I would rather not."')
    assert exchange.wait_sent("final", before + 1)[before]["text"] == "I would rather not."


def test_a_long_wait_parks_the_session_and_is_told_once(exchange: Exchange) -> None:
    exchange.wait_text("limited", WAIT_TEXT)
    exchange.wait_for(lambda: [state for state, _ in exchange.state_of("limited")] == ["parked"], "the parking")
    exchange.wait_for(lambda: exchange.session_of("limited")["runner"] == "none", "the runner's end")
    exchange.say("limited", "are you there?")
    exchange.say("limited", "hello?")
    exchange.wait_for(lambda: len(exchange.state_of("limited")) == 3, "the later messages in the ledger")
    shown = exchange.session_of("limited")
    assert shown["parked_reason"] == "rate_limited: the mock was told to fail: rate_limited"
    assert [state for state, _ in exchange.state_of("limited")] == ["parked", "queued", "queued"]
    assert exchange.texts("limited") == [f"{WAIT_TEXT} That may take about an hour."]


def test_an_operator_may_retry_what_is_parked_at_once(exchange: Exchange) -> None:
    exchange.wait_for(lambda: len(exchange.state_of("limited")) == 3, "the messages of the test before")
    parked = exchange.op("message.list", session=exchange.session_of("limited")["id"], state="parked")
    exchange.op("message.drop", id=parked[0]["id"])
    queued = exchange.op("message.list", session=exchange.session_of("limited")["id"], state="queued")
    assert len(queued) == 2
    exchange.run("reload")
    exchange.wait_text("limited", "hello?")
    exchange.wait_for(lambda: [state for state, _ in exchange.state_of("limited")][1:] == ["completed"] * 2, "the ends")


@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_passing_failure_is_tried_again_and_answered_once(exchange: Exchange, kind: str) -> None:
    exchange.wait_text(kind, f"after {kind}")
    exchange.wait_for(lambda: exchange.state_of(kind) == [("completed", None)], "the end")
    assert exchange.texts(kind) == [f"after {kind}"]
    assert exchange.query(f"SELECT attempts FROM inbound WHERE preview LIKE '%after {kind}'") == [(2,)]


def test_after_a_recovery_each_message_has_one_answer_and_the_session_one_runner(exchange: Exchange) -> None:
    """C014."""
    exchange.wait_for(lambda: {state for state, _ in exchange.state_of("five")} == {"completed"}, "all six ends")
    said = "\n".join(exchange.texts("five"))
    assert [said.count(f"answer {number}") for number in range(1, 6)] == [1] * 5
    session = exchange.session_of("five")
    assert session["epoch"] == 1
    assert list(exchange.processes()).count(session["id"]) == 1


def test_after_tools_ran_the_next_turn_goes_on_and_repeats_nothing(exchange: Exchange) -> None:
    exchange.wait_for(lambda: exchange.state_of("tools") == [("completed", None)], "the end")
    assert exchange.texts("tools").count("done once") == 1
    assert len(exchange.texts("tools")) >= 2


def test_a_runner_that_shows_no_life_is_killed_and_its_message_answered_by_the_next(exchange: Exchange) -> None:
    """C095, appendix D.16."""
    exchange.wait_text("hanging", "recovered")
    exchange.wait_for(lambda: exchange.state_of("hanging") == [("completed", None)], "the end")
    assert exchange.session_of("hanging")["epoch"] == 2
    assert exchange.op("status")["troubles"].get("runner StuckClaim", 0) + exchange.op("status")["troubles"].get(
        "runner Silent", 0
    )


def test_a_failing_credential_parks_all_that_share_it_and_tells_each_chat_once(exchange: Exchange) -> None:
    exchange.add_agent("nina")
    exchange.join("shared-1")
    exchange.join("shared-2", "nina")
    exchange.say("shared-1", "mock: fail auth times=1 retry_after=5 mock: say works again")
    exchange.wait_text("shared-1", WAIT_TEXT)
    exchange.say("shared-2", "and I?")
    exchange.wait_text("shared-2", WAIT_TEXT)
    exchange.wait_text("shared-2", "and I?")
    exchange.wait_text("shared-1", "works again")
    assert exchange.texts("shared-1") == [WAIT_TEXT, "works again"]
    assert exchange.texts("shared-2") == [WAIT_TEXT, "You said: and I?"]


def test_when_the_quota_is_there_again_everything_is_answered_after_one_notice(exchange: Exchange) -> None:
    """C242: five messages meanwhile, one notice, no restart; the state of the session has an end."""
    exchange.join("quota")
    exchange.say("quota", "mock: fail auth times=1 retry_after=6 mock: say the quota is back")
    exchange.wait_text("quota", WAIT_TEXT)
    for number in range(5):
        exchange.say("quota", f"meanwhile {number}")
    exchange.wait_for(lambda: len(exchange.state_of("quota")) == 6, "the later messages in the ledger")
    assert exchange.texts("quota") == [WAIT_TEXT]
    exchange.wait_text("quota", "the quota is back")
    exchange.wait_for(lambda: exchange.state_of("quota") == [("completed", None)] * 6, "an end for all")
    assert exchange.texts("quota") == [WAIT_TEXT, "the quota is back"], "one prompt held all six"
    assert exchange.session_of("quota")["parked_reason"] is None


def test_a_message_over_which_runners_die_keeps_no_other_from_its_answer(exchange: Exchange) -> None:
    """C088: what crashed waits for its next try, also when a runner is started for something else."""
    exchange.join("poison")
    exchange.say("poison", "mock: crash kill")
    exchange.wait_for(lambda: exchange.state_of("poison") == [("retrying", "crashed")], "the first crash")
    exchange.say("poison", "mock: say unharmed")
    exchange.wait_text("poison", "unharmed")
    exchange.wait_for(lambda: exchange.state_of("poison")[1] == ("completed", None), "the end of the other")
    message = exchange.op("message.list", direction="in", session=exchange.session_of("poison")["id"])[-1]
    assert message["text"] == "mock: crash kill"
    exchange.op("message.drop", id=message["id"])


@pytest.mark.slow
def test_a_message_over_which_every_runner_dies_fails_after_five_retries_and_is_told(exchange: Exchange) -> None:
    """C088, appendix D.16."""
    exchange.join("deadly")
    exchange.say("deadly", "mock: crash kill")
    exchange.wait_for(lambda: exchange.state_of("deadly") == [("failed", "crashed")], "the failure", bound=280)
    assert exchange.wait_sent("deadly", 1)[0]["text"].startswith("The agent broke off 6 times")
    exchange.say("deadly", "still alive?")
    exchange.wait_text("deadly", "still alive?")
