"""Putting a folder in another's place, in one step where the system can, and back again."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from jackfield.errors import Conflict
from jackfield.host.archive.writing import sync_folder

__all__ = ["put_in_place", "sync_tree"]

_AT_FDCWD = -100
_EXCHANGE = 2


def put_in_place(new: Path, place: Path, aside: Path | None) -> None:
    """`new` lies at `place` afterwards.  What lay there lies at `aside`; without one, nothing but an empty folder may.

    Where the file system can exchange two names, no moment is without a whole folder at `place`.

    Raises:
        Conflict: something lies there, and `aside` is None.
        OSError: it could not be done; everything is where it was.
    """
    if aside is None:
        try:
            new.rename(place)
        except OSError as problem:
            if problem.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise Conflict(f"{place} is not empty any more", fix="look who put something there") from None
            raise
    elif not _exchanged(new, place, aside):
        place.rename(aside)
        try:
            new.rename(place)
        except OSError:
            aside.rename(place)
            raise
    sync_folder(place.parent)


def sync_tree(folder: Path) -> None:
    """Make everything in a folder durable."""
    for _, _, files, here in os.fwalk(folder):
        for name in files:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        os.fsync(here)


def _exchanged(new: Path, place: Path, aside: Path) -> bool:
    """Whether the names were exchanged; False where the system can't, and nothing was changed.

    The new folder takes the name `aside` first: so a kill at any instant leaves the old one at `place` or at `aside`,
    never under a name that is swept away.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    new.rename(aside)
    flags = ctypes.c_uint(_EXCHANGE)
    if rename(_AT_FDCWD, os.fsencode(aside), _AT_FDCWD, os.fsencode(place), flags) == 0:
        return True
    number = ctypes.get_errno()
    aside.rename(new)
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(place))
