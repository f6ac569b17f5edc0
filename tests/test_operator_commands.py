"""What an operator sees and mends from the command line: people's words, `--json`, exit codes (architecture 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.exchange import Exchange


@pytest.fixture(scope="module")
def exchange(exchange_hall: Exchange) -> Exchange:
    exchange_hall.join("cli")
    exchange_hall.say("cli", "mock: say answer one")
    exchange_hall.wait_sent("cli", 1)
    exchange_hall.wait_for(lambda: exchange_hall.state_of("cli")[0][0] == "completed", "the end")
    return exchange_hall


def session_id(exchange: Exchange, chat: str = "cli") -> str:
    return str(exchange.session_of(chat)["id"])


def test_sessions_are_listed_shown_and_read(exchange: Exchange) -> None:
    found = session_id(exchange)
    listed = exchange.json("session", "list", "--limit", "1000")
    assert found in [session["id"] for session in listed]
    assert found in exchange.run("session", "list", "--limit", "1000").stdout
    shown = exchange.json("session", "show", found)
    assert (shown["chat"], shown["status"]) == ("postbox:box:cli", "active")
    assert "postbox:box:cli" in exchange.run("session", "show", found).stdout
    said: list[dict[str, Any]] = exchange.json("session", "tail", found)
    assert [(item["direction"], item["text"]) for item in said[:2]] == [
        ("in", "mock: say answer one"),
        ("out", "answer one"),
    ]
    assert "answer one" in exchange.run("session", "tail", found).stdout


def test_an_operator_writes_into_a_session_and_its_chat_hears_the_answer(exchange: Exchange) -> None:
    sent = exchange.json("session", "send", session_id(exchange), "mock: say by the operator")
    exchange.wait_text("cli", "by the operator")
    exchange.wait_for(
        lambda: exchange.op("message.show", id=sent["message"])["state"] == "completed", "the message's end"
    )
    exchange.run("session", "send", session_id(exchange), stdin="mock: say from a pipe")
    exchange.wait_text("cli", "from a pipe")


def test_what_an_agent_is_told_first_is_shown_layer_by_layer_with_its_size(exchange: Exchange) -> None:
    exchange.add_agent("wordy")
    (exchange.home.groups / "wordy" / "AGENTS.md").write_text("Always say ahoy.\n", encoding="utf-8")
    shown = exchange.json("group", "prompt", "wordy")  # `group prompt`
    assert shown["channels_known"] is True and shown["session"] is None
    assert any("Always say ahoy." in layer["text"] for layer in shown["layers"])
    assert any("Wordy" in layer["text"] for layer in shown["layers"])
    assert all(layer["bytes"] == len(layer["text"].encode()) for layer in shown["layers"])
    assert shown["bytes"] >= sum(layer["bytes"] for layer in shown["layers"])
    told = exchange.run("group", "prompt", "wordy").stdout
    assert "Always say ahoy." in told and "ABOUT TOKENS" in told
    of_another = exchange.run("group", "prompt", "wordy", "--session", session_id(exchange), check=False)
    assert of_another.returncode == 2 and "is not one of wordy" in of_another.stderr


def test_a_session_is_stopped_and_cleared(exchange: Exchange) -> None:
    exchange.join("cli-clear")
    exchange.say("cli-clear", "remember me")
    exchange.wait_sent("cli-clear", 1)
    found = session_id(exchange, "cli-clear")
    assert exchange.json("session", "stop", found)["stopped"] is True
    exchange.wait_for(lambda: exchange.session_of("cli-clear")["runner"] == "none", "the runner's end")
    assert exchange.run("session", "stop", found).stdout.strip() == "nothing was running"
    assert exchange.json("session", "clear", found, "--yes")["dropped"] == 0
    assert exchange.run("session", "clear", found, "--yes", check=False).returncode == 4
    assert exchange.run("session", "send", found, "hello", check=False).returncode == 4
    exchange.say("cli-clear", "mock: recall mock: say all of it")
    assert "remember me" not in exchange.wait_text("cli-clear", "all of it")
    assert session_id(exchange, "cli-clear") != found


def test_failed_messages_are_listed_shown_retried_and_dropped(exchange: Exchange) -> None:
    exchange.join("cli-fail")
    exchange.say("cli-fail", "mock: fail refusal times=1 mock: say better now")
    exchange.wait_for(lambda: [state for state, _ in exchange.state_of("cli-fail")] == ["failed"], "the failure")
    failed = exchange.json(
        "message", "list", "--state", "failed", "--direction", "in", "--session", session_id(exchange, "cli-fail")
    )
    assert [message["reason"] for message in failed] == ["refusal: the mock was told to fail: refusal"]
    shown = exchange.json("message", "show", failed[0]["id"])
    assert shown["text"].startswith("mock: fail refusal")
    exchange.run("message", "retry", failed[0]["id"])
    exchange.wait_text("cli-fail", "better now")
    exchange.wait_for(lambda: exchange.state_of("cli-fail") == [("completed", None)], "the end")
    assert exchange.run("message", "retry", failed[0]["id"], check=False).returncode == 4
    assert exchange.run("message", "drop", failed[0]["id"], "--yes", check=False).returncode == 4
    exchange.say("cli-fail", "mock: fail rate_limited retry_after=3600")
    exchange.wait_for(lambda: exchange.state_of("cli-fail")[-1][0] == "parked", "the parking")
    parked = exchange.json("message", "list", "--state", "parked", "--session", session_id(exchange, "cli-fail"))
    assert exchange.json("message", "drop", parked[0]["id"], "--yes")["state"] == "dropped"


def test_status_tells_of_channels_runners_and_the_ledger(exchange: Exchange) -> None:
    status = exchange.json("status")
    assert status["running"] is True
    assert exchange.process is not None
    assert status["pid"] == exchange.process.pid
    assert {channel["name"]: channel["state"] for channel in status["channels"]}["box"] == "ready"
    assert status["ledger"]["messages"]["completed"] >= 1
    assert "box" in exchange.run("status").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["session", "show", "ses_unknown"], 3),
        (["message", "show", "in_unknown"], 3),
        (["wire", "postbox:box:nowhere", "nobody"], 3),
        (["member", "add", "postbox:ann", "nobody"], 3),
        (["group", "add", "Andy", "--folder", "andy"], 4),
        (["message", "list", "--state", "invented"], 2),
        (["session"], 2),
        (["nonsense"], 2),
        (["wire", "postbox:box:cli", "andy", "--engage", "pattern", "--pattern", "(a"], 2),
    ],
)
def test_a_command_that_fails_says_why_and_ends_with_the_code_of_its_kind(
    exchange: Exchange, arguments: list[str], code: int
) -> None:
    done = exchange.run(*arguments, check=False)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_a_failure_is_json_too_when_that_was_asked_for(exchange: Exchange) -> None:
    done = exchange.run("session", "show", "ses_unknown", "--json", check=False)
    assert done.returncode == 3
    error = json.loads(done.stdout or done.stderr)["error"]
    assert error["code"] == "NotFound"
    assert "ses_unknown" in error["message"]


def test_a_second_host_is_refused_with_the_firsts_process_id(exchange: Exchange) -> None:
    """Architecture 10."""
    second = exchange.run("up", check=False)
    assert second.returncode == 4
    assert exchange.process is not None
    assert str(exchange.process.pid) in second.stderr
