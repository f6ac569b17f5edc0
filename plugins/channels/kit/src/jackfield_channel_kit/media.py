"""Files that platforms point to: fetched with a cap, from public addresses only, named and typed safely (cases area
9)."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import re
import unicodedata
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING

from jackfield.clock import Clock, SystemClock
from jackfield.errors import SendNotAllowed, TooLarge, Transient

from jackfield_channel_kit.guard import Guard, Resolve, origin
from jackfield_channel_kit.http import Http, Trace, answered, redirect
from jackfield_channel_kit.responses import Response, by_status
from jackfield_channel_kit.unpack import pieces

if TYPE_CHECKING:
    import httpx2

__all__ = ["download", "safe_name", "sniff"]

REDIRECTS = 5


async def download(
    http: Http,
    url: str,
    *,
    limit: int,
    headers: Mapping[str, str] | None = None,
    allow_private: bool = False,
    resolve: Resolve | None = None,
    timeout: float = 300.0,
    clock: Clock | None = None,
) -> AsyncGenerator[bytes, None]:
    """The bytes behind a URL, at most `limit` of them (C071).  Close it (`contextlib.aclosing`) when you stop early.

    `headers` (a bearer) go to the origin of `url` only: a redirect to another host, port or scheme gets none of them;
    `http` lends its proxy and redaction, not its headers.  Every hop must lead to a public address, unless
    `allow_private` (`resolve` replaces the machine's resolver).  `timeout` is for the whole, in seconds.

    Raises:
        TooLarge: it has more than `limit` bytes, said or sent; what was yielded so far is to be thrown away.
        SendNotAllowed: a refused address, scheme or redirect.
        ChannelError: what the status means, see `by_status`; Transient when the connection broke.
    """
    clock = clock or SystemClock()
    until = clock.monotonic() + timeout
    guard = Guard(allow_private=allow_private, resolve=resolve)
    first = origin(url)
    await http.prepare()
    for _ in range(REDIRECTS + 1):
        sent = dict(headers or {}) if origin(url) == first else {}
        trace = Trace()
        with http.told(f"GET of a file from {first[1]}", trace, idempotent=True):
            opening = http.opened("GET", url, {"headers": sent}, trace, guard, seconds=timeout, own=False)
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(max(0.0, until - clock.monotonic())):
                    answer = await stack.enter_async_context(opening)
                target = redirect(url, answer.status_code, answered(answer))
                if target is None:
                    _refuse(answer, limit, clock)
                    got = 0
                    async with contextlib.aclosing(pieces(answer)) as parts:
                        async for piece in parts:
                            got += len(piece)
                            if got > limit:
                                raise TooLarge(f"it has more than {limit} bytes", limit=limit)
                            if clock.monotonic() > until:
                                raise Transient(f"it did not end within {timeout:g} s")
                            yield piece
                    return
        url = target
    raise SendNotAllowed(f"GET of a file from {first[1]}: more than {REDIRECTS} redirects")


def _refuse(answer: httpx2.Response, limit: int, clock: Clock) -> None:
    headers = answered(answer)
    error = by_status(Response(answer.status_code, headers), now=clock.now() / 1000, idempotent=True)
    if error is not None:
        raise error
    said = headers.get("content-length", "")
    if "content-encoding" not in headers and said.isdecimal() and int(said) > limit:
        raise TooLarge(f"it has {said} bytes, more than {limit}", limit=limit)


_MAGIC: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"BM", 0, "image/bmp"),
    (b"II*\x00", 0, "image/tiff"),
    (b"MM\x00*", 0, "image/tiff"),
    (b"WEBP", 8, "image/webp"),
    (b"WAVE", 8, "audio/wav"),
    (b"AVI ", 8, "video/x-msvideo"),
    (b"ftypavif", 4, "image/avif"),
    (b"ftypheic", 4, "image/heic"),
    (b"ftypM4A", 4, "audio/mp4"),
    (b"ftypqt", 4, "video/quicktime"),
    (b"ftyp", 4, "video/mp4"),
    (b"\x1aE\xdf\xa3", 0, "video/webm"),
    (b"OggS", 0, "audio/ogg"),
    (b"ID3", 0, "audio/mpeg"),
    (b"\xff\xfb", 0, "audio/mpeg"),
    (b"fLaC", 0, "audio/flac"),
    (b"%PDF-", 0, "application/pdf"),
    (b"\x1f\x8b", 0, "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", 0, "application/x-7z-compressed"),
    (b"PK\x03\x04", 0, "application/zip"),
)
_ZIPPED = ("application/vnd.", "application/epub+zip", "application/java-archive")
_HTML = re.compile(
    rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body|script|iframe)\b", re.IGNORECASE | re.DOTALL
)


def sniff(head: bytes, name: str = "") -> str:
    """The MIME type of a file by its first bytes (512 are enough), then by its name, which may lie.

    Text that begins like HTML is `text/html` whatever it is called.
    """
    named = mimetypes.guess_type(name)[0]
    for magic, at, mime in _MAGIC:
        if head.startswith(magic, at):
            inside = mime == "application/zip" and named is not None and named.startswith(_ZIPPED)
            return named if inside and named is not None else mime
    if _HTML.match(head[:512]):
        return "text/html"
    if _is_text(head[:512]):
        return named if named is not None and (named.startswith("text/") or named in _TEXTUAL) else "text/plain"
    return named if named is not None and not named.startswith(("text/", "image/")) else "application/octet-stream"


_TEXTUAL = frozenset({"application/json", "application/xml", "application/javascript", "image/svg+xml"})


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as problem:
        return problem.start >= len(head) - 3 and problem.start > 0
    return True


_RESERVED = re.compile(r"(?i)(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?")


def safe_name(name: str, fallback: str = "file") -> str:
    """What a file that came with this name may be called in a folder of ours (C065).

    One path component of at most 200 bytes without separators, control or direction characters, that no system
    reserves.
    """
    last = re.split(r"[/\\]", name)[-1]
    kept = "".join(
        "_" if c in '<>:"|?*' else c for c in last if unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    )
    kept = kept.strip(" .")
    if not kept or _RESERVED.fullmatch(kept):
        return fallback
    stem, dot, ending = kept.rpartition(".")
    if not dot or len(ending.encode()) > 16:
        stem, dot, ending = kept, "", ""
    room = 200 - len((dot + ending).encode())
    return stem.encode()[:room].decode("utf-8", "ignore").rstrip(" .") + dot + ending
