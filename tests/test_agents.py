"""Agents among themselves: real sessions, real runners, scripted agents (messaging.md 11; appendix D.20)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared

QUIET = "mock: quiet"


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("agents"), host_settings="max_runners = 12") as made:
        made.start()
        yield made


def tool(name: str, **arguments: Any) -> str:
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


def pair(exchange: Exchange, asks: str, answers: str) -> None:
    """Two agents that know each other by their folders; the first one has a chat of its name."""
    for folder in (asks, answers):
        exchange.add_agent(folder)
    exchange.join(asks, asks)
    exchange.op("destination.add", group=asks, target=answers, both=True)


def session_of(exchange: Exchange, folder: str, *, chat: bool) -> list[str]:
    """The ids of an agent's conversations: those of chats, or those with other agents."""
    shown = exchange.op("session.list", group=folder)
    return [one["id"] for one in shown if one["key"].startswith("agent:") is not chat]


def test_an_agent_asks_another_and_the_answer_returns_to_the_conversation_that_asked(exchange: Exchange) -> None:
    """Appendix D.20: the answer goes on where the question was asked, so that its plain words reach the person."""
    pair(exchange, "anna", "bert")
    exchange.say("anna", to("bert", "what is the capital of France?"))
    # bert says what it was asked; anna says what bert said, to the chat.
    exchange.wait_text("anna", "You said: You said: what is the capital of France?")
    settled(exchange)
    (asking,), (answering,) = session_of(exchange, "anna", chat=True), session_of(exchange, "bert", chat=False)
    rows = exchange.query(
        f"SELECT session_id, source, hops, state FROM inbound WHERE source IN ('{asking}', '{answering}') ORDER BY ord"
    )
    assert rows == [(answering, asking, 1, "completed"), (asking, answering, 2, "completed")]
    assert len(exchange.sent("anna")) == 1, "nobody said anything else"
