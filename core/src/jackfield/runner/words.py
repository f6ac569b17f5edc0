"""The group's own words for its agent, read anew for each turn; and its memory's index, read for each conversation."""

from __future__ import annotations

import logging
from pathlib import Path

from jackfield.errors import JackfieldError
from jackfield.mailbox import read_regular
from jackfield.models.group_files import MEMORY_INDEX, MEMORY_LIMIT, WORDS_FILES, WORDS_LIMIT, join_words

__all__ = ["group_words", "memory_index"]

_LOG = logging.getLogger(__name__)


def group_words(group: Path) -> str:
    """What the group's AGENTS.md and CLAUDE.md say (each at most 256 KiB); the same text is taken once."""
    found: list[str] = []
    for name in WORDS_FILES:
        try:
            with open(f"{group}/{name}", "rb") as file:  # noqa: PTH123 - as often as a turn; a Path costs more than the read
                found.append(file.read(WORDS_LIMIT).decode("utf-8", "replace"))
        except FileNotFoundError:
            continue
        except OSError as problem:
            _LOG.warning("could not read %s/%s: %s", group, name, problem)
    return join_words(found)


def memory_index(group: Path) -> str:
    """What the group's memory says of itself (at most 16 KiB); empty when it says nothing, or in no plain file."""
    path = group / MEMORY_INDEX
    if not path.is_file():
        return ""
    try:
        return read_regular(path, MEMORY_LIMIT).decode("utf-8", "replace")
    except (JackfieldError, OSError) as problem:
        _LOG.warning("could not read %s: %s", path, problem)
        return ""
