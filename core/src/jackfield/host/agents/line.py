"""The channel between agents: what one sends, the other finds in its inbox.

It is a channel like any other to whatever delivers: in order within a conversation, retried while a mailbox is blocked
or full, and sent again under its key after a crash, which changes nothing where it has arrived.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from jackfield.api import ChannelContext, EnqueuedMessage, Health, SendResult
from jackfield.errors import ChatNotFound, MailboxError, MalformedData, Transient, UnsafePath
from jackfield.host.agents.entering import arrival_id
from jackfield.host.agents.places import address_of, asker_of, where_asked
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import DeliveryId
from jackfield.mailbox import SessionFolder
from jackfield.mailbox.files import read_chunks
from jackfield.models import (
    AGENT_CHANNEL,
    Address,
    AgentGroup,
    AttachmentKind,
    Capabilities,
    ChatContent,
    InboundEntry,
    InboundKind,
    InboundRow,
    OutFile,
    OutMessage,
    Session,
    SessionStatus,
    StoredFile,
    Support,
)
from jackfield.points import reach
from jackfield.store import deliveries, groups, inbound, sessions

__all__ = ["CAN", "AgentLine", "author_id"]

CAN = Capabilities(tables=Support.NATIVE, files=Support.NATIVE, file_max_count=100, idempotent_send=True)
"""Texts of any length with files; no cards, questions, edits and reactions, which are for people."""


def author_id(group: AgentGroup) -> str:
    """How a message names the agent that wrote it; no person can be called so."""
    return f"{AGENT_CHANNEL}:{group.id}"


@dataclass(frozen=True, slots=True)
class _Facts:
    """Both ends of a delivery, and where its reader's plain words go."""

    entry: InboundEntry
    group: AgentGroup
    writer: Session
    reader: Session
    origin: Address


class AgentLine:
    """The one instance of the channel type `agent`; made by the host, never configured."""

    def __init__(
        self, hub: Hub, inbox: Inbox, *, before: Callable[[Session], Awaitable[None]], wake: Callable[[Session], None]
    ) -> None:
        """`before` is called before a message enters a session's inbox, `wake` afterwards."""
        self._hub = hub
        self._inbox = inbox
        self._before = before
        self._wake = wake

    async def start(self, context: ChannelContext) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        """Nothing to end."""

    async def check(self, context: ChannelContext) -> Health:
        return Health(ok=True)

    def capabilities(self, address: Address | None = None) -> Capabilities:
        return CAN

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Put the message into the reader's inbox; its id there.

        Raises:
            ChatNotFound: one of the two ends is gone, or what was sent was dropped meanwhile.
            Transient: the mailbox can't be written now.
        """
        facts = await self._hub.store.read(_facts, DeliveryId(idempotency_key))
        try:
            await self._before(facts.reader)
            row = InboundRow(
                id=facts.entry.id,
                kind=InboundKind.CHAT,
                content=ChatContent(
                    text=message.text,
                    sender=facts.group.name,
                    sender_id=author_id(facts.group),
                    files=await self._placed(facts, message.files),
                ),
                at=facts.entry.created_at,
                origin=facts.origin,
                source_session_id=facts.writer.id,
                hops=facts.entry.hops,
            )
            known = await self._inbox.deliver(facts.reader, [row])
        except MailboxError as problem:
            raise Transient(f"the agent's mailbox can't be written: {problem}") from problem
        reach("host.agents.after_enqueue")
        self._wake(facts.reader)
        dispatcher = self._hub.plugins.dispatcher
        if not known and dispatcher.has("message_enqueued"):
            enqueued = EnqueuedMessage(session=facts.reader, message_id=row.id, trigger=True)
            await dispatcher.notify("message_enqueued", message=enqueued)
        return SendResult(ids=(row.id,))

    async def _placed(self, facts: _Facts, files: tuple[OutFile, ...]) -> tuple[StoredFile, ...]:
        """Copies of the files in the reader's inbox; one that can't be had stays in the message with its reason."""
        if not files:
            return ()
        row_id = facts.entry.id
        return await self._inbox.use(
            facts.reader, lambda box: tuple(_place(box.folder, row_id, file) for file in files)
        )


def _place(folder: SessionFolder, row_id: str, file: OutFile) -> StoredFile:
    """One file from where the host keeps what is to be sent; never through a link, and whole or not at all."""
    kept = StoredFile(name=file.name, kind=_kind_of(file.mime), mime=file.mime, size=file.size)
    try:
        if folder.inbox_path(row_id, file.name).is_file():  # from before its mailbox was lost
            return replace(kept, path=f"inbox/{row_id}/{file.name}")
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as source:
            path = folder.store_inbox(row_id, file.name, read_chunks(source), file.size)
    except (UnsafePath, MalformedData, OSError) as problem:
        return replace(kept, problem=f"it could not be handed over: {problem}"[:200])
    return replace(kept, path=path)


def _kind_of(mime: str | None) -> AttachmentKind:
    kind = (mime or "").partition("/")[0]
    return AttachmentKind(kind) if kind in ("image", "audio", "video") else AttachmentKind.FILE


def _facts(db: sqlite3.Connection, part_id: DeliveryId) -> _Facts:
    part = deliveries.delivery(db, part_id)
    entry = inbound.entry(db, arrival_id(part_id))
    writer = sessions.session(db, part.session_id) if part is not None else None
    reader = sessions.session(db, entry.session_id) if entry is not None else None
    group = groups.agent_group(db, writer.agent_group_id) if writer is not None else None
    if entry is None or writer is None or reader is None or group is None:
        raise ChatNotFound("one of the two agents does not exist any more")
    if entry.state in inbound.ENDS and entry.state != "completed":
        raise ChatNotFound(f"it was {entry.state} before it arrived: {entry.reason or 'nobody said why'}")
    if reader.status is SessionStatus.CLOSED:
        raise ChatNotFound("the conversation was ended")
    origin = where_asked(db, reader, entry.chain) if asker_of(writer) == reader.id else None
    return _Facts(entry, group, writer, reader, origin or address_of(writer))
