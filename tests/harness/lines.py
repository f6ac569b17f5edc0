"""One line of a town each: a platform, somebody who writes there, and what that person sees.

A line lives in the town's event loop.  `write` returns when the platform holds the text and will deliver it to whoever
asks or listens; `shown` is every new message of the bot in the person's chat, in order, doubles too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
import urllib.parse
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from jackfield_channel_kit.testing.irc import Inspircd, IrcPerson, Ngircd
from jackfield_channel_kit.testing.platform import FakePlatform, Recorded, Reply
from jackfield_channel_kit.testing.slack import SlackFake
from jackfield_channel_kit.testing.synapse import Account, MatrixRefused, Synapse
from jackfield_channel_kit.testing.telegram import TelegramFake
from jackfield_channel_kit.text.parse import from_slack
from jackfield_channel_kit.text.render import plain
from jackfield_channel_kit.verify import sign_standard

__all__ = ["IrcLine", "Line", "MatrixLine", "Post", "SlackLine", "TelegramLine", "WebhookLine"]

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[int]]
"""A request to a channel's route at the host's HTTP server, by instance: the status, 0 when nobody answers."""
HOOK_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AGAIN = 0.2
"""Seconds after which a platform repeats a call that was not taken."""


class Line(ABC):
    """`name` is the channel's instance, `chat` where the person writes."""

    type: str
    chat: str
    secrets: Mapping[str, str]
    keeps = True
    """Whether the platform keeps what is written while nobody listens."""
    idempotent = False
    """Whether a send that is repeated shows once."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def address(self) -> str:
        return f"{self.type}:{self.name}:{self.chat}"

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The channel's table, once the platform is open."""

    @abstractmethod
    async def open(self, post: Post) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def write(self, text: str) -> None: ...

    @abstractmethod
    async def shown(self) -> list[str]: ...


async def repeated(call: Callable[[], Awaitable[int]]) -> None:
    """Call until it is taken, as platforms do."""
    while not 200 <= await call() < 300:
        await asyncio.sleep(AGAIN)


class _Calls:
    """Calls that a platform makes beside each other, each until it is taken."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, call: Callable[[], Awaitable[int]]) -> None:
        task = asyncio.create_task(repeated(call))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class TelegramLine(Line):
    """By long poll, or by webhook."""

    type = "telegram"
    chat = "11"

    def __init__(self, name: str, *, webhook: bool = False) -> None:
        super().__init__(name)
        self.fake = TelegramFake(f"700100:AA-{name}-0123456789abcdefghijklmnop")
        self.secrets = {f"{name}-token": self.fake.token, f"{name}-hook": f"hook-{name}_0123456789"}
        self._webhook = webhook
        self._pump: asyncio.Task[None] | None = None
        self._texts: list[str] = []

    @property
    def settings(self) -> Mapping[str, Any]:
        more = {"webhook": True, "webhook_secret": f"{self.name}-hook"} if self._webhook else {}
        return {"api_url": self.fake.url, "token": f"{self.name}-token", "pacing": False, **more}

    async def open(self, post: Post) -> None:
        await self.fake.start()
        if self._webhook:
            self._pump = asyncio.create_task(self._call(post))

    async def _call(self, post: Post) -> None:
        headers = {"X-Telegram-Bot-Api-Secret-Token": self.secrets[f"{self.name}-hook"]}
        while True:
            while not (self.fake.updates and self.fake.webhook["url"]):
                await asyncio.sleep(0.05)
            body = json.dumps(self.fake.updates[0]).encode()
            await repeated(partial(post, self.name, headers, body))
            del self.fake.updates[0]

    async def close(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
        await self.fake.stop()

    async def write(self, text: str) -> None:
        await self.fake.say(text, chat=int(self.chat))

    async def shown(self) -> list[str]:
        while not self.fake.seen.empty():
            seen = self.fake.seen.get_nowait()
            if seen.kind == "message":
                self._texts.append(seen.text if str(seen.chat) == self.chat else f"in {seen.chat}: {seen.text}")
        return list(self._texts)

    def fail_next(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        self.fake.fail_next(status, body, headers, method="sendMessage")

    def revoke(self) -> None:
        self.fake.revoked = True

    def renew(self, token: str) -> None:
        self.fake.revoked, self.fake.token = False, token


class SlackLine(Line):
    """By Socket Mode, or by the Events API."""

    type = "slack"
    chat = "D00000ONE"

    def __init__(self, name: str, *, events: bool = False) -> None:
        super().__init__(name)
        self.fake = SlackFake(
            bot_token=f"xoxb-secret-{name}",
            app_token=f"xapp-secret-{name}",
            signing_secret=f"signing-{name}-0123456789",
        )
        self.secrets = {
            f"{name}-bot": self.fake.bot_token,
            f"{name}-app": self.fake.app_token,
            f"{name}-signing": self.fake.signing_secret,
        }
        self._events = events
        self._post: Post | None = None
        self._calls = _Calls()
        self._texts: list[str] = []

    @property
    def settings(self) -> Mapping[str, Any]:
        how = {"mode": "events", "signing_secret": [f"{self.name}-signing"]} if self._events else {}
        app = {} if self._events else {"app_token": f"{self.name}-app"}
        return {"api_url": self.fake.api_url, "bot_token": f"{self.name}-bot", **how, **app}

    async def open(self, post: Post) -> None:
        self._post = post
        await self.fake.start()

    async def close(self) -> None:
        await self._calls.end()
        await self.fake.stop()

    async def write(self, text: str) -> None:
        event = self.fake.say(text, channel=self.chat)
        if not self._events:
            self.fake.tell(event)
            return
        payload, post = self.fake.callback(event), self._post
        assert post is not None

        async def call() -> int:
            signed = self.fake.signed(payload)
            return await post(self.name, dict(signed.headers), signed.body)

        self._calls.begin(call)

    async def shown(self) -> list[str]:
        while not self.fake.shown.empty():
            seen = self.fake.shown.get_nowait()
            if seen.kind == "message":
                text = seen.message.get("markdown_text")
                text = plain(from_slack(seen.message["text"], users={}, channels={}) if text is None else text)
                self._texts.append(text if seen.channel == self.chat else f"in {seen.channel}: {text}")
        return list(self._texts)

    def fail_next(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        self.fake.fail_next(status, body, headers, method="chat.postMessage")

    def revoke(self) -> None:
        self.fake.revoked = True

    def renew(self, token: str) -> None:
        self.fake.revoked, self.fake.bot_token = False, token


class MatrixLine(Line):
    """An account of its own on a homeserver that may be shared."""

    type = "matrix"
    idempotent = True

    def __init__(self, name: str, synapse: Synapse) -> None:
        super().__init__(name)
        self.synapse = synapse
        self._known: list[str] = []
        self.ann: Account
        self.bot: Account

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"homeserver": self.synapse.url, "token": f"{self.name}-token"}

    async def open(self, post: Post) -> None:
        self.ann = await self.synapse.register(f"ann-{self.name}")
        self.bot = await self.synapse.register(f"bot-{self.name}")
        self.secrets = {f"{self.name}-token": self.bot.token}
        body = {"preset": "trusted_private_chat", "is_direct": True, "invite": [self.bot.user_id]}
        made = await self._call("POST", "createRoom", body)
        self.chat = made["room_id"]
        await self.synapse.call("POST", f"/_matrix/client/v3/join/{self._room}", {}, token=self.bot.token)

    @property
    def _room(self) -> str:
        return urllib.parse.quote(self.chat, safe="")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        return await self.synapse.call(method, f"/_matrix/client/v3/{path}", body, token=self.ann.token)

    async def close(self) -> None:
        return None

    async def write(self, text: str) -> None:
        path = f"rooms/{self._room}/send/m.room.message/{os.urandom(8).hex()}"
        await self._call("PUT", path, {"msgtype": "m.text", "body": text})

    async def shown(self) -> list[str]:
        """What was last seen, while the homeserver is away."""
        with contextlib.suppress(MatrixRefused, OSError):
            got = await self._call("GET", f"rooms/{self._room}/messages?dir=f&limit=500")
            self._known = [
                event["content"]["body"]
                for event in got["chunk"]
                if event["sender"] == self.bot.user_id
                and event["type"] == "m.room.message"
                and event["content"].get("m.relates_to", {}).get("rel_type") != "m.replace"
            ]
        return list(self._known)


class IrcLine(Line):
    """A room on a network of its own."""

    type = "irc"
    chat = "#group"
    keeps = False
    secrets: Mapping[str, str] = {}

    def __init__(self, name: str, engine: Ngircd | Inspircd) -> None:
        super().__init__(name)
        self.engine = engine
        self.ann = IrcPerson("ann")

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "host": "127.0.0.1", "port": self.engine.port, "tls": False, "nick": "miso", "channels": [self.chat],
            "burst": 5, "line_seconds": 0.1,
        }  # fmt: skip

    async def open(self, post: Post) -> None:
        await self.engine.start()
        await self.ann.connect(self.engine.port)
        await self.ann.join(self.chat)

    async def close(self) -> None:
        await self.ann.close()
        await self.engine.stop()

    async def write(self, text: str) -> None:
        self.ann.line(f"PRIVMSG {self.chat} :{text}")
        await self.ann.sync()

    async def shown(self) -> list[str]:
        found = [re.match(r"(?:@\S+ )?:miso_*!\S+ PRIVMSG (\S+) :(.*)", line) for line in self.ann.seen]
        return [one[2] if one[1] == self.chat else f"in {one[1]}: {one[2]}" for one in found if one is not None]


class _Receiver(FakePlatform):
    """Where answers are posted to; it drops what it has had, as Standard Webhooks asks."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, str] = {}
        self.on("POST", "/answers", self._take)

    async def _take(self, request: Recorded) -> Reply:
        self.answers.setdefault(request.headers["webhook-id"], request.json()["data"]["text"])
        return Reply(204)


class WebhookLine(Line):
    """A signed POST in, a signed POST out."""

    type = "webhook"
    idempotent = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.chat = name
        self.secrets = {f"{name}-secret": HOOK_SECRET}
        self.fake = _Receiver()
        self._post: Post | None = None
        self._calls = _Calls()

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "secrets": [f"{self.name}-secret"], "url": f"{self.fake.url}/answers", "allow_private": True,
            "idempotent": True, "map": {"text": "$.text", "user": "$.user"},
        }  # fmt: skip

    async def open(self, post: Post) -> None:
        self._post = post
        await self.fake.start()

    async def close(self) -> None:
        await self._calls.end()
        await self.fake.stop()

    async def write(self, text: str) -> None:
        body, message_id, post = json.dumps({"text": text, "user": "ann"}).encode(), os.urandom(8).hex(), self._post
        assert post is not None

        async def call() -> int:
            return await post(self.name, dict(sign_standard(message_id, body, [HOOK_SECRET], time.time())), body)

        self._calls.begin(call)

    async def shown(self) -> list[str]:
        return list(self.fake.answers.values())

    def fail_next(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
        self.fake.fail_next(status, body, headers)
