"""Which files of a folder go into an archive.  Some of it is a sandbox's to arrange, so no link is ever followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jackfield.errors import VerificationFailed
from jackfield.host.archive.manifest import check_name
from jackfield.host.archive.writing import ArchiveWriter

__all__ = ["Gatherer"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Gatherer:
    """Puts trees into an archive; what can't be in one is left out, by name and reason."""

    archive: ArchiveWriter
    scratch: Path
    """A folder of ours on the disk, for copies of what is large."""

    def tree(self, path: Path, name: str, *, skip: Callable[[str], bool] = lambda name: False) -> None:
        """A folder with all that is in it, under `name`; `skip` says which names inside to pass over silently."""
        with self._opened(path, _FOLDER, name) as descriptor:
            if descriptor is not None:
                self._folder(descriptor, name, skip)

    def file(self, path: Path, name: str) -> None:
        """One file; nothing when there is none."""
        try:
            descriptor = os.open(path.parent, _FOLDER & ~os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        try:
            self._file(descriptor, path.name, name)
        finally:
            os.close(descriptor)

    def _folder(self, descriptor: int, name: str, skip: Callable[[str], bool]) -> None:
        self.archive.folder(name, mtime=os.fstat(descriptor).st_mtime)
        for entry in _sorted(descriptor):
            below = f"{name}/{entry}"
            if skip(below):
                continue
            try:
                check_name(below)
                mode = os.stat(entry, dir_fd=descriptor, follow_symlinks=False).st_mode
            except VerificationFailed:
                self.archive.leave_out(below, "its name can't be in an archive")
                continue
            except FileNotFoundError:
                continue  # gone meanwhile
            if stat.S_ISDIR(mode):
                with self._opened(entry, _FOLDER, below, inside=descriptor) as folder:
                    if folder is not None:
                        self._folder(folder, below, skip)
            elif stat.S_ISREG(mode):
                self._file(descriptor, entry, below)
            else:
                self.archive.leave_out(below, _kind(mode))

    def _file(self, folder: int, entry: str, name: str) -> None:
        with self._opened(entry, _FILE, name, inside=folder) as descriptor:
            if descriptor is None:
                return
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                self.archive.leave_out(name, _kind(found.st_mode))
            elif found.st_nlink > 1:
                # In a sandbox's folder, a second name may belong to a file of elsewhere.
                self.archive.leave_out(name, "it has a second name")
            else:
                self.archive.file(name, descriptor, self.scratch)

    @contextmanager
    def _opened(self, path: Path | str, flags: int, name: str, *, inside: int | None = None) -> Iterator[int | None]:
        """The descriptor of what is there; None when there is nothing, or it can't be opened and is left out."""
        try:
            descriptor = os.open(path, flags, dir_fd=inside)
        except FileNotFoundError:
            descriptor = None
        except OSError as problem:
            self.archive.leave_out(name, _why(problem))
            descriptor = None
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)


def _sorted(descriptor: int) -> Iterator[str]:
    with os.scandir(descriptor) as found:
        names = [entry.name for entry in found]
    return iter(sorted(names))


def _kind(mode: int) -> str:
    for test, word in ((stat.S_ISLNK, "a link"), (stat.S_ISSOCK, "a socket"), (stat.S_ISFIFO, "a named pipe")):
        if test(mode):
            return word
    return "a device"


def _why(problem: OSError) -> str:
    return "a link" if problem.errno == errno.ELOOP else problem.strerror or str(problem)
