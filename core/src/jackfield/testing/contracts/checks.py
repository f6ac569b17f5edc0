"""What all suites are made of: checks with ids, and looking for what was left behind."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from jackfield.process import proc
from jackfield.testing import waiting

__all__ = ["Check", "check", "checks_of", "children", "nothing_left", "open_descriptors", "plain_text", "skip"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion of a contract."""

    id: str
    name: str
    """The method's."""
    text: str
    """What is promised, as its docstring says it."""


def check(id: str) -> Callable[[F], F]:
    """Mark a test of a contract.  Its docstring says the promise, its name begins with `test_` and the id."""

    def decorate(function: F) -> F:
        expected = f"test_{id.lower().replace('-', '_')}_"
        if not function.__name__.startswith(expected) or not function.__doc__:
            raise TypeError(f"{function.__qualname__} needs a docstring, and a name that begins with {expected}")
        vars(function)["contract_id"] = id
        vars(function)["contract_text"] = " ".join(function.__doc__.split())
        if inspect.iscoroutinefunction(function):
            marked: F = pytest.mark.asyncio(function)
            return marked
        return function

    return decorate


def checks_of(contract: type[Any]) -> list[Check]:
    """Every check of a suite, ordered by id."""
    found = [
        Check(vars(function)["contract_id"], name, vars(function)["contract_text"])
        for name, function in inspect.getmembers(contract, inspect.isfunction)
        if "contract_id" in vars(function)
    ]
    return sorted(found, key=lambda one: one.id)


def skip(reason: str) -> NoReturn:
    """This check does not apply, because of what the plugin declares or the author's driver can do."""
    pytest.skip(reason)


def plain_text(text: str) -> list[str]:
    """Names of the characters in it that a reader can't see: controls, and marks that turn the writing around."""
    allowed = "\n\t"
    hidden = {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x206A), 0xFEFF}
    # Joiners are part of emoji and of several scripts.
    hidden -= {0x200C, 0x200D}
    found = {c for c in text if c not in allowed and (ord(c) < 32 or 127 <= ord(c) < 160 or ord(c) in hidden)}
    return sorted(f"U+{ord(c):04X}" for c in found)


def children() -> set[int]:
    """Process ids of our own children that still run; empty where there is no /proc."""
    if not proc.HAS_PROC:
        return set()
    found = (proc.entry(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {one.pid for one in found if one is not None and one.parent == os.getpid() and one.state not in "ZX"}


def open_descriptors() -> dict[str, str]:
    """Our open files and sockets, by number; empty where there is no /proc."""
    if not sys.platform.startswith("linux"):
        return {}
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            found[path.name] = str(path.readlink())
        except OSError:
            continue  # the listing's own
    return found


def _threads() -> set[threading.Thread]:
    """Without the event loop's own pool, which lives as long as the loop."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}


@asynccontextmanager
async def nothing_left(what: str) -> AsyncIterator[None]:
    """Whatever the block starts must have ended at its end, or soon after: tasks, threads, processes.

    Raises:
        AssertionError: something is left.
    """
    tasks, threads, processes = asyncio.all_tasks(), _threads(), children()
    yield

    def gone() -> bool:
        return not (asyncio.all_tasks() - known() or _threads() - threads or children() - processes)

    def known() -> set[asyncio.Task[Any]]:
        current = asyncio.current_task()
        return tasks | ({current} if current is not None else set())

    try:
        await waiting.until(gone, "everything to end", waiting.BOUND / 3)
    except AssertionError:
        left = [
            *(f"the task {task.get_name()} ({task.get_coro()})" for task in asyncio.all_tasks() - tasks),
            *(f"the thread {thread.name}" for thread in _threads() - threads),
            *(f"the process {pid}" for pid in children() - processes),
        ]
        raise AssertionError(f"{what} leaves behind: {', '.join(left)}") from None
