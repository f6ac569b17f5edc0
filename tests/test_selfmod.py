"""Packages and MCP servers in a whole exchange: asked for, approved, installed, used (messaging.md 11.3)."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jackfield.errors import (
    ConfigError,
    Conflict,
    JackfieldError,
    MalformedData,
    NotFound,
    RolledBack,
    UsageError,
)

from tests.conftest import MakeExchange
from tests.harness.exchange import Exchange, prepared
from tests.harness.registries import MARK, registries


@pytest.fixture(scope="module")
def sources() -> Iterator[dict[str, str]]:
    with registries() as found:
        yield found


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory, sources: dict[str, str]) -> Iterator[Exchange]:
    """A running host with `andy`, who may ask for more, and `berta`, whom her operator looks after."""
    with prepared(tmp_path_factory.mktemp("selfmod"), environment=sources, host_settings="loop_turns = 0") as made:
        change_agent(made, 'tools = ["messaging"]', 'tools = ["messaging", "selfmod"]')
        made.add_agent("berta")
        for chat in ("work", "other"):
            made.join(chat)
        made.start()
        yield made


def agent_file(exchange: Exchange, group: str = "andy") -> Path:
    return exchange.home.groups / group / "agent.toml"


def change_agent(exchange: Exchange, old: str, new: str, group: str = "andy") -> None:
    file = agent_file(exchange, group)
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    exchange.op("group.accept", name=group)


def installed(exchange: Exchange, group: str = "andy") -> Any:
    return json.loads((exchange.home.groups / group / "packages" / "installed.json").read_text(encoding="utf-8"))


def build_of(exchange: Exchange, manager: str) -> Path:
    return exchange.home.groups / "berta" / "packages" / manager / installed(exchange, "berta")[manager]["build"]


def traces(exchange: Exchange) -> list[Path]:
    return [path for path in exchange.root.rglob("*") if path.name == MARK]


# ---- by an operator


@pytest.fixture
def berta(exchange: Exchange) -> Iterator[Exchange]:
    """The settings of the group are as before afterwards."""
    file = agent_file(exchange, "berta")
    before = file.read_bytes()
    yield exchange
    file.write_bytes(before)
    exchange.op("group.accept", name="berta")


def add(exchange: Exchange, **packages: list[str]) -> str:
    return str(exchange.op("group.packages.add", group="berta", **packages)["done"])


def recorded(exchange: Exchange) -> Any:
    return exchange.op("group.packages.list", group="berta")["packages"]


def test_packages_are_installed_recorded_changed_and_removed(berta: Exchange) -> None:
    before = agent_file(berta, "berta").read_text(encoding="utf-8")
    assert add(berta, pip=["Tiny==1.0"]).startswith("Installed (pip: Tiny==1.0)")
    text = agent_file(berta, "berta").read_text(encoding="utf-8")
    assert text.startswith(before.rstrip()) and 'pip = ["Tiny==1.0"]' in text, "comments and order survive"
    first = build_of(berta, "pip")
    assert (first / "tiny.py").exists() and (first / "bin" / "tiny-mcp").exists()
    assert recorded(berta)["pip"] == ["Tiny==1.0"]

    add(berta, pip=["tiny"])
    assert recorded(berta)["pip"] == ["tiny"], "one entry a package"
    second = build_of(berta, "pip")
    assert "2.0" in (second / "tiny.py").read_text(encoding="utf-8")
    assert first.exists(), "runners that live may still use the one before"
    berta.op("group.packages.rebuild", group="berta")
    assert not first.exists() and second.exists() and build_of(berta, "pip") != second

    with pytest.raises(NotFound) as missing:
        berta.op("group.packages.remove", group="berta", npm=["tiny"])
    assert missing.value.fix == "it has: pip: tiny"
    berta.op("group.packages.remove", group="berta", pip=["TINY"])
    assert recorded(berta)["pip"] == [] and installed(berta, "berta") == {}
    assert "[packages]" in agent_file(berta, "berta").read_text(encoding="utf-8")
    assert list((berta.home.root / "workshop").iterdir()) == []


def test_a_failed_installation_changes_nothing_and_runs_no_code_of_a_package(berta: Exchange) -> None:
    before = agent_file(berta, "berta").read_bytes()
    with pytest.raises(RolledBack, match="could not install source, tiny"):
        add(berta, pip=["source", "tiny"])
    with pytest.raises(UsageError, match="jq can't be installed for this agent"):
        add(berta, apt=["jq"], pip=["tiny"])
    assert agent_file(berta, "berta").read_bytes() == before
    assert traces(berta) == [] and not any(berta.op("group.packages.list", group="berta")["packages"].values())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_packages_of_node_are_installed_without_their_scripts(berta: Exchange) -> None:
    add(berta, npm=["little"])
    folder = build_of(berta, "npm") / "node_modules"
    program = folder / ".bin" / "little"
    assert (folder / "little" / "little.js").exists() and not program.is_symlink(), "backups hold no links"
    assert subprocess.run([program, "one"], capture_output=True, text=True, check=True).stdout == "little one\n"
    assert traces(berta) == []
    with pytest.raises(RolledBack, match="could not install little, nobody-has-it"):
        add(berta, npm=["nobody-has-it"])


def test_names_that_could_be_anything_else_reach_no_package_manager(berta: Exchange) -> None:
    """C176"""
    hostile = [
        "jq; rm -rf /data",
        "$(id)",
        "--pre",
        "git+https://e.example/x",
        "../local",
        "ＪＱ",
        "lib foo",
        "a" * 300,
    ]
    for name in hostile:
        for manager in ("pip", "npm", "apt"):
            with pytest.raises(MalformedData):
                add(berta, **{manager: [name]})
    agent = agent_file(berta, "berta")
    agent.write_text(agent.read_text(encoding="utf-8") + '\n[packages]\npip = ["--pre"]\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="no name of a package"):
        berta.op("group.packages.rebuild", group="berta")


def test_what_nobody_accepted_is_not_accepted_along_the_way(berta: Exchange) -> None:
    berta.op("group.accept", name="berta")
    agent = agent_file(berta, "berta")
    agent.write_text(agent.read_text(encoding="utf-8") + "\n# a word more\n", encoding="utf-8")
    server = {"name": "x", "settings": {"command": "y"}}
    for operation, arguments in (("packages.add", {"pip": ["tiny"]}), ("mcp.add", server)):
        with pytest.raises(Conflict, match="is not accepted yet"):
            berta.op(f"group.{operation}", group="berta", **arguments)


def test_a_server_that_fails_is_seen_by_operators_and_by_its_agent(berta: Exchange) -> None:
    berta.op("group.mcp.add", group="berta", name="bad", settings={"command": "no-such-program"})
    berta.join("failing", "berta")
    berta.say("failing", "mock: show prompt")
    assert "The MCP server bad does not work" in berta.wait_text("failing", "no-such-program")
    berta.wait_for(lambda: berta.op("group.mcp.list", group="berta")[0]["last"], "what became of it")
    listed = berta.run("group", "mcp", "list", "berta").stdout
    assert "LAST STATE" in listed and "there is no program 'no-such-program'" in listed
    assert any(one["target"] == "server bad" for one in berta.op("activity.list", group="berta"))
    lines = [json.loads(line) for line in (berta.home.logs / "host.jsonl").read_text(encoding="utf-8").splitlines()]
    assert any(one["level"] == "warning" and "MCP server bad failed" in one["event"] for one in lines)


def test_servers_are_recorded_shown_and_removed(berta: Exchange) -> None:
    berta.run("group", "mcp", "add", "berta", "files", "--env", "KEY=secret:FILES", "--", "npx", "-y", "a b")
    assert berta.op("group.mcp.list", group="berta") == [
        {"name": "files", "command": "npx", "args": ["-y", "a b"], "env": {"KEY": "secret:FILES"}, "last": None}
    ]
    berta.op("group.mcp.add", group="berta", name="far", settings={"url": "https://e.example/mcp", "timeout": 5.0})
    assert "[mcp.far]" in agent_file(berta, "berta").read_text(encoding="utf-8")
    again = {"name": "files", "settings": {"command": "npx", "env": {"KEY": "secret:FILES"}}}
    done = berta.op("group.mcp.add", group="berta", **again)["done"]
    assert "files is changed" in done and "jackfield secret assign FILES berta" in done
    for name, settings in (
        ("X", {"command": "y"}),
        ("a__b", {"command": "y"}),
        ("ok", {"no": 1}),
        ("ok", {"command": 1}),
    ):
        with pytest.raises(MalformedData):
            berta.op("group.mcp.add", group="berta", name=name, settings=settings)
    berta.op("group.mcp.remove", group="berta", name="files")
    with pytest.raises(NotFound):
        berta.op("group.mcp.remove", group="berta", name="files")
    assert [one["name"] for one in berta.op("group.mcp.list", group="berta")] == ["far"]


def test_an_operator_keeps_packages_and_servers_by_commands(berta: Exchange) -> None:
    before = {one["name"] for one in berta.json("group", "mcp", "list", "berta")}
    berta.run("group", "mcp", "add", "berta", "near", "--", "tiny-mcp")
    assert "near" in berta.run("group", "mcp", "list", "berta").stdout
    berta.run("group", "mcp", "remove", "berta", "near")
    assert {one["name"] for one in berta.json("group", "mcp", "list", "berta")} == before
    berta.run("group", "packages", "add", "berta", "--pip", "tiny==1.0")
    assert "tiny==1.0" in berta.run("group", "packages", "list", "berta").stdout
    first = build_of(berta, "pip")
    berta.run("group", "packages", "rebuild", "berta")
    assert build_of(berta, "pip") != first
    berta.run("group", "packages", "remove", "berta", "--pip", "tiny")
    assert berta.json("group", "packages", "list", "berta")["packages"]["pip"] == []
    refused = berta.run("group", "packages", "add", "berta", "--pip", "../tiny", check=False)
    assert refused.returncode != 0 and "../tiny" in refused.stderr


# ---- by an agent


def ask(exchange: Exchange, tool: str, **arguments: Any) -> str:
    """Have the agent ask; the approval's id."""
    known = {one["id"] for one in exchange.op("approval.list", all=True)}
    exchange.say("work", f"mock: tool {tool} {json.dumps(arguments)}")
    found: list[str] = []

    def asked() -> bool:
        found[:] = [one["id"] for one in exchange.op("approval.list", all=True) if one["id"] not in known]
        return bool(found)

    exchange.wait_for(asked, f"a request of {tool}, got {exchange.texts('work')}")
    return found[0]


def decide(exchange: Exchange, id: str, choice: str) -> None:
    exchange.op("approval.decide", id=id, value=choice)
    query = f"SELECT 1 FROM approvals WHERE id = '{id}' AND finished_at IS NOT NULL"
    exchange.wait_for(lambda: exchange.query(query), f"the end of {id}")


def test_an_agent_asks_for_a_package_and_a_server_and_uses_them_once_they_are_approved(exchange: Exchange) -> None:
    """Appendix D 21: config updated once, all runners of the group replaced, the one that asked is told, afresh."""
    for chat in ("work", "other"):
        exchange.say(chat, "hi")
        exchange.wait_sent(chat, 1)
    id = ask(exchange, "install_packages", reason="to be tiny", pip=["tiny==1.0"])
    assert "tiny==1.0" in str(exchange.op("approval.show", id=id))
    assert "tiny" not in agent_file(exchange).read_text(encoding="utf-8")
    decide(exchange, id, "approve")
    exchange.wait_text("work", "Installed (pip: tiny==1.0)")
    assert exchange.session_of("work")["epoch"] == 2, "the notice was read by a fresh runner"
    exchange.wait_for(lambda: exchange.session_of("other")["runner"] == "none", "the end of the other idle runner")

    id = ask(
        exchange, "add_mcp_server", name="tiny", command="tiny-mcp", env={"MODE": "small"}, reason="to have its tools"
    )
    decide(exchange, id, "approve")
    exchange.wait_text("work", "MCP server tiny is set up")
    assert exchange.session_of("work")["epoch"] == 3
    exchange.say("work", "mock: tool tiny__version {} mock: say it is {result}")
    exchange.wait_text("work", "it is tiny 1.0")
    exchange.say("other", 'mock: tool tiny__variable {"name": "MODE"} mock: say mode {result}')
    exchange.wait_text("other", "mode small")
    exchange.say("other", 'mock: tool tiny__variable {"name": "JACKFIELD_HOME"} mock: say home {result}')
    exchange.wait_text("other", "home (none)")
    assert agent_file(exchange).read_text(encoding="utf-8").count("tiny==1.0") == 1

    exchange.op("secret.set", name="TINY_KEY", value="open-sesame-123", group="andy")
    key = {"KEY": "secret:TINY_KEY", "LOST": "plain"}
    id = ask(exchange, "add_mcp_server", name="keyed", command="tiny-mcp", env=key, reason="to have its key")
    assert "open-sesame" not in str(exchange.op("approval.show", id=id))
    decide(exchange, id, "approve")
    assert "secret assign" not in exchange.wait_text("work", "MCP server keyed is set up")
    assert "open-sesame" not in agent_file(exchange).read_text(encoding="utf-8")
    exchange.say("other", 'mock: tool keyed__variable {"name": "KEY"} mock: say key {result}')
    assert exchange.wait_text("other", "key ").endswith("[secret]")
    exchange.say("other", 'mock: tool tiny__variable {"name": "KEY"} mock: say else {result}')
    exchange.wait_text("other", "else (none)")

    id = ask(exchange, "request_rebuild", reason="it feels old")
    build = installed(exchange)["pip"]["build"]
    decide(exchange, id, "approve")
    exchange.wait_text("work", "Rebuilt (pip: tiny==1.0)")
    assert installed(exchange)["pip"]["build"] != build and exchange.session_of("work")["epoch"] > 4
    exchange.say("work", "mock: tool tiny__version {} mock: say again {result}")
    exchange.wait_text("work", "again tiny 1.0")


def test_a_request_that_is_rejected_or_fails_changes_nothing_and_is_told(exchange: Exchange) -> None:
    before = agent_file(exchange).read_bytes()
    id = ask(exchange, "install_packages", reason="no", pip=["tiny==2.0"])
    decide(exchange, id, "reject")
    exchange.wait_text("work", "was rejected")
    id = ask(exchange, "install_packages", reason="no", pip=["nobody-has-it"])
    decide(exchange, id, "approve")
    exchange.wait_text("work", "could not install")
    assert agent_file(exchange).read_bytes() == before


def test_a_script_that_was_changed_after_it_was_asked_for_is_not_run(exchange: Exchange) -> None:
    """C151"""
    exchange.say("work", "mock: write serve.py print('A')")
    exchange.wait_text("work", "serve.py")
    id = ask(exchange, "add_mcp_server", name="own", command="python3", args=["serve.py"], reason="to serve")
    assert [one["name"] for one in exchange.op("approval.show", id=id)["files"]] == ["serve.py"]
    exchange.say("work", "mock: write serve.py print('B') mock: say rewritten")
    exchange.wait_text("work", "rewritten")
    decide(exchange, id, "approve")
    exchange.wait_text("work", "was changed since it was asked for")
    assert "own" not in {one["name"] for one in exchange.op("group.mcp.list", group="andy")}
    id = ask(exchange, "add_mcp_server", name="own", command="python3", args=["serve.py"], reason="to serve")
    decide(exchange, id, "approve")
    exchange.wait_text("work", "MCP server own is set up")


def test_what_can_not_be_asked_for_is_refused_at_once(exchange: Exchange) -> None:
    """C176; and a secret is never asked for in plain."""
    exchange.say("work", 'mock: tool install_packages {"reason": "r", "pip": ["--pre"]}')
    exchange.wait_text("work", "'--pre' is no name of a package of pip")
    exchange.say("work", 'mock: tool install_packages {"reason": "r", "apt": ["jq"]}')
    exchange.wait_text("work", "jq can't be installed for this agent")
    request = {"name": "far", "reason": "r", "command": "x", "env": {"API_KEY": "sk-123456"}}
    exchange.say("work", f"mock: tool add_mcp_server {json.dumps(request)}")
    exchange.wait_text("work", "API_KEY looks like a secret")
    assert not any("sk-123456" in str(one) for one in exchange.op("approval.list", all=True))


# ---- what is missing


def test_packages_that_are_recorded_but_not_there_are_told_to_agent_and_operator(exchange: Exchange) -> None:
    """C178: never installed, or installed for another image."""
    add(exchange, pip=["tiny"])
    record = exchange.home.groups / "berta" / "packages" / "installed.json"
    record.write_text(record.read_text(encoding="utf-8").replace('"base": "process', '"base": "process-before'))
    change_agent(exchange, 'pip = ["tiny"]', 'pip = ["tiny", "yt-dlp"]\napt = ["no-such-jq"]', "berta")
    found = exchange.op("group.packages.list", group="berta")
    assert found["missing"] == {"apt": ["no-such-jq"], "npm": [], "pip": ["tiny", "yt-dlp"]}
    exchange.join("salon", "berta")
    exchange.say("salon", "mock: show prompt")
    told = exchange.wait_text("salon", "not installed at the moment")
    assert "apt: no-such-jq; pip: tiny, yt-dlp" in told
    assert "rebuild berta" in (exchange.home.logs / "host.jsonl").read_text(encoding="utf-8")
    change_agent(exchange, ', "yt-dlp"]\napt = ["no-such-jq"]', "]", "berta")
    exchange.op("group.packages.rebuild", group="berta")
    assert not any(exchange.op("group.packages.list", group="berta")["missing"].values())


def test_the_doctor_tries_the_servers_and_misses_packages(berta: Exchange) -> None:
    def findings(check: str) -> list[tuple[str, str]]:
        return [(one["level"], one["text"]) for one in berta.op("doctor.check", name=check)]

    add(berta, pip=["tiny"])
    for name, settings in (
        ("good", {"command": "tiny-mcp"}),
        ("bad", {"command": "no-such-program"}),
        ("keyed", {"command": "no-such-program", "env": {"KEY": "secret:NOBODYS"}}),
    ):
        berta.op("group.mcp.add", group="berta", name=name, settings=settings)
    assert findings("reach:berta") == [
        ("warning", "MCP servers: bad does not work: there is no program 'no-such-program'")
    ]
    berta.op("group.mcp.remove", group="berta", name="bad")
    assert [level for level, _ in findings("reach:berta")] == ["ok"]
    change_agent(berta, 'pip = ["tiny"]', 'pip = ["tiny", "other"]', "berta")
    assert ("warning", "recorded packages are not installed: pip: other") in findings("agent:berta")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["host.approval.before_deed", "host.approval.after_deed"])
def test_a_host_that_is_killed_around_an_installation_ends_with_it_done_once(
    make_exchange: MakeExchange, sources: dict[str, str], point: str
) -> None:
    """C153: what was approved is done again from its beginning, and leads to the same state."""
    exchange = make_exchange(environment=sources, host_settings="loop_turns = 0")
    change_agent(exchange, 'tools = ["messaging"]', 'tools = ["messaging", "selfmod"]')
    exchange.join("work")
    exchange.start(JACKFIELD_KILL_AT=point)
    id = ask(exchange, "install_packages", reason="to be tiny", pip=["tiny==1.0"])
    with contextlib.suppress(JackfieldError):
        exchange.op("approval.decide", id=id)
    exchange.wait_for(exchange.process_ended, f"the host's death at {point}")
    exchange.start()
    exchange.wait_text("work", "Installed (pip: tiny==1.0)")
    assert exchange.op("approval.show", id=id)["outcome"] == "done"
    assert agent_file(exchange).read_text(encoding="utf-8").count("tiny==1.0") == 1
    folder = exchange.home.groups / "andy" / "packages" / "pip"
    assert [path.name for path in folder.iterdir()] == [installed(exchange)["pip"]["build"]]
    assert list((exchange.home.root / "workshop").iterdir()) == []
