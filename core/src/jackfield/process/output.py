"""A runner's output: a file that it appends to and the host reads behind it.

A file and not a pipe, because a runner may outlive the host: nobody reading must neither block it nor kill it, also
after a kill -9 of the host.  The host cuts the file back to nothing when it has grown; a runner without a host is
bounded by its file size limit.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["KEPT_LINES", "LINE_LIMIT", "LineCutter", "OutputTail", "open_log"]

KEPT_LINES = 200
LINE_LIMIT = 4096
_CHUNK = 65_536
_FILE_LIMIT = 1_048_576
_LINES_A_STEP = 200
_BUSY = 0.05
_IDLE = 1.0
_LAST_STEPS = 64


class LineCutter:
    """Bytes in, lines out; a line over the limit is cut there and the rest of it dropped."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held = b""
        self._over = False

    def feed(self, data: bytes) -> list[str]:
        *whole, rest = data.split(b"\n")
        out = []
        for piece in whole:
            self._hold(piece)
            out.append(self._take())
        self._hold(rest)
        return out

    def end(self) -> list[str]:
        """What came without a last line end."""
        return [self._take()] if self._held else []

    def _hold(self, piece: bytes) -> None:
        room = self._limit - len(self._held)
        self._over = self._over or len(piece) > room
        self._held += piece[:room]

    def _take(self) -> str:
        text = self._held.decode("utf-8", "replace").rstrip("\r")
        if self._over:
            text += "…"
        self._held, self._over = b"", False
        return text


def open_log(path: Path) -> int:
    """A new, empty file that is appended to; the descriptor is the runner's stdout and stderr."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


class OutputTail:
    """Reads a log file while its runner lives, at most 64 KiB and 200 lines each 50 ms; what comes faster is skipped
    and counted.  Costs one `fstat` a second while the runner is silent."""

    def __init__(self, path: Path, hand_over: Callable[[str], None]) -> None:
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._hand_over = hand_over
        self._cutter = LineCutter()
        self._offset = 0
        self._delay = _BUSY
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            self._file = None

    def lines(self) -> Sequence[str]:
        return tuple(self._lines)

    def start(self, *, from_end: bool = False) -> None:
        """Begin to read; with `from_end` what is there already is kept for `lines` but handed to nobody."""
        if from_end and self._file is not None:
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, _CHUNK, max(0, size - _CHUNK))
            self._offset = size
            self._lines.extend(self._cutter.feed(data))
        self._arm()

    def finish(self) -> None:
        """The runner has gone: read the rest and close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is None:
            return
        for _ in range(_LAST_STEPS):  # a bound, because something of the runner may still be writing
            if not self._step():
                break
        for line in self._cutter.end():
            self._keep(line)
        os.close(self._file)
        self._file = None

    def let_go(self) -> None:
        """Stop reading; the runner goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _arm(self) -> None:
        if self._file is not None:
            self._timer = asyncio.get_running_loop().call_later(self._delay, self._tick)

    def _tick(self) -> None:
        self._delay = _BUSY if self._step() else min(_IDLE, self._delay * 2)
        self._arm()

    def _step(self) -> bool:
        """One portion; False when there was nothing."""
        if self._file is None:
            return False
        size = os.fstat(self._file).st_size
        if size < self._offset:
            self._offset = 0
        if size - self._offset > _FILE_LIMIT:
            skipped = size - _CHUNK - self._offset
            self._offset += skipped
            self._cutter = LineCutter()
            self._keep(f"[{skipped} bytes of output left out: it came faster than it can be logged]")
        data = os.pread(self._file, _CHUNK, self._offset)
        if not data:
            if size > _FILE_LIMIT:
                os.ftruncate(self._file, 0)  # the writer appends, so it goes on at the new end
                self._offset = 0
            return False
        self._offset += len(data)
        lines = self._cutter.feed(data)
        if len(lines) > _LINES_A_STEP:
            left_out = len(lines) - _LINES_A_STEP
            self._keep(f"[{left_out} lines of output left out: they came faster than they can be logged]")
            lines = lines[left_out:]
        for line in lines:
            self._keep(line)
        return True

    def _keep(self, line: str) -> None:
        self._lines.append(line)
        self._hand_over(line)
