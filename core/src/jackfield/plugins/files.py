"""Small JSON files that several processes may read and replace: the discovery cache and what is known of plugins.

Nothing here is precious: a file that is missing, damaged or can't be written only costs time.  So reading answers with
an empty object, and writing with whether it worked.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["one_line", "read_object", "user_cache", "user_folder", "write_object"]


def user_folder() -> str | None:
    """This user's own folder: `$HOME`, else what the system has on record; None when neither says.

    An empty `$HOME` counts as none: taken at its word, all would end up in the root folder.
    """
    if given := os.environ.get("HOME"):
        return given
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir or None
    except KeyError:
        return None


def user_cache() -> Path:
    """Where this user's programs keep what can be made again: `$XDG_CACHE_HOME/jackfield`, `~/.cache/jackfield`."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    if root.startswith("/"):
        return Path(root) / "jackfield"
    # Below the null device nothing is found and nothing can be made: whoever has no folder keeps no cache.
    return Path(user_folder() or os.devnull) / ".cache" / "jackfield"


def read_object(path: Path) -> dict[str, Any]:
    """The file's JSON object; empty when there is none that can be used."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_object(path: Path, value: dict[str, Any]) -> bool:
    """Replace the file in one step: a reader sees the old text or the new one, never a part."""
    import tempfile

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as problem:
        _report(path, problem)
        return False
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, separators=(",", ":"))
        Path(temporary).replace(path)
    except OSError as problem:
        _report(path, problem)
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        return False
    return True


def _report(path: Path, problem: OSError) -> None:
    import logging  # here, since it is seldom needed and costs as much as all the rest

    logging.getLogger(__name__).debug("could not write %s: %s", path, problem)


def one_line(text: str, limit: int = 400) -> str:
    """What a plugin said, fit for a terminal: one line, no control characters, cut at `limit` characters."""
    folded = " ".join("".join(part if part.isprintable() else " " for part in text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"
