"""Requests to the homeserver, over matrix-nio's client; what went wrong comes as the core's errors.

Everything that changes something has a transaction id or is idempotent by itself, so that a lost answer is `Transient`:
the same request again does it once (spec/channels.md 3.10).  `POST createRoom` is the exception.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlencode

import aiohttp
from jackfield.clock import Clock
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    Unsupported,
)
from jackfield_channel_kit.limits import Buckets
from jackfield_channel_kit.responses import Response, by_status, retry_after

if TYPE_CHECKING:
    from nio import AsyncClient

__all__ = ["CLIENT", "EVENT_BYTES", "Homeserver", "meaning", "quoted"]

CLIENT = "/_matrix/client/v3"
EVENT_BYTES = 65_536
"""An event has at most so many bytes, on every homeserver."""
_SECONDS = 60.0
_KINDS: Mapping[str, type[ChannelError]] = {
    "M_UNKNOWN_TOKEN": AuthFailed,
    "M_MISSING_TOKEN": AuthFailed,
    "M_USER_DEACTIVATED": AuthFailed,
    "M_USER_LOCKED": AuthFailed,
    "M_FORBIDDEN": SendNotAllowed,
    "M_GUEST_ACCESS_FORBIDDEN": SendNotAllowed,
    "M_NOT_FOUND": ChatNotFound,
    "M_UNRECOGNIZED": Unsupported,
    "M_BAD_JSON": BadContent,
    "M_NOT_JSON": BadContent,
    "M_INVALID_PARAM": BadContent,
}


def meaning(answer: Response, *, now: float, idempotent: bool = True) -> ChannelError | None:
    """What an answer means; None is success.  `now` is seconds since 1970."""
    if answer.ok:
        return None
    fields = answer.fields()
    errcode, said = str(fields.get("errcode", "")), str(fields.get("error", ""))[:300]
    shown = f"{answer.status} {errcode} {said}".strip()
    if errcode == "M_LIMIT_EXCEEDED" or answer.status == 429:
        wait = retry_after(answer.headers, now)
        told = fields.get("retry_after_ms")
        if isinstance(told, int | float) and not isinstance(told, bool):
            wait = max(wait or 0.0, told / 1000)
        return RateLimited(shown, retry_after=5.0 if wait is None else wait, scope="account")
    if errcode == "M_TOO_LARGE":
        return TooLarge(shown, limit=EVENT_BYTES)
    if answer.status < 500 and (kind := _KINDS.get(errcode)) is not None:
        return kind(shown)
    return by_status(answer, now=now, idempotent=idempotent)


def quoted(part: str) -> str:
    """One segment of a path."""
    return quote(part, safe="")


class Homeserver:
    """One account's way to its homeserver."""

    def __init__(self, client: AsyncClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._limits = Buckets()

    def __repr__(self) -> str:
        return f"<homeserver {self._client.homeserver}>"

    @property
    def user_id(self) -> str:
        return str(self._client.user_id)

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        idempotent: bool = True,
        seconds: float = _SECONDS,
    ) -> dict[str, Any]:
        """The answer's JSON object.

        Raises:
            ChannelError: what the homeserver said, or that it did not.
        """
        data = None if body is None else json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {"Content-Type": "application/json"} if body is not None else {}
        async with self._opened(method, path, query, data, headers, idempotent, seconds) as answer:
            return await _object(answer, self._name(method, path))

    async def send(self, room: str, kind: str, content: Mapping[str, Any], key: str) -> str:
        """Send an event under its transaction id; the event's id.

        Raises:
            ChannelError: RateLimited at once while an earlier one holds (C077).
        """
        await self._limits.take(room, self._clock)
        path = f"{CLIENT}/rooms/{quoted(room)}/send/{quoted(kind)}/{quoted(key)}"
        try:
            return str((await self.request("PUT", path, content))["event_id"])
        except RateLimited as problem:
            self._limits.block(None, problem.retry_after, self._clock)
            raise
        except KeyError:
            raise Transient("the homeserver took the event and gave no id") from None

    async def upload(self, data: bytes | AsyncIterable[bytes], *, name: str, mime: str, size: int) -> str:
        """Put a file into the media repository; its `mxc:` address."""
        query = {"filename": name} if name else None
        headers = {"Content-Type": mime, "Content-Length": str(size)}
        path = "/_matrix/media/v3/upload"
        try:
            async with self._opened("POST", path, query, data, headers, True, 600.0) as answer:
                return str((await _object(answer, "an upload"))["content_uri"])
        except TooLarge as problem:
            raise TooLarge(f"the homeserver refuses the file {name!r}: {problem}", limit=None) from None
        except KeyError:
            raise Transient("the homeserver took the file and gave no address") from None

    @asynccontextmanager
    async def download(self, mxc: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """A file of the media repository, in pieces; with our token, as homeservers ask since Matrix 1.11."""
        server, _, media = mxc.removeprefix("mxc://").partition("/")
        if not mxc.startswith("mxc://") or not server or not media or "/" in media:
            raise ChatNotFound(f"{mxc!r} is no address of a file")
        where = f"{quoted(server)}/{quoted(media)}"
        path = f"/_matrix/client/v1/media/download/{where}"
        opened = self._opened("GET", path, None, None, {}, True, 600.0)
        try:
            answer = await opened.__aenter__()
        except Unsupported:  # a homeserver from before that
            opened = self._opened("GET", f"/_matrix/media/v3/download/{where}", None, None, {}, True, 600.0)
            answer = await opened.__aenter__()
        try:
            yield _pieces(answer)
        finally:
            await opened.__aexit__(None, None, None)

    async def close(self) -> None:
        await self._client.close()

    @asynccontextmanager
    async def _opened(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        data: Any,
        headers: Mapping[str, str],
        idempotent: bool,
        seconds: float,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is a success, its body still to be read."""
        name = self._name(method, path)
        if self._client.access_token:
            headers = {**headers, "Authorization": f"Bearer {self._client.access_token}"}
        if query:
            path = f"{path}?{urlencode(query)}"
        timeout = aiohttp.ClientTimeout(total=seconds, connect=20)
        try:
            answer = await self._client.send(method, path, data, dict(headers), timeout=timeout)
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            _lost(problem, name, idempotent)
        async with answer:
            if not 200 <= answer.status < 300:
                body = await _read(answer, name)
                kept = Response(answer.status, {key.lower(): value for key, value in answer.headers.items()}, body)
                error = meaning(kept, now=self._clock.now() / 1000, idempotent=idempotent)
                assert error is not None
                error.message = f"{name}: {error.message}"
                error.args = (error.message,)
                raise error
            yield answer

    def _name(self, method: str, path: str) -> str:
        """A request for error messages: without ids of rooms and events, which say nothing to the reader."""
        known = [part for part in path.split("/") if part and "%" not in part and not part.startswith(("_", "v"))]
        return f"{method} {'/'.join(known[:4])}"


def _lost(problem: BaseException, name: str, idempotent: bool) -> NoReturn:
    what = f"{name}: {type(problem).__name__} {problem}".strip()
    if idempotent or isinstance(problem, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        raise Transient(what) from None
    raise Ambiguous(what) from None


async def _read(answer: aiohttp.ClientResponse, name: str) -> bytes:
    try:
        return await answer.read()
    except (TimeoutError, aiohttp.ClientError, OSError) as problem:
        _lost(problem, name, True)


async def _object(answer: aiohttp.ClientResponse, name: str) -> dict[str, Any]:
    body = await _read(answer, name)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Transient(f"{name}: the answer is no JSON object; is this a homeserver?")
    return found


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.content.iter_chunked(65_536):
            yield piece
    except (aiohttp.ClientError, TimeoutError, OSError) as problem:
        _lost(problem, "a download", True)
