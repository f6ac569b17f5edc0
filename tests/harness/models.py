"""A played model for tests that are not async: it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jackfield_provider_kit.played import Asked, PlayedModel, Reply, played

__all__ = ["Asked", "PlayedModel", "Reply", "model_thread"]


@contextmanager
def model_thread(decide: Callable[[Asked], Reply]) -> Iterator[PlayedModel]:
    """The model, until the end of the block."""
    ready: list[PlayedModel] = []
    begun, loop = threading.Event(), asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with played(decide) as model:
            ready.append(model)
            begun.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="played model", daemon=True)
    thread.start()
    assert begun.wait(30), "the played model does not start"
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()
