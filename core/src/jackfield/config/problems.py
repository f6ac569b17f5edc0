"""What is wrong with a configuration file, said so that the reader can mend it without opening the manual."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from jackfield.errors import ConfigError

__all__ = ["BadValue", "Problem", "Severity", "may_be_secret", "near", "refuse", "shown"]

_SECRET = re.compile(r"token|secret|passw|credential|api_?key|private", re.IGNORECASE)


class Severity(StrEnum):
    WARNING = "warning"
    """Ignored at start: an unknown key."""
    ERROR = "error"
    """Its section is not used at start: a wrong value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong.  `key` is dotted, from the file's root; empty when the whole file is meant."""

    file: Path
    line: int | None
    key: str
    message: str
    """What is there and why it can't be used; one clause, no full stop."""
    severity: Severity
    allowed: str | None = None
    """The values that would do, in words."""
    suggestion: str | None = None
    """What was probably meant."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file)
        text = f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"
        if self.allowed:
            text += f"; allowed: {self.allowed}"
        if self.suggestion:
            text += f". Did you mean {self.suggestion!r}?"
        return text


class BadValue(ValueError):
    """What a field's own validator raises: the reason, with what would do and what was probably meant."""

    def __init__(self, reason: str, *, allowed: str | None = None, suggestion: str | None = None) -> None:
        super().__init__(reason)
        self.allowed = allowed
        self.suggestion = suggestion


def near(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` is probably a slip of, or None."""
    by_folded = {name.lower().replace("-", "_"): name for name in known}
    folded = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower().replace("-", "_")
    close = difflib.get_close_matches(folded, list(by_folded), n=1, cutoff=0.7)
    return by_folded[close[0]] if close else None


def may_be_secret(key: str) -> bool:
    """Whether a setting of this name may hold a secret, so that its value is not to be shown."""
    return _SECRET.search(key) is not None


def shown(key: str, value: object) -> str:
    """A value as a message may show it: short, harmless, and never one that may be a secret."""
    if may_be_secret(key):
        return "(not shown)"
    try:
        text = json.dumps(value, ensure_ascii=True, default=str)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."


def refuse(problems: Sequence[Problem], what: str, *, fix: str | None = None) -> ConfigError:
    """The error that lists them all in one go (C200); `what` says what was being tried."""
    lines = "\n".join(f"  {problem}" for problem in problems)
    count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    return ConfigError(
        f"{what}: {count} in the configuration:\n{lines}",
        fix=fix or "mend the lines named above; `jackfield config check` lists what is left",
    )
