"""A host with every kind of broken plugin installed (C179, C181, C183, C185)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.exchange import FIXTURES, Exchange, prepared

GOOD = {"postbox", "recorder", "rewriting", "well", "printing", "keyed"}
PLUGINS = tuple(
    sorted(path.name for path in FIXTURES.iterdir() if (path / "pyproject.toml").exists() and path.name not in GOOD)
)


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("broken"), plugins=(*PLUGINS, "well")) as exchange:
        yield exchange


def test_management_commands_work_with_any_plugin_broken(exchange: Exchange) -> None:
    """C183: nothing imports a plugin that a command does not need."""
    for command in (["--version"], ["plugin", "list"], ["group", "list"], ["status"], ["doctor"]):
        done = exchange.run(*command, check=False)
        assert done.returncode in (0, 1, 2, 7), (command, done.stderr)
        assert "Traceback" not in done.stderr, (command, done.stderr)
    listed = {plugin["name"] for plugin in exchange.json("plugin", "list")["plugins"]}
    assert {"crashing", "vanishing", "hanging", "broken", "incompatible", "misspelt", "well"} <= listed


def test_the_host_starts_with_all_of_them_and_works(exchange: Exchange) -> None:
    """C179, C181: only what a group names is loaded, and that the agent has a broken tool set is said."""
    exchange.start()
    exchange.join("c1")
    exchange.say("c1", "hello")
    assert exchange.wait_sent("c1", 1)[0]["text"] == "You said: hello"
    exchange.stop()


@pytest.mark.parametrize("plugin", ["crashing", "exits", "incompatible"])
def test_an_agent_with_a_broken_tool_set_fails_alone_and_says_so(exchange: Exchange, plugin: str) -> None:
    """C179, C181."""
    if exchange.process is None or exchange.process_ended():
        exchange.start()
    exchange.add_agent(f"with-{plugin}")
    agent = exchange.home.groups / f"with-{plugin}" / "agent.toml"
    text = agent.read_text(encoding="utf-8")
    assert 'tools = ["messaging"]' in text, text
    agent.write_text(text.replace('["messaging"]', f'["messaging", "{plugin}"]'), encoding="utf-8")
    exchange.op("group.accept", name=f"with-{plugin}")
    exchange.join(f"bad-{plugin}", f"with-{plugin}")
    exchange.join(f"good-{plugin}")
    exchange.say(f"bad-{plugin}", "hello")
    exchange.say(f"good-{plugin}", "hello")
    exchange.wait_text(f"good-{plugin}", "You said: hello")
    told = exchange.wait_sent(f"bad-{plugin}", 1)[0]["text"]
    assert "not set up correctly; its operator has been told" in told
    assert exchange.session_of(f"bad-{plugin}")["epoch"] == 0, "no runner was started for it"
    assert not exchange.process_ended()


def test_plugin_state_is_the_same_in_the_list_and_in_the_running_host(exchange: Exchange) -> None:
    """C181."""
    if exchange.process is None or exchange.process_ended():
        exchange.start()
    status = {item["name"]: item["state"] for item in exchange.op("status")["plugins"]}
    listed = {item["name"]: item["state"] for item in exchange.json("plugin", "list")["plugins"]}
    assert status["incompatible"] == listed["incompatible"]
    assert status["well"] == listed["well"]
    assert listed["incompatible"] == "incompatible"
