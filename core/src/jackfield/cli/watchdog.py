"""Ends a command whose plugin can't be ended: one that blocks the event loop, or goes on when it is cancelled."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import click

__all__ = ["Watchdog"]


class Watchdog:
    """Armed with a number of seconds, it calls `last_words` after them, in a thread of its own and in the context of
    the command, and ends the process with the exit code that comes back.

    Use it as a context manager: when the block ends, so does the watch.
    """

    def __init__(self, last_words: Callable[[], int]) -> None:
        self._last_words = last_words
        self._context = click.get_current_context()
        self._timer: threading.Timer | None = None

    def arm(self, seconds: float) -> None:
        """Begin, or begin anew."""
        self._stop()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stop()

    def _stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _end(self) -> None:
        code = 1
        try:
            with self._context.scope(cleanup=False):
                code = self._last_words()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
