"""The operations of the control socket.  Importing this package registers them all."""

from __future__ import annotations

from jackfield.host.services import (
    activity,
    approvals,
    backups,
    conversations,
    destinations,
    diagnosis,
    entities,
    people,
    prompts,
    secrets,
    status,
    tasks,
    transfer,
    usage,
    workshop,
)
from jackfield.host.services.context import OPERATIONS, Args, Live, ServiceContext

__all__ = [
    "OPERATIONS",
    "Args",
    "Live",
    "ServiceContext",
    "activity",
    "approvals",
    "backups",
    "conversations",
    "destinations",
    "diagnosis",
    "entities",
    "people",
    "prompts",
    "secrets",
    "status",
    "tasks",
    "transfer",
    "usage",
    "workshop",
]
