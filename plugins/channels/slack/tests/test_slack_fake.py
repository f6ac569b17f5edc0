"""The kit's fake of Slack is what Slack's own SDK takes for Slack."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio
from jackfield.testing.waiting import soon, until
from jackfield_channel_kit.testing.slack import SlackFake
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.signature import SignatureVerifier
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.web.async_client import AsyncWebClient

GROUP = "C000GROUP"


@pytest_asyncio.fixture
async def fake() -> AsyncGenerator[SlackFake, None]:
    async with SlackFake() as one:
        yield one


def client(fake: SlackFake, token: str | None = None) -> AsyncWebClient:
    return AsyncWebClient(token=token or fake.bot_token, base_url=f"{fake.api_url}/")


async def test_the_sdk_writes_changes_and_reads(fake: SlackFake) -> None:
    sdk = client(fake)
    me = await sdk.auth_test()
    assert (me["user_id"], me["team_id"]) == (fake.bot_user, fake.team) and "chat:write" in me.headers["x-oauth-scopes"]
    posted = await sdk.chat_postMessage(channel=GROUP, markdown_text="**hi**")
    await sdk.chat_update(channel=GROUP, ts=posted["ts"], text="ho", blocks=[])
    await sdk.reactions_add(channel=GROUP, timestamp=posted["ts"], name="+1")
    history = await sdk.conversations_history(channel=GROUP)
    assert [message["text"] for message in history["messages"]] == ["ho"]
    await sdk.chat_delete(channel=GROUP, ts=posted["ts"])
    opened = await sdk.conversations_open(users=["U00000ANN"])
    assert opened["channel"]["id"].startswith("D")
    ann = await sdk.users_info(user="U00000ANN")
    assert ann["user"]["profile"]["display_name"] == "Ann"


async def test_the_sdk_uploads_a_file(fake: SlackFake) -> None:
    done = await client(fake).files_upload_v2(content="abc", filename="a.txt", channel=GROUP, initial_comment="here")
    info = await client(fake).files_info(file=done["files"][0]["id"])
    assert info["file"]["shares"]["public"][GROUP] and fake.contents[info["file"]["id"]] == b"abc"


async def test_the_sdk_streams(fake: SlackFake) -> None:
    root = fake.say("go", channel=GROUP)
    stream = await client(fake).chat_stream(
        channel=GROUP, thread_ts=root["ts"], recipient_user_id="U00000ANN", recipient_team_id=fake.team, buffer_size=1
    )
    await stream.append(markdown_text="**hello wo")
    await stream.append(markdown_text="rld**")
    await stream.stop()
    assert fake.messages[GROUP][-1]["markdown_text"] == "**hello world**"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"markdown_text": "a", "text": "b"}, "markdown_text_conflict"),
        ({"markdown_text": "a" * 12_001}, "msg_too_long"),
        ({"text": ""}, "no_text"),
        ({"text": "x", "channel": "X1"}, "channel_not_found"),
        (
            {"text": "x", "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3001}}]},
            "invalid_blocks",
        ),
    ],
)
async def test_the_sdk_is_refused_as_by_slack(fake: SlackFake, arguments: dict[str, object], error: str) -> None:
    with pytest.raises(SlackApiError) as caught:
        await client(fake).api_call("chat.postMessage", json={"channel": GROUP, **arguments})
    assert caught.value.response["error"] == error


async def test_the_sdk_waits_when_it_is_told_to(fake: SlackFake) -> None:
    sdk = client(fake)
    sdk.retry_handlers.append(AsyncRateLimitErrorRetryHandler(max_retry_count=1))
    fake.fail_next(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"}, method="chat.postMessage")
    before = time.monotonic()
    assert (await sdk.chat_postMessage(channel=GROUP, text="hi"))["ok"]
    assert time.monotonic() - before >= 0.9
    with pytest.raises(SlackApiError, match="invalid_auth"):
        await client(fake, "xoxb-wrong").auth_test()


async def test_the_sdk_hears_over_sockets_and_reconnects(fake: SlackFake) -> None:
    heard: list[str] = []

    async def listen(socket: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        heard.append(request.payload["event"]["text"] if request.type == "events_api" else request.payload["type"])
        await socket.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))

    socket = SocketModeClient(app_token=fake.app_token, web_client=client(fake), ping_interval=0.5)
    socket.socket_mode_request_listeners.append(listen)
    try:
        await socket.connect()
        await soon(fake.tell(fake.say("hi", channel=GROUP)).acknowledged.wait(), "the event")
        await soon(fake.press(fake.pressed(GROUP, "1.1", "p:x:0")).acknowledged.wait(), "the click")
        await fake.disconnect()
        await until(lambda: len(fake.sent("apps.connections.open")) >= 2, "a second socket")
        await soon(fake.tell(fake.say("ho", channel=GROUP)).acknowledged.wait(), "the event after that")
        assert heard == ["hi", "block_actions", "ho"]
    finally:
        await socket.close()
        await asyncio.sleep(0)


async def test_the_sdk_believes_its_signatures(fake: SlackFake) -> None:
    verifier = SignatureVerifier(fake.signing_secret)
    for form in (False, True):
        signed = fake.signed({"type": "event_callback"}, form=form)
        assert verifier.is_valid_request(signed.body, dict(signed.headers))
        assert not verifier.is_valid_request(signed.body + b" ", dict(signed.headers))
    old = fake.signed({}, at=time.time() - 301)
    assert not verifier.is_valid_request(old.body, dict(old.headers))
