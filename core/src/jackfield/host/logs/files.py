"""The log file: appended to, turned over by size, readable by its owner only, and never in the host's way."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from pathlib import Path

from jackfield.host.logs.records import fields_of, json_line
from jackfield.redaction import REDACTOR, Redactor

__all__ = ["LOG_NAME", "LogFile", "log_troubles", "older"]

LOG_NAME = "host.jsonl"
_RETRY = 1.0
"""Seconds between two tries while the disk refuses: a full one must not cost a system call for each line."""
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_open_files: list[LogFile] = []


def log_troubles() -> dict[str, int]:
    """How many lines could not be written since this process began, for `jackfield status`; empty for none."""
    lost = sum(file.lost for file in _open_files)
    return {"log lines lost": lost} if lost else {}


def older(path: Path, number: int) -> Path:
    """Where the file lies after it was turned over that often."""
    return path.with_name(f"{path.name}.{number}") if number else path


class LogFile(logging.Handler):
    """Writes each record as one JSON line with one `write`.

    A full or read-only disk loses lines and nothing else: they are counted (`lost`), and once it can be written again,
    a line says how many there were (C213).
    """

    def __init__(self, path: Path, *, limit: int, keep: int, redact: Redactor = REDACTOR) -> None:
        """`limit`: bytes after which the file is turned over; `keep`: how many older ones stay."""
        super().__init__()
        self.path = path
        self.lost = 0
        self._untold = 0
        self._limit = limit
        self._keep = keep
        self._redact = redact
        self._file: int | None = None
        self._size = 0
        self._not_before = 0.0
        _open_files.append(self)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = json_line(fields_of(record, self._redact))
        except Exception:  # noqa: BLE001 - somebody's `__str__`; logging itself must not raise
            line = json_line({"level": "error", "logger": record.name, "event": "a record that can't be shown"})
        if self._file is None and time.monotonic() < self._not_before:
            self._lose()
            return
        try:
            self._put(line)
        except OSError:
            self._lose()
            self._let_go()
            self._not_before = time.monotonic() + _RETRY

    def close(self) -> None:
        self.acquire()
        try:
            self._let_go()
            if self in _open_files:
                _open_files.remove(self)
        finally:
            self.release()
        super().close()

    def _put(self, line: bytes) -> None:
        if self._untold:
            self._append(self._apology())
            self._untold = 0
        self._append(line)

    def _append(self, line: bytes) -> None:
        if self._file is None:
            self._open()
        if self._size and self._size + len(line) > self._limit:
            self._turn_over()
        assert self._file is not None
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written")
        except OSError:
            # Half a line would spoil the next one, too.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += written

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = os.open(self.path, _FLAGS, 0o600)
        os.fchmod(self._file, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._size += os.write(self._file, b"\n")  # a line that a crash cut off

    def _turn_over(self) -> None:
        self._let_go()
        for number in range(self._keep, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                older(self.path, number - 1).replace(older(self.path, number))
        if not self._keep:
            self.path.unlink(missing_ok=True)
        self._open()

    def _lose(self) -> None:
        self.lost += 1
        self._untold += 1

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _apology(self) -> bytes:
        text = f"{self._untold} log lines were lost: the file could not be written"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)
        return json_line(fields_of(record, self._redact))
