"""Slack's other end for tests: the Web API with its limits, Socket Mode, and requests of the Events API, signed.

It is driven and checked by Slack's own SDK in the tests of the slack channel.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from aiohttp import WSMsgType, web

from jackfield_channel_kit.testing.platform import FakePlatform, Recorded, Reply
from jackfield_channel_kit.testing.slack_methods import Refusal, SlackMethods

__all__ = ["Envelope", "Shown", "SignedRequest", "SlackFake"]

_numbers = itertools.count(1)
_STRUCTURED = ("blocks", "chunks", "files")
"""Arguments that are JSON in a form."""


@dataclass
class Envelope:
    """Something that Slack tells the app over a socket, until it is acknowledged."""

    kind: str
    payload: dict[str, Any]
    id: str = field(default_factory=lambda: f"env-{next(_numbers)}")
    attempt: int = 0
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    sent: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Shown:
    """Something that people see: `kind` is message, update, delete, reaction, status, ephemeral or response."""

    kind: str
    channel: str
    ts: str
    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request of the Events API, ready to be sent to the app's URL."""

    body: bytes
    headers: tuple[tuple[str, str], ...]


class SlackFake(SlackMethods, FakePlatform):
    """One workspace with one app in it.

    `say`, `tell` and `press` make what people do; what the app does is in `shown`, in order, and in `messages`.
    Envelopes go to one of the open sockets; those of a socket that is lost without acknowledging come again over the
    next, with a higher `retry_attempt`.
    """

    def __init__(
        self,
        *,
        team: str = "T0000001",
        bot_user: str = "U0000BOT",
        bot_id: str = "B0000BOT",
        bot_token: str = "xoxb-000-bot",
        app_token: str = "xapp-000-app",
        signing_secret: str = "0123456789abcdef",
        enterprise: str | None = None,
    ) -> None:
        super().__init__()
        self.team, self.bot_user, self.bot_id, self.enterprise = team, bot_user, bot_id, enterprise
        self.bot_token, self.app_token, self.signing_secret = bot_token, app_token, signing_secret
        self.shown: asyncio.Queue[Shown] = asyncio.Queue()
        self.envelopes: list[Envelope] = []
        """All that were made, in order."""
        self.prepare_state()
        self._outbox: asyncio.Queue[Envelope] = asyncio.Queue()
        self._retiring: set[web.WebSocketResponse] = set()
        self._frozen = asyncio.Event()
        for verb in ("GET", "POST"):
            self.on(verb, "/api/{method}", self._method)
        self.on("POST", "/upload/{file}", self.upload)
        self.on("GET", "/files/{file}/{name}", self.file_bytes)
        self.on("POST", "/response/{ts}", self.response)
        self.on_socket("/link", self._link)

    @property
    def api_url(self) -> str:
        return f"{self.url}/api"

    def see(self, kind: str, channel: str, ts: str, message: Mapping[str, Any]) -> None:
        self.shown.put_nowait(Shown(kind, channel, ts, dict(message)))

    # ---- what people do

    def say(
        self,
        text: str,
        *,
        channel: str,
        user: str = "U00000ANN",
        ts: str | None = None,
        thread: str | None = None,
        kind: str = "message",
        **more: Any,
    ) -> dict[str, Any]:
        """The event of a message, which lies in the conversation from now on; `tell` it."""
        ts = ts or self.new_ts()
        event: dict[str, Any] = {"type": kind, "user": user, "text": text, "ts": ts, "channel": channel}
        event |= {"event_ts": ts, "team": self.team}
        if kind == "message":
            event["channel_type"] = self.channel_type(channel)
        if thread is not None:
            root = self.find(channel, thread)
            event |= {"thread_ts": thread, "parent_user_id": root["user"] if root else "U00000ANN"}
        event |= more
        event = {name: value for name, value in event.items() if value is not None}
        if self.find(channel, ts) is None:
            self.messages.setdefault(channel, []).append({**event, "type": "message"})
        return event

    def callback(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The outer part of an event; each delivery has an id of its own, as Slack's sometimes have."""
        installed = {"enterprise_id": self.enterprise, "team_id": self.team, "user_id": self.bot_user, "is_bot": True}
        return {
            "type": "event_callback",
            "token": "deprecated",
            "team_id": self.team,
            "api_app_id": "A0000001",
            "event_id": f"Ev{next(_numbers):08}",
            "event_time": int(time.time()),
            "authorizations": [installed],
            "event": dict(event),
        }

    def pressed(
        self, channel: str, ts: str, value: str, *, user: str = "U00000ANN", hidden: bool = False
    ) -> dict[str, Any]:
        """The payload of a click on the button with that value, on a message in the conversation."""
        message = self.find(channel, ts) or self.hidden.get(ts) or {}
        container = {"type": "message", "message_ts": ts, "channel_id": channel, "is_ephemeral": hidden}
        if "thread_ts" in message:
            container["thread_ts"] = message["thread_ts"]
        payload: dict[str, Any] = {
            "type": "block_actions",
            "user": {"id": user, "username": "ann", "name": "ann", "team_id": self.team},
            "team": {"id": self.team, "domain": "fake"},
            "container": container,
            "channel": {"id": channel, "name": "somewhere"},
            "trigger_id": f"{next(_numbers)}.1.x",
            "response_url": f"{self.url}/response/{ts}",
            "actions": [{"type": "button", "action_id": value, "value": value, "action_ts": self.new_ts()}],
        }
        return payload if hidden else payload | {"message": message}

    # ---- Socket Mode

    def tell(self, event: Mapping[str, Any]) -> Envelope:
        """Send an event over a socket."""
        return self.put(Envelope("events_api", self.callback(event)))

    def press(self, payload: Mapping[str, Any]) -> Envelope:
        """Send a click over a socket."""
        return self.put(Envelope("interactive", dict(payload)))

    def put(self, envelope: Envelope) -> Envelope:
        """Send an envelope over a socket, or again."""
        if envelope not in self.envelopes:
            self.envelopes.append(envelope)
        self._outbox.put_nowait(envelope)
        return envelope

    async def disconnect(self, reason: str = "refresh_requested") -> None:
        """Give the open sockets up: they are told, get nothing new, and are the app's to let go."""
        for socket in list(self.sockets):
            self._retiring.add(socket)
            await socket.send_json({"type": "disconnect", "reason": reason, "debug_info": {"host": "fake"}})

    def freeze(self) -> None:
        """From now on the sockets stay open, and nobody reads or answers."""
        self._frozen.set()

    async def _link(self, socket: web.WebSocketResponse) -> None:
        hello = {"type": "hello", "num_connections": len(self.sockets), "connection_info": {"app_id": "A0000001"}}
        await socket.send_json({**hello, "debug_info": {"host": "fake", "approximate_connection_time": 18060}})
        open_ones: dict[str, Envelope] = {}
        feeding = asyncio.create_task(self._feed(socket, open_ones))
        reading = asyncio.create_task(self._read_acknowledgements(socket, open_ones))
        freezing = asyncio.create_task(self._frozen.wait())
        try:
            await asyncio.wait({reading, freezing}, return_when=asyncio.FIRST_COMPLETED)
            while self._frozen.is_set() and not self._socket_transports[socket].is_closing():
                reading.cancel()
                await asyncio.sleep(0.02)
        finally:
            for task in (feeding, reading, freezing):
                task.cancel()
            await asyncio.gather(feeding, reading, freezing, return_exceptions=True)
            self._retiring.discard(socket)
            for envelope in open_ones.values():
                envelope.attempt += 1
                self._outbox.put_nowait(envelope)

    @staticmethod
    async def _read_acknowledgements(socket: web.WebSocketResponse, open_ones: dict[str, Envelope]) -> None:
        async for frame in socket:
            if frame.type is WSMsgType.TEXT:
                envelope = open_ones.pop(str(json.loads(frame.data).get("envelope_id")), None)
                if envelope is not None:
                    envelope.acknowledged.set()

    async def _feed(self, socket: web.WebSocketResponse, open_ones: dict[str, Envelope]) -> None:
        while True:
            envelope = await self._outbox.get()
            if socket in self._retiring or socket.closed or self._frozen.is_set():
                self._outbox.put_nowait(envelope)
                await asyncio.sleep(0.01)
                continue
            open_ones[envelope.id] = envelope
            frame = {"envelope_id": envelope.id, "type": envelope.kind, "payload": envelope.payload}
            await socket.send_json(
                {**frame, "accepts_response_payload": envelope.kind == "interactive", "retry_attempt": envelope.attempt}
            )
            envelope.sent.set()

    # ---- Events API

    def signed(
        self, payload: Mapping[str, Any], *, form: bool = False, retry: int | None = None, secret: str | None = None,
        at: float | None = None,
    ) -> SignedRequest:  # fmt: skip
        """A payload as Slack's request: JSON, or with `form` as interactive ones come."""
        raw = json.dumps(payload)
        body = (urlencode({"payload": raw}) if form else raw).encode()
        stamp = str(int(time.time() if at is None else at))
        key = (secret or self.signing_secret).encode()
        signature = "v0=" + hmac.new(key, f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        headers = [("content-type", kind), ("x-slack-request-timestamp", stamp), ("x-slack-signature", signature)]
        if retry is not None:
            headers += [("x-slack-retry-num", str(retry)), ("x-slack-retry-reason", "http_timeout")]
        return SignedRequest(body, tuple(headers))

    # ---- the Web API

    async def _method(self, request: Recorded) -> Reply:
        name = request.params["method"]
        found = getattr(self, "_" + name.replace(".", "_"), None)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        headers = {"x-oauth-scopes": ",".join(self.scopes)}
        try:
            if found is None:
                raise Refusal("unknown_method")
            wanted = self.app_token if name == "apps.connections.open" else self.bot_token
            if not token and name != "api.test":
                raise Refusal("not_authed")
            if (token != wanted or self.revoked) and name != "api.test":
                raise Refusal("token_revoked" if self.revoked and token == wanted else "invalid_auth")
            arguments = _arguments(request)
            return Reply(200, {"ok": True, **found(arguments)}, headers)
        except Refusal as problem:
            return Reply(200, {"ok": False, "error": problem.code, **problem.more}, headers)

    def _apps_connections_open(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"url": f"{self.url.replace('http', 'ws', 1)}/link?ticket={next(_numbers)}"}


def _arguments(request: Recorded) -> dict[str, Any]:
    if request.verb == "GET":
        return dict(request.query)
    if request.headers.get("content-type", "").startswith("application/json"):
        found = request.json() if request.body else {}
        if not isinstance(found, dict):
            raise Refusal("invalid_json")
        return found
    form = {**request.query, **request.form()}
    return {name: json.loads(value) if name in _STRUCTURED else value for name, value in form.items()}
