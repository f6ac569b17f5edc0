"""The group's own words for its agent, read anew for each turn."""

from __future__ import annotations

import logging
from pathlib import Path

__all__ = ["group_words"]

_LOG = logging.getLogger(__name__)
_FILES = ("AGENTS.md", "CLAUDE.md")
_LIMIT = 256 * 1024


def group_words(group: Path) -> str:
    """What the group's AGENTS.md and CLAUDE.md say (each at most 256 KiB); the same text is taken once."""
    found: list[str] = []
    for name in _FILES:
        try:
            with open(f"{group}/{name}", "rb") as file:  # noqa: PTH123 - as often as a turn; a Path costs more than the read
                text = file.read(_LIMIT).decode("utf-8", "replace").strip()
        except FileNotFoundError:
            continue
        except OSError as problem:
            _LOG.warning("could not read %s/%s: %s", group, name, problem)
            continue
        if text and text not in found:
            found.append(text)
    return "\n\n".join(found)
