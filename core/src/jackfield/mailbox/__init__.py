"""The session folder, where host and runner meet: files, both sides' access to them, and the doorbell (architecture 6).

Each name's module is imported when the name is first used: a runner needs its own side only, and before its first
heartbeat.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield.mailbox.doorbell import HostBell, RunnerBell
    from jackfield.mailbox.files import read_regular
    from jackfield.mailbox.host import Enqueued, HostMailbox
    from jackfield.mailbox.names import file_name, safe_name
    from jackfield.mailbox.outbound import BadRow, OutboundBatch
    from jackfield.mailbox.paths import FILE_LIMIT, SessionFolder
    from jackfield.mailbox.pool import MailboxPool
    from jackfield.mailbox.runner import RunnerMailbox
    from jackfield.mailbox.schema import READABLE_FORMATS, ROW_LIMIT
    from jackfield.mailbox.watermark import Watermark

__all__ = [
    "FILE_LIMIT",
    "READABLE_FORMATS",
    "ROW_LIMIT",
    "BadRow",
    "Enqueued",
    "HostBell",
    "HostMailbox",
    "MailboxPool",
    "OutboundBatch",
    "RunnerBell",
    "RunnerMailbox",
    "SessionFolder",
    "Watermark",
    "file_name",
    "read_regular",
    "safe_name",
]

_HOME_OF = {
    "doorbell": ("HostBell", "RunnerBell"),
    "host": ("Enqueued", "HostMailbox"),
    "names": ("file_name", "safe_name"),
    "files": ("read_regular",),
    "outbound": ("BadRow", "OutboundBatch"),
    "paths": ("FILE_LIMIT", "SessionFolder"),
    "pool": ("MailboxPool",),
    "runner": ("RunnerMailbox",),
    "schema": ("READABLE_FORMATS", "ROW_LIMIT"),
    "watermark": ("Watermark",),
}


def __getattr__(name: str) -> object:
    for module, names in _HOME_OF.items():
        if name in names:
            found: object = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
