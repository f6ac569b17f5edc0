"""Writing a file so that, at every instant, it is the whole old one or the whole new one (C202)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["one_editor", "write_atomically"]


def write_atomically(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Replace `path` by `data`: a temporary file beside it, fsync, rename, fsync of the folder.

    `mode` is for a new file; an existing one keeps its own.
    """
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        mode = 0o600 if mode is None else mode
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, mode)
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def one_editor(folder: Path) -> Iterator[None]:
    """Hold the folder's own lock, so that two commands at once can't lose one another's edit."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
