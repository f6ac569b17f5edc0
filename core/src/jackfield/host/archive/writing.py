"""Making an archive: streamed into a file that has its name only when it is whole, or into a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import secrets
import stat
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from jackfield.errors import Conflict, RolledBack
from jackfield.host.archive.manifest import MANIFEST, Entry, LeftOut, Manifest, dumps

__all__ = ["ArchiveWriter", "destination", "held", "sweep"]

_CHUNK = 256 * 1024
_IN_MEMORY = 8 << 20
"""Bytes up to which a file is read before it is written, so that one that grows meanwhile has the size it had."""
_LEVEL = 5
_GZIP = b"\x1f\x8b"


class ArchiveWriter:
    """Puts files and folders into a .tar.gz, and at the end the manifest that lists them."""

    def __init__(self, out: BinaryIO, *, moved: Callable[[int], None] = lambda count: None) -> None:
        """`moved` is told of the bytes that were read, for a progress display."""
        self._zipped = _Zipped(out)
        # The type asks for a whole file; one that is only written to is told, closed and written.
        self._tar = tarfile.TarFile(fileobj=self._zipped, mode="w", format=tarfile.PAX_FORMAT)  # type: ignore[arg-type]  # typeshed wants more of a file than tarfile does
        self._moved = moved
        self.files: list[Entry] = []
        self.folders: list[str] = []
        self.left_out: list[LeftOut] = []

    def leave_out(self, name: str, why: str) -> None:
        self.left_out.append(LeftOut(name, why))

    def folder(self, name: str, *, mtime: float) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o700, max(0, int(mtime))
        self._tar.addfile(info)
        self.folders.append(name)

    def file(self, name: str, descriptor: int, scratch: Path) -> None:
        """A file by its open descriptor, which stays open.  One that is written to meanwhile is taken as it was at one
        moment, in `scratch` first when it is large."""
        found = os.fstat(descriptor)
        with contextlib.ExitStack() as stack:
            content: BinaryIO
            if found.st_size <= _IN_MEMORY:
                data = _read(descriptor, _IN_MEMORY * 2)
                content = io.BytesIO(data)
                size = len(data)
            else:
                content, size = stack.enter_context(_copied(descriptor, scratch))
            self._add(name, content, size, found.st_mode & 0o777, found.st_mtime)

    def path(self, name: str, path: Path, scratch: Path) -> None:
        """A file of our own by its path."""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self.file(name, descriptor, scratch)
        finally:
            os.close(descriptor)

    def finish(self, manifest: Manifest) -> Manifest:
        """Write the manifest, completed by what went in, and all that is still held back."""
        complete = replace(
            manifest, files=tuple(self.files), folders=tuple(self.folders), left_out=tuple(self.left_out)
        )
        data = dumps(complete)
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode, info.mtime = len(data), 0o600, int(time.time())
        self._tar.addfile(info, io.BytesIO(data))
        self._tar.close()
        self._zipped.close()
        return complete

    def _add(self, name: str, content: BinaryIO, size: int, mode: int, mtime: float) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, mode, max(0, int(mtime))
        hashed = _Hashed(content, self._moved)
        self._tar.addfile(info, hashed)
        self.files.append(Entry(name, size, hashed.digest.hexdigest(), mode))


class _Zipped:
    """Compresses what a `TarFile` writes.  Nothing is written when it is dropped half-way, as a `GzipFile` would."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        self._written = 0

    def write(self, data: bytes) -> int:
        _write_all(self._out, self._packer.compress(data))
        self._written += len(data)
        return len(data)

    def tell(self) -> int:
        return self._written

    def close(self) -> None:
        _write_all(self._out, self._packer.flush())


def _write_all(out: BinaryIO, data: bytes) -> None:
    """Unbuffered files may take less than they are given."""
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


class _Hashed(io.RawIOBase):
    def __init__(self, content: BinaryIO, moved: Callable[[int], None]) -> None:
        self._content = content
        self._moved = moved
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._content.read(size)
        self.digest.update(data)
        self._moved(len(data))
        return data


def _read(descriptor: int, limit: int) -> bytes:
    data = bytearray()
    while len(data) < limit and (chunk := os.pread(descriptor, min(_CHUNK, limit - len(data)), len(data))):
        data += chunk
    return bytes(data)


@contextlib.contextmanager
def _copied(descriptor: int, scratch: Path) -> Iterator[tuple[BinaryIO, int]]:
    place = scratch / "large"
    try:
        with place.open("w+b") as copy:
            size = 0
            while chunk := os.pread(descriptor, _CHUNK, size):
                copy.write(chunk)
                size += len(chunk)
            copy.seek(0)
            yield copy, size
    finally:
        place.unlink(missing_ok=True)


@contextlib.contextmanager
def destination(path: Path) -> Iterator[BinaryIO]:
    """A file beside `path`, 0600, that takes its place when the block ends well; else nothing of it stays.

    Raises:
        Conflict: something lies there that is no archive.
        RolledBack: it can't be made or put in place.
    """
    _refuse_others(path)
    sweep(path.parent, f".{path.name}.", ".part")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise RolledBack(f"{path} can't be written: {problem.strerror}", fix="name another file") from problem
    try:
        # Unbuffered: a full disk is met where it is written to, and closing does not meet it again.
        with os.fdopen(descriptor, "wb", buffering=0) as out:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield cast(BinaryIO, out)
            os.fsync(descriptor)
            temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _refuse_others(path: Path) -> None:
    """Leave what a slip of the keyboard names as it is: only an older archive, or an empty file, may be replaced.

    Raises:
        Conflict: it is something else: another kind of file, a folder, a link, a device.
    """
    try:
        found = path.lstat()
        if stat.S_ISREG(found.st_mode):
            with path.open("rb") as file:
                if file.read(len(_GZIP)) in (b"", _GZIP):
                    return
    except FileNotFoundError:
        return
    except OSError as problem:
        raise RolledBack(f"{path} can't be written: {problem.strerror}", fix="name another file") from problem
    raise Conflict(
        f"{path} is there and is no archive; it is not replaced", fix="name another file, or remove that one"
    )


@contextlib.contextmanager
def held(parent: Path, prefix: str) -> Iterator[Path]:
    """A new folder in `parent`, ours while the block runs and gone afterwards, unless it was moved away.

    What a killed process left of its kind goes first: nobody holds its lock any more.
    """
    sweep(parent, prefix, "")
    folder = parent / f"{prefix}{secrets.token_hex(6)}"
    folder.mkdir(mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        if _is(folder, descriptor):
            remove_tree(folder)
        os.close(descriptor)


def sweep(parent: Path, prefix: str, suffix: str) -> None:
    """Remove files and folders of that kind whose maker is gone."""
    try:
        found = [entry for entry in os.scandir(parent) if entry.name.startswith(prefix) and entry.name.endswith(suffix)]
    except OSError:
        return
    for entry in found:
        with contextlib.suppress(OSError):
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                    remove_tree(Path(entry.path))
                else:
                    Path(entry.path).unlink()
            finally:
                os.close(descriptor)


def remove_tree(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is(folder: Path, descriptor: int) -> bool:
    try:
        there, ours = folder.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
