"""Reading standard input without blocking the event loop, and without keeping the process alive when nobody writes."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from jackfield.errors import UsageError

__all__ = ["MAX_BYTES", "lines_of_stdin", "whole_stdin"]

T = TypeVar("T")

MAX_BYTES = 4 * 1024 * 1024
"""More than this is a file, not a message."""
MARK = "\ufeff"
"""A byte order mark, with which some programs begin what they write."""


async def _in_daemon(work: Callable[[], T]) -> T:
    """The result of a blocking call, in a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, problem: Exception | None) -> None:
        if result.done():
            return
        if problem is not None:
            result.set_exception(problem)
        else:
            result.set_result(value)  # type: ignore[arg-type]  # without a problem it is a T

    def run() -> None:
        value: T | None = None
        problem: Exception | None = None
        try:
            value = work()
        except Exception as error:  # noqa: BLE001 - it is raised in the waiting task
            problem = error
        try:
            loop.call_soon_threadsafe(settle, value, problem)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=run, name="stdin", daemon=True).start()
    return await result


async def whole_stdin() -> str:
    """All of it, without the line end at its end and a byte order mark at its beginning.

    Raises:
        UsageError: it is larger than a message may be.
    """
    data = await _in_daemon(lambda: sys.stdin.buffer.read(MAX_BYTES + 1))
    if len(data) > MAX_BYTES:
        raise UsageError(
            f"standard input has more than {MAX_BYTES:,} bytes, too much for a message",
            fix="write it to a file and send that: jackfield chat --file PATH",
        )
    return _text(data).removeprefix(MARK)


async def lines_of_stdin() -> AsyncIterator[str]:
    """Line by line, without line ends."""
    first = True
    while line := await _in_daemon(lambda: sys.stdin.buffer.readline(MAX_BYTES)):
        yield _text(line).removeprefix(MARK) if first else _text(line)
        first = False


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").rstrip("\r\n")
