"""Taking rows from the mailbox: look, choose and claim in one step of the mailbox's thread."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, MalformedData
from jackfield.ids import InboundId, TurnId, new_id
from jackfield.mailbox import RunnerMailbox, SessionFolder
from jackfield.models import Address, Destination, InboundRow, OutboundRow
from jackfield.points import reach
from jackfield.runner.batch import Batch, choose_batch, choose_follow_ups, stop_requests
from jackfield.runner.words import group_words

__all__ = [
    "CARRIED",
    "LAST_ORIGIN",
    "Carried",
    "Fence",
    "Scene",
    "Taken",
    "carry_on",
    "scene_of",
    "take",
    "take_during",
]

CARRIED = "carried"
LAST_ORIGIN = "last_origin"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Carried:
    """Turns that did not end well, and whose rows will come again: what they sent must not be sent twice."""

    turns: tuple[TurnId, ...]
    rows: tuple[InboundId, ...] = ()
    """Empty when the runner was killed and nobody knows: then it is for the first batch that comes."""
    tools_ran: bool = False
    reason: str = "crash"

    def concerns(self, batch: Batch) -> bool:
        return not self.rows or any(row.id in self.rows for row in batch.rows)

    def dumps(self) -> str:
        return json.dumps({"turns": self.turns, "rows": self.rows, "tools_ran": self.tools_ran, "reason": self.reason})

    @classmethod
    def loads(cls, text: str) -> Carried:
        """Raises:
        MalformedData: it is not what `dumps` wrote.
        """
        try:
            value = json.loads(text)
            return cls(
                tuple(TurnId(str(turn)) for turn in value["turns"]),
                tuple(InboundId(str(row)) for row in value["rows"]),
                bool(value["tools_ran"]),
                str(value["reason"]),
            )
        except (ValueError, KeyError, TypeError) as problem:
            raise MalformedData(f"session_state[{CARRIED!r}] can't be read: {problem!r}") from None


@dataclass(frozen=True, slots=True)
class Scene:
    """What the mailbox says around a turn."""

    destinations: tuple[Destination, ...]
    origin: Address | None
    """The conversation that the turn answers: the batch's own, else the session's, else the last one that a person
    spoke in (messaging.md 17.4, pitfall 30)."""
    carried: Carried | None = None
    sent_before: tuple[OutboundRow, ...] = ()
    """What the carried turns had already sent."""


@dataclass(frozen=True, slots=True)
class Taken:
    batch: Batch
    turn: TurnId
    scene: Scene
    words: str
    """What the group's own files say."""
    more: bool
    """Whether other rows can be taken now."""


class Fence:
    """Whether this runner is still the session's own: the host writes a higher epoch when it starts another (C014)."""

    def __init__(self, folder: SessionFolder, epoch: int) -> None:
        self._folder = folder
        self._file = str(folder.spec_file)
        self._epoch = epoch
        self._stamp: tuple[int, int] | None = None

    def superseded(self) -> bool:
        try:
            found = os.stat(self._file)  # noqa: PTH116 - asked before each turn; a Path costs more than the answer
        except FileNotFoundError:
            return True
        stamp = (found.st_mtime_ns, found.st_ino)
        if stamp == self._stamp:
            return False
        try:
            newest = self._folder.read_spec().epoch
        except (JackfieldError, OSError) as problem:
            _LOG.warning("could not read %s again: %s", self._file, problem)
            return False
        self._stamp = stamp
        return newest > self._epoch


def take(
    mailbox: RunnerMailbox, now: UnixMs, limit: int, group: Path, *, first: bool, chosen: Callable[[Taken], None]
) -> UnixMs | None:
    """Claim the next batch, for an agent whose files lie in `group`; or when the next row is due, if it is known.

    `chosen` gets the batch right before the claim is committed, so that whatever needs no claim is done meanwhile.
    `first` is set once in a runner's life; then what a killed runner left behind is taken over.
    """
    if first:
        _adopt_broken_turn(mailbox)
    pending = mailbox.pending(now)
    batch = choose_batch(pending, limit)
    if batch is None:
        return mailbox.next_due(now)
    more = len(pending) > len(batch.all_rows)
    taken = Taken(batch, TurnId(new_id("trn", now)), scene_of(mailbox, batch), group_words(group), more)
    reach("runner.claim.before")
    mailbox.claim(batch.all_rows, taken.turn, before_commit=lambda: chosen(taken))
    reach("runner.claim.after")
    return None


def take_during(
    mailbox: RunnerMailbox, now: UnixMs, origin: Address | None, people: frozenset[str], limit: int, turn: TurnId,
    *, inject: bool,
) -> tuple[tuple[InboundRow, ...], Batch | None]:  # fmt: skip
    """During a turn: requests to stop it, and rows that may join it, both claimed."""
    pending = mailbox.pending(now)
    stops = stop_requests(pending, origin)
    joining = choose_follow_ups(pending, origin, people, limit) if inject else None
    claimed = [*stops, *(joining.rows if joining is not None else ())]
    if claimed:
        reach("runner.claim.before")
        mailbox.claim(claimed, turn)
        reach("runner.claim.after")
    return stops, joining


def scene_of(mailbox: RunnerMailbox, batch: Batch | None) -> Scene:
    """The destinations, the conversation, and what earlier tries of this batch have sent."""
    origin = batch.origin if batch is not None else None
    if origin is None:
        origin = mailbox.routing() or _last_origin(mailbox)
    carried = _carried(mailbox)
    if carried is not None and (batch is None or not carried.concerns(batch)):
        carried = None
    sent: list[OutboundRow] = []
    for turn in carried.turns if carried is not None else ():
        sent.extend(mailbox.sent_in(turn))
    return Scene(tuple(mailbox.destinations()), origin, carried, tuple(sent))


def carry_on(
    carried: Carried | None, turn: TurnId, rows: Sequence[InboundRow], *, tools_ran: bool, why: str
) -> Carried:
    """The next link of the chain: this turn did not end well either."""
    before = carried.turns if carried is not None else ()
    ran = tools_ran or (carried is not None and carried.tools_ran)
    return Carried((*before, turn), tuple(row.id for row in rows), ran, why)


def _adopt_broken_turn(mailbox: RunnerMailbox) -> None:
    broken = mailbox.broken_turn()
    if broken is None:
        return
    carried = _carried(mailbox)
    if carried is not None and broken in carried.turns:
        return
    before = carried if carried is not None else Carried(())
    _LOG.warning("turn %s was broken off by the end of an earlier runner", broken)
    mailbox.write(keys={CARRIED: replace(before, turns=(*before.turns, broken), rows=(), reason="crash").dumps()})


def _carried(mailbox: RunnerMailbox) -> Carried | None:
    text = mailbox.key(CARRIED)
    try:
        return None if text is None else Carried.loads(text)
    except MalformedData as problem:
        _LOG.error("what broken turns had sent is not known: %s", problem)
        return None


def _last_origin(mailbox: RunnerMailbox) -> Address | None:
    text = mailbox.key(LAST_ORIGIN)
    try:
        return None if text is None else Address.parse(text)
    except MalformedData as problem:
        _LOG.error("the last conversation is not known: %s", problem)
        return None
