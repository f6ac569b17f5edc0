"""Operations without a host: under its lock, straight on the store, by the same services."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from jackfield.config.home import Home
from jackfield.errors import UsageError
from jackfield.host.application import open_hub
from jackfield.host.ownership import own
from jackfield.host.services import OPERATIONS, Args, ServiceContext
from jackfield.redaction import REDACTOR

__all__ = ["Caller", "offline", "perform_offline"]

LOCK_WAIT = 5.0
"""Seconds to wait for another command that works on the store directly."""


Caller = Callable[[str, dict[str, Any]], Awaitable[Any]]


@contextlib.asynccontextmanager
async def offline(home: Home, *, safe: bool = False, strict: bool = False) -> AsyncIterator[Caller]:
    """A function that runs operations by name, while nobody else has the home.

    Raises:
        HostRunning: somebody has it and does not answer on the control socket.
    """
    home.require()
    with own(home, wait=LOCK_WAIT):
        async with open_hub(home, safe=safe, strict=strict) as hub:
            context = ServiceContext(hub, None)

            async def call(op: str, args: dict[str, Any]) -> Any:
                service = OPERATIONS.get(op)
                if service is None:
                    raise UsageError(f"there is no operation {op!r}")
                return REDACTOR.inside(await service(context, Args(args)))

            yield call


async def perform_offline(
    home: Home, op: str, args: dict[str, Any], *, safe: bool = False, strict: bool = False
) -> Any:
    """Run one operation while nobody else has the home.

    Raises:
        HostRunning: somebody has it and does not answer on the control socket.
        NoHost: the operation needs a running host.
    """
    if op not in OPERATIONS:
        raise UsageError(f"there is no operation {op!r}")
    async with offline(home, safe=safe, strict=strict) as call:
        return await call(op, args)
