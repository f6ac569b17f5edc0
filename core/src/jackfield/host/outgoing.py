"""From an outbound row to the parts that a channel sends: everything before the recording transaction.

The row is the work of a hostile writer: its destination is checked again, its files are opened without following a link
and copied to where no runner can reach them, and nothing in it makes an exception.  The outbound hooks see it here,
exactly once (C189).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jackfield.api import Channel, Edits, OutboundPart, Reacts, SendPath
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError
from jackfield.host.agents import line, places
from jackfield.host.channels import ChannelDirectory
from jackfield.host.degrade import degrade
from jackfield.host.hub import Hub
from jackfield.host.outbound_facts import Facts, facts_of, ids_of_inbound
from jackfield.host.outbound_hooks import Refusal, passed_hooks
from jackfield.host.outgoing_files import copy_file, remove_files, write_file
from jackfield.host.parts import message_parts
from jackfield.ids import DeliveryId, QuestionId, SessionId, derive_id, is_id
from jackfield.models import (
    Address,
    AgentGroup,
    Capabilities,
    Delivery,
    DeliveryState,
    EditContent,
    MessageContent,
    MessageRef,
    OutboundRow,
    OutFile,
    OutMessage,
    Prompt,
    ReactionContent,
    Session,
    SessionMode,
    Support,
    Threads,
    dumps,
)
from jackfield.models.splitting import opening
from jackfield.store import deliveries, questions

__all__ = ["WHOLE", "Planned", "Planner"]

log = logging.getLogger(__name__)

OPENING = 2048
"""Bytes of a text that became a file."""
MAX_FILES = 20
WHOLE = "whole"
"""The kind of a message that was planned before its channel was made; it is degraded and cut when it is sent."""
TOLD = {
    "files": "files that the chat does not take were named in the text instead of sent",
    "private": "the chat has no private messages, so everybody there can read it",
}
"""Losses that change what the agent should do next; a list in place of buttons, say, does not."""
LONGEST_QUESTION = 7 * 86_400_000
"""Milliseconds that a question may stay open, whatever the agent asked for."""


@dataclass(frozen=True, slots=True)
class Planned:
    """The parts for the ledger, and what the agent should be told of."""

    parts: list[Delivery]
    notes: tuple[str, ...] = ()
    """What was degraded or left out, each a short phrase."""


class Planner:
    def __init__(self, hub: Hub, channels: ChannelDirectory) -> None:
        self._hub = hub
        self._channels = channels

    @property
    def folder(self) -> Path:
        """Where files wait to be sent, out of any runner's reach."""
        return self._hub.home.root / "outgoing"

    def files_of(self, session_id: str, out_seq: int) -> Path:
        return self.folder / f"{session_id}-{out_seq}"

    async def plan(self, session: Session, group: AgentGroup, row: OutboundRow, now: UnixMs) -> Planned:
        """The parts of a message, edit or reaction.  A refused one is one part with its end and reason."""
        address = row.address
        try:
            address = await self._origin(session, row)
            return await self._plan(session, group, row, address, now)
        except Refusal as refusal:
            log.warning("row %d of session %s is not sent: %s", row.seq, session.id, refusal.reason)
            nowhere = Address("none", "none", session.id)
            part = self._entry(session, row, address or nowhere, _shown(row), 1, 1, now)
            return Planned([replace(part, state=refusal.state, reason=refusal.reason, last_error=refusal.error[:1000])])

    async def _plan(
        self, session: Session, group: AgentGroup, row: OutboundRow, address: Address, now: UnixMs
    ) -> Planned:
        if address.is_agent:
            return await self._to_agent(session, row, address, now)
        facts = self._hub.store.peek(facts_of, session, group, address)
        if not facts.allowed:
            raise Refusal(
                DeliveryState.BLOCKED,
                "DestinationNotAllowed",
                f"{address} is neither this conversation nor a destination of {group.name}",
            )
        instance = self._channels.instance(address.channel_type, address.instance)
        channel = instance.channel if instance is not None else None
        section = self._hub.configuration.channels.get(address.instance)
        if instance is None and (section is None or not section.enabled or section.type != address.channel_type):
            raise Refusal(DeliveryState.FAILED, "ChannelMissing", f"no channel {address.instance!r} is configured")
        can = channel.capabilities(address) if channel is not None else Capabilities()
        match row.content:
            case EditContent():
                return await self._edit(session, row, row.content, address, channel, can, now)
            case ReactionContent():
                return await self._reaction(session, row, row.content, address, channel, can, now)
            case MessageContent():
                return await self._message(session, row, row.content, address, channel, can, facts, now)
            case _:
                raise Refusal(DeliveryState.FAILED, "MalformedData", f"a {row.kind} can't hold {row.content!r:.80}")

    async def _origin(self, session: Session, row: OutboundRow) -> Address:
        """Where it goes.  A session of one thread never falls out of it, unless the agent named the chat (C050)."""
        if row.agent_group_id is not None:
            if not row.agent_group_id.strip():
                raise Refusal(DeliveryState.FAILED, "NoDestination", "it names no agent")
            return places.place_of_group(row.agent_group_id)
        home: Address | None = None
        if row.address is None or (session.mode is SessionMode.PER_THREAD and row.address.thread_id is None):
            home = await self._hub.store.read(places.home_of, session)
        if row.address is None:
            if home is None:
                raise Refusal(DeliveryState.FAILED, "NoDestination", "it names no destination and has no conversation")
            return home
        if home is not None and row.destination is None and row.address == home.chat:
            return home
        return row.address

    # ---- kinds

    async def _to_agent(self, session: Session, row: OutboundRow, address: Address, now: UnixMs) -> Planned:
        """A message to another agent, in one part.  Whether it may go there is decided when it is recorded, since that
        depends on what was recorded before it (`jackfield.host.agents.entering`)."""
        content = row.content
        try:
            await self._hub.store.read(places.reader_of, session, address)
        except places.Refused as refused:
            raise Refusal(DeliveryState.BLOCKED, refused.reason, refused.text) from None
        if not isinstance(content, MessageContent):
            raise Refusal(DeliveryState.FAILED, "Unsupported", "between agents nothing is edited or reacted to")
        if content.card is not None or content.prompt is not None:
            raise Refusal(DeliveryState.FAILED, "Unsupported", "cards and questions are for people; send the words")
        files, notes = await self._copied(session, row, content.files)
        if not (content.text.strip() or files):
            raise Refusal(DeliveryState.FAILED, "EmptyMessage", "; ".join(notes) or "it has no text and no file")
        message = OutMessage(text=content.text, files=files)
        message = await self._passed(_path(row, content), address, message, session)
        message, more = await self._shortened(session, row, message, line.CAN)
        return Planned([self._entry(session, row, address, dumps(message), 1, 1, now)], (*notes, *more))

    async def _edit(
        self,
        session: Session,
        row: OutboundRow,
        content: EditContent,
        address: Address,
        channel: Channel | None,
        can: Capabilities,
        now: UnixMs,
    ) -> Planned:
        if content.target_seq % 2 == 0:
            raise Refusal(DeliveryState.FAILED, "NotOwnMessage", "only the agent's own messages can be edited")
        text = (await self._passed(SendPath.EDIT, address, OutMessage(text=content.text), session)).text
        if not text.strip():
            raise Refusal(DeliveryState.FAILED, "EmptyMessage", "the new text is empty")
        if channel is None or (can.edit is not Support.NONE and isinstance(channel, Edits)):
            changed = replace(content, text=opening(text, self._hub.settings.text_limit))
            return Planned([self._entry(session, row, address, dumps(changed), 1, 1, now)])
        again = OutMessage(text=f"*(edited)* {text}")
        parts = message_parts(degrade(again, can).message, address, channel, can)
        return Planned(self._entries(session, row, address, parts, now), ("the edit was sent as a new message",))

    async def _reaction(
        self,
        session: Session,
        row: OutboundRow,
        content: ReactionContent,
        address: Address,
        channel: Channel | None,
        can: Capabilities,
        now: UnixMs,
    ) -> Planned:
        if channel is not None and (can.react is Support.NONE or not isinstance(channel, Reacts)):
            raise Refusal(DeliveryState.DROPPED, "Unsupported", "this chat has no reactions")
        named = content.emoji.isascii()  # `thumbs_up`: the channel knows which it means
        if can.emoji and not named and _bare(content.emoji) not in {_bare(emoji) for emoji in can.emoji}:
            some = " ".join(can.emoji[:10])
            raise Refusal(
                DeliveryState.FAILED, "Unsupported", f"{content.emoji!r} is no reaction there; some are {some}"
            )
        await self._passed(SendPath.REACTION, address, OutMessage(text=content.emoji), session)
        return Planned([self._entry(session, row, address, dumps(content), 1, 1, now)])

    async def _message(
        self,
        session: Session,
        row: OutboundRow,
        content: MessageContent,
        address: Address,
        channel: Channel | None,
        can: Capabilities,
        facts: Facts,
        now: UnixMs,
    ) -> Planned:
        files, notes = await self._copied(session, row, content.files)
        if not (content.text.strip() or files or content.card or content.prompt):
            if notes:
                raise Refusal(DeliveryState.FAILED, "UnsafePath", "; ".join(notes))
            raise Refusal(DeliveryState.FAILED, "EmptyMessage", "it has no text, file, card or question")
        message = OutMessage(text=content.text, files=files, card=content.card, prompt=content.prompt)
        message = await self._passed(_path(row, content), address, message, session)
        if message.prompt is not None:
            await self._ask(session, row, message.prompt, address, now)
        message, more = await self._shortened(session, row, message, can if channel is not None else None)
        notes += more
        if row.in_reply_to is not None and (facts.is_group or can.threads is Threads.REPLY_CHAIN):
            ids = self._hub.store.peek(ids_of_inbound, session, address, row.in_reply_to)
            if ids:
                message = replace(message, reply_to=MessageRef(address, ids))
        if channel is None:
            # The channel is not made yet, so nobody knows what it can: the sender cuts the message when it is.
            whole = self._entry(session, row, address, dumps(message), 1, 1, now)
            return Planned([replace(whole, kind=WHOLE)], tuple(notes))
        degraded = degrade(message, can)
        notes += [TOLD[what] for what in degraded.lost if what in TOLD]
        parts = message_parts(degraded.message, address, channel, can)
        return Planned(self._entries(session, row, address, parts, now), tuple(notes))

    async def _passed(self, path: SendPath, address: Address, message: OutMessage, session: Session) -> OutMessage:
        return await passed_hooks(self._hub, OutboundPart(path=path, address=address, message=message, session=session))

    async def _ask(self, session: Session, row: OutboundRow, prompt: Prompt, address: Address, now: UnixMs) -> None:
        """Open the question.  Its id must be this row's: an answer goes to whoever asked under it first."""
        expires = prompt.expires_at or UnixMs(now + round(self._hub.settings.question_timeout * 1000))
        expires = min(expires, UnixMs(now + LONGEST_QUESTION))

        def ask(db: sqlite3.Connection) -> bool:
            id = QuestionId(prompt.id)
            questions.add(db, id, session.id, row.seq, address, dumps(prompt), expires, now, row.turn)
            known = questions.question(db, id)
            return known is not None and (known.session_id, known.out_seq) == (session.id, row.seq)

        if prompt.id.lower().startswith("ap_"):
            # Whoever clicked it would decide an approval, whatever the question says.
            raise Refusal(DeliveryState.FAILED, "QuestionIdTaken", "that is no id of a question")
        if not prompt.id or not await self._hub.store.write(ask):
            raise Refusal(DeliveryState.FAILED, "QuestionIdTaken", f"there is a question {prompt.id!r} already")

    # ---- texts and files

    async def _shortened(
        self, session: Session, row: OutboundRow, message: OutMessage, can: Capabilities | None
    ) -> tuple[OutMessage, list[str]]:
        """A text over the configured size becomes a file and its opening (C219)."""
        limit = self._hub.settings.text_limit
        if len(message.text) * 4 <= limit:
            return message, []
        data = message.text.encode("utf-8", "replace")
        if len(data) <= limit:
            return message, []
        start = opening(message.text, OPENING)
        if can is not None and (can.files is Support.NONE or len(data) > (can.file_max_bytes or len(data))):
            text = f"{start}\n\n*(The text is {len(data):,} bytes long; this chat can't take the rest.)*"
            return replace(message, text=text), ["only the opening of the long text was sent"]
        target = self.files_of(session.id, row.seq) / "whole" / "message.md"
        try:
            await asyncio.to_thread(write_file, target, data)
        except OSError as problem:
            raise Refusal(DeliveryState.FAILED, "NoSpace", f"the long text can't be kept: {problem.strerror}") from None
        whole = OutFile(name="message.md", path=str(target), size=len(data), mime="text/markdown")
        text = f"{start}\n\n*(The text is {len(data):,} bytes long; all of it is in {whole.name}.)*"
        return replace(message, text=text, files=(whole, *message.files)), []

    async def _copied(
        self, session: Session, row: OutboundRow, names: Sequence[str]
    ) -> tuple[tuple[OutFile, ...], list[str]]:
        """The files that may leave, and a line for each that may not (C075)."""
        if not names:
            return (), []
        source = self._hub.folder_of(session)
        target = self.files_of(session.id, row.seq)
        limit = self._hub.settings.file_limit
        good: list[OutFile] = []
        bad: list[str] = []
        for name in dict.fromkeys(names[:MAX_FILES]):
            try:
                good.append(await asyncio.to_thread(copy_file, source, row.id, name, target, limit))
            except (JackfieldError, OSError) as problem:
                bad.append(f"the file {name[:80]!r} was not sent: {problem}")
        if len(names) > MAX_FILES:
            bad.append(f"{len(names) - MAX_FILES} files were not sent: at most {MAX_FILES} go with a message")
        return tuple(good), bad

    async def forget_files(self) -> None:
        """Remove the copies of rows that the ledger does not know any more."""

        def listed() -> list[str]:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return [path.name for path in self.folder.iterdir()]

        for name in await asyncio.to_thread(listed):
            session_id, _, seq = name.rpartition("-")
            number = int(seq) if seq.isdigit() else 0
            if not await self._hub.store.read(deliveries.parts_of, SessionId(session_id), number):
                await asyncio.to_thread(remove_files, self.folder / name)

    # ---- ledger entries

    def _entries(
        self, session: Session, row: OutboundRow, address: Address, parts: Sequence[OutMessage], now: UnixMs
    ) -> list[Delivery]:
        if not parts:
            raise Refusal(DeliveryState.FAILED, "EmptyMessage", "nothing of it can be sent to this chat")
        return [
            self._entry(session, row, address, dumps(part), number, len(parts), now)
            for number, part in enumerate(parts, 1)
        ]

    def _entry(
        self, session: Session, row: OutboundRow, address: Address, content: str, part: int, parts: int, now: UnixMs
    ) -> Delivery:
        # Planning the same row again must give the same ids, since they are the idempotency keys.
        base = row.id if is_id(row.id) else session.id
        return Delivery(
            id=DeliveryId(derive_id("dl", base, session.id, str(row.seq), str(part))),
            session_id=session.id,
            out_seq=row.seq,
            out_id=row.id,
            part=part,
            parts=parts,
            kind=row.kind.value,
            address=address,
            content=content,
            state=DeliveryState.PENDING,
            attempts=0,
            next_try_at=now,
            first_try_at=None,
            platform_ids=(),
            reason=None,
            last_error=None,
            maybe_duplicate=False,
            created_at=now,
            updated_at=now,
        )


# ---- small things


def _path(row: OutboundRow, content: MessageContent) -> SendPath:
    if content.command:
        return SendPath.COMMAND
    if content.prompt is not None:
        return SendPath.QUESTION
    if content.card is not None:
        return SendPath.CARD
    if content.files:
        return SendPath.FILE
    answers = row.in_reply_to is not None or row.draft_block is not None
    return SendPath.ANSWER if answers else SendPath.TOOL


def _shown(row: OutboundRow) -> str:
    """What the ledger keeps of a row that is not sent."""
    if isinstance(row.content, (EditContent, ReactionContent)):
        return dumps(row.content)
    if isinstance(row.content, MessageContent):
        content = row.content
        return dumps(OutMessage(text=opening(content.text, OPENING), card=content.card, prompt=content.prompt))
    return dumps(OutMessage())


def _bare(emoji: str) -> str:
    """Without variation selectors and skin tones (C060, C062)."""
    return "".join(char for char in emoji if char not in "\ufe0e\ufe0f" and not "\U0001f3fb" <= char <= "\U0001f3ff")
