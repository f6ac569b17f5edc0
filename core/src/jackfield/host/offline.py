"""Operations without a host: under its lock, straight on the store, by the same services."""

from __future__ import annotations

from typing import Any

from jackfield.config.home import Home
from jackfield.errors import UsageError
from jackfield.host.application import open_hub
from jackfield.host.ownership import own
from jackfield.host.services import OPERATIONS, Args, ServiceContext

__all__ = ["perform_offline"]

LOCK_WAIT = 5.0
"""Seconds to wait for another command that works on the store directly."""


async def perform_offline(
    home: Home, op: str, args: dict[str, Any], *, safe: bool = False, strict: bool = False
) -> Any:
    """Run one operation while nobody else has the home.

    Raises:
        HostRunning: somebody has it and does not answer on the control socket.
        NoHost: the operation needs a running host.
    """
    service = OPERATIONS.get(op)
    if service is None:
        raise UsageError(f"there is no operation {op!r}")
    home.require()
    with own(home, wait=LOCK_WAIT):
        async with open_hub(home, safe=safe, strict=strict) as hub:
            return await service(ServiceContext(hub, None), Args(args))
