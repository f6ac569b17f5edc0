"""Reading the host's log: choosing lines, the last ones first to be found, and following the file over its turns."""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jackfield.errors import UsageError
from jackfield.host.logs.files import older

__all__ = ["LEVELS", "Follower", "Line", "Wanted", "last", "moment_before", "parsed"]

LEVELS = ("debug", "info", "warning", "error")
_RANKS = {**{name: rank for rank, name in enumerate(LEVELS)}, "critical": len(LEVELS)}
_DURATION = re.compile(r"(\d{1,9})\s*(ms|s|m|min|h|d|w)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_MOST_TURNS = 1000
_LONGEST = 4 << 20
"""Bytes of a line; a longer one is none of ours, and is passed over in pieces."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line.  `fields` is empty for one that is not JSON, such as a line that a full disk cut off."""

    text: str
    fields: dict[str, Any]

    def field(self, name: str) -> str:
        value = self.fields.get(name, "")
        return value if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines to show; everything that is set must hold."""

    level: str = "debug"
    """The least important one."""
    since: str = ""
    """ISO 8601 in UTC, as the lines have it: those before are left out."""
    session: str | None = None
    channel: str | None = None
    group: Callable[[Line], bool] | None = None
    grep: re.Pattern[str] | None = None

    def __call__(self, line: Line) -> bool:
        if not line.fields:
            strict = self.since or self.session or self.channel or self.group or self.level != "debug"
            return not strict and (self.grep is None or self.grep.search(line.text) is not None)
        return (
            _RANKS.get(line.field("level"), len(LEVELS)) >= _RANKS[self.level]
            and line.field("time") >= self.since
            and (self.session is None or line.field("session") == self.session)
            and (self.channel is None or line.field("channel") == self.channel)
            and (self.grep is None or self._found(line))
            and (self.group is None or self.group(line))
        )

    def _found(self, line: Line) -> bool:
        assert self.grep is not None
        return any(isinstance(value, str) and self.grep.search(value) for value in line.fields.values())


def parsed(data: bytes) -> Line:
    """A line of the file, whatever it holds."""
    text = data.decode("utf-8", "replace").rstrip("\r\n")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return Line(text, value if isinstance(value, dict) else {})


def moment_before(text: str, now: datetime.datetime) -> str:
    """`10m`, `2h`, `3d` before now, or a moment in ISO 8601 (local where it names no zone), as the lines spell it.

    Raises:
        UsageError: it is neither.
    """
    found = _DURATION.fullmatch(text.strip())
    try:
        if found is not None:
            moment = now - datetime.timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        else:
            moment = datetime.datetime.fromisoformat(text.strip())
        return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError):
        raise UsageError(
            f"--since can't be {text!r}", fix="give a duration like 10m, 2h or 3d, or a moment like 2026-01-31T08:00"
        ) from None


def last(path: Path, count: int, wanted: Callable[[Line], bool]) -> list[Line]:
    """The newest `count` lines that are wanted, the oldest of them first; older files are read only while needed."""
    chosen: list[Line] = []
    for number in range(_MOST_TURNS):
        try:
            with older(path, number).open("rb") as file:
                found = [line for line in map(parsed, _lines(file)) if wanted(line)]
        except FileNotFoundError:
            if number:
                break
            continue
        missing = count - len(chosen)
        chosen = (found[-missing:] if missing else []) + chosen
        if len(chosen) >= count:
            break
    return chosen


def _lines(file: BinaryIO) -> Iterator[bytes]:
    while data := file.readline(_LONGEST):
        yield data


class Follower:
    """Gives whole lines as they are written, from the end of the file at the time it is made, across its turns."""

    def __init__(self, path: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._path = path
        self._pause = pause
        self._file: BinaryIO | None = None
        self._held = b""
        self._open(path, os.SEEK_END)

    def __iter__(self) -> Iterator[Line]:
        while True:
            yield from self.step()
            self._pause(0.2)

    def step(self) -> Iterator[Line]:
        """What has come since."""
        if self._file is None and not self._open(self._path, os.SEEK_SET):
            return
        yield from self._rest()
        while (place := self._newer()) is not None:
            # What was written between our last look and its turn.
            yield from self._rest()
            self.close()
            self._open(place, os.SEEK_SET)
            yield from self._rest()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._held = b""

    def _open(self, path: Path, whence: int) -> bool:
        try:
            self._file = io.FileIO(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            return False
        assert self._file is not None
        self._file.seek(0, whence)
        return True

    def _rest(self) -> Iterator[Line]:
        assert self._file is not None
        while data := self._file.read(65_536):
            *whole, self._held = (self._held + data).split(b"\n")
            yield from map(parsed, whole)
            if len(self._held) > _LONGEST:
                self._held = b""

    def _newer(self) -> Path | None:
        """The file that comes after the one we read; None while that is the newest."""
        assert self._file is not None
        ours = os.fstat(self._file.fileno())
        newer: Path | None = None
        for number in range(_MOST_TURNS):
            place = older(self._path, number)
            try:
                found = place.stat()
            except FileNotFoundError:
                if number:
                    return newer if ours.st_nlink == 0 or newer is not None else None
                continue
            if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
                if found.st_size < self._file.tell():  # somebody emptied it
                    self._file.seek(0)
                    self._held = b""
                return newer
            newer = place
        return newer
