"""Files by descriptors of their folders: placed whole or not at all, removed without leaving the folder."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from jackfield.errors import MailboxError, MailboxFull, MalformedData, UnsafePath

__all__ = [
    "FOLDER",
    "NEW_FILE",
    "SourceFailed",
    "kind_of",
    "open_regular",
    "pass_on",
    "place",
    "read_chunks",
    "read_regular",
    "remove",
    "typed",
]

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 18
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class SourceFailed(Exception):
    """Where the bytes come from failed, which is another matter than the disk, though both are `OSError`s."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _apart(chunks: Iterable[bytes]) -> Iterator[bytes]:
    source = iter(chunks)
    while True:
        try:
            chunk = next(source, None)
        except OSError as problem:
            raise SourceFailed(problem) from problem
        if chunk is None:
            return
        yield chunk


def kind_of(name: str, folder: int) -> int:
    return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode


def pass_on(folder: int, made: int) -> None:
    """Let the group that may read a folder also read what was made in it.

    A runtime that runs agents as other users opens the inbox for their group; what is received later must follow.
    """
    found = os.fstat(made).st_mode
    rights = os.fstat(folder).st_mode & (0o050 if stat.S_ISDIR(found) else 0o040)
    if rights & ~found:
        os.fchmod(made, stat.S_IMODE(found) | rights)


def place(folder: int, name: str, chunks: Iterable[bytes], limit: int, *, replace: bool) -> int:
    """Write a file beside its place, make it durable, and move it there; its size.  What is there may stay."""
    if not replace:
        try:
            present = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            pass
        else:
            if not stat.S_ISREG(present.st_mode):
                raise UnsafePath(f"{name!r} is {stat.filemode(present.st_mode)}, where a regular file must be")
            return present.st_size
    temporary = f".{secrets.token_hex(8)}.part"
    descriptor = os.open(temporary, NEW_FILE, 0o600, dir_fd=folder)
    try:
        size = 0
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            pass_on(folder, descriptor)
            for chunk in _apart(chunks):
                size += len(chunk)
                if size > limit:
                    raise MalformedData(f"{name!r} has more than {limit} bytes")
                view = memoryview(chunk)
                while view:
                    view = view[file.write(view) :]
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)
    return size


def remove(name: str, parent: int) -> None:
    """Remove what lies under a name, a folder with all that is in it; missing is fine.  A link goes, not its target."""
    try:
        kind = kind_of(name, parent)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(kind):
        _remove_tree(name, parent)
    else:
        os.unlink(name, dir_fd=parent)


def _remove_tree(name: str, parent: int) -> None:
    """Remove a folder however deep it is: folders inside are lifted to the top and emptied there, so that neither the
    stack nor the number of descriptors grows with what a hostile hand nested."""
    top = os.open(name, FOLDER, dir_fd=parent)
    try:
        waiting = _empty(top, top)
        while waiting:
            folder = waiting.pop()
            below = os.open(folder, FOLDER, dir_fd=top)
            try:
                waiting += _empty(below, top)
            finally:
                os.close(below)
            os.rmdir(folder, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def _empty(folder: int, top: int) -> list[str]:
    """Unlink all files of a folder, lift its folders up to `top`; their names there."""
    lifted = []
    for entry in os.listdir(folder):
        if not stat.S_ISDIR(kind_of(entry, folder)):
            os.unlink(entry, dir_fd=folder)
        elif folder == top:
            lifted.append(entry)
        else:
            fresh = secrets.token_hex(12)
            os.rename(entry, fresh, src_dir_fd=folder, dst_dir_fd=top)
            lifted.append(fresh)
    return lifted


@contextmanager
def typed(what: str) -> Iterator[None]:
    """The operating system's errors as the mailbox's."""
    try:
        yield
    except OSError as problem:
        text = f"could not {what}: {problem.strerror or problem}"
        if problem.errno in _FULL:
            raise MailboxFull(text, fix="free space on the disk that holds the sessions") from problem
        raise MailboxError(text) from problem


def open_regular(source: Path) -> BinaryIO:
    """A file to read from, wherever it lies; links are followed.

    Raises:
        UnsafePath: it is no regular file, or can't be read.
    """
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as problem:
        raise UnsafePath(f"could not read {source}: {getattr(problem, 'strerror', None) or problem}") from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise UnsafePath(f"could not read {source}: it is {stat.filemode(mode)}, not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def read_regular(path: Path, limit: int) -> bytes:
    """The beginning of a file of somebody who is not trusted; a link is not followed.

    Raises:
        UnsafePath: it is no regular file, or can't be read.
        OSError: it could not be read to its end.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        raise UnsafePath(f"could not read {path}: {problem.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UnsafePath(f"could not read {path}: it is {stat.filemode(mode)}, not a regular file")
        return file.read(limit)


def read_chunks(file: BinaryIO) -> Iterator[bytes]:
    """A file's bytes, a quarter of a mebibyte at a time."""
    while chunk := file.read(_CHUNK):
        yield chunk
