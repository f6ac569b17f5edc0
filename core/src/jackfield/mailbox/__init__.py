"""The session folder, where host and runner meet: files, both sides' access to them, and the doorbell (architecture 6).

Light to import: the runner does so before its first heartbeat.
"""

from __future__ import annotations

from jackfield.mailbox.doorbell import HostBell, RunnerBell
from jackfield.mailbox.host import BadRow, Enqueued, HostMailbox, OutboundBatch
from jackfield.mailbox.names import file_name, safe_name
from jackfield.mailbox.paths import FILE_LIMIT, SessionFolder
from jackfield.mailbox.pool import MailboxPool
from jackfield.mailbox.runner import RunnerMailbox
from jackfield.mailbox.schema import READABLE_FORMATS, ROW_LIMIT

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
    "file_name",
    "safe_name",
]
