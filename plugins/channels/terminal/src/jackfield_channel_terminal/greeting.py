"""The first frame of a client."""

from __future__ import annotations

import asyncio
from typing import Any

from jackfield.api import Connection
from jackfield.errors import MalformedData

__all__ = ["greeted"]

HELLO = 10.0
"""Seconds that a client has for it."""


async def greeted(connection: Connection, options: dict[str, Any], group: str | None) -> tuple[str, str | None] | None:
    """Whom a client wants to talk to: the agent group, and the thread.  None when it left without a word.

    Raises:
        MalformedData: it says nothing in time, or nothing that makes sense.
    """
    try:
        hello = await asyncio.wait_for(connection.receive(), HELLO)
    except TimeoutError:
        raise MalformedData(f"no hello within {HELLO:g} s") from None
    if hello is None:
        return None
    if hello.get("type") != "hello":
        raise MalformedData(f"the first frame must be a hello, not {hello.get('type')!r}")
    wanted = hello.get("group") or options.get("group") or group
    if not isinstance(wanted, str) or not wanted:
        raise MalformedData("name the agent group to talk to: jackfield chat GROUP")
    thread = hello.get("thread")
    if thread is not None and (not isinstance(thread, str) or not thread.strip()):
        raise MalformedData("thread must be a text or null")
    return wanted, thread
