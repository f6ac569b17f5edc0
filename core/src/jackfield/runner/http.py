"""As much of HTTP/1.1 as an MCP client on the same machine needs: POST with a length, answers as JSON or events."""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass, field

__all__ = ["BODY_LIMIT", "BadRequest", "Request", "check", "read_request", "response"]

HEAD_LIMIT = 16 * 1024
BODY_LIMIT = 4 * 1024 * 1024
_REASONS = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 411: "Length Required", 413: "Content Too Large", 431: "Request Header Fields Too Large",
}  # fmt: skip


class BadRequest(Exception):
    """The request can't be served; the connection is closed after the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


@dataclass(frozen=True, slots=True)
class Request:
    """`headers` has lower-case names."""

    method: str
    path: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None at the end of the connection.

    Raises:
        BadRequest: it is malformed, too large, or has no length.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequest(431, "the head is too long") from None
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest(400, "not HTTP/1.1")
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip() or (name.lower() in headers and name.lower() in _ONCE):
            raise BadRequest(400, "a header is malformed")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(411, "send a Content-Length")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or not length.isascii():
        raise BadRequest(400, "Content-Length is no number")
    if len(length) > 9 or int(length) > BODY_LIMIT:
        raise BadRequest(413, f"at most {BODY_LIMIT} bytes")
    try:
        body = await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        return None
    return Request(parts[0], parts[1].partition("?")[0], headers, body)


_ONCE = ("host", "content-length", "authorization", "origin")


def check(request: Request, *, port: int, token: str, path: str) -> None:
    """Only who was given the token, by the name of this machine, and no page of a browser.

    Raises:
        BadRequest: 401, 403 (another host name, or a foreign origin: DNS rebinding), 404 or 405.
    """
    hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
    if request.headers.get("host", "").lower() not in hosts:
        raise BadRequest(403, "this host name is not served")
    origin = request.headers.get("origin")
    if origin is not None and origin.lower() not in [f"http://{host}" for host in hosts]:
        raise BadRequest(403, "this origin is not allowed")
    given = request.headers.get("authorization", "")
    if not hmac.compare_digest(given.encode("latin-1", "replace"), f"Bearer {token}".encode()):
        raise BadRequest(401, "the token is missing or wrong")
    if request.path != path:
        raise BadRequest(404, "there is nothing here")
    if request.method != "POST":
        raise BadRequest(405, "only POST")


def response(
    status: int, body: bytes = b"", *, kind: str = "application/json", keep: bool = True, **more: str
) -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} {_REASONS[status]}", f"Content-Length: {len(body)}"]
    if body:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in more.items()]
    lines.append(f"Connection: {'keep-alive' if keep else 'close'}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body
