"""Where messages leave: rows for the outbox, and the ledger of what this turn has sent already."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from jackfield.clock import Clock
from jackfield.ids import InboundId, OutboundId, TurnId, new_id
from jackfield.mailbox import RunnerMailbox
from jackfield.models import (
    Address,
    Card,
    Destination,
    MessageContent,
    OutboundContent,
    OutboundKind,
    OutboundRow,
    Prompt,
)
from jackfield.points import reach
from jackfield.runner.addressing import Target, fold_text
from jackfield.runner.mailroom import MailRoom

__all__ = ["FILE_LIMIT", "TEXT_LIMIT", "Desk", "Ledger", "shorten"]

TEXT_LIMIT = 256 * 1024
OPENING = 2 * 1024
FILE_LIMIT = 50 * 1024 * 1024


@dataclass(slots=True)
class Ledger:
    """What a turn has sent: the same text to the same place counts once, white space folded (C010)."""

    sent: dict[tuple[str, str], int] = field(default_factory=dict)

    def remember(self, target: Target, text: str, seq: int) -> None:
        self.sent[target.key, fold_text(text)] = seq

    def seq_of(self, target: Target, text: str) -> int | None:
        """The number under which it was sent; zero when that is not known yet."""
        return self.sent.get((target.key, fold_text(text)))

    @classmethod
    def of(cls, rows: Sequence[OutboundRow]) -> Ledger:
        ledger = cls()
        for row in rows:
            if isinstance(row.content, MessageContent) and not row.content.files:
                ledger.remember(Target("", row.address, row.agent_group_id), row.content.text, row.seq)
        return ledger


class Desk:
    """Writes messages for the turn that runs; without one, for the conversation of the last."""

    def __init__(self, mail: MailRoom, clock: Clock, epoch: int, ring: Callable[[], None]) -> None:
        self.mail = mail
        self.clock = clock
        self.epoch = epoch
        self.ring = ring
        self.turn: TurnId | None = None
        self.origin: Address | None = None
        self.reply_to: InboundId | None = None
        self.ledger = Ledger()

    def begin(self, turn: TurnId, origin: Address | None, reply_to: InboundId | None, ledger: Ledger) -> None:
        self.turn, self.origin, self.reply_to, self.ledger = turn, origin, reply_to, ledger

    async def destinations(self) -> Sequence[Destination]:
        return await self.mail.run(lambda mailbox: mailbox.destinations())

    def row(
        self, kind: OutboundKind, content: OutboundContent, target: Target | None, *, draft_block: int | None = None
    ) -> OutboundRow:
        """A row of this turn.  It is a reply only where the turn's own conversation is (C052)."""
        here = target is not None and target.address is not None and target.address == self.origin
        return OutboundRow(
            id=OutboundId(new_id("out", self.clock.now())),
            kind=kind,
            content=content,
            at=self.clock.now(),
            epoch=self.epoch,
            turn=self.turn,
            destination=None if target is None else target.destination,
            address=None if target is None else target.address,
            agent_group_id=None if target is None else target.agent_group_id,
            in_reply_to=self.reply_to if here else None,
            draft_block=draft_block,
        )

    async def send(
        self,
        target: Target,
        text: str,
        *,
        files: Sequence[tuple[str, Path]] = (),
        card: Card | None = None,
        prompt: Prompt | None = None,
        draft_block: int | None = None,
    ) -> int:
        """Write a message now; its number.  A plain text that this turn has sent there already is not sent again.

        Raises:
            OSError: a file can't be read.
            MailboxError: the mailbox can't be written.
        """
        plain = not files and card is None and prompt is None
        before = self.ledger.seq_of(target, text) if plain else None
        if before is not None:
            return before
        content = MessageContent(text=text, files=tuple(name for name, _ in files), card=card, prompt=prompt)
        row = self.row(OutboundKind.MESSAGE, content, target, draft_block=draft_block)
        if plain:
            self.ledger.remember(target, text, 0)

        def deposit(mailbox: RunnerMailbox) -> int:
            for name, path in files:
                mailbox.copy_to_outbox(row.id, path, name, FILE_LIMIT)
            (seq,) = mailbox.write(messages=[shorten(mailbox, row)])
            reach("runner.tool.after_send")
            return seq

        try:
            seq = await self.mail.run(deposit)
        except BaseException:
            if plain:
                self.ledger.sent.pop((target.key, fold_text(text)), None)
            raise
        if plain:
            self.ledger.remember(target, text, seq)
        self.ring()
        return seq

    async def write(self, row: OutboundRow) -> int:
        """Write any row now; its number."""
        (seq,) = await self.mail.run(lambda mailbox: mailbox.write(messages=[row]))
        self.ring()
        return seq


def shorten(mailbox: RunnerMailbox, row: OutboundRow) -> OutboundRow:
    """The row, with a text of more than 256 KiB turned into a file and a 2 KiB opening (architecture 2; C219)."""
    content = row.content
    if not isinstance(content, MessageContent) or len(content.text) <= TEXT_LIMIT // 4:
        return row
    data = content.text.encode("utf-8", "replace")
    if len(data) <= TEXT_LIMIT:
        return row
    name = "message.md"
    while name in content.files:
        name = f"whole-{name}"
    with tempfile.TemporaryDirectory(prefix="jackfield-") as folder:
        whole = Path(folder) / name
        whole.write_bytes(data[:FILE_LIMIT])
        mailbox.copy_to_outbox(row.id, whole, name, FILE_LIMIT)
    opening = data[:OPENING].decode("utf-8", "ignore").rstrip()
    return replace(row, content=replace(content, text=f"{opening}…", files=(*content.files, name)))
