"""The group's MCP servers inside a runner: real ones of the `mcp` package, and hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.api import BoundTool
from jackfield.clock import SystemClock
from jackfield.models import ExternalServer, MessageContent
from jackfield.runner.environment import add_packages
from jackfield.runner.mcp import McpServer
from jackfield.runner.secrets import Secrets
from jackfield.runner.servers import Servers
from jackfield.runner.servers.catalog import MOST_TOOLS, read_result, read_tools
from jackfield.runner.servers.restarts import MOST, Restarts
from jackfield.runner.toolbox import Toolbox
from jackfield.testing import ManualClock
from runner_kit import Place, chat, place

SERVERS = Path(__file__).parent / "mcp_servers"


class Notes:
    """A board that only remembers."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.running: dict[str, tuple[str, float | None]] = {}
        self.waits: list[str] = []

    def did(self, kind: Any, target: str, summary: str) -> None:
        self.calls.append(f"{target}({summary})")

    def tool_started(self, call: str, name: str, limit: float | None) -> None:
        self.running[call] = (name, limit)

    def tool_ended(self, call: str) -> None:
        del self.running[call]

    def waiting(self, key: str, seconds: float, reason: str) -> None:
        self.waits.append(reason)

    def waited(self, key: str) -> None:
        self.waits.append("over")


def shop(**more: Any) -> ExternalServer:
    return ExternalServer(command=(sys.executable, str(SERVERS / "shop.py")), **more)


def hostile(how: str, *more: str, **settings: Any) -> ExternalServer:
    return ExternalServer(command=(sys.executable, str(SERVERS / "hostile.py"), how, *more), **settings)


@asynccontextmanager
async def servers(
    root: Path, told: Mapping[str, ExternalServer], *, secrets: Mapping[str, str] | None = None, clock: Any = None
) -> AsyncIterator[tuple[Servers, Notes]]:
    here = Place(root)
    notes = Notes()
    spec = replace(here.spec, servers=dict(told))
    made = Servers(spec, Secrets(secrets), notes, clock or SystemClock(), on_call=lambda: None)  # type: ignore[arg-type]  # notes stand for the board
    try:
        await made.begin()
        yield made, notes
    finally:
        await made.close()
        here.host.close()


def names(made: Servers) -> list[str]:
    return [tool.name for tool in made.tools]


def tool(made: Servers, name: str) -> BoundTool:
    return next(tool for tool in made.tools if tool.name == name)


async def said(made: Servers, name: str, **arguments: Any) -> str:
    return (await tool(made, name).call(arguments)).text


async def until(condition: Any, bound: float = 30.0) -> None:
    async with asyncio.timeout(bound):
        while not condition():
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


# ---- a server of the `mcp` package


async def test_a_servers_tools_are_listed_called_and_described(tmp_path: Path) -> None:
    async with servers(tmp_path, {"shop": shop(timeout=9)}) as (made, notes):
        assert {"shop__add", "shop__fail"} < set(names(made))
        add = tool(made, "shop__add")
        assert add.description == "Add two numbers."
        assert set(add.input_schema["properties"]) == {"a", "b"}
        assert await said(made, "shop__add", a=2, b=3) == "5"
        assert notes.calls == ["server shop(works: it offers 4 tools)", "shop__add(a, b)"] and notes.running == {}
        assert notes.waits == ["MCP servers that start", "over"]
        failed = await tool(made, "shop__fail").call({"why": "no reason"})
        assert failed.is_error and "fail" in failed.text
        wrong = await tool(made, "shop__add").call({"a": "many"})
        assert wrong.is_error


async def test_a_server_gets_a_small_environment_and_the_secrets_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the runner was trusted with, and no more of its secrets than the settings name (pitfall 77)."""
    monkeypatch.setenv("JACKFIELD_SECRETS_FD", "9")
    monkeypatch.setenv("PRIVATE_THING", "x")
    monkeypatch.setenv("JACKFIELD_SESSION", "mark")
    env = {"KEY": "secret:shop_key", "AUTH": "Bearer secret:shop_key", "PLAIN": "secret: no", "MODE": "fast"}
    given = {"shop_key": "k-123", "other": "o-456"}
    async with servers(tmp_path, {"shop": hostile("plain", env=env, cwd="sub")}, secrets=given) as (made, _):
        assert made.tools == []  # there is no such folder yet
    (tmp_path / "two").mkdir()
    async with servers(tmp_path / "two", {"shop": hostile("plain", env=env)}, secrets=given) as (made, _):
        found = json.loads(await said(made, "shop__environment"))
        assert found["KEY"] == "k-123" and found["AUTH"] == "Bearer k-123"
        assert found["PLAIN"] == "secret: no" and found["MODE"] == "fast"
        assert found["JACKFIELD_SESSION"] == "mark"
        assert not {"JACKFIELD_SECRETS_FD", "PRIVATE_THING"} & set(found) and "o-456" not in str(found)
        folder, pid, group = (await said(made, "shop__where")).split()
        assert folder == str(tmp_path / "two" / "group" / "workspace")
        assert pid == group != str(os.getpgid(0))


async def test_what_a_server_answers_never_shows_the_agents_secrets(tmp_path: Path) -> None:
    given, env = {"shop_key": "kX9-very-secret-77"}, {"KEY": "secret:shop_key"}
    async with servers(tmp_path, {"shop": hostile("plain", env=env)}, secrets=given) as (made, _):
        answer = await said(made, "shop__environment")
        assert '"KEY"' in answer and "kX9-very-secret-77" not in answer


async def test_a_server_whose_secret_was_not_given_says_which(tmp_path: Path, caplog: Any) -> None:
    async with servers(tmp_path, {"shop": hostile("plain", env={"KEY": "secret:shop_key"})}) as (made, _):
        assert made.tools == []
    assert "it needs the secret 'shop_key', which this agent was not given" in caplog.text


async def test_tools_that_come_later_are_there_and_listed(tmp_path: Path) -> None:
    async with servers(tmp_path, {"shop": shop()}) as (made, _):
        before = made.version
        assert await said(made, "shop__grow") == "grown"
        await until(lambda: made.version != before)
        assert await said(made, "shop__late") == "late"


async def test_a_server_that_ends_in_a_call_fails_that_call_and_is_there_again(tmp_path: Path) -> None:
    async with servers(tmp_path, {"x": hostile("plain")}) as (made, _):
        failed = await tool(made, "x__die").call({})
        assert failed.is_error and "ended with code 3" in failed.text and "effect is not known" in failed.text
        assert "x__good" in names(made), "it is declared while it is started again, and its calls wait"
        assert await said(made, "x__good") == "done"


async def test_a_call_that_takes_too_long_ends_and_the_others_work(tmp_path: Path) -> None:
    async with servers(tmp_path, {"x": hostile("plain", timeout=0.5)}) as (made, _):
        waiting = asyncio.create_task(said(made, "x__silent"))
        both = await asyncio.gather(*(said(made, "x__good") for _ in range(20)))
        assert both == ["done"] * 20
        assert await waiting == "Error: x did not answer within 0.5 s"
        assert await said(made, "x__good") == "done"


async def test_a_server_elsewhere_is_reached_by_http_with_its_headers(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    process = await asyncio.create_subprocess_exec(sys.executable, str(SERVERS / "shop.py"), "http", str(port_file))
    try:
        await until(port_file.exists)
        url = f"http://127.0.0.1:{port_file.read_text(encoding='utf-8')}/mcp"
        elsewhere = ExternalServer(url=url, headers={"Authorization": "Bearer secret:key"})
        async with servers(tmp_path, {"far": elsewhere}, secrets={"key": "k-1"}) as (made, _):
            await until(lambda: made.tools)
            assert await said(made, "far__add", a=20, b=22) == "42"
            assert await said(made, "far__header") == "Bearer k-1"
            process.send_signal(signal.SIGKILL)
            gone = await tool(made, "far__add").call({"a": 1, "b": 1})
            assert gone.is_error
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


# ---- supervision


def test_a_server_is_started_six_times_more_and_then_left_alone() -> None:
    """C174"""
    restarts, now, waits = Restarts(), 0.0, []
    while (wait := restarts.wait_after(now)) is not None:
        waits.append(wait)
        now += wait
    assert waits == [1, 2, 4, 8, 16, 32] and len(waits) == MOST
    seldom = Restarts()
    assert [seldom.wait_after(at * 100.0) for at in range(20)][-1] is not None, "failures of long ago don't count"


async def test_a_server_that_can_not_start_leaves_the_others_alone_and_is_given_up(tmp_path: Path, caplog: Any) -> None:
    """C174: for five minutes calls to the healthy one always work, the broken one is started 1 + 6 times, what is
    declared is what can be called, and there is one notice."""
    clock = ManualClock()
    told = {
        "broken": hostile("127"),
        "shop": hostile("plain"),
        "absent": ExternalServer(command=("no-such-program-here",)),
    }
    async with servers(tmp_path, told, clock=clock) as (made, notes):
        toolbox = Toolbox((), made)
        assert toolbox.has_news
        early = toolbox.take_news()
        assert len(early) == 2 and all("is started again from time to time" in one for one in early)
        assert not toolbox.has_news and "no-such-program-here" in early[0]
        endpoint = McpServer(toolbox)
        bad = [server for name, server in made._servers.items() if name != "shop"]
        for second in range(300):
            await until(lambda: len(clock.sleepers) >= sum(server.off is None for server in bad))
            await clock.advance(1)
            if second % 30 == 0:
                assert await said(made, "shop__good") == "done"
                listed = await endpoint.answer({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
                assert listed is not None
                assert [one["name"] for one in listed["result"]["tools"]] == [one.name for one in toolbox]
                assert not any(one.name.startswith(("broken", "absent")) for one in toolbox)
        assert all(server.off for server in bad)
        news = made.take_news()
        assert len(news) == 2 and made.take_news() == [] and not made.has_news
        assert all("It was given up" in one for one in news)
        states = [one.partition(":")[0] for one in notes.calls if one.startswith("server ")]
        assert states.count("server shop(works") == 1
        for name in ("broken", "absent"):
            assert [one for one in states if name in one] == [f"server {name}(failed"] * 6 + [f"server {name}(off"]
        assert "no-such-program-here" in news[0] and "ended with code 127; it said: no such thing" in news[1]
        assert await said(made, "shop__good") == "done"
        assert caplog.text.count("MCP server broken failed") == 6, "so often it was started again"


async def test_nothing_of_a_server_is_left_when_the_runner_ends(tmp_path: Path) -> None:
    child, stubborn = tmp_path / "child", tmp_path / "stubborn"
    told = {"a": hostile("offspring", str(child)), "b": hostile("stubborn", str(stubborn)), "c": hostile("plain")}
    async with servers(tmp_path, told) as (made, _):
        assert len(made.tools) == 21
        pids = [int(child.read_text()), int(stubborn.read_text())]
        assert all(alive(pid) for pid in pids)
    assert not any(alive(pid) for pid in pids)


# ---- hostile ones


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("127", "it ended with code 127"),
        ("flood", "it sent a line of more than"),
        ("endless", "it printed more than 100 lines that are no messages"),
        ("version", "it speaks version '1999-01-01' of MCP"),
        ("nolist", "its list of tools is no list"),
        ("notlist", "the answer has no result"),
    ],
)
async def test_a_server_that_is_none_is_refused_with_a_reason(
    how: str, reason: str, tmp_path: Path, caplog: Any
) -> None:
    async with servers(tmp_path, {"x": hostile(how), "shop": hostile("plain")}) as (made, _):
        assert await said(made, "shop__good") == "done"
        assert not any(name.startswith("x__") for name in names(made))
    assert reason in caplog.text


async def test_garbage_between_messages_is_skipped(tmp_path: Path, caplog: Any) -> None:
    told = {"x": hostile("garbage"), "y": hostile("asks"), "z": hostile("chatty")}
    async with servers(tmp_path, told) as (made, _):
        for name in told:
            assert await said(made, f"{name}__good") == "done"
        await until(lambda: "z says too much" in caplog.text)
    assert "prints what is no message" in caplog.text
    assert "\x1b" not in caplog.text and "\x00" not in caplog.text


async def test_a_bad_tool_spoils_nothing_but_itself(tmp_path: Path, caplog: Any) -> None:
    async with servers(tmp_path, {"x": hostile("schemas")}) as (made, _):
        assert names(made) == ["x__deep_enough", "x__loop", "x__bare", "x__good"]
        assert "$ref" not in json.dumps(tool(made, "x__loop").input_schema)
        assert all(one.input_schema["type"] == "object" for one in made.tools)
        assert await said(made, "x__good") == "done"
    assert "bomb" in caplog.text and "more than 2,000 parts" in caplog.text


async def test_names_are_ones_that_engines_take(tmp_path: Path) -> None:
    async with servers(tmp_path, {"x": hostile("names")}) as (made, _):
        assert names(made) == ["x__ok", "x__a_b_c", "x__" + "x" * 57, "x__" + "x" * 58]
        assert await said(made, "x__a_b_c") == "done"


async def test_endless_lists_have_an_end(tmp_path: Path) -> None:
    async with servers(tmp_path, {"x": hostile("many"), "y": hostile("pages")}) as (made, _):
        assert sum(name.startswith("x__") for name in names(made)) == MOST_TOOLS
        assert [name for name in names(made) if name.startswith("y__")] == [f"y__p{n}" for n in range(1, 21)]


async def test_results_are_cut_and_what_is_no_text_is_named(tmp_path: Path) -> None:
    async with servers(tmp_path, {"x": hostile("plain")}) as (made, _):
        long = await said(made, "x__long")
        assert len(long) < 100_100 and long.endswith("[cut here: 200,000 characters more]")
        assert (await said(made, "x__binary")).splitlines() == [
            "[image image/png, 3 bytes, can't be shown as text]", "half ?", "in",
        ]  # fmt: skip


async def test_a_server_that_hangs_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr("jackfield.runner.servers.server._PING_SECONDS", 0.2)
    caplog.set_level("INFO")
    async with servers(tmp_path, {"x": hostile("hung", timeout=0.2)}) as (made, _):
        assert "did not answer" in await said(made, "x__silent")
        await until(lambda: "it does not answer" in caplog.text)
        await until(lambda: "offers 7 tools" in caplog.text.split("it does not answer", 1)[1])


async def test_a_server_that_never_gets_ready_holds_up_nobody_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jackfield.runner.servers.SETTLE_SECONDS", 2.0)
    async with servers(tmp_path, {"x": hostile("deaf"), "shop": hostile("plain")}) as (made, _):
        assert await said(made, "shop__good") == "done"


def test_what_is_no_list_of_tools_or_no_result_is_harmless() -> None:
    assert read_tools("x", [None, 1, [], {"name": "a", "inputSchema": {"type": ["object"]}}]).tools == ()
    assert read_result(None).is_error and read_result({}).text == "Done."
    assert read_result({"isError": True}).text == "Error: the tool failed and said nothing"
    assert read_result({"structuredContent": {"a": 1}}).text == '{"a": 1}'


# ---- in a runner


def test_programs_and_modules_of_packages_are_found_but_hide_none_of_the_runners() -> None:
    found = {"PATH": "/usr/bin", "PYTHONPATH": "/ours"}
    for _ in range(2):
        add_packages(found, {"pip": "/group/packages/pip/1", "npm": "/group/packages/npm/2"})
    assert found == {
        "PATH": "/usr/bin:/group/packages/pip/1/bin:/group/packages/npm/2/node_modules/.bin",
        "PYTHONPATH": "/ours:/group/packages/pip/1",
        "NODE_PATH": "/group/packages/npm/2/node_modules",
    }


async def told(here: Place, *lines: str) -> str:
    before = len(here.rows())
    here.put(chat("\n".join(lines)))
    await here.until(lambda: len(here.rows()) > before)
    return [row.content.text for row in here.rows() if isinstance(row.content, MessageContent)][-1]


async def test_a_runner_offers_them_to_its_provider_beside_its_own_tools(tmp_path: Path) -> None:
    async with place(tmp_path, tools=("scripted",), servers={"x": hostile("plain"), "broken": hostile("127")}) as here:
        runner = await here.start()
        assert await told(here, "call x__good {}") == "done"
        pid = int((await told(here, "call x__where {}")).split()[1])
        assert alive(pid)
        runner.terminate()
        await runner.wait()
        assert not alive(pid)


async def test_an_engine_reaches_them_through_the_endpoint(tmp_path: Path) -> None:
    settings = {"in_process": False}
    async with place(tmp_path, tools=("scripted",), servers={"shop": shop()}, settings=settings) as here:
        await here.start()
        assert "5" in await told(here, 'call shop__add {"a": 2, "b": 3}')
