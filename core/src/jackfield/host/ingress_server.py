"""HTTP for the ingress: bounded in bytes, in time and in connections, so that no stranger can hold the host up.

The body is handed on raw, since signatures are made over raw bytes; nothing of a failure but its status goes out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from jackfield.api import HttpRoute, RawRequest, RawResponse
from jackfield.config import IngressSettings
from jackfield.errors import Conflict, JackfieldError
from jackfield.host.logs.records import bind

__all__ = ["IngressServer"]

log = logging.getLogger(__name__)
_wire_log = logging.getLogger(f"{__name__}.wire")
_wire_log.setLevel(logging.ERROR)  # that a stranger sends garbage is no news, and must not fill the disk

HEAD_DEADLINE = 10.0
"""Seconds until a request's head must be there, from its first byte or from the connection on."""
BODY_DEADLINE = 30.0
HANDLER_DEADLINE = 60.0
IDLE = 15.0
"""Seconds that a connection is kept without a request."""
DRAIN_DEADLINE = 2.0
"""Seconds for which the rest of a refused body is read and thrown away; a client that is cut off while it still sends
would not see why."""
CLOSE_GRACE = 2.0
HEAD_LIMIT = 32_768
"""Bytes after which a head must have ended."""
CONNECTIONS = 200
"""With more, requests are answered 503; all but those for `/healthz`, since the host is well."""

Routes = Mapping[str, HttpRoute]


class _TooLarge(Exception):
    """The body passed the limit."""


class _Line(H11Protocol):
    """A connection whose request heads have a deadline; uvicorn itself bounds only the pause between requests."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any]) -> None:
        super().__init__(config, server_state, app_state)
        self.access_log = False  # paths and queries may hold keys
        self.logger = _wire_log
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if not self._busy:
            self._expect_head()
        super().data_received(data)
        if self._busy:
            self._head_is_there()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_DEADLINE, self._too_slow)

    def _head_is_there(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self._deadline = None
        if not self._busy:
            self.transport.abort()


class IngressServer:
    """One listening socket, and the answers that `routes`, a table that may change any time, gives."""

    def __init__(self, settings: IngressSettings, routes: Routes, trouble: Callable[[str], None]) -> None:
        self._settings = settings
        self._routes = routes
        self._trouble = trouble
        self._state = ServerState()
        self._listener: asyncio.Server | None = None
        self.address = ""
        """`http://host:port`, once it is open."""

    async def open(self) -> None:
        """Listen.

        Raises:
            Conflict: the port is taken, or the address isn't one of this machine.
        """
        config = Config(
            self._serve,
            http=_Line,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=int(IDLE),
            h11_max_incomplete_event_size=HEAD_LIMIT,
        )
        config.load()
        wanted = self._settings
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                lambda: _Line(config, self._state, {}), wanted.host, wanted.port
            )
        except OSError as problem:
            raise Conflict(
                f"the ingress can't listen on {wanted.host}:{wanted.port}: {problem.strerror or problem}",
                fix="end what else listens there, or set another `host` or `port` in [ingress]; port 0 takes any free",
            ) from problem
        host, port = self._listener.sockets[0].getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        """Take no more connections, let requests end within the grace, then cut off what is left."""
        if self._listener is None:
            return
        self._listener.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if tasks := set(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=CLOSE_GRACE)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=CLOSE_GRACE)
        for connection in list(self._state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # what was cut off is closed in the loop's next round
        self._listener = None

    # ---- one request

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except _TooLarge:
            await _answer_while_it_sends(_plain(413, connection="close"), receive, send)
        else:
            await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.scope["raw_path"].decode("ascii")
        prefix = self._settings.path_prefix
        below = path[len(prefix) :] if path.startswith(prefix + "/") else ""
        if below == "/healthz":
            return JSONResponse({"status": "ok"}) if request.method in ("GET", "HEAD") else _not_allowed("GET", "HEAD")
        if len(self._state.connections) > CONNECTIONS:
            return _plain(503, connection="close", retry_after="5")
        route = self._routes.get(below)
        if route is None:
            return _plain(404)
        if request.method not in route.methods:
            return _not_allowed(*route.methods)
        try:
            async with asyncio.timeout(BODY_DEADLINE):
                body = await _body(request, min(route.max_bytes, self._settings.max_bytes))
        except TimeoutError:
            return _plain(408, connection="close")
        raw = RawRequest(
            method=request.method,
            path=route.path,
            query=request.scope["query_string"].decode("latin-1"),
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw),
            body=body,
            peer=request.client.host if request.client is not None else "",
        )
        return await self._handle(below, route, raw)

    async def _handle(self, below: str, route: HttpRoute, request: RawRequest) -> Response:
        bind(channel=below.split("/")[2])  # not the channel for whose sake the server was started
        try:
            async with asyncio.timeout(HANDLER_DEADLINE) as bound:
                answer = await route.handle(request)
            return _response(answer)
        except JackfieldError as problem:
            # Not stored, or the host stops: the platform shall come again.
            log.warning("%s %s is not answered: %s", request.method, below, problem)
            self._trouble("ingress")
            return _plain(503, retry_after="5")
        except Exception:
            self._trouble("ingress")
            if bound.expired():
                log.error("%s %s had no answer within %g s", request.method, below, HANDLER_DEADLINE)
                return _plain(504)
            log.exception("%s %s failed", request.method, below)
            return _plain(500)


async def _body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        _TooLarge: it is, or says that it will be, over the limit; no more than that was kept.
        ClientDisconnect: the other side is gone.
    """
    if int(request.headers.get("content-length", "0")) > limit:
        raise _TooLarge
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _TooLarge
    return bytes(body)


async def _answer_while_it_sends(response: Response, receive: Receive, send: Send) -> None:
    """Answer in full, then throw away what still comes, for a moment; the end of the answer closes the connection."""
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    try:
        async with asyncio.timeout(DRAIN_DEADLINE):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _response(answer: RawResponse) -> Response:
    response = Response(answer.body, answer.status)
    for name, value in answer.headers:
        if any(mark in name + value for mark in "\r\n\0"):
            raise ValueError(f"a handler's header {name!r} has a line break")
        if name.lower() not in ("content-length", "connection", "transfer-encoding"):
            response.headers.append(name, value)
    return response


def _plain(status: int, **headers: str) -> Response:
    """An answer that tells a stranger nothing."""
    return JSONResponse(
        {"error": _WORDS[status]}, status, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


def _not_allowed(*methods: str) -> Response:
    return _plain(405, allow=", ".join(methods))


_WORDS = {
    404: "there is nothing here",
    405: "this method is not allowed here",
    408: "the body did not come in time",
    413: "the body is too large",
    500: "something failed here",
    503: "not available now, try again",
    504: "it took too long",
}
