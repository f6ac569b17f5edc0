"""Files that people sent: their addresses are asked for when they are opened, and the token goes to Slack only."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from urllib.parse import urlsplit

from jackfield.errors import SendNotAllowed, TooLarge
from jackfield.models import Attachment
from jackfield_channel_kit.guard import origin
from jackfield_channel_kit.media import download, sniff

from jackfield_channel_slack.api import WebApi

__all__ = ["opened", "takes_token"]

_HOSTS = ("slack.com", "slack-files.com", "slack-gov.com")


def takes_token(url: str, api_url: str) -> bool:
    """Whether the bot token may go there: to the origin of the API, or to Slack by TLS."""
    if origin(url) == origin(api_url):
        return True
    host = urlsplit(url).hostname or ""
    return url.startswith("https://") and any(host == one or host.endswith(f".{one}") for one in _HOSTS)


@contextlib.asynccontextmanager
async def opened(api: WebApi, attachment: Attachment, *, limit: int) -> AsyncGenerator[AsyncIterator[bytes], None]:
    """The bytes of a file.

    Raises:
        TooLarge: it has more than `limit` bytes.
        SendNotAllowed: Slack gives a page to log in instead: the app may not read files.
        ChannelError: it is gone, or could not be fetched.
    """
    said = (await api.read("files.info", {"file": attachment.token or attachment.id})).get("file") or {}
    size, mime = said.get("size"), str(said.get("mimetype") or "")
    if isinstance(size, int) and size > limit:
        raise TooLarge(f"the file has {size} bytes, more than {limit}", limit=limit)
    url = str(said.get("url_private_download") or said.get("url_private") or "")
    ours = takes_token(url, api.url)
    parts = download(
        api.http,
        url,
        limit=limit,
        headers=api.bearer if ours else None,
        allow_private=ours and origin(url) == origin(api.url),
    )

    async def checked() -> AsyncIterator[bytes]:
        first = True
        async for part in parts:
            if first and not mime.startswith("text/html") and sniff(part[:512], attachment.name) == "text/html":
                raise SendNotAllowed(
                    "Slack gave a page to log in instead of the file",
                    fix="add the scope files:read to the app, and install it again",
                )
            first = False
            yield part

    async with contextlib.aclosing(parts):
        yield checked()
