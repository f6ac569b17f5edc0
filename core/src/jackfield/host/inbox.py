"""Writing into a session's inbox: messages with their files, notices, responses, retries.

A mailbox that is blocked by its runner is freed by stopping that runner; a damaged one is set aside, and what was still
open in the ledger is put into a fresh one (architecture 6).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from jackfield.api import OpensAttachments
from jackfield.errors import (
    Ambiguous,
    ChannelError,
    JackfieldError,
    MailboxBlocked,
    MailboxDamaged,
    MalformedData,
    NotFound,
    RateLimited,
    Transient,
    UnsafePath,
)
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.secrets.masking import masked
from jackfield.host.spool import SPOOL_TOKEN, Spool
from jackfield.ids import InboundId, SessionId, new_id
from jackfield.mailbox import HostMailbox, SessionFolder, file_name
from jackfield.models import (
    Address,
    Attachment,
    ChatContent,
    Delivered,
    InboundKind,
    InboundRow,
    InboundState,
    MessageReceived,
    NoticeContent,
    Response,
    Session,
    StoredFile,
)
from jackfield.redaction import REDACTOR
from jackfield.store import inbound, sessions

__all__ = ["Inbox"]

log = logging.getLogger(__name__)

T = TypeVar("T")

FETCH_SECONDS = 60.0
"""For each attachment (messaging.md, decisions); and for trying all those of a message again."""
FETCH_AGAIN = 1.0
"""Seconds before the second try to fetch one; doubles."""
BLOCKED_TRIES = 3
NUMBERS_APART = 1000
"""How far above the last known message number a fresh mailbox begins: nobody knows what the damaged one had reached."""


class Inbox:
    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        spool: Spool,
        *,
        wake: Callable[[Session], None],
        unblock: Callable[[Session], Awaitable[None]],
        on_damaged: Callable[[Session, str], Awaitable[None]],
        notes: Callable[[SessionId], Sequence[Delivered]] = lambda session_id: (),
    ) -> None:
        """`notes` are what the runner may be told along with a message, at no commit of its own; `unblock` stops the
        runner that holds the lock; `on_damaged` puts open messages into the fresh mailbox."""
        self._hub = hub
        self._channels = channels
        self._spool = spool
        self._wake = wake
        self._unblock = unblock
        self._on_damaged = on_damaged
        self._notes = notes
        self._made: set[SessionId] = set()

    async def with_files(self, session: Session, row: InboundRow, event: MessageReceived) -> InboundRow:
        """The row, with what is attached to the message fetched into the inbox's folder."""
        if not event.attachments:
            return row
        files = await self._fetch_all(session, row.id, event)
        assert isinstance(row.content, ChatContent)
        return replace(row, content=replace(row.content, files=files))

    async def deliver(
        self, session: Session, rows: Sequence[InboundRow], ring: Callable[[], None] = lambda: None
    ) -> list[InboundId]:
        """Put messages into the inbox, each once: a repeated one changes nothing but may wake.  Those that were there.

        `ring` is called in the mailbox's thread, as soon as they are on the disk.

        Raises:
            MailboxError: it can't be written now; nothing of it was.
        """
        notes = self._notes(session.id)
        now = self._hub.clock.now()
        attempts = {row.id: row.attempt for row in rows}

        clean = [masked(row) for row in rows]

        def put(box: HostMailbox) -> list[InboundId]:
            known = []
            for done in box.enqueue(clean, notes):
                if done.raised:
                    # It may have been taken as context already; now it must start a turn (messaging.md 3.6).
                    box.retry(done.id, attempts[done.id] + 1, now)
                elif not done.inserted:
                    known.append(done.id)
            ring()
            return known

        return await self.use(session, put)

    async def notify(
        self,
        session: Session,
        text: str,
        *,
        subject: str = "",
        wake: bool = False,
        origin: Address | None = None,
        row_id: str | None = None,
    ) -> None:
        """A notice from the host to the agent; with a `row_id` it is given at most once."""
        now = self._hub.clock.now()
        text = REDACTOR.values(text)
        row = InboundRow(
            id=InboundId(row_id or new_id("in")),
            kind=InboundKind.NOTICE,
            content=NoticeContent(text=text, subject=subject),
            at=now,
            origin=origin,
            trigger=wake,
        )
        await self.use(session, lambda box: box.enqueue([row]))
        await self._hub.store.write(
            inbound.record,
            id=row.id,
            event_id=None,
            wiring_id=None,
            session_id=session.id,
            state=InboundState.QUEUED if wake else InboundState.CONTEXT,
            preview=text[:200],
            now=now,
        )
        if wake:
            self._wake(session)

    async def respond(self, session_id: SessionId, response: Response) -> bool:
        """Answer a runner's action or question.  False when it has its answer already.

        Raises:
            NotFound: no such session.
        """
        session = await self._hub.store.read(sessions.session, session_id)
        if session is None:
            raise NotFound(f"session {session_id} does not exist any more")
        return await self.use(session, lambda box: box.respond(masked(response)))

    async def use(self, session: Session, work: Callable[[HostMailbox], T]) -> T:
        """Run `work` on the session's mailbox, making, freeing or replacing it as needed."""
        folder = self._hub.folder_of(session)
        await self._make(session)
        for attempt in range(1, BLOCKED_TRIES + 1):
            try:
                return await self._hub.mailboxes.run(folder, work)
            except MailboxBlocked:
                if attempt == BLOCKED_TRIES:
                    raise
                log.warning("the mailbox of session %s is blocked; its runner is stopped", session.id)
                self._hub.trouble("mailbox_blocked")
                await self._unblock(session)
            except MailboxDamaged as problem:
                if attempt == BLOCKED_TRIES:
                    raise
                await self.replace(session, problem)
        raise AssertionError("unreachable")

    async def _make(self, session: Session) -> None:
        """See once in a host's life that the folder is there, and is one."""
        if session.id in self._made:
            return
        try:
            await asyncio.to_thread(self._hub.folder_of(session).create)
        except MailboxDamaged as problem:
            await self.replace(session, problem)
        self._made.add(session.id)

    async def replace(self, session: Session, problem: MailboxDamaged) -> None:
        """Set the damaged mailbox aside and go on with a fresh one."""
        folder = self._hub.folder_of(session)
        self._hub.trouble("mailbox_damaged")
        await self._unblock(session)
        await self._hub.mailboxes.forget(folder)
        reached = await self._hub.store.read(sessions.cursors, session.id)
        floor = max(reached.seq, reached.change, reached.activity) + NUMBERS_APART
        aside = await asyncio.to_thread(partial(folder.set_aside, str(problem), floor=floor))
        log.error("the mailbox of session %s is damaged and was set aside in %s: %s", session.id, aside, problem)
        await self._on_damaged(session, str(problem))

    # ---- attachments

    async def _fetch_all(self, session: Session, row_id: str, event: MessageReceived) -> tuple[StoredFile, ...]:
        folder = self._hub.folder_of(session)
        await self._make(session)
        names: Sequence[str] = _distinct([file_name(item.name, f"{item.kind}") for item in event.attachments])
        fetched = []
        until = self._hub.clock.monotonic() + FETCH_SECONDS
        for attachment, name in zip(event.attachments, names, strict=True):
            fetched.append(await self._fetch(folder, row_id, event, attachment, name, until))
        return tuple(fetched)

    async def _fetch(
        self,
        folder: SessionFolder,
        row_id: str,
        event: MessageReceived,
        attachment: Attachment,
        name: str,
        until: float,
    ) -> StoredFile:
        """One file into `inbox/<row id>/`; one that can't be had stays in the message with its reason."""
        limit = self._hub.settings.file_limit
        kept = StoredFile(name=name, kind=attachment.kind, mime=attachment.mime, size=attachment.size)
        if attachment.size is not None and attachment.size > limit:
            return replace(kept, problem=f"larger than {limit:,} bytes")
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                data = await self._bytes_at_last(event, attachment, limit, until)
            path = await asyncio.to_thread(folder.store_inbox, row_id, name, data, limit)
        except TimeoutError:
            return replace(kept, problem=f"it could not be fetched within {FETCH_SECONDS:g} s")
        except (ChannelError, UnsafePath, MalformedData, OSError) as problem:
            log.info("attachment %s of %s could not be fetched: %s", attachment.id, row_id, problem)
            return replace(kept, problem=str(problem)[:200])
        return replace(kept, path=path, size=len(data))

    async def _bytes_at_last(self, event: MessageReceived, attachment: Attachment, limit: int, until: float) -> bytes:
        """What may work in a moment is tried again, while there is time for it until `until` (monotonic)."""
        delay = FETCH_AGAIN
        while True:
            try:
                return await self._bytes_of(event, attachment, limit)
            except (Ambiguous, RateLimited, Transient) as problem:
                wait = max(delay, problem.retry_after) if isinstance(problem, RateLimited) else delay
                if self._hub.clock.monotonic() + wait >= until:
                    raise
                log.info("attachment %s could not be fetched and is tried again: %s", attachment.id, problem)
            await self._hub.clock.sleep(wait)
            delay *= 2

    async def _bytes_of(self, event: MessageReceived, attachment: Attachment, limit: int) -> bytes:
        if attachment.token is not None and attachment.token.startswith(SPOOL_TOKEN):
            return await asyncio.to_thread(self._spool.read, attachment.token)
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        channel = instance.channel if instance is not None else None
        if not isinstance(channel, OpensAttachments):
            raise MalformedData("this channel can't fetch files")
        data = bytearray()
        try:
            async with channel.open_attachment(attachment) as chunks:
                async for chunk in chunks:
                    data += chunk
                    if len(data) > limit:
                        raise MalformedData(f"larger than {limit:,} bytes")
        except (JackfieldError, OSError):
            raise
        except Exception as problem:
            # A fault of the adapter's: without its file the message goes on.
            self._hub.trouble(f"channel {event.address.instance}")
            log.exception("channel %s raised an untyped error over an attachment", event.address.instance)
            raise ChannelError(f"{type(problem).__name__}: {problem}") from problem
        return bytes(data)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names, with `-2`, `-3` before the ending where one comes again."""
    seen: set[str] = set()
    out = []
    for name in names:
        stem, dot, ending = name.rpartition(".")
        candidate, number = name, 1
        while candidate.casefold() in seen:
            number += 1
            candidate = f"{stem}-{number}.{ending}" if dot and stem else f"{name}-{number}"
        seen.add(candidate.casefold())
        out.append(candidate)
    return out
