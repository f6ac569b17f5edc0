"""A file in TOML as text and as a table, with errors that name the line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from jackfield.config.problems import Problem, Severity, shown
from jackfield.errors import ConfigError

__all__ = ["SIZE_LIMIT", "Table", "about_whole", "parse", "read_text"]

Table = dict[str, Any]
SIZE_LIMIT = 1_048_576


def read_text(file: Path, *, follow_links: bool = True) -> str:
    """The file's text, whatever an editor put around it (BOM, CRLF).

    Raises:
        ConfigError: it can't be read, is no text in UTF-8, or too large.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow_links else os.O_NOFOLLOW))
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{file}: it is not a regular file", fix="put a text file there")
            data = stream.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise ConfigError(f"{file}: it can't be read: {error.strerror}", fix=f"look at `ls -l {file}`") from error
    if len(data) > SIZE_LIMIT:
        raise ConfigError(f"{file}: it is larger than {SIZE_LIMIT} bytes", fix="a configuration file is short text")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(f"{file}:1: it is stored as UTF-16", fix="save it as UTF-8 in your editor")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{file}:{line}: byte 0x{data[error.start]:02x} is not UTF-8", fix="save the file as UTF-8 in your editor"
        ) from error


def parse(text: str, file: Path) -> Table:
    """The table that the text of `file` means.

    Raises:
        ConfigError: it is not TOML; the message names the line, and what is likely meant.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason, _, place = str(error).partition(" (at ")
        found = re.match(r"line (\d+), column (\d+)", place)
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(
            f"{file}:{line}: not valid TOML: {reason[:1].lower()}{reason[1:]}{_hint(reason, text, line)}",
            fix=f"mend line {line}",
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file}: not usable TOML: a number is too long or brackets are nested too deep", fix="simplify the file"
        ) from error


def _hint(reason: str, text: str, line: int) -> str:
    """What is most likely meant by the commonest of tomllib's short reasons."""
    here = text.splitlines()[line - 1].strip() if 0 < line <= len(text.splitlines()) else ""
    if reason.startswith("Cannot overwrite"):
        return f" ({shown('', here.partition('=')[0].strip())} is there twice in one table)"
    if reason.startswith("Cannot declare"):
        return " (the table is there twice)"
    if reason.startswith("Invalid value"):
        return " (a text needs quotes; yes and no are true and false)"
    return ""


def about_whole(file: Path, error: ConfigError, more: str = "") -> Problem:
    """An error about a whole file, as a problem."""
    message = error.message.removeprefix(str(file))
    found = re.match(r":(\d+)", message)
    text = message[found.end() :] if found else message
    return Problem(
        file=file,
        line=int(found[1]) if found else None,
        key="",
        message=text.lstrip(": ") + more,
        severity=Severity.ERROR,
    )
