"""The standard streams of one run of the program, and what happens when its output can't be written.

Imports the standard library only: the quickest commands come here too.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys

__all__ = ["BROKEN_PIPE", "OutputLost", "lost", "prepare", "put_out"]

BROKEN_PIPE = 141
"""The exit code when the reader of the output went away: 128 + SIGPIPE, as shells have it."""
FAILED = 1


class OutputLost(OSError):
    """Standard output can't be written.  A class of its own, since other files may fail with the same numbers."""


class _Output(io.FileIO):
    """Standard output whose failures say that they are its own."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]  # the name of the buffer's type differs by version
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise OutputLost(problem.errno, problem.strerror) from problem


def prepare() -> None:
    """Make the streams fit for any locale, any reader, and for being closed.  Once a run."""
    _hold()
    _mark_output()
    _robust()


def put_out(text: str) -> int:
    """Print one text and nothing else; the exit code.  For commands that need no click."""
    try:
        print(text, flush=True)
    except OSError as problem:
        return lost(problem)
    return 0


def lost(problem: OSError) -> int:
    """Standard output failed with this: say so if anybody may listen, and return the exit code."""
    # What is left in the buffer would fail, and be complained about, once more at exit.
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(problem, BrokenPipeError):  # the reader has seen enough
        return BROKEN_PIPE
    with contextlib.suppress(OSError):
        print(f"error: the output can't be written: {problem.strerror}", file=sys.stderr)
        print("fix: make room where it goes, or send it elsewhere; what the command did is done", file=sys.stderr)
    return FAILED


def _hold() -> None:
    """A standard stream that is closed leads to nothing instead.

    Else the next file to be opened takes its number: a lock or a database, into which some child then prints.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            taken = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
            os.set_inheritable(taken, True)
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(taken, "w" if number else "r", encoding="utf-8", closefd=False))


def _mark_output() -> None:
    """Put `_Output` under `sys.stdout`, unless somebody has replaced that already."""
    old = sys.stdout
    if old is not sys.__stdout__ or not isinstance(old, io.TextIOWrapper):
        return
    try:
        number = old.fileno()
        old.flush()
        buffer = io.BufferedWriter(_Output(number, "wb", closefd=False))
    except (OSError, ValueError):
        return
    sys.stdout = io.TextIOWrapper(
        buffer, encoding=old.encoding, errors=old.errors, line_buffering=old.line_buffering or old.write_through
    )


def _robust() -> None:
    """Whatever the locale, printing a name never fails (C247)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(ValueError):
                stream.reconfigure(errors="backslashreplace")
