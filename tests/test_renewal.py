"""Settings that change while runners live: noticed at the next message and at the end of a turn (messaging.md 11.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange


def runner_of(exchange: Exchange, chat: str) -> int | None:
    """The epoch of the chat's live runner."""
    session = exchange.session_of(chat)
    return None if session["runner"] == "none" else int(session["epoch"])


def set_reply(exchange: Exchange, text: str) -> None:
    """Edit `agent.toml` with an editor."""
    agent = exchange.home.groups / "andy" / "agent.toml"
    kept = agent.read_text(encoding="utf-8").rsplit("\n[providers.mock]", 1)[0]
    replace_text(agent, f"{kept}\n[providers.mock]\n{text}\n")


def replace_text(path: Path, text: str) -> None:
    """As editors save: the host may read it at any moment, and half a file is other settings."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


@pytest.fixture
def exchange(make_exchange: MakeExchange) -> Exchange:
    exchange = make_exchange(provider_settings='reply = "old"').start()
    for chat in ("c1", "c2"):
        exchange.join(chat)
        exchange.say(chat, "hi")
        exchange.wait_sent(chat, 1)
    assert exchange.texts("c1") == exchange.texts("c2") == ["old"]
    return exchange


def test_the_next_message_is_answered_with_the_settings_that_were_edited_meanwhile(exchange: Exchange) -> None:
    """All sessions of the group get them, not only one; the conversation goes on (pitfall 74)."""
    set_reply(exchange, 'reply = "new"')
    for chat in ("c1", "c2"):
        exchange.say(chat, "hi again")
        exchange.wait_text(chat, "new")
        assert exchange.texts(chat) == ["old", "new"]
        assert exchange.session_of(chat)["epoch"] == 2
    exchange.say("c1", "mock: recall")
    assert "hi again" in exchange.wait_sent("c1", 3)[2]["text"]
    assert exchange.session_of("c1")["epoch"] == 2, "nothing has changed since"


def test_a_turn_ends_with_the_settings_that_it_began_with(exchange: Exchange) -> None:
    before = runner_of(exchange, "c1")
    assert before is not None
    exchange.say("c1", "mock: sleep 2 mock: say worked")
    exchange.wait_for(lambda: exchange.state_of("c1")[-1][0] == "claimed", "the turn")
    set_reply(exchange, 'reply = "new"')
    exchange.op("group.accept", name="andy")
    exchange.wait_for(lambda: runner_of(exchange, "c2") is None, "the end of the idle runner")
    assert runner_of(exchange, "c1") == before
    exchange.wait_text("c1", "worked")
    exchange.wait_for(lambda: runner_of(exchange, "c1") != before, "the end of the old runner")
    exchange.say("c1", "hi")
    exchange.wait_text("c1", "new")
    assert exchange.texts("c1") == ["old", "worked", "new"]
    assert exchange.query("SELECT max(attempts) FROM inbound") == [(1,)]


def test_settings_that_can_not_be_used_leave_the_runner_with_the_old_ones(exchange: Exchange) -> None:
    before = runner_of(exchange, "c1")
    assert before is not None
    agent = exchange.home.groups / "andy" / "agent.toml"
    good = agent.read_text(encoding="utf-8")
    bad = [
        good + '[limits.more]\nx = 1\n[limits]\nturn_seconds = "long"\n',
        good.replace("[limits]", "[limits", 1),
        good.replace('provider = "mock"', 'provider = "nobody"', 1),
        good.replace('tools = ["messaging"]', 'tools = ["nothing"]', 1),
        good.replace('runtime = "process"', 'runtime = "cloud"', 1),
    ]
    for number, text in enumerate(bad):
        assert text != good
        replace_text(agent, text)
        for again in (2, 3):  # the second finds what the end of the first one's turn may have begun
            exchange.say("c1", "hi")
            exchange.wait_sent("c1", 2 * number + again)
    assert set(exchange.texts("c1")) == {"old"}
    assert runner_of(exchange, "c1") == before


def test_a_reload_replaces_idle_runners_that_the_hosts_settings_concern(exchange: Exchange) -> None:
    toml = exchange.home.jackfield_toml
    toml.write_text(toml.read_text(encoding="utf-8").replace("[host]", '[host]\nlog_level = "debug"', 1))
    exchange.op("host.reload")
    before = runner_of(exchange, "c1")
    assert before is not None, "the log's level does not concern a runner"
    toml.write_text(toml.read_text(encoding="utf-8").replace("[host]", "[host]\nidle_exit = 500\n", 1))
    exchange.op("host.reload")
    exchange.wait_for(lambda: exchange.op("status")["runners"] == {}, "the end of the idle runners")


@pytest.mark.slow
def test_a_runner_that_was_taken_over_is_renewed_if_settings_changed_while_no_host_ran(
    make_exchange: MakeExchange,
) -> None:
    exchange = make_exchange(provider_settings='reply = "old"', host_settings='on_stop = "leave"').start()
    exchange.join("c1")
    exchange.say("c1", "hi")
    exchange.wait_sent("c1", 1)
    left = runner_of(exchange, "c1")
    assert exchange.stop() == 0
    exchange.start()
    exchange.say("c1", "hi")
    exchange.wait_sent("c1", 2)
    assert runner_of(exchange, "c1") == left, "nothing changed"
    assert exchange.stop() == 0
    set_reply(exchange, 'reply = "new"')
    exchange.start()
    exchange.wait_for(lambda: runner_of(exchange, "c1") != left, "the end of the old runner")
    exchange.say("c1", "hi")
    exchange.wait_text("c1", "new")
    exchange.op("session.stop", id=exchange.session_of("c1")["id"])
