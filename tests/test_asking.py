"""Questions of an agent to people: who answers, how, when, and once (messaging.md 8.4; C157, C159)."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange


@pytest.fixture
def exchange(exchange_hall: Exchange) -> Exchange:
    return exchange_hall


def ask(exchange: Exchange, chat: str, **more: Any) -> str:
    """Have the agent ask; the question's id once it stands in the chat."""
    arguments = {"title": "Drink", "question": "Tea or coffee?", "options": ["tea", "coffee"], **more}
    exchange.say(chat, f"mock: tool ask_user_question {json.dumps(arguments)} mock: say chosen: {{result}}")
    exchange.wait_for(lambda: any(item.get("prompt") for item in exchange.sent(chat)), "the question")
    return next(str(item["prompt"]) for item in exchange.sent(chat) if item.get("prompt"))


def answer_to(exchange: Exchange, click: str) -> dict[str, Any]:
    """What the clicker was told."""
    exchange.wait_for(lambda: any(item.get("answer") == click for item in exchange.sent()), f"a reply to {click}")
    return next(item for item in exchange.sent() if item.get("answer") == click)


def test_a_click_answers_once_and_a_second_one_is_told_so(exchange: Exchange) -> None:
    """Appendix D.15."""
    exchange.join("q-click")
    question = ask(exchange, "q-click")
    first = exchange.click("q-click", question, "coffee")
    assert exchange.wait_text("q-click", "chosen:") == "chosen: coffee"
    second = exchange.click("q-click", question, "tea", sender="bob")
    told = answer_to(exchange, first)
    assert (told["accepted"], "coffee" in told["text"]) == (True, True)
    told = answer_to(exchange, second)
    assert (told["accepted"], told["text"]) == (False, "Already answered: coffee")


def test_a_value_that_was_not_offered_and_a_question_of_another_chat_answer_nothing(exchange: Exchange) -> None:
    exchange.join("q-other")
    exchange.join("q-mine")
    question = ask(exchange, "q-mine")
    assert answer_to(exchange, exchange.click("q-mine", question, "whisky"))["accepted"] is False
    assert answer_to(exchange, exchange.click("q-other", question, "tea"))["accepted"] is False
    assert answer_to(exchange, exchange.click("q-mine", "qst_forged", "tea"))["accepted"] is False
    exchange.click("q-mine", question, "tea")
    assert exchange.wait_text("q-mine", "chosen:") == "chosen: tea"


def test_only_somebody_who_may_write_to_the_agent_may_answer_it(exchange: Exchange) -> None:
    """messaging.md 8.4: authorise first."""
    exchange.op("member.add", user="postbox:mia", group="andy")
    exchange.join("q-closed", policy="strict")
    arguments = {"title": "Pay", "question": "Pay now?", "options": ["yes", "no"]}
    exchange.say(
        "q-closed", f"mock: tool ask_user_question {json.dumps(arguments)} mock: say chosen: {{result}}", sender="mia"
    )
    question = exchange.wait_sent("q-closed", 1)[0]["prompt"]
    told = answer_to(exchange, exchange.click("q-closed", question, "yes", sender="mallory"))
    assert told["accepted"] is False
    assert exchange.texts("q-closed") == [exchange.sent("q-closed")[0]["text"]]
    exchange.click("q-closed", question, "no", sender="mia")
    assert exchange.wait_text("q-closed", "chosen:") == "chosen: no"
    exchange.op("member.remove", user="postbox:mia", group="andy")


def test_free_words_answer_where_they_are_allowed_and_are_no_message_then(exchange: Exchange) -> None:
    exchange.join("q-text")
    ask(exchange, "q-text", allow_text=True)
    exchange.say("q-text", "hot chocolate, please")
    assert exchange.wait_text("q-text", "chosen:") == "chosen: hot chocolate, please"
    assert len(exchange.state_of("q-text")) == 1


def test_a_message_that_is_no_answer_goes_to_the_agent_while_the_question_stands(exchange: Exchange) -> None:
    exchange.join("q-aside")
    question = ask(exchange, "q-aside")
    exchange.say("q-aside", "what do you mean?")
    exchange.wait_for(lambda: len(exchange.state_of("q-aside")) == 2, "the aside in the ledger")
    exchange.click("q-aside", question, "tea")
    exchange.wait_text("q-aside", "chosen: tea")
    exchange.wait_for(lambda: exchange.state_of("q-aside") == [("completed", None)] * 2, "an end for both")


def test_a_question_that_nobody_answers_is_an_error_and_a_late_click_wakes_nobody(exchange: Exchange) -> None:
    """C157, appendix D.15."""
    exchange.join("q-late")
    question = ask(exchange, "q-late", timeout=1)
    told = exchange.wait_text("q-late", "chosen:")
    assert told == "chosen: Error: Question timed out after 1 s"
    session = exchange.session_of("q-late")
    exchange.op("session.stop", id=session["id"])
    exchange.wait_for(lambda: exchange.session_of("q-late")["runner"] == "none", "the runner's end")
    late = answer_to(exchange, exchange.click("q-late", question, "tea"))
    assert (late["accepted"], late["text"]) == (False, "This question is not open any more.")
    assert exchange.session_of("q-late")["runner"] == "none"
    assert exchange.session_of("q-late")["epoch"] == session["epoch"]


def test_an_answer_after_the_runner_was_killed_is_not_lost(exchange: Exchange) -> None:
    """C157, C159: nobody waits for it any more, so the agent reads it as a notice; the next turn may ask again, too."""
    exchange.join("q-crash")
    question = ask(exchange, "q-crash")
    session = exchange.session_of("q-crash")["id"]
    os.kill(exchange.processes()[session], signal.SIGKILL)
    exchange.wait_for(lambda: exchange.state_of("q-crash")[0][0] == "retrying", "the end of the first try")
    told = answer_to(exchange, exchange.click("q-crash", question, "tea"))
    assert told["accepted"]
    assert "from postbox:ann: tea" in exchange.wait_text("q-crash", "An answer to your earlier question 'Drink'")

    def questions() -> list[str]:
        return [item["prompt"] for item in exchange.sent("q-crash") if item.get("prompt")]

    ended = [("completed", None)]
    exchange.wait_for(lambda: len(questions()) > 1 or exchange.state_of("q-crash") == ended, "the next try")
    if len(questions()) > 1:
        exchange.click("q-crash", questions()[-1], "coffee")
    exchange.wait_for(lambda: exchange.state_of("q-crash") == ended, "the message's end")
    exchange.click("q-crash", question, "tea")
    notices = exchange.query(f"SELECT preview FROM inbound WHERE session_id = '{session}' AND event_id IS NULL")
    assert sum("earlier question" in preview for (preview,) in notices) == 1


def test_an_answer_after_the_host_was_started_again_reaches_the_agent(make_exchange: MakeExchange) -> None:
    """C159: ask, restart the host, click."""
    exchange = make_exchange()
    exchange.join("q-again")
    exchange.start()
    question = ask(exchange, "q-again")
    exchange.kill()
    exchange.sweep()
    exchange.click("q-again", question, "tea")
    exchange.start()
    assert "from postbox:ann: tea" in exchange.wait_text("q-again", "An answer to your earlier question 'Drink'")


def test_many_long_and_equal_options_can_still_be_told_apart(exchange: Exchange) -> None:
    """C159."""
    exchange.join("q-many")
    options = [{"label": "same", "value": f"v{number}"} for number in range(2)] + [
        {"label": f"{number} " + "x" * 110, "value": f"v{number}"} for number in range(2, 25)
    ]
    arguments = {"title": "Many", "question": "Which?", "options": options}
    exchange.say("q-many", f"mock: tool ask_user_question {json.dumps(arguments)} mock: say chosen: {{result}}")
    exchange.wait_sent("q-many", 1)
    exchange.say("q-many", "2")
    assert exchange.wait_text("q-many", "chosen:") == "chosen: v1"
