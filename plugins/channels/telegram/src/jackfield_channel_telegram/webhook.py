"""The webhook: Telegram calls, and is answered when the event is stored."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping

from jackfield.api import ChannelContext, RawRequest, RawResponse
from jackfield.errors import ConfigError, Transient
from jackfield_channel_kit.verify import Refused, telegram_token

from jackfield_channel_telegram.api import Bot
from jackfield_channel_telegram.intake import Clicked, deliver
from jackfield_channel_telegram.reading import ALLOWED_UPDATES, Reader, Update, album_of

__all__ = ["Hook", "check_secret"]

log = logging.getLogger(__name__)

LOOK_SECONDS = 300.0
"""How often we look whether the webhook is still ours."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,256}")


def check_secret(secret: str) -> None:
    """Look whether Telegram would take it.

    Raises:
        ConfigError: it would not.
    """
    if not _TOKEN.fullmatch(secret):
        raise ConfigError(
            "the webhook's secret must be 1 to 256 of A-Z, a-z, 0-9, _ and -",
            fix="make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'",
        )


class Hook:
    """Takes calls from its construction on.

    Files of an album that come side by side become one event.  Telegram may also bring them one after the other, each
    when the one before was answered; then nothing tells that more will come, and each is an event of its own.
    """

    def __init__(
        self,
        bot: Bot,
        reader: Reader,
        context: ChannelContext,
        *,
        url: str,
        secret: str,
        album_seconds: float,
        clicked: Clicked,
    ) -> None:
        self._bot = bot
        self._reader = reader
        self._context = context
        self._url = url
        self._secret = secret
        self._album_seconds = album_seconds
        self._clicked = clicked
        self._albums: dict[tuple[int, str], list[Update]] = {}
        self._settling: dict[tuple[int, str], asyncio.Task[None]] = {}

    async def run(self, ready: Callable[[], None]) -> None:
        """Tell Telegram where to call, and look after it.

        Raises:
            ChannelError: Telegram refused, or another program took the webhook over.
        """
        await self._bot.read(
            "setWebhook",
            {"url": self._url, "secret_token": self._secret, "allowed_updates": ALLOWED_UPDATES},
        )
        ready()
        while True:
            await self._context.clock.sleep(LOOK_SECONDS)
            found = await self._bot.read("getWebhookInfo")
            if found.get("url") != self._url:
                raise Transient("another program changed this bot's webhook; it is set again")

    async def handle(self, request: RawRequest) -> RawResponse:
        """One call."""
        try:
            telegram_token(request.headers, request.body, (self._secret,), self._context.clock.now() / 1000)
        except Refused as problem:
            log.info("a call of the webhook was refused: %s", problem)
            return RawResponse(status=401)
        try:
            update = json.loads(request.body)
        except (ValueError, RecursionError):
            return RawResponse(status=400)
        if not isinstance(update, Mapping):
            return RawResponse(status=400)
        try:
            album = album_of(update)
        except (KeyError, TypeError, AttributeError):
            album = None
        if album is None:
            await self._take([update])
        else:
            await self._gathered(album, update)
        return RawResponse(status=200)

    async def _gathered(self, album: tuple[int, str], update: Update) -> None:
        """Wait until the album is whole, and then until it is stored."""
        self._albums.setdefault(album, []).append(update)
        if album not in self._settling:
            self._settling[album] = asyncio.create_task(self._settle(album), name=f"album {album[1]}")
        await asyncio.shield(self._settling[album])

    async def _settle(self, album: tuple[int, str]) -> None:
        count = 0
        while count < len(self._albums[album]):
            count = len(self._albums[album])
            await self._context.clock.sleep(self._album_seconds)
        del self._settling[album]
        await self._take(sorted(self._albums.pop(album), key=lambda one: int(one["update_id"])))

    async def _take(self, updates: list[Update]) -> None:
        await deliver(self._reader, updates, lambda event, last: self._context.accept(event), self._clicked)
