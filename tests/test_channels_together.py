"""All channels on one real host at once: Telegram, Slack, Matrix, IRC and webhooks, each with a person of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.lines import SlackLine, TelegramLine, WebhookLine
from tests.harness.town import LONG, Town, town

pytestmark = pytest.mark.slow


@pytest.fixture
def lively(tmp_path: Path) -> Iterator[Town]:
    with town(tmp_path) as made:
        yield made


def test_everybody_is_answered_in_their_own_chat_and_the_operator_sees_all_well(lively: Town) -> None:
    lively.start()
    for name in lively.lines:
        lively.write(name, f"mock: say for {name}")
    lively.until_shown({name: [f"for {name}"] for name in lively.lines})
    lively.until_settled()
    assert {name: lively.shown(name) for name in lively.lines} == {name: [f"for {name}"] for name in lively.lines}

    exchange = lively.exchange
    status = exchange.json("status")
    assert {one["name"]: one["state"] for one in status["channels"]}.items() >= dict.fromkeys(
        lively.lines, "ready"
    ).items()
    listed = {one["name"]: one for one in exchange.json("channel", "list")}
    assert {name: listed[name]["state"] for name in lively.lines} == dict.fromkeys(lively.lines, "ready")
    findings = json.loads(exchange.run("doctor", "--json", check=False).stdout)["findings"]
    assert {f"channel:{name}" for name in lively.lines} <= {one["check"] for one in findings}
    assert [one for one in findings if one["level"] == "error"] == []
    for name in lively.lines:
        examined = json.loads(exchange.run("channel", "doctor", name, "--json", check=False).stdout)
        assert [one for one in examined["findings"] if one["level"] == "error"] == [], name
    secrets = [value for line in lively.lines.values() for value in line.secrets.values()]
    written = exchange.tail() + json.dumps([status, listed, findings])
    assert not [value for value in secrets if value in written]


def test_a_host_killed_in_the_middle_of_traffic_loses_nothing_and_doubles_only_what_was_in_flight(
    lively: Town,
) -> None:
    """C081: per destination at most the one send that was in flight comes twice, and where a platform knows a
    repeated send by its key, none does."""
    lively.start()
    for line in lively.lines.values():
        if isinstance(line, TelegramLine | SlackLine | WebhookLine):
            line.fake.delay = 0.3  # so that sends are under way for a while
    said: dict[str, list[str]] = {name: [f"{name} before"] for name in lively.lines}
    for seconds, name in enumerate(lively.lines):
        lively.write(name, f"mock: sleep {2 * seconds} mock: say {name} before")
    lively.until_taken([name for name, line in lively.lines.items() if not line.keeps], "before")
    lively.exchange.wait_for(lambda: lively.count_shown() >= 3, "the middle of the traffic", LONG)
    lively.exchange.kill()
    assert lively.count_shown() < len(lively.lines)
    for name, line in lively.lines.items():
        # The mock answers the last message of a prompt only, so not where the first one still waits for its turn.
        if line.keeps and lively.shown(name):
            lively.write(name, f"mock: say {name} while nobody listened")
            said[name].append(f"{name} while nobody listened")
    lively.start()
    lively.until_shown(said)
    lively.until_settled()
    for name, line in lively.lines.items():
        times = Counter(lively.shown(name))
        assert set(times) == set(said[name]), name
        doubled = {text: count for text, count in times.items() if count > 1}
        assert sum(count - 1 for count in doubled.values()) <= (0 if line.idempotent else 1), (name, doubled)


def test_platforms_that_are_away_or_refuse_delay_only_their_own_chats(lively: Town) -> None:
    """C084: a homeserver that is down, and 429 and 5xx in each form; every answer comes once, afterwards."""
    lively.start()
    away = ("mx-one", "mx-two")
    for name in away:
        lively.write(name, f"mock: sleep 8 mock: say late on {name}")
    lively.until_taken(away, "late")
    lively.do(lively.synapse.stop())
    flood = {"ok": False, "error_code": 429, "description": "Too Many Requests", "parameters": {"retry_after": 1}}
    refusals: dict[str, list[tuple[int, Any, dict[str, str]]]] = {
        "tg-one": [(429, flood, {}), (500, "Internal Server Error", {})],
        "tg-two": [(502, "<html>Bad Gateway</html>", {}), (429, None, {"retry-after": "1"})],
        "tg-hook": [(503, None, {}), (429, flood, {"retry-after": "1"})],
        "sl-socket": [(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"}), (500, "oops", {})],
        "sl-events": [(200, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"}), (503, None, {})],
        "wh": [(429, None, {"retry-after": "1"}), (500, None, {})],
    }
    for name, failures in refusals.items():
        line = lively.lines[name]
        assert isinstance(line, TelegramLine | SlackLine | WebhookLine)
        for failure in failures:
            line.fail_next(*failure)
    others = [name for name in lively.lines if name not in away]
    for name in others:
        lively.write(name, f"mock: say once on {name}")
    lively.until_shown({name: [f"once on {name}"] for name in others})
    states = lively.states()
    assert {states[name] for name in away} == {"reconnecting"}, states
    assert {states[name] for name in others} == {"ready"}, states
    lively.exchange.wait_for(
        lambda: (
            lively.exchange.query("SELECT count(*) FROM deliveries WHERE state IN ('waiting', 'retrying')") == [(2,)]
        ),
        "both answers to wait for the homeserver",
        LONG,
    )
    lively.do(lively.synapse.resume())
    lively.until_shown({name: [f"late on {name}"] for name in away})
    lively.until_settled()
    assert {name: lively.shown(name) for name in others} == {name: [f"once on {name}"] for name in others}
    assert {name: lively.shown(name) for name in away} == {name: [f"late on {name}"] for name in away}


def test_a_revoked_token_stops_its_own_channel_only_and_a_new_one_sends_what_waited(lively: Town) -> None:
    """C234: told once, no storm; mended by `channel setup` for one, by `secret set` and `reload` for the other."""
    lively.start()
    exchange, lost = lively.exchange, ("tg-one", "sl-socket")
    telegram, slack = lively.lines["tg-one"], lively.lines["sl-socket"]
    assert isinstance(telegram, TelegramLine) and isinstance(slack, SlackLine)
    lines: dict[str, TelegramLine | SlackLine] = {"tg-one": telegram, "sl-socket": slack}
    for name, line in lines.items():
        lively.write(name, f"mock: sleep 5 mock: say late on {name}")
        lively.until_taken((name,), "late")
        line.revoke()
    lively.until_states(dict.fromkeys(lost, "auth_failed"))
    exchange.wait_for(
        lambda: exchange.query("SELECT count(*) FROM deliveries WHERE state = 'waiting'") == [(2,)],
        "both answers to wait", LONG,
    )  # fmt: skip
    asked = {name: len(line.fake.requests) for name, line in lines.items()}
    others = [name for name in lively.lines if name not in lost]
    for name in others:
        lively.write(name, f"mock: say meanwhile on {name}")
    lively.until_shown({name: [f"meanwhile on {name}"] for name in others})
    assert asked == {name: len(line.fake.requests) for name, line in lines.items()}, "no storm"
    shown = {one["name"]: one for one in exchange.json("status")["channels"]}
    assert {name: one["state"] for name, one in shown.items() if one["state"] != "ready"} == dict.fromkeys(
        lost, "auth_failed"
    )
    assert all(shown[name]["detail"] for name in lost)
    for name in lost:
        found = exchange.run("channel", "doctor", name, "--json", check=False)
        assert found.returncode == 1 and any(one["fix"] for one in json.loads(found.stdout)["findings"]), found.stdout

    telegram.renew("700100:BB-new-0123456789abcdefghijklmnopqrs")
    exchange.run("channel", "setup", "telegram", "tg-one", "--secret", "token=-", "--yes", stdin=telegram.fake.token)
    slack.renew("xoxb-secret-new")
    exchange.op("secret.set", name="sl-socket-bot", value=slack.fake.bot_token)
    exchange.run("reload")
    lively.until_states(dict.fromkeys(lively.lines, "ready"))
    lively.until_shown({name: [f"late on {name}"] for name in lost})
    lively.until_settled()
    assert {name: lively.shown(name) for name in lost} == {name: [f"late on {name}"] for name in lost}
    for name in lost:
        lively.write(name, f"mock: say again on {name}")
    lively.until_shown({name: [f"again on {name}"] for name in lost})
