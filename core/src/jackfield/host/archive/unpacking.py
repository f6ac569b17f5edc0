"""Verifying an archive, and unpacking one that was verified into a new folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from jackfield.errors import NotFound, UsageError, VerificationFailed
from jackfield.host.archive.manifest import MANIFEST, PRIVATE_FILES, Kind, Manifest, check_name, compare, loads
from jackfield.host.archive.stream import MANIFEST_LIMIT, Member, members
from jackfield.store.migrations import MIGRATIONS

__all__ = ["room_at", "unpack", "verify"]

RESERVE = 16 << 20
"""Bytes that stay free on the disk."""


def room_at(place: Path) -> int:
    """Bytes that can be unpacked at a place that need not exist yet."""
    while not place.exists():
        place = place.parent
    return max(0, shutil.disk_usage(place).free - RESERVE)


def verify(path: Path, kind: Kind, *, limit: int, moved: Callable[[int], None] = lambda count: None) -> Manifest:
    """Read the whole archive without writing anything: it is what its manifest says, and only that.

    Raises:
        NotFound: there is no such file.
        VerificationFailed: it is damaged, cut off, too large for `limit` bytes, of another kind, or hostile.
        StoreNewer: a newer version made it.
    """
    seen: dict[str, tuple[int, str]] = {}
    folders: set[str] = set()
    body: bytes | None = None
    try:
        # Without waiting: nobody may ever write into a named pipe.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as problem:
        raise UsageError(f"{path} can't be read: {problem.strerror}") from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{path} is no regular file, and is read twice", fix="copy it into a file first")
        for member in members(file, limit=limit):
            if body is not None:
                raise VerificationFailed(f"the archive goes on after its {MANIFEST}", fix="use another backup")
            if member.name == MANIFEST and not member.folder:
                body = _whole(member)
                continue
            check_name(member.name)
            if member.name in seen or member.name in folders:
                raise VerificationFailed(f"the archive holds {member.name!r} twice", fix="use another backup")
            if member.folder:
                folders.add(member.name)
                continue
            digest = hashlib.sha256()
            for chunk in member.chunks:
                digest.update(chunk)
                moved(len(chunk))
            seen[member.name] = (member.size, digest.hexdigest())
    if body is None:
        raise VerificationFailed(f"{path} is no archive of Jackfield's: it has no {MANIFEST}", fix="use another file")
    manifest = loads(body, newest_schema=MIGRATIONS[-1].number)
    if manifest.kind != kind:
        right = "`jackfield restore`" if manifest.kind == "home" else "`jackfield group import`"
        raise VerificationFailed(f"{path} holds a {manifest.kind}, not a {kind}", fix=f"use {right} for it")
    compare(manifest, seen, folders)
    return manifest


def unpack(path: Path, manifest: Manifest, target: Path, *, moved: Callable[[int], None] = lambda count: None) -> None:
    """Unpack an archive that `verify` found sound into an empty folder of ours.  Each byte is checked once more, since
    the file may have been exchanged meanwhile.

    Raises:
        VerificationFailed: it differs from the manifest.
        OSError: the disk is full, or the like.
    """
    left = {entry.path: entry for entry in manifest.files}
    with path.open("rb") as file:
        for member in members(file, limit=manifest.size + MANIFEST_LIMIT):
            if member.name == MANIFEST:
                continue
            place = target / check_name(member.name, manifest.kind)
            if member.folder:
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
                continue
            entry = left.pop(member.name, None)
            if entry is None:
                raise VerificationFailed(f"{member.name!r} was not in the archive before", fix="try it again")
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            secret = member.name in PRIVATE_FILES or member.name == "state.db"
            digest = _written(place, member, 0o600 if secret else (entry.mode | 0o600) & 0o755, moved)
            if (member.size, digest) != (entry.size, entry.sha256):
                raise VerificationFailed(f"{member.name!r} in the archive changed meanwhile", fix="try it again")
    if left:
        raise VerificationFailed(f"{min(left)!r} was in the archive before", fix="try it again")


def _written(place: Path, member: Member, mode: int, moved: Callable[[int], None]) -> str:
    digest = hashlib.sha256()
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        for chunk in member.chunks:
            digest.update(chunk)
            out.write(chunk)
            moved(len(chunk))
        out.flush()
        os.fchmod(descriptor, mode)
    os.utime(place, (member.mtime, member.mtime))
    return digest.hexdigest()


def _whole(member: Member) -> bytes:
    if member.size > MANIFEST_LIMIT:
        raise VerificationFailed(f"the archive's {MANIFEST} has {member.size:,} bytes", fix="use another backup")
    return b"".join(member.chunks)
