"""What a conversation remembers: a small log of JSON lines, so that another process can take it up.

Each save appends what is new.  A crash can leave the last line half-written; it is passed over then.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jackfield.ids import is_id, new_id

__all__ = ["Memory"]

_KEPT = 200


class Memory:
    """A conversation.  `token` is its continuation's token, and names the file `<folder>/<token>.jsonl`."""

    def __init__(self, folder: Path, token: str) -> None:
        self.folder = folder
        self.token = token
        self.turns = 0
        self.lines: list[str] = []
        """What was heard and said, newest last; `<` before heard, `>` before said."""
        self.used: list[int] = []
        """Indexes of steps that are used up."""
        self.tries: dict[str, int] = {}
        """How often an action with `times` has happened, by action."""
        self.doomed = False
        """Not kept: whoever resumes it will not find it."""
        self._file = folder / f"{token}.jsonl"
        self._fresh: list[str] = []
        """Lines that are not saved yet."""
        self._replaced = False
        """Whether `lines` was replaced since the last save."""

    @classmethod
    def begin(cls, folder: Path) -> Memory:
        """A new conversation; nothing is written yet."""
        return cls(folder, new_id("mock"))

    @classmethod
    def load(cls, folder: Path, token: str) -> Memory | None:
        """The conversation with that token; None when there is no such file, or it can't be read."""
        if not is_id(token, "mock"):
            return None
        memory = cls(folder, token)
        try:
            with memory._file.open(encoding="utf-8") as log:
                for line in log:
                    if line.endswith("\n"):
                        memory._take(json.loads(line))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return memory

    def _take(self, stored: dict[str, Any]) -> None:
        added = [str(line) for line in stored["lines"]]
        self.lines = added if stored["replaced"] else [*self.lines, *added][-_KEPT:]
        self.turns = int(stored["turns"])
        self.used = [int(index) for index in stored["used"]]
        self.tries = {str(name): int(count) for name, count in stored["tries"].items()}

    def save(self) -> None:
        """Append what is new."""
        if self.doomed:
            self._file.unlink(missing_ok=True)
            return
        record = {
            "turns": self.turns,
            "used": self.used,
            "tries": self.tries,
            "lines": self.lines if self._replaced else self._fresh,
            "replaced": self._replaced,
        }
        self._fresh, self._replaced = [], False
        line = json.dumps(record, ensure_ascii=True) + "\n"
        try:
            self._append(line)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._append(line)

    def _append(self, line: str) -> None:
        with self._file.open("ab", buffering=0) as log:
            log.write(line.encode())

    def fold(self, line: str) -> None:
        """Let one line stand for all that was heard and said."""
        self.lines, self._fresh, self._replaced = [line], [], True

    def remember(self, mark: str, text: str) -> None:
        """Add a line; a message that is heard again after a failure is kept once."""
        line = f"{mark} {text}"
        if self.lines[-1:] != [line]:
            self.lines = [*self.lines, line][-_KEPT:]
            self._fresh.append(line)

    def due(self, name: str, times: int | None) -> bool:
        """Whether an action that happens `times` times shall happen again; counts it, durably, if so."""
        if times is None:
            return True
        count = self.tries.get(name, 0)
        if count >= times:
            self.tries.pop(name, None)
            return False
        self.tries[name] = count + 1
        self.save()
        return True
