"""The control socket: newline-delimited JSON over `host.sock`, 0600, the peer's uid checked.

Request ``{"id": 1, "op": "session.list", "args": {}}``; answer ``{"id": 1, "ok": true, "result": ...}`` or
``{"id": 1, "ok": false, "error": {"code": "NotFound", "message": "...", "fix": "..."}}``.  Requests of one connection
are answered side by side.  ``channel.attach`` hands the connection over to a channel: after its answer both sides
exchange plain objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jackfield import errors
from jackfield.config.home import Home
from jackfield.errors import JackfieldError, MalformedData, NoHost, NotAllowed, UsageError
from jackfield.mailbox.doorbell import peer_uid_of, short_address
from jackfield.redaction import REDACTOR

__all__ = ["Client", "ClientConnection", "ControlServer", "perform"]

log = logging.getLogger(__name__)

MAX_LINE = 8 * 1024 * 1024
CONNECT_TIMEOUT = 5.0
REQUESTS_AT_ONCE = 64
"""Of one connection.  No more is read from it until one of them is answered, and the answer taken."""

Operation = Callable[[dict[str, Any]], Awaitable[Any]]
Attach = Callable[["ServerConnection", dict[str, Any]], Awaitable[Callable[[], Awaitable[None]]]]


def error_body(problem: JackfieldError) -> dict[str, Any]:
    """A `JackfieldError` as it crosses the socket."""
    return {"code": problem.code, "message": problem.message, "fix": problem.fix}


def error_from(body: object) -> JackfieldError:
    """The exception behind an error body: of its class where we know it, so that exit codes survive the socket."""
    fields = body if isinstance(body, dict) else {}
    message, fix = str(fields.get("message", "the host failed")), fields.get("fix")
    kind = getattr(errors, str(fields.get("code", "")), None)
    problem: JackfieldError
    if isinstance(kind, type) and issubclass(kind, JackfieldError):
        problem = kind.__new__(kind)
        JackfieldError.__init__(problem, message, fix=str(fix) if fix else None)
        return problem
    return JackfieldError(message, fix=str(fix) if fix else None)


class _Lines:
    """JSON objects over one stream connection, both ways."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._sending = asyncio.Lock()

    async def receive(self) -> dict[str, Any] | None:
        """The next object; None at the end.

        Raises:
            MalformedData: a line that is no JSON object, or too long.
        """
        try:
            line = await self._reader.readline()
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        except ValueError:
            raise MalformedData(f"a line over {MAX_LINE:,} bytes") from None
        if not line:
            return None
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise MalformedData("a line that is not JSON") from None
        if not isinstance(value, dict):
            raise MalformedData("a line that is not an object")
        return value

    async def send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._sending:
            self._writer.write(data)
            await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError, OSError):
            await self._writer.wait_closed()


class ServerConnection(_Lines):
    """The host's end of a connection; what a channel's `attach` is given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer_user: str) -> None:
        super().__init__(reader, writer)
        self._peer_user = peer_user

    @property
    def peer_user(self) -> str:
        return self._peer_user


class ClientConnection(_Lines):
    """A client's end of an attachment."""


class ControlServer:
    """Serves `host.sock` until closed."""

    def __init__(self, home: Home, operations: Callable[[str], Operation | None], attach: Attach) -> None:
        self._home = home
        self._operations = operations
        self._attach = attach
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen.  The caller holds `host.lock`, so that a socket which lies there is a dead host's.

        Raises:
            OSError: the socket can't be bound.
        """
        listener = _bind(self._home.host_sock)
        self._server = await asyncio.start_unix_server(self._connected, sock=listener, limit=MAX_LINE)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._home.host_sock.unlink(missing_ok=True)
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=2)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            user = self._peer(writer)
            if user is None:
                return
            await self._serve(ServerConnection(reader, writer, user))
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, or the host stops
        finally:
            self._connections.discard(task)
            writer.close()

    def _peer(self, writer: asyncio.StreamWriter) -> str | None:
        """The OS user at the other end; None when it may not use this host."""
        uid = peer_uid_of(writer.get_extra_info("socket"))
        if uid is not None and uid not in (0, os.geteuid()):
            log.warning("a process of uid %d was refused at the control socket", uid)
            return None
        return user_name(os.geteuid() if uid is None else uid)

    async def _serve(self, connection: ServerConnection) -> None:
        running: set[asyncio.Task[None]] = set()
        room = asyncio.Semaphore(REQUESTS_AT_ONCE)

        def ended(task: asyncio.Task[None]) -> None:
            running.discard(task)
            room.release()

        try:
            while (request := await self._next(connection)) is not None:
                if request.get("op") == "channel.attach":
                    serve = await self._hand_over(connection, request)
                    if serve is not None:
                        await serve()
                        return
                    continue
                await room.acquire()
                task = asyncio.get_running_loop().create_task(self._answer(connection, request))
                running.add(task)
                task.add_done_callback(ended)
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=2)

    async def _next(self, connection: ServerConnection) -> dict[str, Any] | None:
        try:
            return await connection.receive()
        except MalformedData as problem:
            await connection.send({"id": None, "ok": False, "error": error_body(problem)})
            return None

    async def _hand_over(
        self, connection: ServerConnection, request: dict[str, Any]
    ) -> Callable[[], Awaitable[None]] | None:
        args = request.get("args")
        try:
            serve = await self._attach(connection, args if isinstance(args, dict) else {})
        except JackfieldError as problem:
            await connection.send({"id": request.get("id"), "ok": False, "error": error_body(problem)})
            return None
        await connection.send({"id": request.get("id"), "ok": True, "result": {}})
        return serve

    async def _answer(self, connection: ServerConnection, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request.get("id")}
        op, args = request.get("op"), request.get("args", {})
        try:
            if not isinstance(op, str) or not isinstance(args, dict):
                raise MalformedData("a request needs an op (text) and args (an object)")
            operation = self._operations(op)
            if operation is None:
                raise UsageError(f"the host has no operation {op!r}; is it of another version?")
            answer.update(ok=True, result=await operation(args))
        except JackfieldError as problem:
            answer.update(ok=False, error=error_body(problem))
        except Exception as problem:
            log.exception("operation %s failed", op)
            answer.update(
                ok=False, error={"code": "JackfieldError", "message": f"{op} failed: {problem!r}", "fix": None}
            )
        with contextlib.suppress(ConnectionError):
            await connection.send(REDACTOR.inside(answer))


class Client:
    """A command's connection to the running host."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lines: _Lines | None = None
        self._last = 0
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Connect.

        Raises:
            NoHost: nothing listens.
        """
        self._lines = _Lines(*await _connect(self._home.host_sock))

    async def call(self, op: str, args: dict[str, Any]) -> Any:
        """One operation; several calls wait for each other.

        Raises:
            NoHost: nothing listens, or the host went away.
            JackfieldError: as the host reported it.
        """
        async with self._turn:
            if self._lines is None:
                await self.open()
            assert self._lines is not None
            self._last += 1
            try:
                await self._lines.send({"id": self._last, "op": op, "args": args})
                answer = await self._lines.receive()
            except ConnectionError:
                answer = None
            if answer is None:
                self._lines = None
                raise NoHost("the host went away while it worked on this", fix="see `jackfield status`")
            if answer.get("ok") is not True:
                raise error_from(answer.get("error"))
            return answer.get("result")

    async def attach(self, instance: str, options: dict[str, Any]) -> ClientConnection:
        """A second connection, handed over to a channel.

        Raises:
            NoHost, NotFound: no host, or no such channel there.
        """
        connection = ClientConnection(*await _connect(self._home.host_sock))
        await connection.send({"id": 0, "op": "channel.attach", "args": {"instance": instance, "options": options}})
        answer = await connection.receive()
        if answer is None or answer.get("ok") is not True:
            await connection.close()
            raise error_from((answer or {}).get("error"))
        return connection

    async def close(self) -> None:
        if self._lines is not None:
            await self._lines.close()
            self._lines = None


async def perform(home: Home, op: str, args: dict[str, Any], *, safe: bool = False, strict: bool = False) -> Any:
    """One operation by the running host; without one, directly, under its lock, by the same service.

    Raises:
        JackfieldError: as the service reported it.
        NotInitialised: there is no home.
        NoHost: the operation needs a running host.
    """
    client = Client(home)
    try:
        await client.open()
    except NoHost:
        from jackfield.host.offline import perform_offline

        return await perform_offline(home, op, args, safe=safe, strict=strict)
    try:
        return await client.call(op, args)
    finally:
        await client.close()


async def _connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            with short_address(path) as address:
                return await asyncio.open_unix_connection(address, limit=MAX_LINE)
    except PermissionError as problem:
        raise NotAllowed(f"the control socket {path} belongs to somebody else") from problem
    except (OSError, TimeoutError) as problem:
        raise NoHost(f"no host answers at {path}", fix="start one with `jackfield up`") from problem


def _bind(path: Path) -> socket.socket:
    """A listening socket at `path`, 0600, in place of a dead host's."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_address(path) as address:
            before = os.umask(0o177)
            try:
                listener.bind(address)
            finally:
                os.umask(before)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def user_name(uid: int) -> str:
    """The account's name, or its number when it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
