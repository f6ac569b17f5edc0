"""What happens when nobody watches: keys that don't work, engines that end, conversations that can't go on, and what
all of it cost (spec/providers.md 7; architecture 5, rule 5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.exchange import Exchange, prepared

KEY = '[providers.mock]\nreply = "secret:MODEL_KEY"'


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("unattended"), host_settings="max_runners = 20") as exchange:
        for chat in ("dying", "long", "used"):
            exchange.join(chat)
        exchange.start()
        exchange.say("dying", "mock: say the password is plum")
        exchange.say("long", "mock: say we spoke of ships")
        exchange.say(
            "used", "mock: use big input=100 output=20 cache_read=7 cost=0.25 mock: use small output=3 mock: say ok"
        )
        yield exchange


def test_an_engine_that_ends_in_the_middle_is_started_again_with_its_conversation(exchange: Exchange) -> None:
    """C099."""
    exchange.wait_text("dying", "plum")
    exchange.say("dying", "mock: die times=1 mock: recall")
    told = exchange.wait_text("dying", "I remember")
    assert "plum" in told
    exchange.wait_for(lambda: [state for state, _ in exchange.state_of("dying")] == ["completed"] * 2, "the end")


def test_what_is_too_long_for_a_new_conversation_too_is_final_and_told(exchange: Exchange) -> None:
    """Never in a loop."""
    exchange.wait_text("long", "ships")
    exchange.say("long", "mock: fail context_overflow")
    told = exchange.wait_text("long", "context overflow")
    assert "/clear begins a new one" in told
    exchange.wait_for(lambda: exchange.state_of("long")[-1][0] == "failed", "the end")
    assert exchange.query("SELECT attempts FROM inbound WHERE preview LIKE '%fail context_overflow'") == [(1,)]


def test_what_was_used_is_summed_up_by_whatever_is_asked_for(exchange: Exchange) -> None:
    exchange.wait_text("used", "ok")
    exchange.wait_for(lambda: exchange.op("usage.sums", by="model", session=_id(exchange, "used"))["rows"], "the rows")
    found = exchange.op("usage.sums", by="model", session=_id(exchange, "used"))
    assert [(row["model"], row["requests"], row["input"], row["output"]) for row in found["rows"]] == [
        ("big", 1, 100, 20),
        ("small", 1, 0, 3),
    ]
    assert (found["total"]["cost"], found["total"]["unpriced"], found["total"]["tokens"]) == (0.25, 1, 130)
    shown = exchange.run("usage", "--by", "model", "--since", "1d").stdout
    assert "big" in shown and "$0.2500" in shown and "no known price" in shown
    assert exchange.json("usage", "--group", "andy", "--by", "day")["rows"][0]["requests"] >= 2
    (row,) = exchange.query("SELECT count(*) FROM usage WHERE model = 'big'")
    assert row == (1,)


def test_a_refused_key_waits_for_its_owner_and_goes_on_with_a_new_value(exchange: Exchange) -> None:
    """Every agent that shares the key waits; each chat is told once, the owner once, in whatever way they can be."""
    exchange.op("secret.set", name="MODEL_KEY", value="an-old-value")
    for folder in ("kim", "lee"):
        exchange.add_agent(folder, KEY)
        exchange.op("secret.assign", name="MODEL_KEY", group=folder)
        exchange.join(f"to-{folder}", folder)
    exchange.say("to-kim", "mock: fail auth times=1 mock: say thank you")
    exchange.wait_text("to-kim", "Your message is kept")
    exchange.wait_for(lambda: exchange.op("status")["alerts"], "the alert")
    (alert,) = exchange.op("status")["alerts"]
    assert alert["subject"] == "mock:MODEL_KEY can't be used" and "auth" in alert["text"]
    exchange.say("to-lee", "mock: say and I?")
    exchange.wait_text("to-lee", "Your message is kept")
    exchange.say("used", "another key")
    exchange.wait_text("used", "another key")
    shown = exchange.run("doctor", "--json", check=False).stdout
    assert "mock:MODEL_KEY can't be used" in shown
    exchange.op("secret.set", name="MODEL_KEY", value="a-new-value")
    exchange.wait_text("to-kim", "thank you")
    exchange.wait_text("to-lee", "and I?")
    exchange.wait_for(lambda: not exchange.op("status")["alerts"], "the alert's end")


def test_another_provider_takes_the_conversation_over_by_a_summary(exchange: Exchange) -> None:
    """C124: what belongs to the old provider is forgotten, and not taken up again later."""
    session = _id(exchange, "dying")
    folder = next(exchange.home.sessions.glob(f"*/{session}"))
    exchange.op("session.stop", id=session)
    exchange.wait_for(lambda: exchange.session_of("dying")["runner"] == "none", "the runner's end")
    import sqlite3

    with sqlite3.connect(folder / "outbound.db") as database:
        database.execute("UPDATE session_state SET key = 'continuation:other' WHERE key = 'continuation:mock'")
    exchange.say("dying", "mock: show prompt")
    told = exchange.wait_text("dying", "another engine spoke in your place")
    assert "the password is plum" in told
    exchange.say("dying", "mock: say done with that")
    exchange.wait_text("dying", "done with that")
    with sqlite3.connect(folder / "outbound.db") as database:
        keys = [key for (key,) in database.execute("SELECT key FROM session_state WHERE key LIKE 'continuation:%'")]
    assert keys == ["continuation:mock"]


def test_a_prompt_is_shown_with_the_size_of_each_layer(exchange: Exchange) -> None:
    (exchange.home.groups / "andy" / "memory" / "index.md").write_text("- ships.md: about ships\n")
    found = exchange.json("group", "prompt", "andy")
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert list(layers)[:3] == ["identity", "destinations", "channels"] and "tools:messaging" in layers
    assert "ships.md" in layers["memory"]["text"] and "postbox" in layers["channels"]["text"]
    assert all(layer["bytes"] == len(layer["text"].encode()) for layer in found["layers"])
    exchange.say("used", "mock: show system")
    told = exchange.wait_text("used", "# Who you are")
    assert layers["destinations"]["text"].splitlines()[0] in told
    assert "ABOUT TOKENS" in exchange.run("group", "prompt", "andy").stdout


def _id(exchange: Exchange, chat: str) -> str:
    return str(exchange.session_of(chat)["id"])
