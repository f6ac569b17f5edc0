"""What plugins do to words that leave: on every path, exactly once (C187, C189)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    root = tmp_path_factory.mktemp("hooks")
    settings = "[extensions.rewriting]"
    with prepared(
        root, plugins=("rewriting",), host_settings="max_runners = 16", postbox_settings=settings
    ) as exchange:
        yield exchange.start()


def tool(name: str, **arguments: Any) -> str:
    return f"mock: tool {name} {json.dumps(arguments)}"


def test_every_path_passes_the_hooks_exactly_once(exchange: Exchange) -> None:
    """C189: answer, tool, file with its text, card, question, edit, command, notice."""
    exchange.op("owner.add", user="postbox:boss")
    exchange.join("paths")
    exchange.say(
        "paths",
        " ".join(
            [
                tool("send_message", text="foo by tool"),
                "mock: write note.txt hello",
                tool("send_file", path="note.txt", text="foo with a file"),
                tool("send_card", title="foo card"),
                tool("edit_message", message_id=3, text="foo edited"),
                "mock: say foo answered",
            ]
        ),
    )
    exchange.wait_text("paths", "answered")
    exchange.wait_for(lambda: exchange.state_of("paths") == [("completed", None)], "the turn's end")
    exchange.wait_text("paths", "edited")
    assert exchange.wait_text("paths", "by tool") == "bar by tool"
    assert exchange.wait_text("paths", "with a file") == "bar with a file"
    assert exchange.wait_text("paths", "edited") == "bar edited"
    assert "bar answered" in exchange.wait_text("paths", "answered")
    assert [item["card"] for item in exchange.sent("paths") if item.get("card")] == ["bar card"]
    exchange.join("asks")
    exchange.say("asks", tool("ask_user_question", title="foo", question="foo?", options=["foo", "other"]))
    asked = exchange.wait_sent("asks", 1)[0]
    assert (asked["question"], asked["choices"]) == ("bar?", ["bar", "other"])
    exchange.click("asks", asked["prompt"], "foo")
    assert exchange.wait_text("asks", "bar") == "bar"
    exchange.join("notices")
    exchange.say("notices", 'mock: fail refusal message_for_user="foo refused"')
    assert exchange.wait_text("notices", "refused") == "bar refused"
    assert not any("barred" in str(item) or "foo" in str(item.get("text")) for item in exchange.sent())


@pytest.mark.parametrize(
    ("word", "reason"), [("secret", "secret"), ("explosive", "rewriting"), ("endless", "rewriting")]
)
def test_a_guard_that_says_no_breaks_or_hangs_blocks_the_message_and_is_named(
    exchange: Exchange, word: str, reason: str
) -> None:
    """C187."""
    chat = f"guard-{word}"
    exchange.join(chat)
    exchange.join(f"{chat}-other")
    exchange.say(chat, f"mock: say this is {word}")
    exchange.say(f"{chat}-other", "mock: say meanwhile")
    exchange.wait_text(f"{chat}-other", "meanwhile")

    def parts() -> list[dict[str, Any]]:
        out = exchange.op("message.list", direction="out", limit=1000)
        return [part for part in out if part["to"] == f"postbox:box:{chat}"]

    exchange.wait_for(lambda: [part["state"] for part in parts()] == ["blocked"], "the blocked message")
    assert reason in str(parts()[0]["error"])
    exchange.say(chat, "mock: say and on")
    exchange.wait_text(chat, "and on")
    assert not any(word in text for text in exchange.texts(chat) if "not delivered" not in text)


def test_a_composing_hook_that_breaks_leaves_the_words_as_they_were(exchange: Exchange) -> None:
    """C187."""
    exchange.join("fragile")
    exchange.say("fragile", "mock: say a fragile thing")
    assert exchange.wait_text("fragile", "fragile") == "a fragile thing"
    assert "compose_outbound" in (exchange.root / "host.out").read_text(encoding="utf-8"), "it is named in the log"
