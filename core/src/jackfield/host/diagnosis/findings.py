"""A finding: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jackfield.errors import JackfieldError, MalformedData

__all__ = ["Finding", "Level", "error", "finding_from", "ok", "problem_of", "warning", "worst"]

_SEE_LOG = "see the host's log, `logs/host.jsonl` in the home"


class Level(StrEnum):
    """`warning` works now, and may not tomorrow; `error` does not work."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`check` is the name of the look that found it, like ``store`` or ``channel:work``; `fix` is one line, and always
    there unless the level is ok."""

    check: str
    level: Level
    text: str
    fix: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {"check": self.check, "level": str(self.level), "text": self.text, "fix": self.fix}


def ok(check: str, text: str) -> Finding:
    return Finding(check=check, level=Level.OK, text=text)


def warning(check: str, text: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.WARNING, text=text, fix=_line(fix))


def error(check: str, text: str, fix: str) -> Finding:
    return Finding(check=check, level=Level.ERROR, text=text, fix=_line(fix))


def problem_of(check: str, problem: JackfieldError, fix: str = _SEE_LOG) -> Finding:
    """An exception as a finding; `fix` is for one that names none."""
    return error(check, problem.message, problem.fix or fix)


def finding_from(value: object) -> Finding:
    """The inverse of `as_json`.

    Raises:
        MalformedData: it is no finding; the other side is of another version.
    """
    try:
        assert isinstance(value, dict)
        fix = value.get("fix")
        return Finding(
            check=str(value["check"]),
            level=Level(value["level"]),
            text=str(value["text"]),
            fix=None if fix is None else str(fix),
        )
    except (AssertionError, KeyError, ValueError) as problem:
        raise MalformedData(f"no finding of ours: {value!r}") from problem


def worst(findings: Iterable[Finding]) -> Level:
    """The highest level among them; ok of none."""
    order = list(Level)
    return max((finding.level for finding in findings), key=order.index, default=Level.OK)


def _line(text: str) -> str:
    return " ".join(text.split())
