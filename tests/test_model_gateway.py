"""What the host does for a model gateway, whoever offers it: addresses and tokens for runners, no key in them, usage
that is counted once, credentials that rest, and owners who are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared

KEYED = '[providers.mock]\nreply = "secret:MODEL_KEY"'


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    root = tmp_path_factory.mktemp("gateway")
    folder = root / "waypoint"
    folder.mkdir()
    settings = f'[extensions.waypoint]\nfolder = "{folder}"'
    with prepared(root, plugins=("waypoint",), host_settings="max_runners = 20", postbox_settings=settings) as exchange:
        exchange.op("owner.add", user="postbox:olga", name="Olga")
        exchange.op("secret.set", name="MODEL_KEY", value="a-key-that-nobody-sees")
        exchange.add_agent("kim", KEYED)
        exchange.op("secret.assign", name="MODEL_KEY", group="kim")
        exchange.run("group", "set", "kim", "gateway", "true")
        exchange.add_agent("direct")
        exchange.run("group", "set", "direct", "gateway", "false")
        exchange.join("to-kim", "kim")
        exchange.join("to-direct", "direct")
        yield exchange.start()


def order(exchange: Exchange, do: str, **arguments: Any) -> Any:
    """Have the extension do something, and its answer."""
    folder = exchange.root / "waypoint"
    answers = folder / "answers.jsonl"
    before = len(answers.read_text().splitlines()) if answers.exists() else 0
    with (folder / "orders.jsonl").open("a") as file:
        file.write(json.dumps({"do": do, **arguments}) + "\n")

    def there() -> bool:
        return answers.exists() and len(answers.read_text().splitlines()) > before

    exchange.wait_for(there, f"the answer to {do}")
    return json.loads(answers.read_text().splitlines()[before])


def test_a_runner_gets_the_address_and_a_token_in_place_of_the_key(exchange: Exchange) -> None:
    exchange.say("to-kim", "mock: show gateway")
    exchange.wait_text("to-kim", "http://127.0.0.1:9/s")
    session = exchange.session_of("to-kim")
    folder = next(exchange.home.sessions.glob(f"*/{session['id']}"))
    told = json.loads((folder / "session.json").read_text())
    assert told["gateway"] == "http://127.0.0.1:9"
    assert (
        "MODEL_KEY" not in (folder / "session.json").read_text() and "tok-" not in (folder / "session.json").read_text()
    )
    exchange.say("to-kim", "mock: show env")
    names = exchange.wait_text("to-kim", "PATH")
    assert "GATEWAY" not in names and "MODEL_KEY" not in names
    exchange.say("to-direct", "mock: show gateway")
    exchange.wait_text("to-direct", "(no gateway)")


def test_what_a_gateway_counts_is_counted_once(exchange: Exchange) -> None:
    session = exchange.session_of("to-kim")["id"]
    group = exchange.query("SELECT id FROM agent_groups WHERE folder = 'kim'")[0][0]
    used = {"session_id": session, "agent_group_id": group, "provider": "mock", "model": "big"}
    order(exchange, "record", **used, input=10, output=5, cost=0.5)
    order(exchange, "record", **used, input=1)
    assert order(exchange, "totals", group=group) == [2, 16, 0.5]
    assert exchange.op("usage.sums", group="kim")["total"]["requests"] == 2
    exchange.wait_for(lambda: exchange.op("usage.sums", group="direct")["rows"], "what the provider counted")


def test_a_credential_that_rests_keeps_what_uses_it_waiting_and_nothing_else(exchange: Exchange) -> None:
    order(exchange, "park", credential="main", reason="429 until noon")
    exchange.wait_for(lambda: exchange.session_of("to-kim")["runner"] == "none", "the runner's end")
    exchange.say("to-kim", "mock: say late")
    exchange.wait_text("to-kim", "Your message is kept")
    exchange.say("to-direct", "mock: say at once")
    exchange.wait_text("to-direct", "at once")
    assert "late" not in exchange.texts("to-kim")
    shown = exchange.run("doctor", "--json", check=False).stdout
    assert "429 until noon" in shown
    order(exchange, "unpark", credential="main")
    exchange.wait_text("to-kim", "late")


def test_an_owner_is_told_in_their_chat_once_until_it_is_mended(exchange: Exchange) -> None:
    exchange.say("dm-olga", "hello", sender="olga", dm=True)
    exchange.wait_for(lambda: exchange.query("SELECT 1 FROM users WHERE id = 'postbox:olga'"), "the owner")
    told = {"subject": "The budget is used up", "text": "Group kim has spent $5.", "key": "budget kim"}
    assert order(exchange, "tell", **told) is True
    assert order(exchange, "tell", **told) is False
    exchange.wait_for(lambda: exchange.op("status")["alerts"][0]["told_at"], "the owner's chat")
    assert [item["chat"] for item in exchange.sent() if "has spent $5" in str(item.get("text"))] == ["dm-olga"]
    (alert,) = exchange.op("status")["alerts"]
    assert alert["subject"] == told["subject"]
    assert "The budget is used up" in exchange.run("status").stdout
    order(exchange, "settle", key="budget kim")
    assert exchange.op("status")["alerts"] == []


def test_the_extension_gets_the_hosts_own_secret(exchange: Exchange) -> None:
    assert order(exchange, "secret", name="MODEL_KEY") == "a-key-that-nobody-sees"


def test_a_name_of_the_hosts_own_can_not_be_a_secret_of_somebodys(exchange: Exchange) -> None:
    done = exchange.run("secret", "set", "JACKFIELD_GATEWAY_TOKEN", stdin="x" * 20, check=False)
    assert done.returncode == 2 and "keeps names that begin with JACKFIELD_" in done.stderr


def test_an_agent_whose_gateway_is_missing_gets_no_runner_and_the_operator_is_told_why(exchange: Exchange) -> None:
    exchange.stop()
    toml = exchange.home.jackfield_toml
    text = toml.read_text()
    toml.write_text(text[: text.index("[extensions.waypoint]")])
    exchange.start()
    exchange.say("to-kim", "mock: say never")
    told = exchange.wait_text("to-kim", "can't reach its model")
    assert "MODEL_KEY" not in told
    exchange.wait_for(lambda: "none runs. start an extension" in exchange.tail(), "the fix in the log")
