"""Senders that wait for their answer on the line (`?wait=`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jackfield.models import Address

Answer = dict[str, Any]

__all__ = ["Waiting"]


class Waiting:
    """Who waits in which chat and thread, the longest first.  Each takes one answer."""

    def __init__(self) -> None:
        self._queues: dict[Address, deque[asyncio.Future[Answer]]] = {}

    @contextmanager
    def at(self, address: Address) -> Iterator[asyncio.Future[Answer]]:
        """Stand in line for the block."""
        mine: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        queue = self._queues.setdefault(address, deque())
        queue.append(mine)
        try:
            yield mine
        finally:
            if mine in queue:
                queue.remove(mine)
            if not queue:
                self._queues.pop(address, None)
            mine.cancel()

    def take(self, address: Address, answer: Answer) -> bool:
        """Hand the answer to who waits there the longest; False when nobody does."""
        queue = self._queues.get(address)
        while queue:
            mine = queue.popleft()
            if not mine.done():
                mine.set_result(answer)
                return True
        return False

    def leave(self) -> None:
        """Nobody waits any longer."""
        for queue in self._queues.values():
            for mine in queue:
                mine.cancel()
