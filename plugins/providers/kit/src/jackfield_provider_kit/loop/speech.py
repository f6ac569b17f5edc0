"""The texts of one turn on their way out: which are growing, which are said, which are taken back."""

from __future__ import annotations

from collections.abc import Callable

from jackfield.api import ProviderEvent, TextDelta, TextDiscarded, TextDone

__all__ = ["Speech"]


class Speech:
    """Numbers the blocks of a turn.

    A reply that was cut at the output limit goes on in the next one: its last text is `held`, and what comes next is
    added to the same block, so that a `<message>` that the cut went through is whole again.
    """

    def __init__(self, emit: Callable[[ProviderEvent], None]) -> None:
        self.final: list[str] = []
        """Texts that belong to the reply, in order."""
        self._emit = emit
        self._next = 0
        self._growing: dict[int, int] = {}
        """Blocks of the reply that is coming in: its index, our number."""
        self._held: tuple[int, str] | None = None

    def grow(self, index: int, text: str) -> None:
        """A piece of the running reply's block `index` came in."""
        self._emit(TextDelta(block=self._number(index), text=text))

    def _number(self, index: int) -> int:
        number = self._growing.get(index)
        if number is None:
            if self._held is not None and not self._growing:
                number = self._held[0]
            else:
                number, self._next = self._next, self._next + 1
            self._growing[index] = number
        return number

    def take_back(self) -> None:
        """The running reply failed; it comes again."""
        for number in self._growing.values():
            self._emit(TextDiscarded(block=number))
        if self._held is not None and self._held[0] in self._growing.values():
            number, self._next = self._next, self._next + 1
            self._held = (number, self._held[1])
            self._emit(TextDelta(block=number, text=self._held[1]))
        self._growing.clear()

    def said(self, texts: dict[int, str], *, final: bool, goes_on: bool = False) -> None:
        """The reply is complete.  `texts` are its text blocks by index; with `goes_on` the last one is held."""
        held, last = self._held, max(texts, default=None)
        for index, text in sorted(texts.items()):
            number = self._number(index)
            if held is not None and number == held[0]:
                text, self._held = held[1] + text, None
            if goes_on and index == last:
                self._held = (number, text)
            else:
                self._done(number, text, final=final)
        self._growing.clear()
        if not goes_on:
            self.release(final=final)

    def release(self, *, final: bool = True) -> None:
        """Nothing comes any more for the text that is held."""
        held, self._held = self._held, None
        if held is not None:
            self._done(*held, final=final)

    def _done(self, number: int, text: str, *, final: bool) -> None:
        self._emit(TextDone(block=number, text=text, final=final))
        if final:
            self.final.append(text)

    @property
    def reply(self) -> str | None:
        """The whole final text; None when there is none."""
        return "\n\n".join(text for text in self.final if text.strip()) or None
