"""Names of files: which may be one, and what is made of those that people send (C065)."""

from __future__ import annotations

import unicodedata
from typing import Final

from jackfield.errors import UnsafePath

__all__ = ["file_name", "safe_name"]

_NAME_BYTES: Final = 255
# Names that Windows gives to devices, with whatever ending.
_RESERVED: Final = frozenset(
    {"con", "prn", "aux", "nul", *(f"{kind}{n}" for kind in ("com", "lpt") for n in range(10))}
)


def safe_name(name: str) -> str:
    """The name, if it can only be one entry of one folder.

    Raises:
        UnsafePath: empty, `.` or `..`, with a separator or a control character, not UTF-8, or over 255 bytes of it.
    """
    problem = None
    if name in ("", ".", ".."):
        problem = "it names no file"
    elif "/" in name or "\\" in name:
        problem = "it has a separator"
    elif any(ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029" for char in name):
        problem = "it has a control character"
    else:
        try:
            if len(name.encode()) > _NAME_BYTES:
                problem = f"it is longer than {_NAME_BYTES} bytes"
        except UnicodeEncodeError:
            problem = "it is not UTF-8"
    if problem is not None:
        raise UnsafePath(f"{name[:80]!r} can't be the name of a file: {problem}")
    return name


def file_name(name: str, fallback: str) -> str:
    """A clean name for a file that somebody sent under `name`; `fallback` when nothing is left of it (C065).

    The last part of a path, without control, format and bidirectional characters, reserved device names and leading or
    trailing dots and spaces; at most 200 bytes, the ending kept.  Never raises; the result passes `safe_name`.
    """
    base = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    base = unicodedata.normalize("NFC", base.encode("utf-8", "ignore").decode())
    base = "".join("_" if char in '<>:"|?*' else char for char in base if unicodedata.category(char)[0] not in "C")
    base = " ".join(base.split()).strip(". ")
    stem, dot, ending = base.rpartition(".")
    if not dot or len(ending.encode()) > 20:
        stem, dot, ending = base, "", ""
    stem = stem.encode()[: 200 - len((dot + ending).encode())].decode("utf-8", "ignore").rstrip(". ")
    if stem.partition(".")[0].lower() in _RESERVED:
        stem = f"_{stem}"
    if stem:
        return f"{stem}{dot}{ending}"
    try:
        return safe_name(fallback)
    except UnsafePath:
        return "file"
