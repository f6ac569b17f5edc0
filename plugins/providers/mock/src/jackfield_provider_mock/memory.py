"""What a conversation remembers: one small JSON file, so that another process can take it up."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from jackfield.ids import is_id, new_id

__all__ = ["Memory"]

_KEPT = 200


@dataclass(slots=True)
class Memory:
    """A conversation.  `token` is its continuation's token, and names the file `<state_dir>/<token>.json`."""

    folder: Path
    token: str
    turns: int = 0
    lines: list[str] = field(default_factory=list)
    """What was heard and said, newest last; `<` before heard, `>` before said."""
    used: list[int] = field(default_factory=list)
    """Indexes of steps that are used up."""
    tries: dict[str, int] = field(default_factory=dict)
    """How often an action with `times` has happened, by action."""
    doomed: bool = False
    """Not kept: whoever resumes it will not find it."""

    @classmethod
    def begin(cls, folder: Path) -> Memory:
        """A new conversation; nothing is written yet."""
        return cls(folder=folder, token=new_id("mock"))

    @classmethod
    def load(cls, folder: Path, token: str) -> Memory | None:
        """The conversation with that token; None when there is no such file, or it can't be read."""
        if not is_id(token, "mock"):
            return None
        try:
            stored = json.loads((folder / f"{token}.json").read_text(encoding="utf-8"))
            return cls(
                folder=folder,
                token=token,
                turns=int(stored["turns"]),
                lines=[str(line) for line in stored["lines"]],
                used=[int(index) for index in stored["used"]],
                tries={str(name): int(count) for name, count in stored["tries"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def save(self) -> None:
        """Write it, so that a crash leaves the old or the new file whole."""
        path = self.folder / f"{self.token}.json"
        if self.doomed:
            path.unlink(missing_ok=True)
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = {
            "token": self.token,
            "turns": self.turns,
            "lines": self.lines,
            "used": self.used,
            "tries": self.tries,
        }
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(stored, ensure_ascii=True), encoding="utf-8")
        draft.replace(path)

    def remember(self, mark: str, text: str) -> None:
        """Add a line; a message that is heard again after a failure is kept once."""
        line = f"{mark} {text}"
        if self.lines[-1:] != [line]:
            self.lines = [*self.lines, line][-_KEPT:]

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
