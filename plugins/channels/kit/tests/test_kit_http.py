"""The HTTP client against real servers on this machine: what each failure becomes, and what never leaks."""

from __future__ import annotations

import asyncio
import gzip
import logging
import socket
import traceback
from collections.abc import AsyncGenerator
from email.parser import BytesParser
from email.utils import formatdate
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    ConfigError,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
)
from jackfield.testing.clock import ManualClock
from jackfield.testing.waiting import soon, until
from jackfield_channel_kit.guard import Guard
from jackfield_channel_kit.http import Buckets, Http, Rate, Response, by_status, retry_after
from jackfield_channel_kit.testing import FakePlatform, Recorded, Reply
from jackfield_channel_kit.testing.raw import answering, raw_server

NOW = 1_800_000_000.0
TOKEN = "123456:AA/secret+token"

T = TypeVar("T")


class Platform(FakePlatform):
    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Any] = []
        self.on("POST", "/send", self.send)
        self.on("GET", "/read", self.read)
        self.on("GET", "/away", self.away)
        self.on("POST", "/away", self.away)
        self.target = "/read"

    async def send(self, request: Recorded) -> Reply:
        self.stored.append(request.body)
        return Reply(200, {"id": str(len(self.stored))})

    async def read(self, request: Recorded) -> Reply:
        return Reply(200, {"stored": len(self.stored)})

    async def away(self, request: Recorded) -> Reply:
        return Reply(302, None, {"Location": self.target})


@pytest.fixture
async def platform() -> AsyncGenerator[Platform, None]:
    async with Platform() as running:
        yield running


async def failure(http: Http, method: str = "POST", path: str = "send", **more: Any) -> ChannelError:
    with pytest.raises(ChannelError) as raised:
        await soon(http.request(method, path, **more), "an error")
    return raised.value


async def through(clock: ManualClock, work: asyncio.Task[T]) -> T:
    """The result of something that sleeps on the clock now and then."""
    while not work.done():
        await until(lambda: work.done() or bool(clock.sleepers), "it to sleep or to end")
        await clock.advance(max(clock.sleepers, default=0.0))
    return work.result()


# What an answer means


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadContent),
        (401, AuthFailed),
        (403, SendNotAllowed),
        (404, ChatNotFound),
        (409, Transient),
        (410, ChatNotFound),
        (413, TooLarge),
        (418, SendNotAllowed),
        (422, BadContent),
        (429, RateLimited),
        (500, Transient),
        (502, Transient),
        (503, Transient),
        (504, Ambiguous),
    ],
)
async def test_each_status_becomes_the_cores_error(platform: Platform, status: int, kind: type[ChannelError]) -> None:
    async with Http(platform.url) as http:
        platform.fail_next(status, {"error": "because"})
        error = await failure(http, json={})
        assert type(error) is kind
        assert "POST http://127.0.0.1" in error.message
        assert "because" in error.message
        assert len(platform.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "31"}, 31.0),
        ({"retry-after": "0.35"}, 0.35),
        ({"retry-after": formatdate(NOW + 90, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(5_090, usegmt=True), "date": formatdate(5_000, usegmt=True)}, 90.0),
        ({"retry-after": formatdate(NOW - 90, usegmt=True)}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"x-ratelimit-reset-after": "0.7", "x-ratelimit-reset": "99"}, 0.7),
        ({"x-ratelimit-reset": f"{NOW + 12:.0f}"}, 12.0),
        ({"x-ratelimit-reset": f"{(NOW + 12) * 1000:.0f}"}, 12.0),
        ({"ratelimit-reset": "40"}, 40.0),
        ({"retry-after": "1e9"}, 86_400.0),
        ({"retry-after": "inf"}, 86_400.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    """C077."""
    found = retry_after(headers, NOW)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms", "x-ratelimit-reset", "date"]), st.text()))
def test_no_header_makes_a_wait_that_is_no_number_of_a_day(headers: dict[str, str]) -> None:
    wait = retry_after(headers, NOW)
    assert wait is None or 0 <= wait <= 86_400


async def test_a_429_carries_the_wait_and_the_platforms_own_way_to_say_it_comes_first(platform: Platform) -> None:
    """C077: in a header, in the body, and not at all."""

    def classify(response: Response) -> ChannelError | None:
        wait = response.fields().get("parameters", {}).get("retry_after")
        return RateLimited("flood", retry_after=wait) if wait else None

    async with Http(platform.url, classify=classify, clock=ManualClock()) as http:
        platform.fail_next(429, None, {"Retry-After": "31"})
        platform.fail_next(429, {"parameters": {"retry_after": 12}}, {"Retry-After": "31"})
        platform.fail_next(429)
        waits = [await failure(http) for _ in range(3)]
        assert [wait.retry_after for wait in waits if isinstance(wait, RateLimited)] == [31.0, 12.0, 5.0]
        assert (await http.request("POST", "send")).json() == {"id": "1"}


async def test_a_refusal_inside_a_200_is_found_by_the_classifier(platform: Platform) -> None:
    def classify(response: Response) -> ChannelError | None:
        return None if response.fields().get("ok", True) else ChatNotFound(response.fields()["error"])

    async with Http(platform.url, classify=classify) as http:
        platform.fail_next(200, {"ok": False, "error": "channel_not_found"})
        assert isinstance(await failure(http), ChatNotFound)


@pytest.mark.parametrize("status", [403, 503])
def test_a_wait_with_a_403_or_503_is_a_rate_limit_of_the_account(status: int) -> None:
    """C077: GitHub's secondary limit; a service that says when it is back."""
    error = by_status(Response(status, {"retry-after": "60"}), now=NOW)
    assert isinstance(error, RateLimited)
    assert (error.retry_after, error.scope) == (60.0, "account")


async def test_an_answer_that_is_no_json_leaves_open_what_happened(platform: Platform) -> None:
    async with Http(platform.url) as http:
        platform.fail_next(200, "<html>")
        answer = await http.request("POST", "send")
        assert (answer.text, answer.fields()) == ("<html>", {})
        with pytest.raises(Ambiguous):
            answer.json()


# Whether it left


async def test_a_connection_that_is_refused_never_left() -> None:
    """C081 (a)."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        async with Http(f"http://127.0.0.1:{bound.getsockname()[1]}") as http:
            assert isinstance(await failure(http), Transient)


async def test_a_name_that_does_not_exist_never_left() -> None:
    async with Http("http://nowhere.invalid") as http:
        assert isinstance(await failure(http), Transient)


async def test_time_that_runs_out_before_the_request_left_is_transient() -> None:
    """C081 (a): the server takes the connection and never greets for TLS."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)

    async with raw_server(silent) as url, Http(url.replace("http:", "https:"), timeout=0.5) as http:
        assert isinstance(await failure(http), Transient)


async def test_time_that_runs_out_after_the_request_left_is_ambiguous_unless_twice_does_no_harm(
    platform: Platform,
) -> None:
    """C081 (b): the platform stored the message and did not answer."""
    async with Http(platform.url, timeout=1.0) as http:
        platform.hang(handled=True, times=2)
        assert isinstance(await failure(http, content=b"one"), Ambiguous)
        assert isinstance(await failure(http, content=b"two", idempotent=True), Transient)
        assert platform.stored == [b"one", b"two"]


async def test_a_connection_cut_after_the_request_left_is_ambiguous_and_not_sent_again(platform: Platform) -> None:
    """C081 (b)."""
    async with Http(platform.url) as http:
        platform.drop_after_send()
        assert isinstance(await failure(http, content=b"one"), Ambiguous)
        assert platform.stored == [b"one"]
        assert len(platform.requests) == 1


CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
DRIP = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
GZIP = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 2",
        b"nonsense\r\n\r\n",
        CUT,
        GZIP + gzip.compress(b"{}" * 1000, mtime=0)[:-20],
        GZIP + b"no gzip at all",
        GZIP.replace(b"gzip", b"br") + b"x",
    ],
)
async def test_an_answer_that_breaks_off_in_the_middle_is_ambiguous(answer: bytes) -> None:
    async with raw_server(answering(answer)) as url, Http(url) as http:
        assert isinstance(await failure(http, json={}), Ambiguous)
        assert isinstance(await failure(http, json={}, idempotent=True), Transient)


async def test_a_body_that_comes_in_drops_does_not_hold_the_request_longer_than_its_time() -> None:
    async with raw_server(answering(DRIP, again=b"x")) as url, Http(url, timeout=0.5) as http:
        assert isinstance(await failure(http), Ambiguous)


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_larger_than_agreed_is_not_read_to_its_end(packed: bool) -> None:
    """A bomb of 64 MB in 64 KB too."""
    body = gzip.compress(bytes(64 * 1024 * 1024)) if packed else bytes(300_000)
    head = GZIP if packed else b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    async with raw_server(answering(head + body)) as url, Http(url, max_bytes=200_000) as http:
        error = await failure(http)
        assert isinstance(error, Ambiguous)
        assert "more than 200000 bytes" in error.message


async def test_a_packed_answer_is_unpacked() -> None:
    async with raw_server(answering(GZIP + gzip.compress(b'{"a": 1}'))) as url, Http(url) as http:
        assert (await http.request("POST", "x")).json() == {"a": 1}


# Reads


async def test_a_read_is_tried_again_and_a_send_is_not(platform: Platform) -> None:
    clock = ManualClock()
    async with Http(platform.url, clock=clock) as http:
        platform.fail_next(500, times=2)
        reading = asyncio.create_task(http.request("GET", "read"))
        assert (await through(clock, reading)).json() == {"stored": 0}
        platform.fail_next(500)
        assert isinstance(await failure(http), Transient)
        assert [request.method for request in platform.requests] == ["read", "read", "read", "send"]


async def test_a_read_gives_up_after_three_tries_and_never_waits_past_its_bound(platform: Platform) -> None:
    clock = ManualClock()
    async with Http(platform.url, clock=clock) as http:
        platform.fail_next(500, times=3)
        reading = asyncio.create_task(failure(http, "GET", "read"))
        assert isinstance(await through(clock, reading), Transient)
        assert len(platform.requests) == 3
        platform.fail_next(429, None, {"Retry-After": "21"})
        assert isinstance(await failure(http, "GET", "read"), RateLimited)
        assert len(platform.requests) == 4


# Where it goes, and what it tells


async def test_credentials_go_to_the_platforms_own_host_only(platform: Platform) -> None:
    async with Platform() as other, Http(platform.url, headers={"Authorization": "Bearer " + TOKEN}) as http:
        await http.request("POST", "send")
        await http.request("POST", other.url + "/send", headers={"X-Own": "1"})
        assert platform.requests[0].headers["authorization"] == "Bearer " + TOKEN
        assert "authorization" not in other.requests[0].headers
        assert other.requests[0].headers["x-own"] == "1"


async def test_a_redirect_is_followed_for_a_read_of_the_same_host_only(platform: Platform) -> None:
    async with Platform() as other, Http(platform.url, headers={"Authorization": "Bearer " + TOKEN}) as http:
        assert (await http.request("GET", "away", params={"q": "1"})).json() == {"stored": 0}
        assert isinstance(await failure(http, "POST", "away"), SendNotAllowed)
        platform.target = other.url + "/read"
        assert isinstance(await failure(http, "GET", "away"), SendNotAllowed)
        platform.target = "/away"
        assert "more than 5 redirects" in (await failure(http, "GET", "away")).message
        assert other.requests == []


async def test_no_token_gets_into_an_error_a_log_or_a_repr(
    platform: Platform, caplog: pytest.LogCaptureFixture
) -> None:
    """C133: the token is a part of the URL and a header, and the platform says it back in every spelling: 401, 404, a
    redirect, no connection, no answer, and what the HTTP library logs."""
    caplog.set_level(logging.DEBUG)
    spellings = [TOKEN, "123456%3AAA/secret%2Btoken", "123456%3AAA%2Fsecret%2Btoken", "header-token"]
    http = Http(
        f"{platform.url}/bot{TOKEN}", redact=[TOKEN], headers={"authorization": "Bearer header-token"}, timeout=1.0
    )
    async with http:
        platform.fail_next(404, {"said": spellings}, method="a")
        platform.fail_next(200, {"ok": True}, method="b")
        platform.hang(method="c")
        errors = [await failure(http, "POST", "a"), await failure(http, "POST", "c")]
        await http.request("POST", "b")
        with pytest.raises(ChannelError) as raised:
            await http.request("POST", "d", headers={"X-Bad": TOKEN + "\r\nX-Other: 1"})
        errors.append(raised.value)
        platform.fail_next(401, {"said": spellings}, method="e")
        platform.fail_next(302, {"said": spellings}, {"Location": f"http://127.0.0.1:1/bot{TOKEN}/e"}, method="f")
        errors += [await failure(http, "POST", "e"), await failure(http, "GET", "f")]
    async with Http(f"http://127.0.0.1:1/bot{TOKEN}", redact=[TOKEN]) as nowhere:
        errors.append(await failure(nowhere, "GET", "g"))
    shown = [
        repr(http),
        repr(nowhere),
        *map(str, errors),
        *("".join(traceback.format_exception(error)) for error in errors),
    ]
    shown += [record.getMessage() for record in caplog.records]
    assert not [text for text in shown for secret in spellings if secret in text]
    assert "[redacted]" in errors[0].message


async def test_a_path_of_another_host_is_not_shown(platform: Platform) -> None:
    """C133: the path of an upload or of an answering URL is a credential."""
    async with Http("http://127.0.0.1:1") as http:
        error = await failure(http, "POST", platform.url + "/hooks/secret?token=secret")
        assert "secret" not in error.message.replace("no POST /hooks/secret", "")


async def test_every_connection_uses_the_proxy_of_the_environment(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C238: the name exists only behind the proxy."""
    for name in ("HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", platform.url)
    async with Http("http://chat.invalid") as http:
        assert (await http.request("POST", "send")).json() == {"id": "1"}
    monkeypatch.delenv("http_proxy")
    async with Http("http://chat.invalid", proxy=platform.url, guard=Guard()) as http:
        assert (await http.request("POST", "send")).json() == {"id": "2"}
    assert [request.headers["host"] for request in platform.requests] == ["chat.invalid"] * 2


async def test_a_guarded_client_reaches_nothing_private(platform: Platform) -> None:
    async with Http(platform.url, guard=Guard()) as http:
        assert isinstance(await failure(http), SendNotAllowed)
    async with Http(platform.url, guard=Guard(allow_private=True)) as http:
        await http.request("POST", "send")
    assert len(platform.requests) == 1


@pytest.mark.parametrize("url", ["", "platform", "ftp://platform", "https://user:password@platform", "http://[::1"])
def test_an_address_that_can_never_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Http(url)
    assert "password" not in str(refusal.value).replace("user or password", "")


async def test_no_cookie_is_kept(platform: Platform) -> None:
    async with Http(platform.url) as http:
        platform.fail_next(200, {}, {"Set-Cookie": "a=b; Path=/"})
        await http.request("POST", "send")
        await http.request("POST", "send")
    assert "cookie" not in platform.requests[1].headers


@pytest.mark.parametrize(
    "name", ["报告 – Q3.pdf", "résumé (final).docx", "🚀.png", 'a"b;c.txt', "x\r\nSet-Cookie: a=b.txt"]
)
async def test_a_file_goes_up_under_any_name_and_no_name_makes_a_header(platform: Platform, name: str) -> None:
    """C069."""
    async with Http(platform.url) as http:
        await http.request("POST", "send", data={"chat": "1"}, files={"document": (name, b"bytes", "text/plain")})
    (request,) = platform.requests
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    *_, document = BytesParser().parsebytes(head + request.body).walk()
    assert sorted(document.keys()) == ["Content-Disposition", "Content-Type"]
    assert document.get_payload(decode=True) == b"bytes"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", None])
async def test_a_proxy_that_refuses_or_hangs_means_that_the_request_never_left(answer: bytes | None) -> None:
    """C238, C081 (a): a TLS connection through the proxy begins with CONNECT, which is not the request."""
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is None:
            await asyncio.Event().wait()
        else:
            writer.write(answer)
            await writer.drain()

    async with raw_server(proxy) as url, Http("https://chat.invalid", proxy=url, timeout=1.0) as http:
        assert isinstance(await failure(http), Transient)
    assert asked[0].startswith(b"CONNECT chat.invalid:443 ")


# How fast


async def test_no_rate_is_exceeded_and_nobody_waits_longer_than_needed() -> None:
    """C083: twelve sends to one chat at once, at one a second and 20 a minute; another chat is not held up."""
    clock = ManualClock()
    buckets = Buckets([Rate(1, 1.0), Rate(20, 60.0)], [Rate(30, 1.0)])
    start, times = clock.monotonic(), []

    async def send(chat: str) -> None:
        await buckets.take(chat, clock)
        times.append((chat, clock.monotonic() - start))

    sends = [asyncio.create_task(send("a")) for _ in range(12)] + [asyncio.create_task(send("b"))]
    await clock.until_sleeping(11)
    await clock.advance(11)
    await soon(asyncio.gather(*sends), "all sends")
    assert [at for chat, at in times if chat == "a"] == pytest.approx([float(n) for n in range(12)])
    assert [at for chat, at in times if chat == "b"] == [0.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 5)), max_size=60))
def test_in_no_window_are_there_more_requests_than_the_rate_says(steps: list[tuple[int, float]]) -> None:
    """C083."""

    async def run() -> None:
        clock = ManualClock()
        buckets = Buckets([Rate(2, 3.0)], [Rate(4, 2.0)], patience=1e9)
        times: list[tuple[int, float]] = []

        async def send(chat: int) -> None:
            await buckets.take(str(chat), clock)
            times.append((chat, clock.monotonic()))

        tasks = []
        for chat, pause in steps:
            tasks.append(asyncio.create_task(send(chat)))
            await clock.advance(pause)
        await clock.advance(1000)
        await asyncio.gather(*tasks)
        for chat in {name for name, _ in times}:
            mine = [at for name, at in times if name == chat]
            assert all(later - earlier >= 3.0 - 1e-6 for earlier, later in zip(mine, mine[2:], strict=False))
        everyone = sorted(at for _, at in times)
        assert all(later - earlier >= 2.0 - 1e-6 for earlier, later in zip(everyone, everyone[4:], strict=False))

    asyncio.run(run())


async def test_who_would_wait_too_long_is_told_and_takes_no_place() -> None:
    clock = ManualClock()
    buckets = Buckets(lambda chat: [Rate(1, 60.0)] if chat.startswith("-") else [])
    await buckets.take("-1", clock)
    for _ in range(2):
        with pytest.raises(RateLimited) as limited:
            await buckets.take("-1", clock)
        assert (limited.value.retry_after, limited.value.scope) == (60.0, "chat")
    await buckets.take("1", clock)
    await clock.advance(60)
    await buckets.take("-1", clock)


async def test_after_a_429_no_request_goes_to_that_chat_before_the_wait_is_over(platform: Platform) -> None:
    """C077; a limit of the whole account holds for every chat."""
    clock = ManualClock()
    async with Http(platform.url, limits=Buckets(), clock=clock) as http:
        platform.fail_next(429, None, {"Retry-After": "31"})
        assert isinstance(await failure(http, key="a"), RateLimited)
        error = await failure(http, key="a")
        assert isinstance(error, RateLimited)
        assert error.retry_after == 31.0
        await http.request("POST", "send", key="b")
        platform.fail_next(503, None, {"Retry-After": "40"})
        await failure(http, key="b")
        error = await failure(http, key="c")
        assert isinstance(error, RateLimited)
        assert (error.retry_after, error.scope) == (40.0, "account")
        await clock.advance(41)
        for chat in "abc":
            await http.request("POST", "send", key=chat)
    assert len(platform.requests) == 6
