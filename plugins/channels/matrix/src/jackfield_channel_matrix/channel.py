"""One Matrix account: rooms are chats, threads are threads, transaction ids make sends idempotent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets as random_secrets
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jackfield.api import ChannelContext, Health, MessageStream, SendResult
from jackfield.errors import AuthFailed, ChannelError, ChatNotFound, ConfigError, Transient
from jackfield.models import (
    Address,
    Attachment,
    Capabilities,
    ChannelState,
    ChannelStatus,
    MessageReceived,
    MessageRef,
    OpenDm,
    OutMessage,
    Person,
    StreamKind,
    Support,
    TextUnit,
    Threads,
)
from jackfield_channel_kit.claims import Claim, claim
from jackfield_channel_kit.reconnect import supervise
from jackfield_channel_kit.text.stream import EditStream

from jackfield_channel_matrix.account import Account, crypto_store, make_client, open_account
from jackfield_channel_matrix.content import TEXT_LIMIT, pieces, text_content
from jackfield_channel_matrix.crypto import decrypted_file
from jackfield_channel_matrix.homeserver import CLIENT, Homeserver, quoted
from jackfield_channel_matrix.login import LoginFile, credential, try_credential
from jackfield_channel_matrix.outgoing import CAPTION, event_of, pieces_of, with_text
from jackfield_channel_matrix.settings import MatrixSettings

if TYPE_CHECKING:
    from nio import AsyncClient

__all__ = ["MatrixChannel"]

log = logging.getLogger(__name__)

START_SECONDS = 10.0
"""How long `start` waits for the homeserver to say something; after that it goes on in the background."""
TYPING_SECONDS = 20.0
_ENCRYPTED_FILE = 64 * 1024 * 1024
"""Bytes of an encrypted file, which has to be in memory as a whole to be opened."""


class MatrixChannel:
    """See `jackfield.api.Channel`."""

    def __init__(self, instance: str, settings: MatrixSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._context: ChannelContext | None = None
        self._client: AsyncClient | None = None
        self._account: Account | None = None
        self._listening: asyncio.Task[Any] | None = None
        self._claim: Claim | None = None
        self._state: ChannelState | None = None
        self._told = asyncio.Event()

    def __repr__(self) -> str:
        return f"<matrix {self._instance}>"

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        """Log in and begin to sync; comes back when that works, or when it is known why not.

        Raises:
            ConfigError: the secret is not set, or encryption is wanted and not installed.
        """
        secret = await credential(self._settings, context)
        store = crypto_store(self._settings, context.folder)
        self._context = context
        self._client = make_client(self._settings, store=store, pickle_key=_pickle_key(context) if store else "")
        context.spawn(self._listen(context, self._client, secret), "sync")
        try:
            await asyncio.wait_for(self._told.wait(), START_SECONDS)
        except TimeoutError:
            self._report(ChannelStatus(state=ChannelState.RECONNECTING, detail="the homeserver has not answered yet"))

    async def stop(self) -> None:
        task, self._listening = self._listening, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)
        self._account = None
        if self._claim is not None:
            self._claim.release()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
            if client.store is not None:
                client.store.database.close()

    async def check(self, context: ChannelContext) -> Health:
        """Whether the homeserver is there and takes the token or password; a session made for that is ended."""
        try:
            crypto_store(self._settings, context.folder)
            secret = await credential(self._settings, context)
        except ConfigError as problem:
            return Health(ok=False, detail=problem.message, fix=problem.fix)
        client = make_client(self._settings)
        try:
            user = await try_credential(Homeserver(client, context.clock), client, self._settings, secret)
        except AuthFailed as problem:
            fix = "make a new access token for the account, and set the secret to it"
            if self._settings.password is not None:
                fix = "set the right password, or a token where the account has none (single sign-on)"
            return Health(ok=False, detail=problem.message, fix=fix)
        except ChannelError as problem:
            fix = f"is {self._settings.homeserver} what a Matrix client connects to? It must answer {CLIENT}/..."
            return Health(ok=False, detail=problem.message, fix=fix)
        finally:
            await client.close()
        return Health(ok=True, detail=f"logged in as {user}")

    async def _listen(self, context: ChannelContext, client: AsyncClient, secret: str) -> None:
        self._listening = asyncio.current_task()

        async def connect(ready: Callable[[], None]) -> None:
            if self._account is None:
                try:
                    self._account = await self._opened(context, client, secret)
                except ConfigError as problem:
                    detail = f"{problem.message}; {problem.fix}"
                    self._report(ChannelStatus(state=ChannelState.FAILED, detail=detail))
                    await asyncio.Event().wait()  # trying again would not mend it
                    raise
            await self._account.intake.listen(ready)

        await supervise(connect, self._report, clock=context.clock)

    async def _opened(self, context: ChannelContext, client: AsyncClient, secret: str) -> Account:
        account = await open_account(client, self._settings, context, secret, context.clock)
        # Each of two would be told everything, and answer it.
        who = f"{self._settings.homeserver} {account.homeserver.user_id}"
        self._claim = claim("matrix", self._instance, who, fix="give this channel an account of its own")
        return account

    def _report(self, status: ChannelStatus) -> None:
        assert self._context is not None
        if status.state is ChannelState.AUTH_FAILED and self._state is ChannelState.AUTH_FAILED:
            return
        self._state = status.state
        self._context.report(status)
        self._told.set()

    def _revoked(self, problem: AuthFailed) -> None:
        """A request was refused although we were logged in: the sync would see it too, only later."""
        if self._listening is not None:
            self._listening.cancel()
        self._report(ChannelStatus(state=ChannelState.AUTH_FAILED, detail=problem.message))

    @contextlib.contextmanager
    def _ready(self) -> Iterator[Account]:
        account = self._account
        if account is None:
            raise Transient(f"channel {self._instance} is not logged in yet")
        try:
            yield account
        except AuthFailed as problem:
            self._revoked(problem)
            raise

    # ---- out

    def capabilities(self, address: Address | None = None) -> Capabilities:
        account = self._account
        room = account.rooms.known(address.platform_id) if account is not None and address is not None else None
        return Capabilities(
            text_limit=TEXT_LIMIT,
            text_unit=TextUnit.UTF8,
            dialect="matrix-html",
            tables=Support.NATIVE,
            edit=Support.NATIVE,
            delete=Support.NATIVE,
            react=Support.NATIVE,
            threads=Threads.NATIVE,
            quote=Support.NATIVE,
            typing=Support.NATIVE,
            typing_ttl=TYPING_SECONDS,
            stream=StreamKind.EDIT,
            stream_interval=self._settings.stream_interval,
            files=Support.NATIVE,
            file_max_bytes=account.file_limit if account is not None else None,
            file_max_count=10,
            caption_limit=CAPTION,
            open_dm=OpenDm.YES,
            history=Support.NATIVE,
            idempotent_send=True,
            e2ee=room is not None and room.encrypted and self._settings.encryption,
        )

    def split(self, address: Address, message: OutMessage) -> Sequence[OutMessage]:
        """Cut by what the text measures as HTML."""
        return with_text(message, pieces_of(message))

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        with self._ready() as account:
            return await account.outgoing.send(address, message, idempotency_key)

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        with self._ready() as account:
            return await account.outgoing.edit(ref, message)

    async def delete(self, ref: MessageRef) -> None:
        with self._ready() as account:
            await account.outgoing.delete(ref)

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        with self._ready() as account:
            await account.outgoing.react(ref, emoji, on)

    async def typing(self, address: Address, on: bool = True) -> None:
        with self._ready() as account:
            await account.outgoing.typing(address.platform_id, on, TYPING_SECONDS)

    async def open_dm(self, person: Person) -> Address:
        with self._ready() as account:
            return Address("matrix", self._instance, await account.outgoing.open_dm(person.handle))

    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        context = self._context
        assert context is not None

        async def send(text: str, key: str | None) -> str:
            with self._ready() as account:
                nonlocal reply_to
                key = key or f"s-{uuid.uuid4().hex}"
                made = await account.outgoing.post(address, text_content(text), key, reply=event_of(reply_to))
                reply_to = None  # what does not fit into the first message follows it
                return made

        async def edit(event_id: str, text: str) -> None:
            with self._ready() as account:
                await account.outgoing.replace(address, event_id, text_content(text))

        async def rest(message: OutMessage, key: str) -> SendResult:
            return await self.send(address, replace(message, text=""), idempotency_key=key)

        return EditStream(
            send,
            edit,
            lambda event_id: self.delete(MessageRef(address, (event_id,))),
            interval=self._settings.stream_interval,
            clock=context.clock,
            render=pieces,
            rest=rest,
        )

    # ---- in

    @asynccontextmanager
    async def open_attachment(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        """The file's bytes, with our token; a file of an encrypted room is opened with its key.

        Raises:
            ChatNotFound: it is not there, or not there any more.
            ChannelError: it could not be fetched.
        """
        try:
            token = json.loads(attachment.token or "")
            url = str(token["url"])
        except (ValueError, KeyError, TypeError):
            raise ChatNotFound(f"{attachment.name!r} is no file of Matrix") from None
        with self._ready() as account:
            async with account.homeserver.download(url) as parts:
                yield _opened(parts, token) if "key" in token else parts

    async def history(
        self, address: Address, *, after: str | None = None, limit: int = 50
    ) -> Sequence[MessageReceived]:
        """What people wrote there last, or since a message: oldest first."""
        with self._ready() as account:
            return await _history(account, address, after, limit)


async def _opened(parts: AsyncIterator[bytes], token: dict[str, str]) -> AsyncIterator[bytes]:
    data = bytearray()
    async for piece in parts:
        data += piece
        if len(data) > _ENCRYPTED_FILE:
            raise ChatNotFound(f"an encrypted file of more than {_ENCRYPTED_FILE} bytes is not opened")
    yield await decrypted_file(bytes(data), token)


async def _history(account: Account, address: Address, after: str | None, limit: int) -> Sequence[MessageReceived]:
    path = f"{CLIENT}/rooms/{quoted(address.platform_id)}/messages"
    found: list[MessageReceived] = []
    query: dict[str, Any] = {"dir": "b", "limit": min(100, max(20, limit))}
    for _ in range(20):
        answer = await account.homeserver.request("GET", path, query=query)
        for event in answer.get("chunk", ()):
            if event.get("event_id") == after or len(found) >= limit:
                return found[::-1]
            if event.get("type") == "m.room.encrypted":
                event = account.crypto.decrypt(address.platform_id, event) if account.crypto is not None else None
            if event is not None and "state_key" not in event:
                events = await account.translator.events(address.platform_id, event, backfill=True)
                found += [one for one in events if isinstance(one, MessageReceived) and one.address == address]
        if not answer.get("end"):
            break
        query["from"] = answer["end"]
    return found[:limit][::-1]


def _pickle_key(context: ChannelContext) -> str:
    """What the store of keys is encrypted with; made at the first start."""
    file = LoginFile(context.folder)
    login = file.read()
    if not login.pickle_key:
        login = replace(login, pickle_key=random_secrets.token_urlsafe(32))
        file.write(login)
    return login.pickle_key
