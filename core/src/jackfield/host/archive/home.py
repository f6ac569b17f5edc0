"""A whole home into an archive, while a host runs on it or not, and back."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jackfield.clock import SystemClock
from jackfield.config.home import Home
from jackfield.errors import (
    Conflict,
    NoHost,
    NotFound,
    NotRolledBack,
    RolledBack,
    StoreFull,
)
from jackfield.host.archive.gathering import Gatherer
from jackfield.host.archive.keys import KeyState, key_state
from jackfield.host.archive.manifest import Manifest
from jackfield.host.archive.repair import Repaired, repair
from jackfield.host.archive.swapping import put_in_place, sync_tree
from jackfield.host.archive.unpacking import room_at, unpack, verify
from jackfield.host.archive.writing import ArchiveWriter, held
from jackfield.host.control import Client
from jackfield.host.offline import LOCK_WAIT
from jackfield.host.ownership import own
from jackfield.host.services import OPERATIONS, Args, ServiceContext
from jackfield.host.services.backups import STAGING

__all__ = ["Progress", "Restored", "back_up", "operations", "restore"]

Call = Callable[[str, dict[str, Any]], Awaitable[Any]]
_FOLDERS = ("groups", "plugins", "channels", "outgoing", "spool", "approvals")
_CACHES = frozenset({"plugins/cache.json"})
_LOCKS = frozenset({"host.lock", "host.json"})


class Progress:
    """Told how far it is; the command shows it."""

    def step(self, what: str) -> None: ...

    def moved(self, count: int) -> None: ...


@contextlib.asynccontextmanager
async def operations(home: Home) -> AsyncIterator[Call]:
    """Several operations in a row: by the running host, or without one under its lock, held for the block."""
    client = Client(home)
    try:
        await client.open()
    except NoHost:
        from jackfield.host.application import open_hub

        with own(home, wait=LOCK_WAIT):
            async with open_hub(home) as hub:
                context = ServiceContext(hub, None)
                yield lambda op, args: OPERATIONS[op](context, Args(args))
        return
    try:
        yield client.call
    finally:
        await client.close()


async def back_up(
    home: Home, out: BinaryIO, *, key: bool, conversations: bool, progress: Progress | None = None
) -> Manifest:
    """Write the home into `out`; what went in.  `key`: whether `master.key` shall be in it.

    Raises:
        StoreFull, RolledBack: no room for the copies, or for the archive; nothing of it stays.
        NoHost: the host went away in the middle.
        JackfieldError: as the host says.
    """
    progress = progress or Progress()
    home.require()
    home.backups.mkdir(mode=0o700, exist_ok=True)
    async with operations(home) as call:
        with held(home.backups, STAGING) as staging:
            _require_room(home)
            try:
                return await _pack(home, call, staging, out, key, conversations, progress)
            except OSError as problem:
                text = f"the backup could not be written: {problem}"
                raise RolledBack(text, fix="make room, or mend the disk") from problem


async def _pack(
    home: Home, call: Call, staging: Path, out: BinaryIO, key: bool, conversations: bool, progress: Progress
) -> Manifest:
    progress.step("the store")
    made = await call("backup.store", {"staging": staging.name})
    archive = ArchiveWriter(out, moved=progress.moved)
    gatherer = Gatherer(archive, staging)
    fresh: list[str] = []
    notes: list[str] = []
    epochs: dict[str, int] = {}
    if conversations:
        known = made["sessions"]
        for number, session in enumerate(known, 1):
            progress.step(f"conversation {number} of {len(known)}")
            name = f"sessions/{session['group']}/{session['id']}"
            try:
                copied = await call("backup.mailbox", {"staging": staging.name, "session": session["id"]})
            except NotFound:
                continue  # forgotten meanwhile
            await asyncio.to_thread(_session, gatherer, home.root / name, name, staging, copied["files"])
            notes += [f"{name}: {note}" for note in copied["notes"]]
            fresh += [name] if copied["fresh_outbox"] else []
            if copied["epoch"] > session["epoch"]:
                epochs[session["id"]] = copied["epoch"]
    for folder in _FOLDERS if conversations else ("groups", "plugins", "channels"):
        progress.step(folder)
        await asyncio.to_thread(gatherer.tree, home.root / folder, folder, skip=_CACHES.__contains__)
    for file in ("jackfield.toml", *(["master.key"] if key else [])):
        gatherer.file(home.root / file, file)
    progress.step("what was sent meanwhile")
    finish = {"staging": staging.name, "at": made["at"], "without_sessions": not conversations, "epochs": epochs}
    ended = await call("backup.finish", finish)
    fits = await asyncio.to_thread(key_state, staging / "state.db", home)
    if fits in ("missing", "other"):
        what = "missing" if fits == "missing" else "not the one that they need"
        notes.append(f"the secrets in it can't be read: the home's master.key is {what}")
    await asyncio.to_thread(archive.path, "state.db", staging / "state.db", staging)
    manifest = Manifest(
        kind="home",
        app=str(made["version"]),
        schema=int(made["schema"]),
        install=str(made["install"]),
        made_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        home=str(home.root),
        secrets=key and home.master_key.exists(),
        sessions=conversations,
        fresh_outboxes=tuple(fresh),
        details={
            "key": fits,
            "open_sends": ended["open"],
            "notes": notes,
            "conversations": len(made["sessions"]) if conversations else 0,
        },
    )
    return await asyncio.to_thread(archive.finish, manifest)


def _session(gatherer: Gatherer, folder: Path, name: str, staging: Path, files: list[str]) -> None:
    """One session: the copies of its databases, and the files that lie there."""
    if not folder.is_dir() or folder.is_symlink():
        return
    gatherer.archive.folder(name, mtime=folder.stat().st_mtime)
    for file in files:
        gatherer.archive.path(f"{name}/{file}", staging / file, staging)
        (staging / file).unlink()
    gatherer.file(folder / "session.json", f"{name}/session.json")
    for part in ("inbox", "outbox"):
        gatherer.tree(folder / part, f"{name}/{part}")


def _require_room(home: Home) -> None:
    try:
        needed = home.state_db.stat().st_size + (16 << 20)
    except FileNotFoundError:
        return
    free = shutil.disk_usage(home.backups).free
    if free < needed:
        raise StoreFull(
            f"a backup needs {needed:,} bytes beside the home for a copy of state.db, and {free:,} are free",
            fix="make room on the disk of the home",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """`aside`: where the old home lies now.  `repaired` is None for a dry run."""

    manifest: Manifest
    home: Path
    aside: Path | None
    repaired: Repaired | None
    key: KeyState = "none"
    """Whether the secrets in it can be read with the key that came with it."""


def restore(
    path: Path, home: Home, *, force: bool = False, dry_run: bool = False, progress: Progress | None = None
) -> Restored:
    """Make `home` from a backup.  Nothing is touched before the whole archive was read and found sound; the new home
    takes its place in one step, or the old one stays.

    Raises:
        HostRunning: a host runs there.
        Conflict: the home is not empty, and `force` is not set.
        VerificationFailed, StoreNewer, NotFound: the archive can't be used; nothing was touched.
        RolledBack: it failed on the way, for a full disk, say; the home is as it was.
        NotRolledBack: it failed on the way, and the old home lies elsewhere now; the message says where.
    """
    progress = progress or Progress()
    if dry_run:
        manifest = verify(path, "home", limit=room_at(home.root), moved=progress.moved)
        return Restored(manifest=manifest, home=home.root, aside=None, repaired=None)
    with contextlib.ExitStack() as stack:
        occupied = _look(home, force)
        if occupied:
            stack.enter_context(own(home))
        progress.step("checking")
        manifest = verify(path, "home", limit=room_at(home.root), moved=progress.moved)
        try:
            return _restore(path, home, manifest, occupied, progress)
        except OSError as problem:
            raise RolledBack(
                f"{path} was not restored: {problem}; {home.root} is as it was", fix="make room, or mend the disk"
            ) from problem


def _look(home: Home, force: bool) -> bool:
    """Whether something lies at the home's place that must be moved aside.

    Raises:
        Conflict: it does, and may not be.
    """
    try:
        found = {entry.name for entry in os.scandir(home.root)}
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise Conflict(f"{home.root} is not a folder", fix="choose another place with --into") from None
    if not found:
        return False
    if not force and found - _LOCKS:
        raise Conflict(
            f"{home.root} is not empty ({min(found - _LOCKS)!r} for one)",
            fix="choose another place with --into, or move what is there aside with --force",
        )
    return True


def _restore(path: Path, home: Home, manifest: Manifest, occupied: bool, progress: Progress) -> Restored:
    parent = home.root.parent
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with held(parent, f".{home.root.name}.restore-") as new:
        progress.step("unpacking")
        unpack(path, manifest, new, moved=progress.moved)
        Home(new).create()
        progress.step("preparing")
        repaired = repair(new, manifest, now=SystemClock().now())
        key = key_state(new / "state.db", Home(new))
        sync_tree(new)
        aside = _free_name(home.root) if occupied else None
        try:
            put_in_place(new, home.root, aside)
        except OSError as problem:
            if occupied and not home.root.exists():
                raise NotRolledBack(
                    f"the restore failed ({problem}), and the old home could not be put back",
                    fix=f"it lies at {aside}: move it to {home.root}",
                ) from problem
            raise
    return Restored(manifest=manifest, home=home.root, aside=aside, repaired=repaired, key=key)


def _free_name(place: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = place.with_name(f"{place.name}.before-restore-{stamp}")
    number = 2
    while name.exists():
        name = place.with_name(f"{place.name}.before-restore-{stamp}-{number}")
        number += 1
    return name
