"""All channels on one real host at once: Telegram, Slack, Matrix, IRC and webhooks, each with a person of its own."""

from __future__ import annotations

import json
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


def test_platforms_that_are_away_or_refuse_delay_only_their_own_chats(lively: Town) -> None:
    """C086, C209: a homeserver that is down, and 429 and 5xx in each form; every answer comes once, afterwards."""
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
