"""What was handed to the provider in a turn, and which of it an end of the provider's turn answers.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jackfield.api import SendReceipt
from jackfield.models import InboundRow

__all__ = ["Inputs"]


@dataclass(slots=True)
class _Input:
    """Rows, or something that the runner itself had to say (no rows)."""

    rows: tuple[InboundRow, ...]
    receipt: SendReceipt = "started"
    taken: bool = False


class Inputs:
    """In order.  `exact` says that the provider tells which inputs a turn of its took."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._items: dict[str, _Input] = {}

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, number: str, rows: Sequence[InboundRow]) -> None:
        self._items[number] = _Input(tuple(rows))

    def received(self, number: str, receipt: SendReceipt) -> None:
        """What the provider said when it was handed in; what it rejected is not owed."""
        if receipt == "rejected":
            del self._items[number]
        else:
            self._items[number].receipt = receipt

    def take(self, numbers: Iterable[str]) -> None:
        """The provider said that it works on these."""
        for number in numbers:
            if number in self._items:
                self._items[number].taken = True

    def rows(self) -> list[InboundRow]:
        return [row for item in self._items.values() for row in item.rows]

    def clear(self) -> None:
        self._items.clear()

    def settle(self) -> list[InboundRow] | None:
        """The provider's turn ended: the rows that it answers, which leave; None when it was another turn's end.

        What was queued, or not taken by a provider that tells, is still owed; the oldest of it comes next.
        """
        exact = self._exact and any(item.taken for item in self._items.values())
        owed = {
            number: item
            for number, item in self._items.items()
            if not item.taken and (exact or item.receipt == "queued")
        }
        done = [item for number, item in self._items.items() if number not in owed]
        for item in owed.values():
            item.receipt = "started"
            break
        if owed and not done:
            return None
        self._items = owed
        return [row for item in done for row in item.rows]
