"""Putting pieces of a text into parts that a platform takes."""

from __future__ import annotations

from jackfield.models.splitting import LEAST_LIMIT

__all__ = ["Packer", "Pair"]

Pair = tuple[str, str]
"""A piece as CommonMark, and rendered."""


class Packer:
    """Puts pieces into parts, one after the other."""

    def __init__(self, separator: str, limit: int) -> None:
        self.parts: list[Pair] = []
        self._separator = separator
        self._limit = limit
        self._texts: list[str] = []
        self._shown: list[str] = []
        self._sizes: list[int] = []
        self._used = 0
        self._heading = False

    def room(self) -> int:
        """What a block that must be cut has for its beginning; the part ends first when that is little."""
        left = self._limit - self._used - len(self._separator) if self._texts else self._limit
        if left >= self._limit // 3 and left >= LEAST_LIMIT:
            return left
        self.flush()
        return self._limit

    def add(self, text: str, shown: str, size: int, *, heading: bool = False) -> None:
        """Put a piece of that size behind the others, or into the next part."""
        gap = len(self._separator) if self._texts else 0
        if self._used + gap + size > self._limit:
            carried = self._carried(size)
            self.flush()
            if carried is not None:
                self.add(*carried, heading=True)
            gap = len(self._separator) if self._texts else 0
        self._texts.append(text)
        self._shown.append(shown)
        self._sizes.append(size)
        self._used += gap + size
        self._heading = heading

    def _carried(self, size: int) -> tuple[str, str, int] | None:
        """A heading goes with what it is the heading of."""
        if not self._heading or len(self._texts) < 2:
            return None
        if self._sizes[-1] + len(self._separator) + size > self._limit:
            return None
        self._heading = False
        return self._texts.pop(), self._shown.pop(), self._sizes.pop()

    def flush(self) -> None:
        """End the part."""
        shown = self._separator.join(self._shown)
        if shown.strip():
            self.parts.append(("\n\n".join(self._texts), shown))
        self._texts, self._shown, self._sizes, self._used, self._heading = [], [], [], 0, False
