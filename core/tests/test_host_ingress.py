"""The HTTP server of the host, over real sockets (channels.md R11 and 6; C219)."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.api import ChannelInfo, ChannelType, HttpRoute, RawRequest, RawResponse
from jackfield.config import ChannelSection, IngressSettings
from jackfield.errors import AuthFailed, ConfigError, JackfieldError
from jackfield.host import ingress_server
from jackfield.host.channels import ChannelDirectory
from jackfield.host.ingress import Ingress, mount_points
from jackfield.host.logs import records
from jackfield.models import ChannelState

BOUND = 30.0


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        configure(made, port=0)
        yield made


@pytest.fixture
async def ingress(bench: Bench) -> AsyncIterator[Ingress]:
    made = Ingress(bench.hub)
    yield made
    await made.close()


def configure(bench: Bench, **settings: Any) -> None:
    bench.hub.configuration = replace(bench.hub.configuration, ingress=IngressSettings(**settings))


def route(
    handle: Callable[[RawRequest], Awaitable[RawResponse]], path: str = "in", *methods: str, max_bytes: int = 1000
) -> HttpRoute:
    return HttpRoute(path=path, methods=methods or ("POST",), handle=cast(Any, handle), max_bytes=max_bytes)


async def echo(request: RawRequest) -> RawResponse:
    return RawResponse(status=202, headers=(("x-peer", request.peer),), body=request.body)


async def serve(ingress: Ingress, *routes: HttpRoute, instance: str = "hook") -> None:
    await ingress.open()
    ingress.mount(instance, mount_points(instance, routes or (route(echo),)))


class Answer:
    """What came back on a connection, until the other side closed it or one whole answer was there."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if raw else 0
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}


async def connect(ingress: Ingress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    report = ingress.report()
    assert report is not None
    host, _, port = report["address"].removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def exchange(ingress: Ingress, *sent: bytes) -> Answer:
    """Send, and read to the end of the connection; a server that neither answers nor closes fails the test."""
    reader, writer = await connect(ingress)
    try:
        for data in sent:
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # it was cut off while it sent; what it was told is still there to read
    got = b""
    try:
        async with asyncio.timeout(BOUND):
            while data := await reader.read(65_536):
                got += data
    except ConnectionError:
        pass  # reset, after what it said
    finally:
        writer.close()
    return Answer(got)


def post(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "host: x", f"content-length: {len(body)}", "connection: close", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


CHUNKED = b"POST /channels/hook/in HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


# ---- what is served


async def test_a_request_reaches_its_handler_with_its_raw_body(ingress: Ingress) -> None:
    seen: list[RawRequest] = []

    async def handle(request: RawRequest) -> RawResponse:
        seen.append(request)
        return await echo(request)

    await serve(ingress, route(handle))
    answer = await exchange(ingress, post("/channels/hook/in?a=%20b", b"\x00\xff{", "X-Sign: one", "X-Sign: two"))
    assert (answer.status, answer.body) == (202, b"\x00\xff{")
    assert seen[0].path == "in" and seen[0].query == "a=%20b" and seen[0].peer == "127.0.0.1"
    assert [value for name, value in seen[0].headers if name == "x-sign"] == ["one", "two"]


async def test_two_channels_have_paths_of_their_own(ingress: Ingress) -> None:
    async def other(request: RawRequest) -> RawResponse:
        return RawResponse(body=b"other")

    await serve(ingress)
    await serve(ingress, route(other), route(echo, "", "GET"), instance="second")
    assert (await exchange(ingress, post("/channels/hook/in", b"x"))).body == b"x"
    assert (await exchange(ingress, post("/channels/second/in"))).body == b"other"
    assert (await exchange(ingress, post("/channels/second", method="GET"))).status == 202
    ingress.unmount("second")
    assert (await exchange(ingress, post("/channels/second/in"))).status == 404
    assert (await exchange(ingress, post("/channels/hook/in"))).status == 202


async def test_another_method_is_told_which_ones_there_are(ingress: Ingress) -> None:
    await serve(ingress, route(echo, "in", "POST", "PUT"))
    answer = await exchange(ingress, post("/channels/hook/in", method="GET"))
    assert (answer.status, answer.headers["allow"]) == (405, "POST, PUT")
    assert (await exchange(ingress, post("/healthz"))).status == 405


async def test_health_says_ok_and_nothing_else(ingress: Ingress) -> None:
    await serve(ingress)
    answer = await exchange(ingress, post("/healthz", method="GET"))
    assert answer.status == 200 and json.loads(answer.body) == {"status": "ok"}
    assert "server" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/", "/channels", "/channels/hook", "/channels/hook/in/", "/channels/hook//in", "/channels/nobody/in",
        "/channels/hook/../hook/in", "/channels/hook/%2e%2e/hook/in", "/channels/hook%2Fin", "/channels/hook/in%00",
        "//channels/hook/in", "/../../etc/passwd", "/channels/HOOK/in", "http://x/channels/hook/in", "/%ff",
    ],
)  # fmt: skip
async def test_a_path_is_served_exactly_or_not_at_all(ingress: Ingress, path: str) -> None:
    await serve(ingress)
    assert (await exchange(ingress, post(path))).status == 404


async def test_behind_a_proxy_that_leaves_its_prefix(bench: Bench, ingress: Ingress) -> None:
    configure(bench, port=0, path_prefix="/jf/a", public_url="https://bots.example/jf/a/")
    await serve(ingress)
    assert (await exchange(ingress, post("/jf/a/channels/hook/in"))).status == 202
    assert (await exchange(ingress, post("/jf/a/healthz", method="GET"))).status == 200
    for path in ("/channels/hook/in", "/jf/achannels/hook/in", "/jf/b/channels/hook/in"):
        assert (await exchange(ingress, post(path))).status == 404
    assert ingress.url == "https://bots.example/jf/a"


@pytest.mark.parametrize("path", ["../x", "a/../b", "a//b", "."])
def test_a_route_can_not_leave_its_instance(path: str) -> None:
    with pytest.raises(ConfigError):
        mount_points("hook", [route(echo, path)])


def test_a_path_has_one_route() -> None:
    with pytest.raises(ConfigError, match="two routes"):
        mount_points("hook", [route(echo, "a b"), route(echo, "/a b/")])
    assert list(mount_points("hook", [route(echo, "a b/ü")])) == ["/channels/hook/a%20b/%C3%BC"]


# ---- bounds


async def test_a_body_of_the_limit_is_taken_and_one_byte_more_is_not(ingress: Ingress) -> None:
    """C219: 413 before anything is parsed."""
    await serve(ingress)
    assert (await exchange(ingress, post("/channels/hook/in", b"x" * 1000))).status == 202
    assert (await exchange(ingress, post("/channels/hook/in", b"x" * 1001))).status == 413


async def test_an_announced_body_over_the_limit_is_refused_unread(ingress: Ingress) -> None:
    """The answer comes although not one byte of the 60 MB was sent (C219)."""
    await serve(ingress)
    head = b"POST /channels/hook/in HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\nexpect: 100-continue\r\n\r\n"
    answer = await exchange(ingress, head)
    assert answer.status == 413 and answer.headers["connection"] == "close"


async def test_a_client_that_sends_60_mb_anyway_sees_why_it_is_refused(ingress: Ingress) -> None:
    await serve(ingress)
    head = b"POST /channels/hook/in HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n"
    assert (await exchange(ingress, head, *([b"x" * 1_000_000] * 60))).status == 413


async def test_chunks_without_end_stop_at_the_limit(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_server, "DRAIN_DEADLINE", 0.1)
    await serve(ingress)
    reader, writer = await connect(ingress)
    writer.write(CHUNKED)

    async def pour() -> None:
        while True:
            writer.write(b"40\r\n" + b"x" * 64 + b"\r\n")
            await writer.drain()

    pouring = asyncio.create_task(pour())
    async with asyncio.timeout(BOUND):
        assert Answer(await reader.readuntil(b"\r\n\r\n")).status == 413
        with pytest.raises(ConnectionError):
            await pouring
    writer.close()


async def test_the_operator_s_limit_is_over_the_channel_s(bench: Bench, ingress: Ingress) -> None:
    configure(bench, port=0, max_bytes=1024)
    await serve(ingress, route(echo, max_bytes=5000))
    assert (await exchange(ingress, post("/channels/hook/in", b"x" * 1025))).status == 413


async def test_a_body_that_dribbles_in_is_given_up(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_server, "BODY_DEADLINE", 0.2)
    await serve(ingress)
    assert (await exchange(ingress, CHUNKED + b"1\r\nx\r\n")).status == 408


@pytest.mark.parametrize("sent", [b"", b"POST /channels/hook/in HTTP/1.1\r\nhost: x\r\nx-slow:"])
async def test_heads_that_never_end_are_cut_off(ingress: Ingress, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    """Slow loris, also on a connection that just sits there."""
    monkeypatch.setattr(ingress_server, "HEAD_DEADLINE", 0.3)
    await serve(ingress)
    reader, writer = await connect(ingress)
    writer.write(sent)

    async def dribble() -> None:
        while sent:
            writer.write(b"x")
            await asyncio.sleep(0.05)

    dribbling = asyncio.create_task(dribble())
    async with asyncio.timeout(BOUND):
        with pytest.raises(ConnectionError):
            if await reader.read() == b"":
                raise ConnectionError
    dribbling.cancel()
    writer.close()


async def test_the_second_head_on_a_connection_has_the_same_deadline(
    ingress: Ingress, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(ingress)
    reader, writer = await connect(ingress)
    writer.write(b"POST /channels/hook/in HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\nx")
    async with asyncio.timeout(BOUND):
        assert Answer(await reader.readuntil(b"\r\n\r\n")).status == 202
        monkeypatch.setattr(ingress_server, "HEAD_DEADLINE", 0.3)
        writer.write(b"POST /")
        with pytest.raises(ConnectionError):
            if b"HTTP/1.1" not in await reader.read():
                raise ConnectionError
    writer.close()


async def test_a_head_over_the_limit_is_refused(ingress: Ingress) -> None:
    await serve(ingress)
    assert (await exchange(ingress, b"POST / HTTP/1.1\r\n", *[b"x: " + b"y" * 10_000 + b"\r\n"] * 40)).status in (
        400,
        0,
    )
    assert (await exchange(ingress, post("/channels/hook/in"))).status == 202


async def test_too_many_connections_are_told_so(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_server, "CONNECTIONS", 3)
    await serve(ingress)
    idle = [await connect(ingress) for _ in range(3)]
    answer = await exchange(ingress, post("/channels/hook/in"))
    assert answer.status == 503 and answer.headers["retry-after"] == "5"
    assert (await exchange(ingress, post("/healthz", method="GET"))).status == 200, "it is well, and only busy"
    for _, writer in idle:
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(BOUND):
        while (await exchange(ingress, post("/channels/hook/in"))).status != 202:
            await asyncio.sleep(0.01)


async def test_garbage_is_answered_400_and_fills_no_log(ingress: Ingress, caplog: pytest.LogCaptureFixture) -> None:
    await serve(ingress)
    assert (await exchange(ingress, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")).status == 400
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


# ---- handlers that fail


async def test_what_a_handler_raises_is_logged_and_not_told(
    bench: Bench, ingress: Ingress, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(request: RawRequest) -> RawResponse:
        raise ValueError("the secret is 4711")

    await serve(ingress, route(handle))
    with caplog.at_level(logging.ERROR):
        answer = await exchange(ingress, post("/channels/hook/in"))
    assert answer.status == 500 and b"4711" not in answer.body
    assert "4711" in caplog.text
    assert bench.hub.troubles["ingress"] == 1


async def test_a_request_s_lines_in_the_log_are_about_its_own_channel(ingress: Ingress) -> None:
    """The server runs for all channels, in a task of the one that came first."""
    said: list[dict[str, str]] = []

    async def handle(request: RawRequest) -> RawResponse:
        said.append(records.about(logging.makeLogRecord({}), ""))
        return RawResponse(status=202)

    records.bind(channel="first")
    await serve(ingress, route(handle), instance="second")
    assert (await exchange(ingress, post("/channels/second/in"))).status == 202
    assert said == [{"channel": "second"}]


async def test_what_can_not_be_stored_shall_come_again(ingress: Ingress) -> None:
    """Durable before acknowledged: without the one there is not the other (architecture 5, rule 1)."""

    async def handle(request: RawRequest) -> RawResponse:
        raise JackfieldError("the host is stopping; do not acknowledge")

    await serve(ingress, route(handle))
    answer = await exchange(ingress, post("/channels/hook/in"))
    assert answer.status == 503 and answer.headers["retry-after"] == "5"


async def test_a_handler_that_hangs_is_ended(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_server, "HANDLER_DEADLINE", 0.2)
    ended = asyncio.Event()

    async def handle(request: RawRequest) -> RawResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    await serve(ingress, route(handle))
    assert (await exchange(ingress, post("/channels/hook/in"))).status == 504
    assert ended.is_set()


@pytest.mark.parametrize(
    "answer", [None, RawResponse(headers=(("x", "a\r\nset-cookie: b"),)), RawResponse(headers=(("x", "☃"),))]
)
async def test_an_answer_that_is_none_becomes_500(ingress: Ingress, answer: Any) -> None:
    async def handle(request: RawRequest) -> RawResponse:
        return cast(RawResponse, answer)

    await serve(ingress, route(handle))
    got = await exchange(ingress, post("/channels/hook/in"))
    assert got.status == 500 and "set-cookie" not in got.headers


# ---- its life, with the channels


class Serves:
    """A channel with one route; `fails` tells how often its start does."""

    fails = 0

    def http_routes(self) -> list[HttpRoute]:
        return [route(self.handle)]

    async def handle(self, request: RawRequest) -> RawResponse:
        return RawResponse(status=202)

    async def start(self, context: Any) -> None:
        self.context = context
        if type(self).fails:
            type(self).fails -= 1
            raise JackfieldError("not yet")

    async def stop(self) -> None: ...


class Polls:
    """A channel without routes."""

    async def start(self, context: Any) -> None: ...

    async def stop(self) -> None: ...


def directory(bench: Bench, *names: str, **kinds: type) -> ChannelDirectory:
    """A directory with a channel of `Serves` for each name; `kinds` are others."""
    types = {**dict.fromkeys(names, Serves), **kinds}

    def channel_type(name: str) -> ChannelType:
        return ChannelType(
            info=ChannelInfo(type=name, title=name), create=lambda instance, settings: cast(Any, types[name]())
        )

    cast(Any, bench.plugins).channel_type = channel_type
    sections = {name: ChannelSection(instance=name, type=name) for name in types}
    bench.hub.configuration = replace(bench.hub.configuration, channels=sections)
    return ChannelDirectory(bench.hub, on_ready=lambda instance: None, wake=lambda address: None)


def state(channels: ChannelDirectory, name: str) -> ChannelState:
    return next(one.status.state for one in channels.all() if one.name == name)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while not condition():
            await asyncio.sleep(0.01)


async def test_without_routes_nothing_listens(bench: Bench) -> None:
    channels = directory(bench, polls=Polls)
    await channels.start(cast(Any, None))
    assert channels.ingress.report() is None
    await channels.stop()


async def test_routes_come_and_go_with_their_channels(bench: Bench) -> None:
    channels = directory(bench, "one", "two")
    await channels.start(cast(Any, None))
    report = channels.ingress.report()
    assert report is not None and report["routes"] == ["/channels/one/in", "/channels/two/in"]
    before = report["address"]
    one, two = (next(each for each in channels.all() if each.name == name) for name in ("one", "two"))
    told = [cast(Any, each.channel).context.route_url for each in (one, two)]
    assert (told[0]("in"), told[1]()) == (f"{before}/channels/one/in", f"{before}/channels/two")
    both = dict(bench.hub.configuration.channels)
    bench.hub.configuration = replace(bench.hub.configuration, channels={"two": both["two"]})
    await channels.reload(cast(Any, None))
    assert (await exchange(channels.ingress, post("/channels/one/in"))).status == 404
    assert (await exchange(channels.ingress, post("/channels/two/in"))).status == 202
    bench.hub.configuration = replace(bench.hub.configuration, channels=both)
    await channels.reload(cast(Any, None))
    assert (await exchange(channels.ingress, post("/channels/one/in"))).status == 202
    assert channels.ingress.report()["address"] == before  # type: ignore[index]  # it is there, or the test fails
    bench.hub.configuration = replace(bench.hub.configuration, channels={})
    await channels.reload(cast(Any, None))
    assert channels.ingress.report() is None, "nobody needs it any more"
    await channels.stop()


async def test_a_channel_that_starts_anew_is_served_anew(bench: Bench) -> None:
    channels = directory(bench, one=type("Late", (Serves,), {"fails": 2}))
    await channels.start(cast(Any, None))
    await until(lambda: state(channels, "one") is ChannelState.READY)
    assert (await exchange(channels.ingress, post("/channels/one/in"))).status == 202
    await channels.stop()


@pytest.mark.parametrize("problem", [ConfigError("a secret is missing"), AuthFailed("no"), ValueError("a fault")])
async def test_a_channel_that_did_not_start_is_not_served(bench: Bench, problem: Exception) -> None:
    class Refuses(Serves):
        async def start(self, context: Any) -> None:
            raise problem

    channels = directory(bench, "one", two=Refuses)
    starting = asyncio.create_task(channels.start(cast(Any, None)))
    await until(lambda: len(list(channels.all())) == 2 and state(channels, "one") is ChannelState.READY)
    await until(lambda: state(channels, "two") in (ChannelState.FAILED, ChannelState.AUTH_FAILED))
    assert list(channels.ingress.routes) == ["/channels/one/in"]
    await channels.stop()
    await starting


async def test_other_settings_move_the_server(bench: Bench) -> None:
    channels = directory(bench, "one", polls=Polls)
    await channels.start(cast(Any, None))
    configure(bench, port=0, path_prefix="/moved")
    await channels.reload(cast(Any, None))
    assert (await exchange(channels.ingress, post("/channels/one/in"))).status == 404
    assert (await exchange(channels.ingress, post("/moved/channels/one/in"))).status == 202
    await channels.stop()


async def test_a_port_in_use_keeps_only_those_out_that_need_it(bench: Bench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        configure(bench, port=port)
        channels = directory(bench, "one", polls=Polls)
        starting = asyncio.create_task(channels.start(cast(Any, None)))
        await until(lambda: bool(list(channels.all())) and state(channels, "one") is ChannelState.FAILED)
        status = next(one.status for one in channels.all() if one.name == "one")
        assert f"127.0.0.1:{port}" in status.detail and "[ingress]" in status.detail
        await until(lambda: state(channels, "polls") is ChannelState.READY)
    await until(lambda: state(channels, "one") is ChannelState.READY)  # once the port is free
    await starting
    await channels.stop()


async def test_without_the_extra_the_channel_says_what_to_install(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name == "jackfield.host.ingress_server":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    channels = directory(bench, "one", polls=Polls)
    starting = asyncio.create_task(channels.start(cast(Any, None)))
    await until(lambda: bool(list(channels.all())) and state(channels, "one") is ChannelState.FAILED)
    detail = next(one.status.detail for one in channels.all() if one.name == "one")
    assert "uvicorn is missing" in detail and "pip install 'jackfield[ingress]'" in detail
    await until(lambda: state(channels, "polls") is ChannelState.READY)
    monkeypatch.undo()
    await until(lambda: state(channels, "one") is ChannelState.READY)
    await starting
    await channels.stop()


async def test_a_request_under_way_ends_well_when_the_server_stops(ingress: Ingress) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def handle(request: RawRequest) -> RawResponse:
        entered.set()
        await go_on.wait()
        return RawResponse(status=202)

    await serve(ingress, route(handle))
    idle = await connect(ingress)
    asking = asyncio.create_task(exchange(ingress, post("/channels/hook/in")))
    await entered.wait()
    closing = asyncio.create_task(ingress.close())
    async with asyncio.timeout(BOUND):
        assert await idle[0].read() == b"", "an idle connection is closed at once"
        go_on.set()
        assert (await asking).status == 202
        await closing
    idle[1].close()


async def test_a_request_that_hangs_holds_up_no_stop(ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_server, "CLOSE_GRACE", 0.2)
    entered = asyncio.Event()

    async def handle(request: RawRequest) -> RawResponse:
        entered.set()
        await asyncio.Event().wait()
        raise AssertionError

    await serve(ingress, route(handle))
    asking = asyncio.create_task(exchange(ingress, post("/channels/hook/in")))
    await entered.wait()
    async with asyncio.timeout(BOUND):
        await ingress.close()
        assert (await asking).status in (0, 500, 503), "it was not stored, and is not acknowledged"


def test_the_host_s_rooms_import_no_web_server() -> None:
    """Start-up stays light: starlette and uvicorn come with the first route."""
    import subprocess

    script = "import sys, jackfield.host.live; print([m for m in ('uvicorn', 'starlette') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
