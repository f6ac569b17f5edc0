"""What a backup asks of the host: consistent copies, made where the files are open, put into a folder of the caller's.

The command packs them; so the host never waits for a compression or a slow disk of somebody's.
"""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

from jackfield import __version__
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, MailboxFull, UsageError
from jackfield.host.archive import snapshot
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.mailbox import safe_name
from jackfield.models import Session
from jackfield.store import sessions

__all__ = ["STAGING"]

STAGING = ".staging-"
"""How the names of folders for copies begin, in `backups/`."""


def _staging(context: ServiceContext, args: Args) -> Path:
    """The caller's folder: one of a backup that is being made, and nothing else.

    Raises:
        UsageError: it is none.
    """
    name = safe_name(args.text("staging"))
    folder = context.hub.home.backups / name
    if not name.startswith(STAGING) or folder.is_symlink() or not folder.is_dir():
        raise UsageError(f"{name!r} is no folder of a backup that is being made")
    return folder


@operation("backup.store")
async def backup_store(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Copy `state.db`; what is in it, and which sessions have mailboxes."""
    target = _staging(context, args) / "state.db"
    now = context.hub.clock.now()
    await asyncio.to_thread(snapshot.copy_store, context.hub.store.path, target)
    found = await context.hub.store.read(sessions.sessions)
    return {
        "version": __version__,
        "install": context.hub.install_id,
        "schema": await asyncio.to_thread(snapshot.schema_of, target),
        "at": now,
        "sessions": [{"id": session.id, "group": session.agent_group_id, "epoch": session.epoch} for session in found],
    }


@operation("backup.mailbox")
async def backup_mailbox(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Copy one session's mailbox; the names of the files, and what is to be said about them."""
    target = _staging(context, args)
    session: Session = await context.session(args.text("session"))
    folder = context.hub.folder_of(session)
    if not folder.root.is_dir():
        return {"files": [], "notes": [], "fresh_outbox": False, "epoch": 0}
    try:
        made = await context.hub.mailboxes.run(folder, functools.partial(snapshot.copy_mailbox, target=target))
    except JackfieldError:
        raise
    except Exception as problem:  # the disk's, or SQLite's about the copy
        raise MailboxFull(f"the mailbox of {session.id} could not be copied: {problem}", fix="make room") from problem
    # What lies in the mailbox was written by whoever the runner is; its session's own epoch bounds it.
    epoch = min(made.epoch, (await context.session(session.id)).epoch)
    return {"files": made.files, "notes": made.notes, "fresh_outbox": made.fresh_outbox, "epoch": epoch}


@operation("backup.finish")
async def backup_finish(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Complete the copy of `state.db` by what was sent meanwhile; how much is open in it."""
    target = _staging(context, args) / "state.db"
    at = UnixMs(args.number("at", 0))
    epochs = args.numbers("epochs")
    still_open = await asyncio.to_thread(snapshot.catch_up, context.hub.store.path, target, at, epochs)
    if args.flag("without_sessions"):
        await asyncio.to_thread(snapshot.forget_conversations, target, context.hub.clock.now())
        still_open = {}
    return {"open": still_open}
