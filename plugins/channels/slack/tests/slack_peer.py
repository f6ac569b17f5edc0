"""A workspace with people in it, as the suites of `jackfield.testing` and the tests here drive it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

from jackfield.api import Channel, RawRequest, ServesRoutes
from jackfield.models import Address
from jackfield.testing import Arrived, ChannelRecorder, Peer, Said
from jackfield.testing.contracts import FailureKind
from jackfield.testing.recorders import ChannelMemory
from jackfield_channel_kit.prompt import decode
from jackfield_channel_kit.testing.slack import Envelope, Shown, SignedRequest, SlackFake
from jackfield_channel_kit.text.parse import from_slack
from jackfield_channel_kit.text.render import plain
from jackfield_channel_slack.channel import SlackChannel
from jackfield_channel_slack.emoji import character
from jackfield_channel_slack.plugin import create

__all__ = ["CHATS", "EventsWorkspace", "Workspace", "read", "request_of"]

CHATS = {"one": "D00000ONE", "group": "C000GROUP"}
THREADS = {"t1": "1700000000.000001"}
_MORE = "chat.postMessage"

_FAILURES: dict[FailureKind, tuple[int, dict[str, Any], dict[str, str]] | None] = {
    "rate_limited": (429, {"ok": False, "error": "ratelimited"}, {"retry-after": "7"}),
    "transient": (503, {}, {}),
    "ambiguous": None,
    "auth": (200, {"ok": False, "error": "token_revoked"}, {}),
    "not_allowed": (200, {"ok": False, "error": "not_in_channel"}, {}),
    "not_found": (200, {"ok": False, "error": "channel_not_found"}, {}),
    "too_large": (200, {"ok": False, "error": "msg_too_long"}, {}),
    "bad_content": (200, {"ok": False, "error": "invalid_blocks"}, {}),
}


def read(message: Mapping[str, Any]) -> str:
    """A message as a person reads it."""
    if message.get("markdown_text") is not None:
        return plain(message["markdown_text"])
    texts = [block["text"]["text"] for block in message.get("blocks") or () if isinstance(block.get("text"), dict)]
    return plain(from_slack("\n".join(texts) or message.get("text") or "", users={}, channels={}))


def request_of(signed: SignedRequest, path: str = "/") -> RawRequest:
    return RawRequest(method="POST", path=path, query="", headers=signed.headers, body=signed.body, peer="198.51.100.7")


class Workspace(Peer):
    """By Socket Mode."""

    failures = frozenset(_FAILURES)
    mode = "socket"

    def __init__(self, instance: str, **fake: Any) -> None:
        super().__init__(instance)
        number = sum(instance.encode()) % 1000
        self.fake = SlackFake(
            bot_token=f"xoxb-secret-{instance}", app_token=f"xapp-secret-{instance}", team=f"T0000{number:03}", **fake
        )
        self.fake.conversations["C000GROUP"] = {"name": "general"}
        self.times: dict[str, str] = {}
        self.envelopes: dict[str, list[Envelope]] = {}
        self.channel: Channel | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        where = {"api_url": self.fake.api_url, "bot_token": "bot", "mode": self.mode}
        return where | ({"app_token": "app"} if self.mode == "socket" else {"signing_secret": ("signing",)})

    @property
    def secrets(self) -> Mapping[str, str]:
        fake = self.fake
        return {"bot": fake.bot_token, "app": fake.app_token, "signing": fake.signing_secret}

    async def open(self) -> None:
        await self.fake.start()

    async def close(self) -> None:
        await self.fake.stop()

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        self.channel = channel
        await self.fake.until_connected()

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        return Address("slack", self.instance, CHATS[chat], THREADS[thread] if thread is not None else None)

    # ---- in

    async def write(self, said: Said) -> None:
        await self.deliver(said, self.events_of(said))

    def events_of(self, said: Said) -> list[dict[str, Any]]:
        """The events of one message: a mention comes twice."""
        fake, channel = self.fake, CHATS[said.chat]
        ts = self.times.setdefault(said.id, fake.new_ts())
        text = f"<@{fake.bot_user}> {said.text}" if said.mention else said.text
        more: dict[str, Any] = {}
        user = "U00000ANN" if said.sender == "ann" else f"U0{said.sender.upper()}"
        if said.own:
            user, more = fake.bot_user, {"bot_id": fake.bot_id}
        if said.bot:
            user, more = "U0000OTHER", {"bot_id": "B00OTHER"}
        if said.files:
            mime = "image/png"
            more |= {"files": [fake.add_file(name, data, mimetype=mime) for name, data in said.files]}
            more["subtype"] = "file_share"
        thread = THREADS[said.thread] if said.thread is not None else None
        about = {"channel": channel, "user": user, "ts": ts, "thread": thread, **more}
        events = [fake.say(text, **about)]
        if said.mention:
            events.insert(0, fake.say(text, kind="app_mention", **about))
        return events

    async def deliver(self, said: Said, events: list[dict[str, Any]]) -> None:
        self.envelopes[said.id] = [self.fake.tell(event) for event in events]

    async def redeliver(self, said: Said) -> None:
        await self.deliver(said, self.events_of(said))

    async def acknowledged(self, said: Said) -> bool:
        for envelope in self.envelopes[said.id]:
            await envelope.acknowledged.wait()
        return True

    async def edit(self, said: Said, text: str) -> None:
        channel = CHATS[said.chat]
        before = dict(self.fake.find(channel, self.times[said.id]) or {})
        now = self.fake.new_ts()
        message = {**before, "text": text, "edited": {"user": before["user"], "ts": now}}
        event = {"type": "message", "subtype": "message_changed", "hidden": True, "channel": channel, "ts": now}
        await self.deliver(said, [{**event, "message": message, "previous_message": before, "event_ts": now}])

    async def click(self, question: Arrived, value: str, *, by: str = "ann") -> None:
        ts = question.ids[0]
        (button,) = [one for one in self.buttons(ts) if value == self.value_of(one)]
        assert question.address is not None
        self.fake.press(self.fake.pressed(question.address.platform_id, ts, button["value"]))

    # ---- out

    def buttons(self, ts: str) -> list[dict[str, Any]]:
        messages = [*self.fake.hidden.values(), *(one for all in self.fake.messages.values() for one in all)]
        (message,) = [one for one in messages if one["ts"] == ts]
        return [one for block in message.get("blocks") or () for one in block.get("elements", ())]

    @staticmethod
    def value_of(button: Mapping[str, Any]) -> str:
        return str(button["text"]["text"]).lower()

    async def arrived(self) -> Arrived:
        return self.seen(await self.fake.shown.get())

    def seen(self, shown: Shown) -> Arrived:
        message, ids = shown.message, (shown.ts,)
        address = Address("slack", self.instance, shown.channel or "?", message.get("thread_ts"))
        if shown.kind == "reaction":
            return Arrived(kind="reaction", ids=ids, emoji=character(message["name"]), on=message["on"])
        if shown.kind == "status":
            return Arrived(kind="typing", on=bool(message["status"]), address=address)
        if shown.kind == "delete":
            return Arrived(kind="delete", ids=ids)
        text = read(message)
        if shown.kind == "update":
            asked = shown.ts in self.asked
            return Arrived(kind="prompt_done" if asked else "edit", ids=ids, text=text, address=address)
        buttons = [one for block in message.get("blocks") or () for one in block.get("elements", ())]
        chosen = [decode(one.get("value", "")) for one in buttons]
        if any(chosen):
            self.asked.add(shown.ts)
        fake = self.fake
        files = tuple((one["name"], fake.contents[one["id"]]) for one in message.get("files") or ())
        return Arrived(
            kind="message",
            ids=ids,
            text=text,
            address=address,
            files=files,
            choices=tuple(self.value_of(one) for one in buttons if one.get("value")),
            prompt_id=next((one[0] for one in chosen if one is not None), ""),
        )

    @property
    def asked(self) -> set[str]:
        """Times of the questions that were seen."""
        return self.__dict__.setdefault("_asked", set())  # type: ignore[no-any-return]  # it holds what was put there

    async def fail_next(self, failure: FailureKind) -> None:
        said = _FAILURES[failure]
        if said is None:
            self.fake.drop_after_send(method=_MORE)
            return
        status, body, headers = said
        times = 2 if failure == "bad_content" else 1  # mrkdwn is tried when Markdown was refused
        self.fake.fail_next(status, body, headers, method=_MORE, times=times)

    async def recover(self) -> None:
        while not self.fake.shown.empty():
            self.fake.shown.get_nowait()

    async def hang(self) -> None:
        self.fake.freeze()
        self.fake.hang(times=100)

    # ---- for tests of ours

    @contextlib.asynccontextmanager
    async def running(
        self, folder: Path, memory: ChannelMemory | None = None, *, connected: bool = True, **settings: Any
    ) -> AsyncGenerator[tuple[SlackChannel, ChannelRecorder], None]:
        """The channel, started and joined; the workspace must be open."""
        channel = create(self.instance, {**self.settings, **settings})
        assert isinstance(channel, SlackChannel)
        context = ChannelRecorder("slack", self.instance, folder, secrets=self.secrets, memory=memory)
        await channel.start(context)
        try:
            self.channel = channel
            if connected:
                await context.until_ready()
                await self.join(channel, context)
            yield channel, context
        finally:
            await channel.stop()
            await context.close()
        assert not context.failed, context.failed


class EventsWorkspace(Workspace):
    """By requests of the Events API."""

    mode = "events"

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self.requests: dict[str, list[asyncio.Task[bool]]] = {}

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        self.channel = channel

    async def close(self) -> None:
        tasks = [task for some in self.requests.values() for task in some]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().close()

    async def post(self, payload: Mapping[str, Any], **how: Any) -> int:
        """What the channel's route answers to that payload, as the host would."""
        assert isinstance(self.channel, ServesRoutes)
        (route,) = self.channel.http_routes()
        answer = await route.handle(request_of(self.fake.signed(payload, **how)))
        return answer.status

    async def _accepted(self, payload: Mapping[str, Any], **how: Any) -> bool:
        try:
            return await self.post(payload, **how) == 200
        except Exception:  # noqa: BLE001 - the host answers 503
            return False

    async def deliver(self, said: Said, events: list[dict[str, Any]]) -> None:
        self.requests[said.id] = [asyncio.create_task(self._accepted(self.fake.callback(event))) for event in events]

    async def acknowledged(self, said: Said) -> bool:
        return all([await asyncio.shield(task) for task in self.requests[said.id]])

    async def click(self, question: Arrived, value: str, *, by: str = "ann") -> None:
        ts = question.ids[0]
        (button,) = [one for one in self.buttons(ts) if value == self.value_of(one)]
        assert question.address is not None
        pressed = self.fake.pressed(question.address.platform_id, ts, button["value"])
        assert await self._accepted(pressed, form=True)

    async def hang(self) -> None:
        self.fake.hang(times=100)
