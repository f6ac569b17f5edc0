"""Work that may never end: a plugin's code, a dead network mount."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

__all__ = ["in_thread", "within"]

GRACE = 2.0
"""Seconds for something that was cancelled to tidy up."""

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run it beside the event loop, as `asyncio.to_thread` does; but one that hangs is left behind when the caller is
    cancelled, takes no place from others, and does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, problem: BaseException | None) -> None:
        if done.done():
            return
        if problem is not None:
            done.set_exception(problem)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # it is a T whenever there is no problem

    def run() -> None:
        result: T | None = None
        problem: BaseException | None = None
        try:
            result = work(*args, **kwargs)
        except StopIteration as stop:  # a future can't carry it
            problem = RuntimeError(f"it raised {stop!r}")
        except BaseException as raised:  # noqa: BLE001 - whatever it is belongs to the caller
            problem = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody waits any more
            loop.call_soon_threadsafe(settle, result, problem)

    threading.Thread(target=run, name=f"diagnosis {getattr(work, '__name__', 'work')}", daemon=True).start()
    return await done


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """Its result.  What goes on although it was cancelled is left behind; `asyncio.timeout` would wait for it for ever.

    Raises:
        TimeoutError: it did not come in time.
    """
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if done:
            return task.result()
        raise TimeoutError
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=GRACE)
