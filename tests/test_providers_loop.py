"""Whole conversations with the providers that ask a model API directly: real packages and processes, a played model."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared
from tests.harness.models import Asked, PlayedModel, Reply, model_thread

PROVIDERS = ["anthropic", pytest.param("openai", marks=pytest.mark.slow)]
"""The loop is the same; that the other wire carries it, too, need not be shown with every commit."""
WAIT_TEXT = "The model can't be reached at the moment. Your message is kept and answered later."


class Plays:
    """What the model replies, by a word of the message that it was asked; each list is played in order."""

    def __init__(self) -> None:
        self.by_word: dict[str, list[Reply]] = {}
        self.model: PlayedModel | None = None

    def decide(self, asked: Asked) -> Reply:
        prompts = json.dumps(asked.body["messages"])
        if "CONTEXT CHECKPOINT" in f"{asked.body.get('system')}{prompts}":
            return Reply(text="They spoke of apples.")
        found = [word for word in self.by_word if word in prompts and self.by_word[word]]
        if not found:
            return Reply(text="fine")
        return self.by_word[max(found, key=prompts.rfind)].pop(0)

    def asked_about(self, word: str) -> list[Asked]:
        assert self.model is not None
        return [asked for asked in self.model.asked if word in json.dumps(asked.body["messages"])]


def settings_for(provider: str, model: PlayedModel, more: str = "") -> dict[str, Any]:
    url = model.url if provider == "anthropic" else f"{model.url}/v1"
    told = f'api_key = "k"\nbase_url = "{url}"\nmodel = "m-1"\n{more}'
    return {"provider": provider, "provider_settings": told, "host_settings": "max_runners = 20"}


Talking = tuple[Exchange, Plays]


@pytest.fixture(scope="module", params=PROVIDERS)
def talking(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Exchange, Plays]]:
    """One running host with that provider; each test uses a chat and a word of its own."""
    plays = Plays()
    with model_thread(plays.decide) as model:
        plays.model = model
        root = tmp_path_factory.mktemp(request.param)
        with prepared(root, **settings_for(request.param, model)) as exchange:
            for chat in ("text", "tool", "killed", "midway", "follow", "stop", "failing"):
                exchange.join(chat)
            yield exchange.start(), plays


def runner_of(exchange: Exchange, chat: str) -> int:
    return exchange.processes()[exchange.session_of(chat)["id"]]


def last_texts(asked: Asked) -> str:
    return json.dumps(asked.body["messages"][-2:])


def test_a_text_arrives_and_the_conversation_goes_on(talking: Talking) -> None:
    exchange, plays = talking
    plays.by_word["apples"] = [Reply(text="I like apples.")]
    exchange.say("text", "Do you like apples?")
    exchange.wait_text("text", "I like apples.")
    exchange.say("text", "Why?")
    exchange.wait_text("text", "fine")
    assert "I like apples." in json.dumps(plays.asked_about("Why?")[-1].body["messages"])


def test_what_a_tool_sends_arrives_in_the_chat(talking: Talking) -> None:
    exchange, plays = talking
    plays.by_word["pears"] = [
        Reply(text="Let me see.", calls=[("send_message", {"text": "Looking..."}), ("nonsense", {})]),
        Reply(text="Pears it is."),
    ]
    exchange.say("tool", "Find pears")
    exchange.wait_text("tool", "Pears it is.")
    assert exchange.texts("tool") == ["Looking...", "Pears it is."]
    results = last_texts(plays.asked_about("pears")[-1])
    assert "Message sent" in results and "There is no tool" in results


def test_a_conversation_survives_the_kill_of_its_runner(talking: Talking) -> None:
    exchange, plays = talking
    plays.by_word["cherries"] = [Reply(text="Cherries are red.")]
    exchange.say("killed", "Tell me of cherries")
    exchange.wait_text("killed", "Cherries are red.")
    os.kill(runner_of(exchange, "killed"), signal.SIGKILL)
    exchange.say("killed", "And what else?")
    exchange.wait_text("killed", "fine")
    messages = plays.asked_about("And what else?")[-1].body["messages"]
    said = json.dumps(messages)
    assert said.count("Tell me of cherries") == 1 and said.count("Cherries are red.") == 1


def test_a_runner_that_is_killed_in_a_turn_answers_in_the_next(talking: Talking) -> None:
    exchange, plays = talking
    plays.by_word["quinces"] = [Reply(text="I begin", after="hang"), Reply(text="Quinces are yellow.")]
    exchange.say("midway", "Tell me of quinces")
    exchange.wait_for(lambda: plays.asked_about("quinces"), "the request")
    os.kill(runner_of(exchange, "midway"), signal.SIGKILL)
    exchange.wait_text("midway", "Quinces are yellow.")
    assert exchange.texts("midway") == ["Quinces are yellow."]


def test_a_follow_up_is_read_in_the_same_turn(talking: Talking) -> None:
    exchange, plays = talking
    plays.by_word["plums"] = [Reply(text="Thinking about plums... " * 20, delay=0.1), Reply(text="And grapes too.")]
    plays.by_word["grapes"] = [Reply(text="And grapes too.")]
    exchange.say("follow", "Think about plums")
    exchange.wait_for(lambda: plays.asked_about("plums"), "the request")
    exchange.say("follow", "and about grapes")
    exchange.wait_text("follow", "And grapes too.")
    (second,) = plays.asked_about("grapes")
    assert [message["role"] for message in second.body["messages"] if message["role"] != "system"] == [
        "user", "assistant", "user",
    ]  # fmt: skip


def test_a_person_can_stop_a_turn(talking: Talking) -> None:
    exchange, plays = talking
    assert plays.model is not None
    plays.by_word["nuts"] = [Reply(text="Nuts are", after="hang"), Reply(text="Back again.")]
    before = plays.model.aborted
    exchange.say("stop", "Tell me all about nuts")
    exchange.wait_for(lambda: plays.asked_about("nuts"), "the request")
    exchange.say("stop", "/stop")
    exchange.wait_text("stop", "Stopped.")
    exchange.wait_for(lambda: plays.model is not None and plays.model.aborted > before, "the end of the request")
    exchange.say("stop", "Still there?")
    exchange.wait_text("stop", "Back again.")


FINAL = {
    "model_not_found": (Reply(status=404, type="not_found_error", message="model: m-1"), "set to does not exist"),
    "invalid_request": (Reply(status=400, type="invalid_request_error"), "could not read this request"),
    "refusal": (Reply(text="No", stop="refusal"), "refuses to answer"),
}


@pytest.mark.parametrize("kind", FINAL)
def test_a_failure_that_stays_is_told_in_words_for_people(talking: Talking, kind: str) -> None:
    exchange, plays = talking
    reply, words = FINAL[kind]
    plays.by_word[f"fails-{kind}"] = [reply]
    exchange.say("failing", f"this fails-{kind}")
    told = exchange.wait_text("failing", words)
    assert "m-1" not in told, "people are not told of the operator's set-up"
    exchange.wait_for(lambda: str(exchange.state_of("failing")[-1][1]).startswith(kind), "the reason in the ledger")


def test_a_passing_failure_is_not_seen(talking: Talking) -> None:
    exchange, plays = talking
    busy = Reply(status=529, type="overloaded_error", headers={"retry-after": "0"})
    plays.by_word["figs"] = [busy, Reply(text="half", after="cut"), Reply(text="Figs.")]
    exchange.say("failing", "figs?")
    exchange.wait_text("failing", "Figs.")
    assert not [text for text in exchange.texts("failing") if "half" in text or WAIT_TEXT in text]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_refused_key_lets_everything_wait_until_it_is_mended(provider: str, make_exchange: Any) -> None:
    """The message is kept and answered once the key is right."""
    plays = Plays()
    refused = [Reply(status=401, type="authentication_error", message="invalid x-api-key sk-nope")]
    plays.by_word["dates"] = [*refused, Reply(text="Dates are sweet.")]
    with model_thread(plays.decide) as model:
        plays.model = model
        exchange = make_exchange(**settings_for(provider, model))
        exchange.join("c")
        exchange.start()
        exchange.say("c", "Tell me of dates")
        told = exchange.wait_sent("c", 1)[0]["text"]
        assert "sk-nope" not in told
        exchange.wait_for(lambda: exchange.state_of("c")[0][0] in ("parked", "queued"), "the message to wait")
        assert len(plays.asked_about("dates")) == 1
        exchange.stop()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_hour_long_wait_parks_the_session_and_is_told_once(provider: str, make_exchange: Any) -> None:
    plays = Plays()
    plays.by_word["limes"] = [Reply(status=429, type="rate_limit_error", headers={"retry-after": "3600"})]
    with model_thread(plays.decide) as model:
        plays.model = model
        exchange = make_exchange(**settings_for(provider, model))
        exchange.join("c")
        exchange.start()
        exchange.say("c", "Tell me of limes")
        assert exchange.wait_sent("c", 1)[0]["text"]
        exchange.wait_for(lambda: exchange.state_of("c")[0][0] in ("parked", "queued"), "the parking")
        assert len(exchange.sent("c")) == 1 and len(plays.asked_about("limes")) == 1
        exchange.stop()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_full_conversation_goes_on_from_a_summary(provider: str, make_exchange: Any) -> None:
    plays = Plays()
    plays.by_word["apples"] = [Reply(text="Apples are round. " * 300, tokens=2900)]
    with model_thread(plays.decide) as model:
        plays.model = model
        exchange = make_exchange(**settings_for(provider, model, "window = 3000"))
        exchange.join("c")
        exchange.start()
        exchange.say("c", "Tell me of apples")
        exchange.wait_text("c", "Apples are round.")
        exchange.say("c", "And now?")
        exchange.wait_text("c", "fine")
        said = json.dumps(plays.asked_about("And now?")[-1].body["messages"])
        assert "They spoke of apples." in said and "Tell me of apples" not in said
        state = exchange.home.groups / "andy" / "workspace" / ".jackfield"
        kept = list(state.glob(f"*/{provider}/archive/*.jsonl"))
        assert len(kept) == 1 and "Tell me of apples" in kept[0].read_text()
        exchange.stop()


def test_no_key_is_said_before_anything_is_sent(make_exchange: Any) -> None:
    with model_thread(Plays().decide) as model:
        exchange = make_exchange(provider="anthropic", provider_settings=f'base_url = "{model.url}"')
        exchange.join("c")
        with contextlib.ExitStack() as stack:
            stack.callback(exchange.stop)
            exchange.start(ANTHROPIC_API_KEY="")
            exchange.say("c", "hello")
            assert exchange.wait_sent("c", 1)
        assert not model.asked
