"""One account while the channel runs: everything that stands on a login, joined."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
from jackfield.api import ChannelContext
from jackfield.clock import Clock
from jackfield.errors import ChannelError

from jackfield_channel_matrix.crypto import Crypto, store_folder
from jackfield_channel_matrix.homeserver import Homeserver
from jackfield_channel_matrix.intake import CURSOR, Intake
from jackfield_channel_matrix.login import LoginFile, log_in
from jackfield_channel_matrix.outgoing import Outgoing
from jackfield_channel_matrix.rooms import Rooms
from jackfield_channel_matrix.seen import SeenEvents
from jackfield_channel_matrix.settings import MatrixSettings
from jackfield_channel_matrix.translate import Raw, Translator

if TYPE_CHECKING:
    from nio import AsyncClient

__all__ = ["Account", "crypto_store", "make_client", "open_account"]


@dataclass(frozen=True)
class Account:
    """The parts of a channel that is logged in.  `file_limit` is in bytes, None when the homeserver does not say."""

    homeserver: Homeserver
    rooms: Rooms
    intake: Intake
    outgoing: Outgoing
    translator: Translator
    crypto: Crypto | None
    file_limit: int | None


def make_client(settings: MatrixSettings, *, store: Path | None = None, pickle_key: str = "") -> AsyncClient:
    """matrix-nio's client, which never repeats a request by itself: that is the core's business."""
    import nio

    config: dict[str, Any] = {"max_limit_exceeded": 0, "max_timeouts": 0, "encryption_enabled": store is not None}
    if store is not None:
        config["pickle_key"] = pickle_key
    client = nio.AsyncClient(
        settings.homeserver, store_path=str(store) if store is not None else "", config=nio.AsyncClientConfig(**config)
    )
    client.client_session = aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=60))
    return client


async def open_account(
    client: AsyncClient, settings: MatrixSettings, context: ChannelContext, secret: str, clock: Clock
) -> Account:
    """Log in and put the parts together.

    Raises:
        AuthFailed: the credential is not accepted.
        ChannelError: the homeserver can't be asked.
        ConfigError: the keys of encrypted rooms can't be read.
    """
    homeserver = Homeserver(client, clock)
    file = LoginFile(context.folder)
    login = await log_in(homeserver, client, settings, secret, file)
    crypto: Crypto | None = None
    if settings.encryption:
        crypto = Crypto(client)
        crypto.open()
    rooms = Rooms(homeserver)
    seen = SeenEvents()

    def decrypt(room: str, event: Raw) -> Raw | None:
        return crypto.decrypt(room, event) if crypto is not None else None

    async def began(position: str) -> None:
        file.write(replace(login, began=position, refused=await context.cursor(CURSOR) or ""))

    cursor = await context.cursor(CURSOR)
    translator = Translator(homeserver, rooms, seen, context, decrypt)
    intake = Intake(
        homeserver,
        rooms,
        translator,
        crypto,
        settings,
        context,
        since=(login.began if cursor in (None, login.refused) else cursor) or None,
        began=began,
    )
    return Account(
        homeserver=homeserver,
        rooms=rooms,
        intake=intake,
        outgoing=Outgoing(homeserver, rooms, seen, crypto),
        translator=translator,
        crypto=crypto,
        file_limit=await _file_limit(homeserver),
    )


async def _file_limit(homeserver: Homeserver) -> int | None:
    for path in ("/_matrix/client/v1/media/config", "/_matrix/media/v3/config"):
        try:
            said = (await homeserver.request("GET", path)).get("m.upload.size")
        except ChannelError:
            continue
        return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None
    return None


def crypto_store(settings: MatrixSettings, folder: Path) -> Path | None:
    """Where the keys lie, None without encryption.

    Raises:
        ConfigError: what encryption needs is not installed.
    """
    return store_folder(folder) if settings.encryption else None
