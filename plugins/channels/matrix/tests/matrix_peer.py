"""People on a real Synapse, and a line between it and the channel that can be cut, slowed and told what to answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import ClientError, ClientSession, ClientTimeout, web
from jackfield.api import Channel
from jackfield.models import Address
from jackfield.testing import Arrived, ChannelRecorder, Peer, Said
from jackfield.testing.contracts import FailureKind
from jackfield_channel_kit.testing.synapse import Account, MatrixRefused, Synapse

__all__ = ["CLIENT", "Line", "MatrixPeer", "Person", "World", "quoted"]

CLIENT = "/_matrix/client/v3"
_numbers = itertools.count(1)

Answer = tuple[int, dict[str, Any]]

_FAILURES: dict[FailureKind, Answer] = {
    "rate_limited": (429, {"errcode": "M_LIMIT_EXCEEDED", "error": "Too many requests", "retry_after_ms": 300}),
    "transient": (502, {}),
    "auth": (401, {"errcode": "M_UNKNOWN_TOKEN", "error": "Invalid access token passed."}),
    "not_allowed": (403, {"errcode": "M_FORBIDDEN", "error": "You can't write here."}),
    "not_found": (404, {"errcode": "M_NOT_FOUND", "error": "Unknown room"}),
    "too_large": (413, {"errcode": "M_TOO_LARGE", "error": "event too large"}),
    "bad_content": (400, {"errcode": "M_BAD_JSON", "error": "Content must be a JSON object."}),
}


class Line:
    """A proxy before the homeserver on 127.0.0.1.

    `script` holds answers for the next sends; with `lose` a send is done and its answer lost; `hold` leaves everything
    without an answer.
    """

    def __init__(self, synapse: Synapse) -> None:
        self._synapse = synapse
        self.script: list[Answer] = []
        self.lose = 0
        self.held = False
        self.requests: list[tuple[str, str]] = []
        self.hosts: set[str] = set()
        """Whom they were for."""
        self.syncs: list[tuple[str, str, str]] = []
        """Of each answered sync: where it began, where it ended, its text."""
        self.asked_since: list[str] = []
        self.changed = asyncio.Event()
        self.url = ""
        self._runner: web.AppRunner | None = None
        self._session: ClientSession | None = None

    async def open(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._session = ClientSession(timeout=ClientTimeout(total=120), auto_decompress=False)

    async def close(self) -> None:
        assert self._runner is not None and self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    def count(self, method: str, part: str) -> int:
        return sum(one == method and part in path for one, path in self.requests)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def _tell(self) -> None:
        self.changed.set()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        path = request.raw_path
        if path.startswith("http://"):  # asked as a proxy
            path = "/" + path.split("/", 3)[3]
        self.requests.append((request.method, path))
        self.hosts.add(request.host)
        if (since := request.query.get("since")) is not None:
            self.asked_since.append(since)
        self._tell()
        if self.held:
            await asyncio.Event().wait()
        sending = "/send/" in path and request.method == "PUT"
        if sending and self.script:
            status, said = self.script.pop(0)
            return web.json_response(said, status=status)
        try:
            async with self._session.request(
                request.method,
                self._synapse.url + path,
                data=await request.read(),
                headers={k: v for k, v in request.headers.items() if k.lower() in ("authorization", "content-type")},
            ) as answer:
                body = await answer.read()
                headers = {k: v for k, v in answer.headers.items() if k.lower() in _KEPT}
                status = answer.status
        except (ClientError, TimeoutError, OSError):
            assert request.transport is not None
            request.transport.abort()
            return web.Response(status=502)
        if "/sync?" in path and status == 200:
            self.syncs.append((request.query.get("since", ""), json.loads(body)["next_batch"], body.decode()))
            self._tell()
        if sending and self.lose:
            self.lose -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=status, body=body, headers=headers)


def quoted(part: str) -> str:
    return quote(part, safe="")


_KEPT = ("content-type", "content-disposition", "retry-after")


class Person:
    """Somebody with a client of their own."""

    def __init__(self, synapse: Synapse, account: Account) -> None:
        self.synapse = synapse
        self.account = account

    @property
    def id(self) -> str:
        return self.account.user_id

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await self.synapse.call(method, path, body, token=self.account.token)

    async def room(self, *, invite: tuple[str, ...] = (), direct: bool = False, **more: Any) -> str:
        preset = "trusted_private_chat" if direct else "private_chat"
        body = {"preset": preset, "is_direct": direct, "invite": list(invite), **more}
        return str((await self.call("POST", f"{CLIENT}/createRoom", body))["room_id"])

    async def join(self, room: str) -> None:
        await self.call("POST", f"{CLIENT}/join/{quoted(room)}", {})

    async def say(self, room: str, text: str, **more: Any) -> str:
        return await self.send(room, {"msgtype": "m.text", "body": text, **more})

    async def send(self, room: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        path = f"{CLIENT}/rooms/{quoted(room)}/send/{kind}/{os.urandom(8).hex()}"
        return str((await self.call("PUT", path, content))["event_id"])

    async def redact(self, room: str, event_id: str) -> None:
        path = f"{CLIENT}/rooms/{quoted(room)}/redact/{quoted(event_id)}/{os.urandom(8).hex()}"
        await self.call("PUT", path, {})

    async def edit(self, room: str, event_id: str, text: str) -> str:
        new = {"msgtype": "m.text", "body": text}
        relates = {"rel_type": "m.replace", "event_id": event_id}
        return await self.send(room, {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": relates})

    async def upload(self, name: str, data: bytes) -> str:
        got = await self.call("POST", f"/_matrix/media/v3/upload?filename={name}", data)
        return str(got["content_uri"])

    async def messages(self, room: str) -> list[dict[str, Any]]:
        """All events of the room, oldest first."""
        got = await self.call("GET", f"{CLIENT}/rooms/{quoted(room)}/messages?dir=f&limit=500")
        return list(got["chunk"])


@dataclass(frozen=True)
class World:
    """Ann, Bo and the bot, in the rooms `one` (Ann and the bot, direct) and `group`; `t1` is a thread in `one`."""

    people: tuple[Person, Person, Person]
    rooms: Mapping[str, str]
    threads: Mapping[str, str]


_worlds: dict[tuple[str, str], World] = {}
"""By homeserver and instance: making one takes seconds, and most tests leave it as it was."""


async def _made(synapse: Synapse) -> World:
    number = next(_numbers)
    ann, bo, bot = [
        Person(synapse, await synapse.register(f"{name}-{os.getpid()}-{number}")) for name in ("ann", "bo", "bot")
    ]
    one = await ann.room(invite=(bot.id,), direct=True)
    group = await ann.room(invite=(bot.id, bo.id), name="Group")
    for person, room in ((bot, one), (bot, group), (bo, group)):
        await person.join(room)
    return World((ann, bo, bot), {"one": one, "group": group}, {"t1": await ann.say(one, "root of t1")})


class MatrixPeer(Peer):
    """The people of a `World`, of this test's own with `fresh`."""

    failures = frozenset(_FAILURES)

    def __init__(self, synapse: Synapse, instance: str, *, fresh: bool = False) -> None:
        super().__init__(instance)
        self.synapse = synapse
        self.line = Line(synapse)
        self.rooms: dict[str, str] = {}
        self.threads: dict[str, str] = {}
        self.events: dict[str, str] = {}
        self.seen: asyncio.Queue[Arrived] = asyncio.Queue()
        self._reactions: dict[str, str] = {}
        self._fresh = fresh
        self._watching: asyncio.Task[None] | None = None
        self.ann: Person
        self.bo: Person
        self.bot: Person

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"homeserver": self.line.url or "http://127.0.0.1:1", "token": "matrix-token", "stream_interval": 0.5}

    @property
    def secrets(self) -> Mapping[str, str]:
        return {"matrix-token": self.bot.account.token}

    async def open(self) -> None:
        await self.line.open()
        world = _worlds.get((self.synapse.url, self.instance))
        if world is None or self._fresh:
            world = await _made(self.synapse)
            if not self._fresh:
                _worlds[self.synapse.url, self.instance] = world
        self.ann, self.bo, self.bot = world.people
        self.rooms, self.threads = dict(world.rooms), dict(world.threads)
        since = (await self.ann.call("GET", f"{CLIENT}/sync?timeout=0"))["next_batch"]
        self._watching = asyncio.create_task(self._watch(since))

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
        await self.line.close()

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        return None

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        room = self.rooms.get(chat, f"!{chat}:localhost")
        return Address("matrix", self.instance, room, self.threads[thread] if thread is not None else None)

    async def write(self, said: Said) -> None:
        person = self.bot if said.own else self.bo if said.bot else self.ann
        chat = "group" if said.bot else said.chat
        content: dict[str, Any] = {"msgtype": "m.notice" if said.bot else "m.text", "body": said.text}
        content["m.mentions"] = {"user_ids": [self.bot.id]} if said.mention else {}
        for name, data in said.files:
            mime = "image/png" if name.endswith(".png") else "application/octet-stream"
            content |= {"msgtype": "m.image", "filename": name, "url": await person.upload(name, data)}
            content["info"] = {"mimetype": mime, "size": len(data)}
        if said.thread is not None:
            root = self.threads[said.thread]
            reply = {"m.in_reply_to": {"event_id": root}, "is_falling_back": True}
            content["m.relates_to"] = {"rel_type": "m.thread", "event_id": root, **reply}
        with contextlib.suppress(MatrixRefused):  # too large, or with characters that it does not take
            self.events[said.id] = await person.send(self.rooms[chat], content)

    async def redeliver(self, said: Said) -> None:
        """The channel reads the sync again from where its cursor stands; a homeserver repeats nothing by itself."""
        return None

    async def arrived(self) -> Arrived:
        return await self.seen.get()

    async def acknowledged(self, said: Said) -> bool:
        """The next sync begins after the message."""
        event_id = self.events[said.id]

        def after() -> bool:
            ends = [end for _, end, text in self.line.syncs if event_id in text]
            return any(end in self.line.asked_since for end in ends)

        await self.line.until(after, "the sync to go on")
        return True

    async def fail_next(self, failure: FailureKind) -> None:
        self.line.script.append(_FAILURES[failure])

    async def recover(self) -> None:
        self.line.script.clear()
        await asyncio.sleep(0.35)  # what the homeserver asked for

    async def edit(self, said: Said, text: str) -> None:
        await self.ann.edit(self.rooms[said.chat], self.events[said.id], text)

    async def hang(self) -> None:
        self.line.held = True

    # ---- what Ann sees

    async def _watch(self, since: str) -> None:
        while True:
            try:
                answer = await self.ann.call("GET", f"{CLIENT}/sync?timeout=2000&since={since}")
            except (MatrixRefused, OSError):
                await asyncio.sleep(0.1)
                continue
            since = answer["next_batch"]
            for room_id, room in answer.get("rooms", {}).get("join", {}).items():
                for event in room["timeline"]["events"]:
                    if event["sender"] == self.bot.id and "state_key" not in event:
                        await self._look(room_id, event)
                for event in room["ephemeral"]["events"]:
                    if event["type"] == "m.typing":
                        on = self.bot.id in event["content"]["user_ids"]
                        self.seen.put_nowait(Arrived(kind="typing", on=on, address=self._where(room_id, {})))

    async def _look(self, room_id: str, event: dict[str, Any]) -> None:
        content: dict[str, Any]
        content, kind = event["content"], event["type"]
        relates = content.get("m.relates_to", {})
        where = self._where(room_id, relates)
        if kind == "m.room.redaction":
            target = str(content.get("redacts") or event.get("redacts"))
            emoji = self._reactions.get(target)
            if emoji is not None:
                self.seen.put_nowait(Arrived(kind="reaction", emoji=emoji, on=False, address=where))
            else:
                self.seen.put_nowait(Arrived(kind="delete", ids=(target,), address=where))
        elif kind == "m.reaction":
            self._reactions[event["event_id"]] = relates["key"]
            self.seen.put_nowait(Arrived(kind="reaction", emoji=relates["key"], address=where))
        elif relates.get("rel_type") == "m.replace":
            text = content["m.new_content"]["body"]
            self.seen.put_nowait(Arrived(kind="edit", ids=(relates["event_id"],), text=text, address=where))
        elif "body" in content:
            files: tuple[tuple[str, bytes], ...] = ()
            if "url" in content:
                path = "/_matrix/client/v1/media/download/" + content["url"].removeprefix("mxc://")
                files = ((content["filename"], await self.ann.call("GET", path)),)
            ids = (event["event_id"],)
            self.seen.put_nowait(Arrived(kind="message", ids=ids, text=content["body"], files=files, address=where))

    def _where(self, room_id: str, relates: Mapping[str, Any]) -> Address:
        thread = relates.get("event_id") if relates.get("rel_type") == "m.thread" else None
        return Address("matrix", self.instance, room_id, thread)
