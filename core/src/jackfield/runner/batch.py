"""Which rows make the next prompt.  Pure: from what is pending to what is taken.

One batch has one origin (architecture 5, rule 9), keeps the order of `seq` (C019), and never leaves a row behind that
is older than one it takes of the same origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.models import Address, ChatContent, InboundKind, InboundRow

__all__ = ["STOP", "Batch", "choose_batch", "choose_follow_ups", "command_of", "may_stop", "sender_of", "stop_requests"]

STOP = "/stop"


@dataclass(frozen=True, slots=True)
class Batch:
    """`rows` go into the prompt, in order of `seq`; `skipped` are older context rows for which there is no room.

    They are completed together with the rest, and the prompt says how many there were.
    """

    rows: tuple[InboundRow, ...]
    skipped: tuple[InboundRow, ...] = ()
    command: str | None = None
    """Set when the only row is a command."""

    @property
    def all_rows(self) -> tuple[InboundRow, ...]:
        return self.skipped + self.rows

    @property
    def origin(self) -> Address | None:
        """Where the rows that start the turn came from."""
        return self.lead.origin

    @property
    def lead(self) -> InboundRow:
        """The oldest row that starts a turn."""
        return next((row for row in self.rows if row.trigger), self.rows[0])

    @property
    def newest(self) -> InboundRow:
        """The latest row that starts a turn: the one that an answer is a reply to."""
        return next((row for row in reversed(self.rows) if row.trigger), self.rows[-1])


def command_of(row: InboundRow) -> str | None:
    """The exact command token that the host's gate let pass, or None."""
    return row.content.command if isinstance(row.content, ChatContent) else None


def sender_of(row: InboundRow) -> str | None:
    """Who said it; None for what no person said."""
    return row.content.sender_id or row.content.sender if isinstance(row.content, ChatContent) else None


def choose_batch(pending: Sequence[InboundRow], limit: int) -> Batch | None:
    """The next batch, or None while no pending row starts a turn.

    The oldest row with a trigger decides the origin.  Rows of that origin follow in order, context rows among them; a
    context row without any origin rides along with whichever turn comes.  A command is a batch of its own.  `limit` is
    the number of rows in one prompt, zero means any number (messaging.md 6.2).
    """
    rows = sorted(pending, key=lambda row: row.seq)
    lead = next((row for row in rows if row.trigger), None)
    if lead is None:
        return None
    mine = [row for row in rows if _belongs(row, lead.origin)]
    at = mine.index(lead)
    command = command_of(lead)
    if command is not None:
        # What was said before a /clear belongs to the conversation that it ends.
        earlier = tuple(mine[:at]) if command == "/clear" else ()
        return Batch((lead,), earlier, command)
    count = limit if limit > 0 else len(mine)
    start = max(0, at - (count - 1))
    taken: list[InboundRow] = []
    for row in mine[start:]:
        if len(taken) >= count or (row.trigger and command_of(row) is not None):
            break
        taken.append(row)
    return Batch(tuple(taken), tuple(mine[:start]))


def choose_follow_ups(
    pending: Sequence[InboundRow], origin: Address | None, people: frozenset[str], limit: int
) -> Batch | None:
    """Rows that may join a running turn: of its origin, said by somebody who takes part in it (C128).

    The first row of somebody else, or a command, ends the list: whatever comes after it waits as well, so that the
    order stays (C019).  Context rows join only together with one that has a trigger (messaging.md 17.4, pitfall 28).
    """
    taken: list[InboundRow] = []
    for row in sorted(pending, key=lambda row: row.seq):
        if not _belongs(row, origin):
            continue
        if row.trigger and (
            command_of(row) is not None or row.kind is not InboundKind.CHAT or sender_of(row) not in people
        ):
            break
        taken.append(row)
        if limit and len(taken) >= limit:
            break
    while taken and not taken[-1].trigger:
        taken.pop()
    return Batch(tuple(taken)) if taken else None


def stop_requests(pending: Sequence[InboundRow], origin: Address | None) -> tuple[InboundRow, ...]:
    """The rows that ask to stop the turn of this origin."""
    return tuple(row for row in pending if row.trigger and row.origin == origin and command_of(row) == STOP)


def may_stop(row: InboundRow, initiator: str | None) -> bool:
    """Whether this person may stop the turn: who began it, an owner or an admin (C128)."""
    if not isinstance(row.content, ChatContent):
        return False
    return row.content.sender_role in ("owner", "admin") or (initiator is not None and sender_of(row) == initiator)


def _belongs(row: InboundRow, origin: Address | None) -> bool:
    return row.origin == origin or (row.origin is None and not row.trigger)
