"""A conversation on disk: one file of JSON lines, so that any process can take it up again.

    {"format": 1, "provider": "anthropic"}
    {"role": "user", "text": "..."}
    {"role": "assistant", "call": "toolu_1", "name": "send_message", "arguments": {...}}

A block is appended when it is complete.  A crash can leave the last line torn; it is cut off then.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jackfield.ids import is_id, new_id

from jackfield_provider_kit.loop.blocks import Block, Message, Role, Text, from_json, to_json
from jackfield_provider_kit.loop.mending import Said, mend

__all__ = ["History", "Mark"]

_FORMAT = 1
_ARCHIVES = 20
"""Transcripts of one conversation that are kept from before its compactions, newest last."""


class Mark(NamedTuple):
    """A place in a history."""

    generation: int
    blocks: int
    size: int


class History:
    """`token` is the continuation's; it names the file `<folder>/<token>.jsonl`."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.said: list[Said] = []
        self.damaged = 0
        """Lines that could not be read."""
        self._file = folder / f"{token}.jsonl"
        self._size = 0
        self._generation = 0

    @classmethod
    def begin(cls, folder: Path, provider: str) -> History:
        """A new conversation.

        Raises:
            OSError: the folder can't be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        history = cls(folder, new_id("conv"))
        history._append([{"format": _FORMAT, "provider": provider}])
        return history

    @classmethod
    def load(cls, folder: Path, token: str) -> History | None:
        """The conversation with that token; None when there is none, or it is of another format."""
        if not is_id(token, "conv"):
            return None
        history = cls(folder, token)
        try:
            data = history._file.read_bytes()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.truncate(history._file, whole)
            lines = data[:whole].splitlines()
            if not lines or json.loads(lines[0]).get("format") != _FORMAT:
                return None
        except (OSError, ValueError, AttributeError):
            return None
        history._size = whole
        for line in lines[1:]:
            try:
                history.said.append(from_json(json.loads(line)))
            except (ValueError, AttributeError):
                history.damaged += 1
        return history

    def messages(self) -> list[Message]:
        """What can be sent of it."""
        return mend(self.said)

    def add(self, role: Role, *blocks: Block) -> None:
        """Append complete blocks."""
        if blocks:
            self._append([to_json(role, block) for block in blocks])
            self.said.extend((role, block) for block in blocks)

    def ends_with(self, text: str) -> bool:
        """Whether the user's side said this last: a prompt that is sent again after a crash is kept once."""
        return bool(self.said) and self.said[-1] == ("user", Text(text))

    def mark(self) -> Mark:
        return Mark(self._generation, len(self.said), self._size)

    def back_to(self, mark: Mark) -> None:
        """Forget what was added since; a mark from before a `replace` is passed over."""
        if mark.generation == self._generation:
            os.truncate(self._file, mark.size)
            self._size = mark.size
            del self.said[mark.blocks :]

    def replace(self, said: Sequence[Said]) -> None:
        """Let these blocks stand for all that was said.  What was there is kept in `<folder>/archive/`."""
        archive = self.folder / "archive"
        archive.mkdir(exist_ok=True)
        kept = sorted(archive.glob(f"{self.token}.*.jsonl"))
        number = int(kept[-1].name.split(".")[-2]) + 1 if kept else 1
        shutil.copyfile(self._file, archive / f"{self.token}.{number:06}.jsonl")
        for old in kept[: max(0, len(kept) + 1 - _ARCHIVES)]:
            old.unlink(missing_ok=True)
        head = self._file.read_bytes().split(b"\n", 1)[0] + b"\n"
        data = head + _lines([to_json(role, block) for role, block in said])
        fresh = self._file.with_suffix(".new")
        fresh.write_bytes(data)
        fresh.replace(self._file)
        self._size = len(data)
        self.said = list(said)
        self._generation += 1

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        data = _lines(records)
        with self._file.open("ab", buffering=0) as log:
            log.write(data)
        self._size += len(data)


def _lines(records: Sequence[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=True).encode() + b"\n" for record in records)
