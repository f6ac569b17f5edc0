"""A screen for pipes, files and simple terminals: answers go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TextIO

from jackfield_channel_terminal.cleaning import clean, clean_name
from jackfield_channel_terminal.frames import Frame

__all__ = ["PlainScreen"]

_NOT_FOR_MACHINES = ("welcome", "typing", "stream", "stream_end")


class PlainScreen:
    """Prints each message when it is complete.  With `machine` every frame is one line of JSON instead."""

    def __init__(
        self,
        render: Callable[[Frame], str],
        *,
        machine: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._render = render
        self._machine = machine
        self._out = out or sys.stdout
        self._err = err or sys.stderr

    async def show(self, frame: Frame) -> None:
        self._answer(self._render(frame))

    async def edited(self, message_id: str, text: str, was: str | None) -> None:
        self._answer(f"(edited) {clean(text)}")

    async def reacted(self, emoji: str, on: bool, was: str | None) -> None:
        self._aside(f"({'reacted' if on else 'took back'}: {clean_name(emoji)})")

    async def decided(self, text: str) -> None:
        self._aside(clean(text))

    async def note(self, text: str) -> None:
        self._aside(text, always=True)

    async def problem(self, text: str) -> None:
        self._aside(clean(text), always=True)

    def draft(self, key: str, text: str | None) -> None:
        pass

    def typing(self, on: bool) -> None:
        pass

    def raw(self, frame: Frame) -> None:
        if self._machine and frame.get("type") not in _NOT_FOR_MACHINES:
            self._write(json.dumps(frame))

    def _answer(self, text: str) -> None:
        if not self._machine:
            self._write(text)

    def _write(self, text: str) -> None:
        """Flushed at once: a message is confirmed only after the reader could have got it."""
        self._out.write(_encodable(text, self._out) + "\n")
        self._out.flush()

    def _aside(self, text: str, *, always: bool = False) -> None:
        if text and (always or not self._machine):
            self._err.write(_encodable(text, self._err) + "\n")
            self._err.flush()


def _encodable(text: str, out: TextIO) -> str:
    encoding = getattr(out, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
