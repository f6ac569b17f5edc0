"""What a hook posts: signed, once, to public addresses only, and with no secret in what goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.errors import Ambiguous, AuthFailed, ChannelError, SendNotAllowed, TooLarge, Transient
from jackfield.models import Address, ChannelState, MessageRef, OutFile, OutMessage
from jackfield.testing import ChannelRecorder
from jackfield_channel_kit.verify import Refused, standard_webhooks
from jackfield_channel_webhook import posting
from jackfield_channel_webhook.channel import WebhookChannel
from jackfield_channel_webhook.settings import WebhookSettings
from stand import Receiver

SECRETS = {"one": "whsec_" + "A" * 32, "two": "whsec_" + "B" * 32, "tricky-url": ""}
HERE = Address("webhook", "hook", "chat", "thread")


class Out:
    def __init__(self, receiver: Receiver, channel: WebhookChannel, context: ChannelRecorder) -> None:
        self.receiver, self.channel, self.context = receiver, channel, context

    async def send(self, message: OutMessage | str = "hi", key: str = "dl_1") -> tuple[str, ...]:
        message = OutMessage(text=message) if isinstance(message, str) else message
        return (await self.channel.send(HERE, message, idempotency_key=key)).ids


@asynccontextmanager
async def posts(tmp_path: Path, path: str = "/in?key=k3y", **settings: Any) -> AsyncIterator[Out]:
    receiver = Receiver()
    await receiver.open()
    given = {"secrets": "one", "url": receiver.address + path, "allow_private": True, **settings}
    secrets = {**SECRETS, "tricky-url": receiver.address + "/hook/s3cr3t"}
    channel = WebhookChannel("hook", WebhookSettings.model_validate(given))
    context = ChannelRecorder("webhook", "hook", tmp_path, secrets=secrets)
    await channel.start(context)
    try:
        yield Out(receiver, channel, context)
    finally:
        await channel.stop()
        await context.close()
        await receiver.close()


async def test_an_answer_is_a_signed_standard_webhook(tmp_path: Path) -> None:
    """Both secrets sign, so that the receiver can change its own at any time."""
    async with posts(tmp_path, sign=["one", "two"]) as out:
        reply = OutMessage(text="yes ☃ \ud800", reply_to=MessageRef(HERE, ("msg_1",)), maybe_duplicate=True)
        assert await out.send(reply, key="dl_1.2") == ("dl_1-2",)
        (call,) = out.receiver.calls
        assert call.headers["webhook-id"] == "dl_1-2" and call.headers["content-type"] == "application/json"
        now = int(call.headers["webhook-timestamp"])
        for name in ("one", "two"):
            standard_webhooks(call.headers, call.body, [SECRETS[name]], now)
        with pytest.raises(Refused):
            standard_webhooks(call.headers, call.body + b" ", [SECRETS["one"]], now)
        body = json.loads(call.body)
        assert body["type"] == "message" and body["timestamp"].endswith("Z")
        assert body["data"] == {
            "id": "dl_1-2",
            "hook": "hook",
            "chat": "chat",
            "thread": "thread",
            "text": "yes ☃ ?",
            "reply_to": "msg_1",
            "files": [],
            "maybe_duplicate": True,
        }


async def test_the_standard_s_own_library_takes_what_is_posted(tmp_path: Path) -> None:
    standardwebhooks = pytest.importorskip("standardwebhooks")
    async with posts(tmp_path) as out:
        await out.send()
        (call,) = out.receiver.calls
        assert standardwebhooks.Webhook(SECRETS["one"]).verify(call.body, call.headers)["data"]["text"] == "hi"


async def test_without_a_secret_nothing_is_signed(tmp_path: Path) -> None:
    async with posts(tmp_path, sign=[]) as out:
        await out.send()
        assert "webhook-signature" not in out.receiver.calls[0].headers


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/", "http://169.254.169.254/latest", "http://10.0.0.1/",
        "http://[::ffff:127.0.0.1]/", "http://0/", "http://2130706433/",
    ],
)  # fmt: skip
async def test_an_address_that_is_not_public_is_not_called(tmp_path: Path, url: str) -> None:
    async with posts(tmp_path, url=url, allow_private=False) as out:
        with pytest.raises(SendNotAllowed, match="not at a public address"):
            await out.send()


async def test_no_redirect_is_followed(tmp_path: Path) -> None:
    async with posts(tmp_path) as out:
        for status in (301, 307):
            out.receiver.script.append((status, {"location": "http://127.0.0.1:1/"}))
            with pytest.raises(SendNotAllowed):
                await out.send()
        assert not out.receiver.calls


@pytest.mark.parametrize("status", [304, 400, 404, 418, 500])
async def test_only_2xx_is_success(tmp_path: Path, status: int) -> None:
    async with posts(tmp_path) as out:
        out.receiver.script.append(status)
        with pytest.raises(ChannelError):
            await out.send()


async def test_a_lost_answer_is_ambiguous_unless_the_receiver_drops_repeats(tmp_path: Path) -> None:
    async with posts(tmp_path) as out:
        out.receiver.script.append(None)
        with pytest.raises(Ambiguous):
            await out.send()
    async with posts(tmp_path, idempotent=True) as out:
        assert out.channel.capabilities().idempotent_send
        out.receiver.script.append(None)
        with pytest.raises(Transient):
            await out.send()
        assert await out.send() == ("dl_1",)


async def test_refused_credentials_show_in_the_status_until_they_are_taken(tmp_path: Path) -> None:
    async with posts(tmp_path) as out:
        out.receiver.script.append(401)
        with pytest.raises(AuthFailed):
            await out.send()
        assert out.context.state is ChannelState.DEGRADED, "what comes in is taken all the same"
        await out.send()
        assert out.context.state is ChannelState.READY and out.context.woken == [HERE]


async def test_a_url_that_is_a_secret_is_in_no_error_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C108."""
    caplog.set_level(0)
    async with posts(tmp_path, url=None, url_secret="tricky-url") as out:
        await out.send()
        out.receiver.script += [500, None, 401]
        for _ in range(3):
            with pytest.raises(ChannelError) as caught:
                await out.send()
            assert "s3cr3t" not in str(caught.value) + repr(caught.value)
        assert "s3cr3t" not in caplog.text and "s3cr3t" not in repr(out.channel) + repr(out.context.statuses)


async def test_without_a_url_an_answer_has_nowhere_to_go_and_says_so(tmp_path: Path) -> None:
    async with posts(tmp_path, url=None) as out:
        with pytest.raises(SendNotAllowed, match="no url"):
            await out.send()


async def test_files_travel_in_the_body_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "FILE_LIMIT", 1000)
    path = tmp_path / "a.bin"
    async with posts(tmp_path) as out:
        path.write_bytes(bytes(1000))
        file = OutFile(name="a.bin", path=str(path), size=1000, mime="application/x-a")
        await out.send(OutMessage(files=(file,)))
        assert out.receiver.calls[0].files == (("a.bin", bytes(1000)),)
        path.write_bytes(bytes(1001))
        with pytest.raises(TooLarge):
            await out.send(OutMessage(files=(file,)))
