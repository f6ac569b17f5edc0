"""The fake platform itself: what it scripts happens, and a client of another make sees it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator

import aiohttp
import pytest
from aiohttp import web
from jackfield.testing.waiting import soon
from jackfield_channel_kit.testing import FakePlatform, Recorded, Reply


class Chat(FakePlatform):
    def __init__(self) -> None:
        super().__init__()
        self.on("POST", "/bot{token}/{method}", self.call)
        self.on_socket("/socket", self.talk)

    async def call(self, request: Recorded) -> Reply:
        return Reply(200, {"token": request.params["token"], "got": request.form()})

    async def talk(self, socket: web.WebSocketResponse) -> None:
        while True:
            await socket.send_json(await self.arrivals.get())


@pytest.fixture
async def chat() -> AsyncGenerator[Chat, None]:
    async with Chat() as running:
        yield running


@pytest.fixture
async def client() -> AsyncGenerator[aiohttp.ClientSession, None]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_requests_are_answered_and_recorded(chat: Chat, client: aiohttp.ClientSession) -> None:
    async with client.post(chat.url + "/bot7/send?a=1", data={"text": "é"}) as answer:
        assert await answer.json() == {"token": "7", "got": {"text": "é"}}
    (request,) = await chat.until_sent("send")
    assert (request.verb, request.path, request.query) == ("POST", "/bot7/send", {"a": "1"})
    async with client.get(chat.url + "/nothing") as answer:
        assert answer.status == 404


async def test_failures_come_in_their_order_to_the_method_that_they_were_meant_for(
    chat: Chat, client: aiohttp.ClientSession
) -> None:
    chat.fail_next(429, {"wait": 1}, {"Retry-After": "1"}, method="send")
    chat.fail_next(500, b"raw", method="send")
    seen = []
    for method in ("edit", "send", "send", "send"):
        async with client.post(f"{chat.url}/bot7/{method}") as answer:
            seen.append((answer.status, answer.headers.get("Retry-After")))
    assert seen == [(200, None), (429, "1"), (500, None), (200, None)]


async def test_it_hangs_until_it_is_released_and_cuts_after_the_work(chat: Chat, client: aiohttp.ClientSession) -> None:
    chat.hang(method="send")
    chat.drop_after_send(method="edit")
    hanging = asyncio.ensure_future(client.post(f"{chat.url}/bot7/send"))
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(f"{chat.url}/bot7/edit")
    await chat.until_sent("send")
    assert not hanging.done()
    chat.release()
    assert (await soon(hanging, "the answer")).status == 503


async def test_sockets_get_what_arrives_and_can_be_cut(chat: Chat, client: aiohttp.ClientSession) -> None:
    async with client.ws_connect(chat.url + "/socket") as socket:
        await chat.until_connected()
        chat.arrivals.put_nowait({"text": "hi"})
        assert await soon(socket.receive_json(), "an event") == {"text": "hi"}
        chat.cut_sockets()
        message = await soon(socket.receive(), "the end")
        assert message.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR, aiohttp.WSMsgType.CLOSING)
    chat.arrivals.put_nowait({})
    await chat.until(lambda: not chat.sockets, "the socket to go")


async def test_it_stops_while_something_hangs(client: aiohttp.ClientSession) -> None:
    async with Chat() as chat:
        chat.hang()
        hanging = asyncio.ensure_future(client.post(f"{chat.url}/bot7/send"))
        await chat.until_sent("send")
    await soon(asyncio.gather(hanging, return_exceptions=True), "the client")


def test_importing_the_kit_loads_nothing_heavy() -> None:
    """A channel's module is imported to list it; httpx2 and the others come when they are first used."""
    code = (
        "import sys, jackfield_channel_kit.http, jackfield_channel_kit.media, jackfield_channel_kit.verify\n"
        "import jackfield_channel_kit.reconnect, jackfield_channel_kit.selfguard, jackfield_channel_kit.testing\n"
        "heavy = {'httpx2', 'httpcore2', 'aiohttp', 'cryptography', 'pydantic', 'markdown_it'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
