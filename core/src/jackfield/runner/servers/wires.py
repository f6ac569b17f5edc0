"""The ways to an MCP server: the pipes of a program of our own, or HTTP.  Messages are JSON objects.

Whatever comes is a stranger's: a line has a length, garbage has a limit, and nothing that is sent waits for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

__all__ = ["ServerFailed", "StdioWire", "Wire"]

_LOG = logging.getLogger(__name__)
Json = Any

_LINE_LIMIT = 4 * 1024 * 1024
_MOST_GARBAGE = 100
_GARBAGE_TOLD = 3
_STDERR_LINES = 200
"""Lines of a server's stderr that go to the log each minute."""
_LEAVE_SECONDS = 1.0
_TERM_SECONDS = 1.0
_UNREAD_LIMIT = 1024 * 1024


class ServerFailed(Exception):
    """The server is of no use any more; the message says why."""


class Wire(Protocol):
    async def send(self, message: dict[str, Json]) -> None:
        """Raises:
        ServerFailed: the other side is gone.
        """
        ...

    async def receive(self) -> dict[str, Json]:
        """The next message.

        Raises:
            ServerFailed: there is no next one.
        """
        ...

    async def close(self) -> None: ...


class StdioWire:
    """A program in a process group of its own, which is gone when `close` returns."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise RuntimeError("a server's standard streams must be pipes")
        self._name = name
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._garbage = 0
        self._last_words = ""
        self._stderr = asyncio.create_task(self._drain(process.stderr), name=f"stderr of server {name}")

    @classmethod
    async def open(cls, name: str, argv: tuple[str, ...], environment: Mapping[str, str], cwd: str) -> StdioWire:
        """Start the program.

        Raises:
            ServerFailed: it can't be started.
        """
        program = shutil.which(argv[0], path=environment.get("PATH"))
        if program is None:
            raise ServerFailed(f"there is no program {argv[0]!r}")
        try:
            process = await asyncio.create_subprocess_exec(
                program, *argv[1:],
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env=dict(environment), cwd=cwd, limit=_LINE_LIMIT, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as problem:
            raise ServerFailed(f"{argv[0]!r} can't be started in {cwd}: {problem}") from problem
        return cls(name, process)

    async def send(self, message: dict[str, Json]) -> None:
        if self._stdin.transport.get_write_buffer_size() > _UNREAD_LIMIT:
            raise ServerFailed("it does not read what it is sent")
        try:
            self._stdin.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._stdin.drain()
        except OSError as problem:
            raise ServerFailed(f"it takes nothing any more: {problem}") from problem

    async def receive(self) -> dict[str, Json]:
        while True:
            try:
                line = await self._stdout.readline()
            except ValueError:
                raise ServerFailed(f"it sent a line of more than {_LINE_LIMIT:,} bytes") from None
            if not line:
                raise ServerFailed(await self._end())
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if isinstance(message, dict):
                return message
            if line.strip():
                self._refuse(line)

    def _refuse(self, line: bytes) -> None:
        """Something on stdout that is no message: programs print there what belongs on stderr."""
        self._garbage += 1
        if self._garbage <= _GARBAGE_TOLD:
            _LOG.warning("MCP server %s prints what is no message: %s", self._name, ascii(line[:200]))
        if self._garbage > _MOST_GARBAGE:
            raise ServerFailed(f"it printed more than {_MOST_GARBAGE} lines that are no messages")

    async def _end(self) -> str:
        """Why it ended, once its output has."""
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                code = await self._process.wait()
        except TimeoutError:
            return "it closed its output"
        await asyncio.wait({self._stderr}, timeout=_LEAVE_SECONDS)
        said = f"; it said: {self._last_words}" if self._last_words else ""
        return (f"it ended with code {code}" if code >= 0 else f"it was ended by signal {-code}") + said

    async def _drain(self, stderr: asyncio.StreamReader) -> None:
        """Its stderr goes to the runner's, which the host drains; not more than a person could read."""
        minute, count = 0.0, 0
        while True:
            try:
                line = await stderr.readline()
            except ValueError:
                continue  # a line without an end; what was read of it is dropped
            if not line:
                return
            text = ascii(line.decode("utf-8", "replace").strip())[1:-1][:300]
            now = asyncio.get_running_loop().time()
            if now - minute >= 60:
                minute, count = now, 0
            count += 1
            if text:
                self._last_words = text
            if count <= _STDERR_LINES:
                _LOG.info("MCP server %s: %s", self._name, text)
            elif count == _STDERR_LINES + 1:
                _LOG.warning("MCP server %s says too much; the rest of this minute is left out", self._name)

    async def close(self) -> None:
        """As the protocol wants it: its input ends first; then whatever is left of its group is ended."""
        with suppress(OSError):
            self._stdin.close()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TERM_SECONDS):
                    await self._process.wait()
        self._signal(signal.SIGKILL)  # also what it started and left behind
        await self._process.wait()
        with suppress(TimeoutError, ValueError):
            async with asyncio.timeout(_LEAVE_SECONDS):  # read to its end, the pipe is closed
                while await self._stdout.read(65536):
                    continue
        self._stderr.cancel()
        await asyncio.wait({self._stderr})

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
