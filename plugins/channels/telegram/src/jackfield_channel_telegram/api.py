"""The Bot API: one POST for each method, and what its refusals mean."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from json import dumps
from typing import Any

from jackfield.clock import Clock
from jackfield.errors import (
    AuthFailed,
    BadContent,
    ChannelError,
    ChatNotFound,
    Migrated,
    RateLimited,
    SendNotAllowed,
    TooLarge,
    Transient,
    Unsupported,
    WindowClosed,
)
from jackfield_channel_kit.http import Http
from jackfield_channel_kit.limits import Buckets, Rate
from jackfield_channel_kit.media import download
from jackfield_channel_kit.responses import Response

__all__ = ["DOWNLOAD_LIMIT", "UPLOAD_LIMIT", "Bot", "Conflict", "MissingMethod", "classify", "is_group", "rates"]

UPLOAD_LIMIT = 50_000_000
DOWNLOAD_LIMIT = 20 * 1024 * 1024
UNSAID = 5.0
"""Seconds to wait after a 429 that doesn't say."""

_BY_WORDS: tuple[tuple[str, type[ChannelError]], ...] = (
    ("can't parse", BadContent),
    ("query is too old", WindowClosed),
    ("file is too big", TooLarge),
    ("is too long", TooLarge),
    ("too large", TooLarge),
    ("chat not found", ChatNotFound),
    ("user not found", ChatNotFound),
    ("message thread not found", ChatNotFound),
    ("not found", ChatNotFound),
    ("message identifier is not specified", ChatNotFound),
    ("reaction_invalid", Unsupported),
    ("not enough rights", SendNotAllowed),
    ("have no rights", SendNotAllowed),
    ("write_forbidden", SendNotAllowed),
    ("_forbidden", SendNotAllowed),
    ("admin_required", SendNotAllowed),
    ("topic_closed", SendNotAllowed),
    ("can't be edited", SendNotAllowed),
    ("can't be deleted", SendNotAllowed),
    ("bot was kicked", SendNotAllowed),
    ("bot was blocked", SendNotAllowed),
)
"""What stands in a 400's description, in lower case, in the order in which it is looked for."""


class Conflict(Transient):
    """Somebody else asks for this bot's updates, or has set a webhook."""


class MissingMethod(Unsupported):
    """The server doesn't know the method; it is too old."""


def classify(response: Response) -> ChannelError | None:
    """What a Bot API answer means; None leaves it to HTTP's own rules."""
    if response.status < 400:
        return None
    fields = response.fields()
    said = str(fields.get("description") or "")
    parameters = fields.get("parameters")
    parameters = parameters if isinstance(parameters, dict) else {}
    if not said:
        return None
    told = f"{response.status} {said}"
    if "migrate_to_chat_id" in parameters:
        return Migrated(told, new_platform_id=str(parameters["migrate_to_chat_id"]))
    match response.status:
        case 429:
            wait = parameters.get("retry_after", UNSAID)
            return RateLimited(told, retry_after=float(wait) if isinstance(wait, int | float) else UNSAID)
        case 401:
            return AuthFailed(told, fix="ask @BotFather for the token and store it as the secret that `token` names")
        case 404:
            return MissingMethod(told)
        case 409:
            return Conflict(told)
        case 400:
            lower = said.lower()
            kind = next((kind for words, kind in _BY_WORDS if words in lower), BadContent)
            return kind(told)
    return None


def is_group(chat: str) -> bool:
    """Whether a chat's id is a group's or a channel's."""
    return not chat.lstrip().isdigit()


def rates(chat: str) -> tuple[Rate, ...]:
    """What Telegram lets a bot send to one chat."""
    return (Rate(1, 1.0), Rate(20, 60.0)) if is_group(chat) else (Rate(1, 1.0),)


class Bot:
    """One bot at one server."""

    def __init__(self, api_url: str, token: str, *, clock: Clock, pacing: bool = True) -> None:
        api_url = api_url.rstrip("/")
        self._files = f"{api_url}/file/bot{token}"
        self._http = Http(
            f"{api_url}/bot{token}",
            classify=classify,
            limits=Buckets(rates, (Rate(30, 1.0),)) if pacing else None,
            redact=(token,),
            clock=clock,
        )

    async def close(self) -> None:
        await self._http.close()

    async def call(
        self,
        method: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        chat: str | None = None,
        files: Mapping[str, tuple[str, bytes]] | None = None,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """One method's result.  `chat` counts it for the limits; `files` are name and bytes by field.

        Raises:
            ChannelError: as Telegram refused it; MissingMethod, Conflict, Migrated among them.
        """
        given = {name: value for name, value in (arguments or {}).items() if value is not None}
        body: dict[str, Any] = {"json": given}
        if files:
            form = {name: value if isinstance(value, str) else dumps(value) for name, value in given.items()}
            body = {"data": form, "files": files}
        response = await self._http.request("POST", method, key=chat, idempotent=idempotent, timeout=timeout, **body)
        return response.json().get("result")

    async def read(
        self, method: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """As `call`, for what may be asked twice."""
        return await self.call(method, arguments, idempotent=True, timeout=timeout)

    async def file(self, file_id: str) -> AsyncGenerator[bytes, None]:
        """The bytes of a file that somebody sent, at most `DOWNLOAD_LIMIT`; close it when you stop early.

        Raises:
            TooLarge: Telegram gives bots no more than that.
            ChannelError: it is not to be had.
        """
        found = await self.read("getFile", {"file_id": file_id})
        path = str(found.get("file_path") or "")
        if not path or path.startswith("/"):
            raise Unsupported("the Bot API server keeps files on its own disk (--local), where they can't be fetched")
        # The operator chose this server, so it may be on a private address.
        pieces = download(self._http, f"{self._files}/{path}", limit=DOWNLOAD_LIMIT, allow_private=True)
        async with aclosing(pieces) as chunks:
            async for piece in chunks:
                yield piece
