"""Which files an agent may send, and under which name."""

from __future__ import annotations

import stat
import tempfile
from pathlib import Path

from jackfield.api import ToolFailed

__all__ = ["FILE_LIMIT", "file_name", "find_file"]

FILE_LIMIT = 50 * 1024 * 1024
"""Bytes; the host's own limit (architecture 2)."""


def find_file(path: str, workspace: Path, *, limit: int = FILE_LIMIT) -> Path:
    """The real path of a file that may be sent.

    It may be relative to the workspace.  Links are followed first and judged by where they lead: what lies neither
    below the workspace nor below the temporary folder is refused.

    Raises:
        ToolFailed: there is no such file, it is somewhere else, no regular file, empty of name, or too large.
    """
    if "\0" in path:
        raise ToolFailed("path holds a NUL character")
    asked = Path(path).expanduser() if path.startswith("~/") else Path(path)
    try:
        real = (workspace / asked).resolve(strict=True)
        found = real.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise ToolFailed(f"File not found: {path} (paths are relative to {workspace})") from None
    except UnicodeEncodeError:
        raise ToolFailed(f"path can't be a file's: {path!r} holds half a character (a lone surrogate)") from None
    except (OSError, RuntimeError) as problem:
        raise ToolFailed(f"path: {path} can't be read: {problem}") from None
    roots = (workspace.resolve(), Path(tempfile.gettempdir()).resolve())
    if not any(real.is_relative_to(root) for root in roots):
        raise ToolFailed(
            f"path: {path} lies outside of the workspace; only files below {workspace} or {roots[1]} can be sent. "
            "Copy it into the workspace first"
        )
    if not stat.S_ISREG(found.st_mode):
        raise ToolFailed(f"path: {path} is no regular file" + (", it is a folder" * stat.S_ISDIR(found.st_mode)))
    if found.st_size > limit:
        raise ToolFailed(f"path: {path} has {found.st_size:,} bytes; a file may have at most {limit:,}")
    return real


def file_name(filename: str | None, path: Path) -> str:
    """The name that the receiver sees: the file's own, or a plain one that the model chose.

    Raises:
        ToolFailed: `filename` is no plain file name.
    """
    name = path.name if filename is None or not filename.strip() else filename.strip()
    controls = any(
        ord(character) < 32 or ord(character) == 127 or 0xD800 <= ord(character) < 0xE000 for character in name
    )
    if "/" in name or "\\" in name or name in (".", "..") or controls or len(name.encode(errors="replace")) > 255:
        raise ToolFailed(f"filename must be a plain file name like report.pdf, not {name!r}")
    return name
