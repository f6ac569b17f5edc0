"""The webhook keeps the contract of channels: a signing sender at the real ingress, and a receiver of its answers."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parent))

from jackfield.api import Channel, ServesRoutes
from jackfield.host.ingress import mount_points
from jackfield.models import Address, OutMessage
from jackfield.testing import Arrived, ChannelContract, ChannelRecorder, Peer, Said
from jackfield.testing.contracts import FailureKind
from jackfield_channel_kit.verify import sign_standard
from stand import Receiver, ingress, post_bytes

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

_FAILURES: dict[FailureKind, int | tuple[int, dict[str, str]] | None] = {
    "rate_limited": (429, {"retry-after": "7"}),
    "transient": 502,
    "ambiguous": None,
    "auth": 401,
    "not_allowed": 403,
    "not_found": 404,
    "too_large": 413,
    "bad_content": 422,
}


class Systems(Peer):
    """A program that calls the hook, and one that the hook calls."""

    failures = frozenset(_FAILURES)

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self.door = ingress()
        self.receiver = Receiver()
        self.sent: dict[str, asyncio.Task[tuple[int, dict[str, Any]]]] = {}
        self.channel: Channel | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "url": f"{self.receiver.address or 'http://127.0.0.1:1'}/in",
            "allow_private": True,
            "secrets": "hook-secret",
            "map": {"text": "$.text", "thread": "$.thread", "chat": "$.chat", "user": "$.user", "bot": "$.bot"},
        }

    @property
    def secrets(self) -> Mapping[str, str]:
        return {"hook-secret": SECRET}

    async def open(self) -> None:
        await self.receiver.open()
        await self.door.open()

    async def close(self) -> None:
        for task in self.sent.values():
            task.cancel()
        await asyncio.gather(*self.sent.values(), return_exceptions=True)
        await self.door.close()
        await self.receiver.close()

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        assert isinstance(channel, ServesRoutes)
        self.channel = channel
        self.door.mount(self.instance, mount_points(self.instance, channel.http_routes()))

    async def leave(self) -> None:
        self.door.unmount(self.instance)

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        return Address("webhook", self.instance, chat, thread)

    async def write(self, said: Said) -> None:
        if said.group:
            self.refuse("have groups")
        if said.files:
            self.refuse("send files")
        message_id = said.id
        if said.own:  # the other side sends our own answer back to us
            assert self.channel is not None
            sent = await self.channel.send(self.address(), OutMessage(text=said.text), idempotency_key="dl_own")
            (message_id,) = sent.ids
        body = {"text": said.text, "thread": said.thread, "chat": said.chat, "user": said.sender, "bot": said.bot}
        raw = json.dumps(body).encode()
        headers = sign_standard(message_id, raw, [SECRET], time.time())
        report = self.door.report()
        assert report is not None
        self.sent[said.id] = asyncio.create_task(
            post_bytes(report["address"], f"/channels/{self.instance}", raw, headers)
        )

    async def acknowledged(self, said: Said) -> bool:
        status, _ = await asyncio.shield(self.sent[said.id])
        return 200 <= status < 300

    async def arrived(self) -> Arrived:
        call = await self.receiver.arrivals.get()
        data = call.data
        address = Address("webhook", data["hook"], data["chat"], data["thread"])
        return Arrived(kind="message", ids=(data["id"],), text=data["text"], address=address, files=call.files)

    async def fail_next(self, failure: FailureKind) -> None:
        self.receiver.script.append(_FAILURES[failure])

    async def recover(self) -> None:
        self.receiver.script.clear()

    async def hang(self) -> None:
        self.receiver.hanging = True


class TestWebhook(ChannelContract):
    plugin = "webhook"
    settings: ClassVar[Mapping[str, Any]] = {"secrets": ("hook-secret",)}

    def make_peer(self, instance: str) -> Peer:
        return Systems(instance)
