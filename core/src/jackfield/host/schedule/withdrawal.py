"""Taking back a run that waits in an inbox, without a doubt whether its runner has begun it (C115).

The runner looks for the withdrawal after its claim is on the disk, and the host looks for the claim after the
withdrawal is: at least one of the two sees the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from jackfield.host.hub import Hub
from jackfield.host.schedule.claiming import release
from jackfield.ids import InboundId
from jackfield.mailbox import HostMailbox
from jackfield.models import Session, TaskRun
from jackfield.store import sessions, tasks

__all__ = ["take_out"]

Use = Callable[[Session, Callable[[HostMailbox], Any]], Awaitable[Any]]


async def take_out(hub: Hub, use: Use, run: TaskRun, *, go_on: bool) -> bool:
    """Undo the claim of an open run that has not begun; False when it has, which then goes on to its end.

    With `go_on` a run that has begun is tried again when it fails; otherwise not.  `use` works on a session's mailbox.

    Raises:
        MailboxError: the mailbox can't be used now; the run stays as it is.
    """
    session = await hub.store.read(sessions.session, run.session_id) if run.session_id else None
    if session is not None and not await use(session, partial(_withdraw, run.inbound_id, go_on)):
        return False

    def undo(db: sqlite3.Connection) -> None:
        task, fresh = tasks.task(db, run.task_id), tasks.run(db, run.id)
        if task is not None and fresh is not None and fresh.finished_at is None:
            release(db, task, fresh, hub.clock.now())

    await hub.store.write(undo)
    return True


def _withdraw(inbound_id: InboundId, go_on: bool, box: HostMailbox) -> bool:
    box.withdraw([inbound_id])
    if not box.taken([inbound_id]):
        return True
    if go_on:
        box.put_back([inbound_id])
    return False
