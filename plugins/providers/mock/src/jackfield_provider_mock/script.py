"""Scripts: steps, where they are read from, and which one a message gets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jackfield.errors import ProviderError

from jackfield_provider_mock.actions import Action, read_action

__all__ = ["Step", "choose", "load_script", "read_steps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Actions for one turn.

    With `match` it is taken whenever the last message's text contains it (ignoring case), or, written between
    slashes, fits that regular expression; with `once` only the first time.  Without `match` steps are taken in order,
    each once.
    """

    actions: tuple[Action, ...]
    match: str | None = None
    once: bool = False

    def fits(self, text: str) -> bool:
        """Whether `match` is there and fits this text."""
        if self.match is None:
            return False
        if _is_pattern(self.match):
            return re.search(self.match[1:-1], text) is not None
        return self.match.lower() in text.lower()


def read_steps(tables: object) -> list[Step]:
    """The steps that a list of tables describes.

    Raises:
        ValueError: one can't be; the message names its place.
    """
    if not isinstance(tables, list):
        raise ValueError("steps must be a list of tables, [[steps]]")
    steps = []
    for number, table in enumerate(tables):
        try:
            steps.append(_read_step(table))
        except ValueError as problem:
            raise ValueError(f"step {number + 1}: {problem}") from None
    return steps


def _read_step(table: object) -> Step:
    if not isinstance(table, Mapping):
        raise ValueError("it must be a table")
    unknown = sorted(set(table) - {"match", "once", "actions"})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; a step has match, once and actions")
    match, once, actions = table.get("match"), table.get("once", False), table.get("actions")
    if match is not None and not isinstance(match, str):
        raise ValueError(f"match must be a text, not {match!r}")
    if not isinstance(once, bool):
        raise ValueError(f"once must be true or false, not {once!r}")
    if not isinstance(actions, list) or not actions:
        raise ValueError("actions must be a list with at least one action")
    if match is not None and _is_pattern(match):
        try:
            re.compile(match[1:-1])
        except re.error as problem:
            raise ValueError(f"{match} is no regular expression: {problem}") from None
    return Step(match=match, once=once, actions=tuple(read_action(action) for action in actions))


def _is_pattern(match: str) -> bool:
    return len(match) > 2 and match.startswith("/") and match.endswith("/")


def load_script(script: str, folders: Sequence[Path]) -> list[Step]:
    """The steps of a TOML file, looked for in these folders in order.

    Raises:
        ProviderError: kind `config`: it is not there, is no TOML, or has a step that can't be.
    """
    candidates = [folder / script for folder in folders]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise ProviderError(
            f"the mock's script {script!r} was not found (looked for {', '.join(map(str, candidates))})",
            kind="config",
            fix="correct `script` in [providers.mock] of agent.toml, or create the file",
        )
    try:
        return read_steps(tomllib.loads(path.read_text(encoding="utf-8")).get("steps"))
    except (OSError, ValueError) as problem:
        raise ProviderError(
            f"the mock's script {path} can't be used: {problem}", kind="config", fix=f"correct {path}"
        ) from None


def choose(steps: Sequence[Step], used: Sequence[int], text: str) -> int | None:
    """The index of the step for a message with this text, or None when no step is meant for it.

    A fitting `match` goes before the next in order.
    """
    for index, step in enumerate(steps):
        if step.fits(text) and not (step.once and index in used):
            return index
    return next((index for index, step in enumerate(steps) if step.match is None and index not in used), None)
