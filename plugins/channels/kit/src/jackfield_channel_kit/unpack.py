"""The body of an answer, unpacked piece by piece: no compressed answer can fill the memory."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2

__all__ = ["ACCEPTED", "pieces"]

ACCEPTED = "gzip, deflate"
"""What to ask for: the encodings that `pieces` unpacks."""
PIECE = 65_536


async def pieces(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """The body of a streamed response as it comes, in pieces of at most `PIECE` bytes; whoever reads counts and stops.

    Raises:
        httpx2.HTTPError: it broke off, is damaged, or has an encoding that nobody asked for.
    """
    import httpx2

    if response.is_stream_consumed:  # made whole, by a transport that has no network
        yield response.content
        return
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        async for raw in response.aiter_raw():
            yield raw
        return
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise httpx2.DecodingError(f"the answer is encoded as {encoding[:40]!r}")
    unpacker = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)  # finds out whether it is gzip or zlib
    seen = False
    try:
        async for raw in response.aiter_raw():
            seen = True
            while raw and not unpacker.eof:
                if piece := unpacker.decompress(raw, PIECE):
                    yield piece
                raw = unpacker.unconsumed_tail
    except zlib.error:
        raise httpx2.DecodingError("the packed answer is damaged") from None
    if seen and not unpacker.eof:
        raise httpx2.DecodingError("the packed answer is cut off")
