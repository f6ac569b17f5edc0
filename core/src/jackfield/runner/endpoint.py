"""The tools endpoint inside the runner: MCP over streamable HTTP on loopback, and a Unix socket for the stdio shim.

Started only for engines that can't call the tools directly.  Both are made from the same bound tools, so the runner
stays the only writer of its mailbox (architecture 4).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from jackfield.api import BoundTool, McpEndpoint
from jackfield.runner.http import HEAD_LIMIT, BadRequest, Request, check, read_request, response
from jackfield.runner.mcp import McpServer

__all__ = ["NAME", "Endpoint"]

NAME = "jackfield"
_LOG = logging.getLogger(__name__)
_PATH = "/mcp"
_PATIENCE = 5.0
"""Seconds until a call that still runs is answered by a stream of events, so that no client gives up on it."""
_KEEP_ALIVE = 15.0
_LINE_LIMIT = 4 * 1024 * 1024
_EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
)


class Endpoint:
    """Serves this session's tools until it is closed.  The token is random, and known to the engine alone."""

    def __init__(self, tools: Sequence[BoundTool], *, patience: float = _PATIENCE) -> None:
        self.token = secrets.token_urlsafe(32)
        self._tools = tools
        self._patience = patience
        self._http: asyncio.Server | None = None
        self._socket: asyncio.Server | None = None
        self._folder: Path | None = None
        self._port = 0
        self._sessions: dict[str, McpServer] = {}
        self._lines: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen on loopback and on a socket; a sandbox may forbid one of them.

        Raises:
            OSError: neither can be opened.
        """
        problems = []
        try:
            self._http = await asyncio.start_server(self._serve_http, "127.0.0.1", 0, limit=HEAD_LIMIT)
            self._port = self._http.sockets[0].getsockname()[1]
        except OSError as problem:
            problems.append(f"loopback: {problem}")
        self._folder = Path(tempfile.mkdtemp(prefix="jackfield-"))  # 0700: nobody else can reach the socket
        try:
            path = str(self._folder / "tools.sock")
            self._socket = await asyncio.start_unix_server(self._serve_lines, path, limit=_LINE_LIMIT)
        except OSError as problem:
            problems.append(f"socket: {problem}")
        if self._http is None and self._socket is None:
            await self.close()
            raise OSError(f"the tools endpoint can't listen anywhere: {'; '.join(problems)}")
        for text in problems:
            _LOG.warning("the tools endpoint does without %s", text)

    async def close(self) -> None:
        """Stop listening and cancel the calls that run."""
        for server in (self._http, self._socket):
            if server is not None:
                server.close()
        for session in self._sessions.values():
            session.close()
        for task in self._lines:
            task.cancel()
        if self._lines:
            await asyncio.wait(set(self._lines), timeout=2.0)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def address(self) -> McpEndpoint:
        """How an engine reaches it: `url` is None without loopback, `command` empty without sockets."""
        command: tuple[str, ...] = ()
        if self._socket is not None:
            command = (sys.executable, "-m", "jackfield.runner.shim", f"{self._folder}/tools.sock")
        env = {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONHOME") if name in os.environ}
        return McpEndpoint(
            name=NAME,
            url=None if self._http is None else f"http://127.0.0.1:{self._port}{_PATH}",
            headers={"Authorization": f"Bearer {self.token}"},
            command=command,
            env=env,
        )

    # ---- HTTP

    async def _serve_http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with _Tracked(self._lines):
            try:
                await self._requests(reader, writer)
            except (ConnectionError, asyncio.CancelledError):
                _LOG.debug("a client of the tools endpoint went away")
            finally:
                writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await read_request(reader)
                if request is None:
                    return
                check(request, port=self._port, token=self.token, path=_PATH)
            except BadRequest as refused:
                more = {"Allow": "POST"} if refused.status == 405 else {}
                writer.write(response(refused.status, refused.why.encode(), kind="text/plain", keep=False, **more))
                await writer.drain()
                return
            if not await self._answer(request, writer) or not request.keeps_alive:
                return

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection can be used again."""
        begins = b'"initialize"' in request.body
        name = request.headers.get("mcp-session-id", "")
        session = self._sessions.get(name)
        if session is None:
            session = McpServer(self._tools)
            if begins:
                name = secrets.token_hex(16)
                self._sessions[name] = session
        task = asyncio.create_task(session.answer_text(request.body))
        try:
            if "text/event-stream" in request.headers.get("accept", ""):
                await asyncio.wait({task}, timeout=self._patience)
                if not task.done():
                    await self._stream(task, writer)
                    return False
            answer = await task
        finally:
            task.cancel()
        if answer is None:
            writer.write(response(202))
        else:
            more = {"Mcp_Session_Id": name} if begins else {}
            writer.write(response(200, answer.encode(), keep=request.keeps_alive, **more))
        await writer.drain()
        return True

    async def _stream(self, task: asyncio.Task[str | None], writer: asyncio.StreamWriter) -> None:
        writer.write(_EVENTS)
        while not task.done():
            writer.write(_chunk(b": the tool still runs\n\n"))
            await writer.drain()
            await asyncio.wait({task}, timeout=_KEEP_ALIVE)
        answer = task.result()
        if answer is not None:
            writer.write(_chunk(b"event: message\ndata: " + answer.encode() + b"\n\n"))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    # ---- the shim's socket

    async def _serve_lines(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = McpServer(self._tools)
        running: set[asyncio.Task[None]] = set()
        with _Tracked(self._lines):
            try:
                while line := await reader.readline():
                    task = asyncio.create_task(self._line(session, line, writer))
                    running.add(task)
                    task.add_done_callback(running.discard)
            except (ConnectionError, ValueError, asyncio.CancelledError) as problem:
                _LOG.debug("the shim's connection ended: %r", problem)
            finally:
                session.close()
                for task in running:
                    task.cancel()
                writer.close()

    async def _line(self, session: McpServer, line: bytes, writer: asyncio.StreamWriter) -> None:
        answer = await session.answer_text(line)
        if answer is not None:
            try:
                writer.write(answer.encode() + b"\n")
                await writer.drain()
            except ConnectionError:
                _LOG.debug("the shim went away before its answer")


class _Tracked:
    """Keeps the current task in a set while it runs."""

    def __init__(self, tasks: set[asyncio.Task[None]]) -> None:
        self._tasks = tasks
        self._task = asyncio.current_task()

    def __enter__(self) -> None:
        if self._task is not None:
            self._tasks.add(self._task)

    def __exit__(self, *problem: object) -> None:
        if self._task is not None:
            self._tasks.discard(self._task)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
