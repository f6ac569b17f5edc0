"""Text that still grows, for destinations whose channel can show it: at most every 300 ms, and nothing but what is
certain (C167)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jackfield.clock import Clock
from jackfield.ids import TurnId
from jackfield.mailbox import RunnerMailbox
from jackfield.models import Address, Draft
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.output import Segment, visible_output

__all__ = ["Drafts"]

INTERVAL = 0.3
LIMIT = 64 * 1024
"""Bytes of one draft; what grows beyond that is shown when it is complete."""


class Drafts:
    """The drafts of one turn.  A block of the provider replaces the one before it, as long as that one is not sent."""

    def __init__(
        self,
        turn: TurnId,
        mail: MailRoom,
        clock: Clock,
        ring: Callable[[], None],
        place: Callable[[Segment], Address | None],
    ) -> None:
        self._turn = turn
        self._mail = mail
        self._clock = clock
        self._ring = ring
        self._place = place
        self._block: int | None = None
        self._text: list[str] = []
        self._size = 0
        self._first = 0
        self._shown: dict[int, tuple[Address, str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def any_shown(self) -> bool:
        return bool(self._shown)

    def add(self, block: int, text: str) -> None:
        """More text of a block."""
        if block != self._block:
            self._block, self._text, self._size = block, [], 0
        self._size += len(text)
        if self._size > LIMIT:
            return
        self._text.append(text)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._show)

    def discard(self, block: int) -> None:
        """The provider took the block back: what comes next stands in its place."""
        if block == self._block:
            self._text, self._size = [], 0

    def number_of(self, segment: int, address: Address | None) -> int | None:
        """The draft that the segment of the block completes, if one was shown at that place."""
        number = self._first + segment
        shown = self._shown.get(number)
        return number if shown is not None and shown[0] == address else None

    def sent(self) -> None:
        """The segments shown so far were sent: later ones get numbers of their own."""
        self._first = max(self._shown, default=self._first - 1) + 1
        self._text, self._size = [], 0

    def stop(self) -> None:
        """No more drafts in this turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _show(self) -> None:
        self._timer = None
        changed: list[Draft] = []
        for index, segment in enumerate(visible_output("".join(self._text))):
            address = self._place(segment)
            number = self._first + index
            if address is None or self._shown.get(number) == (address, segment.text):
                continue
            self._shown[number] = (address, segment.text)
            changed.append(
                Draft(turn=self._turn, block=number, address=address, text=segment.text, at=self._clock.now())
            )
        if not changed:
            return

        def put(mailbox: RunnerMailbox) -> None:
            for draft in changed:
                mailbox.put_draft(draft)
            self._ring()

        self._mail.post("a draft", put)
