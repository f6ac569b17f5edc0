"""Both ends of a hook, over real HTTP: a sender that signs, and a receiver that records and can fail."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from jackfield.config import IngressSettings
from jackfield.host.hub import Hub
from jackfield.host.ingress import Ingress

__all__ = ["Call", "Receiver", "answered", "ask", "ingress", "post_bytes", "request_bytes"]

BOUND = 30.0


def ingress(**settings: Any) -> Ingress:
    """The host's own server, without a host."""
    configuration = SimpleNamespace(ingress=IngressSettings(port=0, **settings))
    return Ingress(cast(Hub, SimpleNamespace(configuration=configuration, trouble=lambda what: None)))


def request_bytes(path: str, body: bytes, headers: dict[str, str], host: str = "127.0.0.1") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def ask(address: str, raw: bytes) -> tuple[int, dict[str, Any]]:
    """Send a whole request; status and JSON of the answer.  Status 0 when the connection ended without one."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    got = b""
    try:
        writer.write(raw)
        async with asyncio.timeout(BOUND):
            while data := await reader.read(65_536):
                got += data
    except ConnectionError:
        pass  # refused while it sent; what was said before that counts
    finally:
        await _closed(writer)
    return answered(got)


def answered(got: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = got.partition(b"\r\n\r\n")
    if not head:
        return 0, {}
    return int(head.split(b" ")[1]), json.loads(body or b"{}")


async def post_bytes(address: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
    return await ask(address, request_bytes(path, body, headers))


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@dataclass(frozen=True)
class Call:
    """One request that the receiver got."""

    headers: dict[str, str]
    body: bytes

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["data"]
        return found

    @property
    def files(self) -> tuple[tuple[str, bytes], ...]:
        return tuple((one["name"], base64.b64decode(one["content_base64"])) for one in self.data["files"])


@dataclass
class Receiver:
    """Answers 204, or as `script` says: a status, headers with it, or None to hang up without an answer."""

    script: list[int | tuple[int, dict[str, str]] | None] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    arrivals: asyncio.Queue[Call] = field(default_factory=asyncio.Queue)
    hanging: bool = False
    address: str = ""
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self) -> None:
        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._serve(reader, writer))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

        self._server = await asyncio.start_server(connected, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"http://{host}:{port}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not reader.at_eof():
                await self._exchange(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await _closed(writer)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head if line)}
        call = Call(headers, await reader.readexactly(int(headers.get("content-length", "0"))))
        if self.hanging:
            await asyncio.Event().wait()
        step = self.script.pop(0) if self.script else 204
        if step is None:
            raise ConnectionError
        status, more = step if isinstance(step, tuple) else (step, {})
        if 200 <= status < 300:
            self.calls.append(call)
            self.arrivals.put_nowait(call)
        lines: Sequence[str] = [f"HTTP/1.1 {status} x", "content-length: 0", *(f"{k}: {v}" for k, v in more.items())]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        await writer.drain()
