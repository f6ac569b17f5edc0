"""A platform's other end for tests: an HTTP and WebSocket server of ours on 127.0.0.1, which fails as told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl

from aiohttp import web

__all__ = ["FakePlatform", "Recorded", "Reply"]

BOUND = 30.0
"""Seconds after which something that must happen counts as hung."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came; names in `headers` are in lower case.  `method` is the platform's word, `verb` HTTP's."""

    method: str
    verb: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    params: Mapping[str, str] = field(default_factory=dict)
    """What stood for the `{name}`s of the route's path."""
    peer: str = ""
    """The client's end of the connection, like `127.0.0.1:50123`."""

    def json(self) -> Any:
        return json.loads(self.body)

    def form(self) -> dict[str, str]:
        """The fields of an urlencoded body."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer.  `body` is sent as JSON unless it is bytes or text; None is an empty body."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[Recorded], Awaitable[Reply]]


@dataclass(slots=True)
class _Trouble:
    """What happens instead of, or after, the right answer."""

    kind: str  # fail, hang, drop
    method: str
    handled: bool
    reply: Reply


class FakePlatform:
    """Subclass it per platform: set `routes` up in `__init__` with `on`, keep the platform's state in attributes.

    ::

        class Telegram(FakePlatform):
            def __init__(self):
                super().__init__()
                self.on("POST", "/bot{token}/sendMessage", self.send_message)

        async with Telegram() as platform:
            platform.fail_next(429, {"parameters": {"retry_after": 3}}, method="sendMessage")
            channel = create("main", settings(url=platform.url))

    `method` below is the platform's own word for a request: the last segment of the path, unless `method_of` says
    otherwise; "*" is any.  Troubles are taken in the order in which they were set, each once (`times`).
    """

    ends_with_client: ClassVar[bool] = False
    """Whether a request is given up when its client goes away, as a long poll is."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.arrivals: asyncio.Queue[Any] = asyncio.Queue()
        """What waits for whoever polls or listens; a subclass takes from it."""
        self.sockets: list[web.WebSocketResponse] = []
        """The WebSockets that are open."""
        self.delay = 0.0
        """Slow mode: seconds before each answer."""
        self._routes: list[tuple[str, str, Handler]] = []
        self._socket_routes: list[tuple[str, Callable[[web.WebSocketResponse], Awaitable[None]]]] = []
        self._socket_transports: dict[web.WebSocketResponse, asyncio.WriteTransport] = {}
        self._troubles: list[_Trouble] = []
        self._changed = asyncio.Condition()
        self._released = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where it listens, like `http://127.0.0.1:40123`, without a slash at the end."""
        return f"http://127.0.0.1:{self._port}"

    def on(self, verb: str, path: str, handler: Handler) -> None:
        """Answer these requests by `handler(request) -> Reply`.  `path` as in aiohttp: `{name}`, `{rest:.*}`."""
        self._routes.append((verb, path, handler))

    def on_socket(self, path: str, handler: Callable[[web.WebSocketResponse], Awaitable[None]]) -> None:
        """Serve a WebSocket; it closes when the handler returns."""
        self._socket_routes.append((path, handler))

    def method_of(self, request: web.Request) -> str:
        """The platform's word for a request."""
        return request.path.rsplit("/", 1)[-1]

    def fail_next(
        self,
        status: int,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "*",
        times: int = 1,
    ) -> None:
        """Answer like this and do nothing."""
        self._add("fail", method, False, Reply(status, body, headers or {}), times)

    def hang(self, *, method: str = "*", handled: bool = False, times: int = 1) -> None:
        """Never answer (until `release` or the end); with `handled` the request is done all the same (C081)."""
        self._add("hang", method, handled, Reply(), times)

    def drop_after_send(self, *, method: str = "*", handled: bool = True, times: int = 1) -> None:
        """Do what was asked and cut the connection before the answer; without `handled` only cut."""
        self._add("drop", method, handled, Reply(), times)

    def release(self) -> None:
        """Let everything that hangs be answered with 503."""
        self._released.set()
        self._released = asyncio.Event()

    def sent(self, method: str) -> list[Recorded]:
        """The requests of a method so far."""
        return [request for request in self.requests if request.method == method]

    async def until(self, condition: Callable[[], bool], what: str = "a request", bound: float = BOUND) -> None:
        """Wait until the condition holds; it is looked at after each request.

        Raises:
            AssertionError: it did not within `bound` seconds.
        """
        try:
            async with asyncio.timeout(bound), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            raise AssertionError(f"waited {bound:g} s in vain for {what}") from None

    async def until_sent(self, method: str, count: int = 1) -> list[Recorded]:
        """Wait for so many requests of a method; all of them so far."""
        await self.until(lambda: len(self.sent(method)) >= count, f"{count} x {method}")
        return self.sent(method)

    async def until_connected(self, count: int = 1) -> None:
        """Wait for so many open WebSockets."""
        await self.until(lambda: len(self.sockets) >= count, f"{count} WebSockets")

    def cut_sockets(self) -> None:
        """Cut all WebSockets without saying goodbye."""
        for transport in self._socket_transports.values():
            transport.abort()

    async def start(self) -> None:
        """Listen on a free port."""
        app = web.Application(client_max_size=1024**3)
        for verb, path, handler in self._routes:
            app.router.add_route(verb, path, self._serve(handler))
        for path, serve in self._socket_routes:
            app.router.add_get(path, self._serve_socket(serve))
        app.router.add_route("*", "/{rest:.*}", self._serve(self.unknown))
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=self.ends_with_client
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close everything, also what hangs."""
        self.release()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def unknown(self, request: Recorded) -> Reply:
        """What is asked for at a path that nobody serves."""
        return Reply(404, {"error": f"no {request.verb} {request.path}"})

    def _add(self, kind: str, method: str, handled: bool, reply: Reply, times: int) -> None:
        self._troubles += [_Trouble(kind, method, handled, reply) for _ in range(times)]

    def _trouble_for(self, method: str) -> _Trouble | None:
        for trouble in self._troubles:
            if trouble.method in ("*", method):
                self._troubles.remove(trouble)
                return trouble
        return None

    def _serve(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            method = self.method_of(request)
            recorded = Recorded(
                method=method,
                verb=request.method,
                path=request.path,
                query=dict(request.query),
                headers={name.lower(): value for name, value in request.headers.items()},
                body=await request.read(),
                params=dict(request.match_info),
                peer=_peer(request),
            )
            trouble = self._trouble_for(method)
            self.requests.append(recorded)
            await self._tell()
            if self.delay:
                await asyncio.sleep(self.delay)
            if trouble is None:
                return _response(await handler(recorded))
            if trouble.handled:
                await handler(recorded)
            if trouble.kind == "hang":
                await self._released.wait()
                return web.Response(status=503)
            if trouble.kind == "drop" and request.transport is not None:
                request.transport.abort()
            return _response(trouble.reply)

        return serve

    def _serve_socket(
        self, handler: Callable[[web.WebSocketResponse], Awaitable[None]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            if request.transport is not None:
                self._socket_transports[socket] = request.transport
            async with self._listed(socket):
                await handler(socket)
            return socket

        return serve

    @contextlib.asynccontextmanager
    async def _listed(self, socket: web.WebSocketResponse) -> AsyncGenerator[None, None]:
        self.sockets.append(socket)
        await self._tell()
        try:
            yield
        finally:
            self.sockets.remove(socket)
            self._socket_transports.pop(socket, None)
            await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _peer(request: web.Request) -> str:
    name = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{name[0]}:{name[1]}" if name else ""


def _response(reply: Reply) -> web.Response:
    headers = dict(reply.headers)
    if reply.body is None:
        return web.Response(status=reply.status, headers=headers)
    if isinstance(reply.body, bytes):
        return web.Response(status=reply.status, headers=headers, body=reply.body)
    if isinstance(reply.body, str):
        return web.Response(status=reply.status, headers=headers, text=reply.body)
    return web.json_response(reply.body, status=reply.status, headers=headers)
