"""The session folder: the one place where a path inside it is built, on both sides (architecture 6; C065, C067).

Files are opened through descriptors of their folders and never through a link, so that what was checked is what is
used.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from jackfield.clock import SystemClock, UnixMs
from jackfield.errors import MailboxDamaged, MalformedData, UnsafePath
from jackfield.mailbox.files import FOLDER, NEW_FILE, SourceFailed, kind_of, pass_on, place, remove, typed
from jackfield.mailbox.names import safe_name
from jackfield.models import RunnerSpec, dumps, loads

__all__ = ["FILE_LIMIT", "SessionFolder"]

FILE_LIMIT: Final = 50 << 20
"""Bytes of one file, in or out, unless configured (architecture, section 2)."""
_SPEC_LIMIT: Final = 4 << 20
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Where a session's mailbox lies.  `root` is absolute; everything below it may be a hostile hand's work."""

    root: Path

    def __post_init__(self) -> None:
        if not self.root.is_absolute():
            raise UnsafePath(f"a session folder needs an absolute path, got {str(self.root)!r}")

    @property
    def inbound_db(self) -> Path:
        return self.root / "inbound.db"

    @property
    def outbound_db(self) -> Path:
        return self.root / "outbound.db"

    @property
    def outbound_journal(self) -> Path:
        return self.root / "outbound.db-journal"

    @property
    def heartbeat(self) -> Path:
        return self.root / "heartbeat"

    @property
    def bell(self) -> Path:
        return self.root / "bell.sock"

    @property
    def spec_file(self) -> Path:
        return self.root / "session.json"

    @property
    def inbox(self) -> Path:
        return self.root / "inbox"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    def create(self) -> None:
        """Make the folder and all files that a sandbox binds one by one, for the owner only.  Idempotent.

        They are never replaced afterwards, since a bind holds the inode (runtime.md 3.7).

        Raises:
            MailboxDamaged: a link, folder or device lies where a file must, or something else where the folder must.
            MailboxFull: the disk is full.
        """
        with typed(f"make the session folder {self.root}"):
            try:
                self.root.mkdir(mode=0o700, parents=True)
            except FileExistsError:
                if not stat.S_ISDIR(self.root.lstat().st_mode):
                    raise MailboxDamaged(f"{self.root} is not a folder") from None
            with self._root() as root:
                for name in ("inbox", "outbox"):
                    with suppress(FileExistsError):
                        os.mkdir(name, 0o700, dir_fd=root)
                    if not stat.S_ISDIR(kind_of(name, root)):
                        raise MailboxDamaged(f"{self.root / name} is not a folder")
                for name in ("inbound.db", "outbound.db", "outbound.db-journal", "heartbeat"):
                    with suppress(FileExistsError):
                        os.close(os.open(name, NEW_FILE, 0o600, dir_fd=root))
                        if name == "heartbeat":  # nobody lives yet
                            os.utime(name, (0, 0), dir_fd=root, follow_symlinks=False)
                    if not stat.S_ISREG(kind_of(name, root)):
                        raise MailboxDamaged(f"{self.root / name} is not a regular file")

    def inbox_path(self, message_id: str, name: str) -> Path:
        """Where a file received with that message lies, or would.

        Raises:
            UnsafePath: a part is no plain name, or a link lies on the way.
        """
        return self._path("inbox", message_id, name)

    def outbox_path(self, row_id: str, name: str) -> Path:
        """Where a file to send with that row lies, or would.

        Raises:
            UnsafePath: a part is no plain name, or a link lies on the way.
        """
        return self._path("outbox", row_id, name)

    def store_inbox(self, message_id: str, name: str, data: bytes | Iterable[bytes], limit: int = FILE_LIMIT) -> str:
        """Write a received file durably; its path relative to the session folder.

        It appears under its name only when complete.  A replay keeps the first bytes, so two files of one message need
        two names.

        Raises:
            UnsafePath: a part is no plain name, or a link lies on the way.
            MalformedData: it has more than `limit` bytes; nothing is left of it.
            MailboxFull: the disk is full; nothing is left of it.
        """
        self._store("inbox", message_id, name, (data,) if isinstance(data, bytes) else data, limit)
        return f"inbox/{message_id}/{name}"

    def store_outbox(self, row_id: str, name: str, data: bytes | Iterable[bytes], limit: int = FILE_LIMIT) -> int:
        """Write a file to send durably; its size in bytes.  Otherwise like `store_inbox`."""
        return self._store("outbox", row_id, name, (data,) if isinstance(data, bytes) else data, limit)

    def open_outbox(self, row_id: str, name: str) -> BinaryIO:
        """The bytes of a file to send; the caller closes it.

        Raises:
            UnsafePath: it is not there, not a regular file, or reached through a link of either kind (C067).
        """
        shown = self.outbox_path(row_id, name)
        with self._folder("outbox", row_id) as folder:
            try:
                descriptor = os.open(name, _READ, dir_fd=folder)
            except OSError as problem:
                raise UnsafePath(f"{shown} can't be sent: {problem.strerror}") from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise UnsafePath(f"{shown} can't be sent: it is {stat.filemode(found.st_mode)}, not a regular file")
            if found.st_nlink != 1:
                raise UnsafePath(f"{shown} can't be sent: it has {found.st_nlink} names, so it is a file of elsewhere")
            os.set_blocking(descriptor, True)
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    def remove_inbox(self, message_id: str) -> None:
        """Remove what was received with that message.  Otherwise like `remove_outbox`."""
        self._remove("inbox", message_id)

    def remove_outbox(self, row_id: str) -> None:
        """Remove what was to send with that row: never anything outside, never through a link.  Missing is fine.

        Raises:
            UnsafePath: `row_id` is no plain name, or the outbox itself is no folder.
            MailboxError: the files can't be removed.
        """
        self._remove("outbox", row_id)

    def remove_old_outbox(self, before: UnixMs) -> None:
        """Remove what has lain in the outbox since before that moment: its row was sent, or never written.

        Raises:
            UnsafePath: the outbox is no folder.
            MailboxError: something can't be removed.
        """
        with typed(f"remove what is old from {self.outbox}"), self._folder("outbox") as outbox:
            with os.scandir(outbox) as found:
                entries = list(found)
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_mtime_ns // 1_000_000 < before:
                    remove(entry.name, outbox)

    def remove_all(self) -> None:
        """Remove the whole folder, for good; missing is fine.  No runner may live, and nobody may hold its files.

        Raises:
            MailboxError: something can't be removed.
        """
        with typed(f"remove {self.root}"):
            try:
                parent = os.open(self.root.parent, FOLDER)
            except FileNotFoundError:
                return
            try:
                remove(self.root.name, parent)
            finally:
                os.close(parent)

    def read_spec(self) -> RunnerSpec:
        """What the host tells the runner.  Its `format` is not judged here.

        Raises:
            MalformedData: it is missing, not a plain file, or of another shape.
        """
        try:
            descriptor = os.open(self.spec_file, _READ)
        except OSError as problem:
            raise MalformedData(f"could not read {self.spec_file}: {problem.strerror}") from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise MalformedData(f"{self.spec_file} is not a regular file")
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(_SPEC_LIMIT + 1)
        if len(text) > _SPEC_LIMIT:
            raise MalformedData(f"{self.spec_file} has more than {_SPEC_LIMIT} bytes")
        try:
            return loads(RunnerSpec, text)
        except MalformedData as problem:
            raise MalformedData(f"{self.spec_file}: {problem}") from None

    def write_spec(self, spec: RunnerSpec) -> None:
        """Replace `session.json` at once, or not at all.

        Raises:
            MailboxFull: the disk is full; the old one stays.
        """
        with typed(f"write {self.spec_file}"), self._root() as root:
            place(root, "session.json", (dumps(spec).encode(),), _SPEC_LIMIT, replace=True)

    def heartbeat_at(self) -> UnixMs | None:
        """When the runner last showed that it lives; None when it never did, or when there is no plain file.

        The file is never opened: a FIFO or a link there must not stop the host (runtime.md 3.7).
        """
        try:
            found = self.heartbeat.lstat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_mtime_ns <= 0:
            return None
        return UnixMs(found.st_mtime_ns // 1_000_000)

    def set_aside(self, reason: str, *, floor: int | None = None) -> Path:
        """Move a damaged mailbox away and make a fresh one; where the old files are now.

        Files received and to send, and `session.json`, stay with the session.  The numbers of the fresh mailbox start
        above `floor`: the highest of the host's cursors and of the message numbers it knows; without it, above any
        number that could have been reached.  No runner may live.

        Raises:
            MailboxError: the folder can't be moved.
        """
        now = SystemClock().now()
        for attempt in range(100):
            aside = self.root.parent / f"damaged-{now + attempt}-{self.root.name}"
            if not aside.exists():
                break
        with typed(f"set the damaged mailbox {self.root} aside"):
            # One rename: a crash can't leave a journal beside a database that it doesn't belong to.
            self.root.rename(aside)
            self.root.mkdir(mode=0o700)
            if stat.S_ISDIR(aside.lstat().st_mode):  # a link leads to what is not ours
                for name, wanted in (("inbox", stat.S_ISDIR), ("outbox", stat.S_ISDIR), ("session.json", stat.S_ISREG)):
                    with suppress(FileNotFoundError):
                        if wanted((aside / name).lstat().st_mode):
                            (aside / name).rename(self.root / name)
                (aside / "reason.txt").write_text(f"{reason}\n")
        self.create()
        from jackfield.mailbox.inbound import begin_above

        begin_above(self, now // 1000 if floor is None else floor)
        return aside

    def _path(self, area: str, folder: str, name: str) -> Path:
        path = self.root
        for part in (area, safe_name(folder), safe_name(name)):
            path = path / part
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise UnsafePath(f"{path}: {problem.strerror}") from None
            if stat.S_ISLNK(mode):
                raise UnsafePath(f"{path} is a link, where none may be")
        return path

    @contextmanager
    def _root(self) -> Iterator[int]:
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _folder(self, *parts: str, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder below the root, opened part by part without following a link."""
        with self._root() as descriptor:
            current = os.dup(descriptor)
        try:
            for part in parts:
                made = False
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=current)
                        os.fsync(current)
                        made = True
                try:
                    below = os.open(part, FOLDER, dir_fd=current)
                except OSError as problem:
                    if problem.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT, errno.EACCES):
                        shown = "/".join(parts)
                        raise UnsafePath(f"{self.root}/{shown}: {part!r} is no folder ({problem.strerror})") from None
                    raise
                try:
                    if made:
                        pass_on(current, below)
                finally:
                    os.close(current)
                    current = below
            yield current
        finally:
            os.close(current)

    def _remove(self, area: str, folder: str) -> None:
        safe_name(folder)
        with typed(f"remove {self.root}/{area}/{folder}"), self._folder(area) as descriptor:
            remove(folder, descriptor)

    def _store(self, area: str, folder: str, name: str, chunks: Iterable[bytes], limit: int) -> int:
        safe_name(folder)
        safe_name(name)
        try:
            with (
                typed(f"store {self.root}/{area}/{folder}/{name}"),
                self._folder(area, folder, make=True) as descriptor,
            ):
                return place(descriptor, name, chunks, limit, replace=False)
        except SourceFailed as failure:
            raise failure.problem from None
