"""Files: copies of what agents sent, and reading what people send."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from jackfield.errors import ChannelError, ChatNotFound, MalformedData, Transient
from jackfield.models import Attachment, AttachmentKind, OutFile

from jackfield_channel_terminal.frames import Frame

__all__ = ["forget_old", "keep_copies", "offered", "opened"]

log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_KINDS = {
    AttachmentKind.IMAGE: (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".svg", ".heic"),
    AttachmentKind.AUDIO: (".mp3", ".wav", ".flac", ".m4a", ".ogg", ".opus"),
    AttachmentKind.VIDEO: (".mp4", ".mov", ".mkv", ".webm", ".avi"),
}


def keep_copies(files: Sequence[OutFile], folder: Path) -> list[Frame]:
    """Copy an agent's files into the folder, because the session's outbox is emptied once they are delivered.

    Raises:
        Transient: a file can't be read or written.
    """
    kept: list[Frame] = []
    for number, file in enumerate(files):
        name = Path(file.name).name or "file"
        target = folder / name if not any(frame["name"] == name for frame in kept) else folder / f"{number + 1}-{name}"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = folder / f".{number}.part"
            source = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(source, "rb") as reading, draft.open("wb") as writing:
                if not stat.S_ISREG(os.fstat(reading.fileno()).st_mode):
                    raise ChatNotFound(f"{file.path} is no regular file")
                shutil.copyfileobj(reading, writing, _CHUNK)
            draft.replace(target)
        except OSError as problem:
            raise Transient(f"{file.name} could not be copied from {file.path} to {folder}: {problem}") from problem
        kept.append({"name": name, "path": str(target), "size": target.stat().st_size})
    return kept


def forget_old(folder: Path, before: float) -> int:
    """Remove folders of copies that were last changed before that moment (seconds since the epoch); how many."""
    removed = 0
    if not folder.is_dir():
        return removed
    for entry in folder.iterdir():
        try:
            if entry.lstat().st_mtime < before and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
                removed += 1
        except OSError as problem:
            log.warning("old files in %s could not be removed: %s", entry, problem)
    return removed


def offered(paths: object, message_id: str, limit: int) -> tuple[Attachment, ...]:
    """The files that a client names, as attachments that are read when they are fetched.

    Raises:
        MalformedData: one is missing, no regular file, or too large; the sentence is for the person.
    """
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise MalformedData("files must be a list of paths")
    return tuple(_offer(Path(path), f"{message_id}:{number}", limit) for number, path in enumerate(paths, 1))


def _offer(path: Path, attachment_id: str, limit: int) -> Attachment:
    if not path.is_absolute():
        raise MalformedData(f"{path} is not absolute")
    try:
        found = path.stat()
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise MalformedData(f"{path} can't be sent: {reason}") from None
    if not stat.S_ISREG(found.st_mode):
        raise MalformedData(f"{path} can't be sent: it is no regular file")
    if found.st_size > limit:
        raise MalformedData(f"{path} can't be sent: it has {found.st_size:,} bytes, {limit:,} are allowed")
    ending = path.suffix.lower()
    kind = next((kind for kind, endings in _KINDS.items() if ending in endings), AttachmentKind.FILE)
    return Attachment(id=attachment_id, name=path.name, kind=kind, size=found.st_size, token=str(path))


@asynccontextmanager
async def opened(attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
    """The bytes of an offered file.

    Raises:
        ChannelError: it is not there any more.
    """
    path = Path(attachment.token or "")
    if not path.is_absolute():
        raise ChannelError(f"attachment {attachment.id} has no path")
    try:
        descriptor = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        raise ChatNotFound(f"{path} can't be read any more: {problem.strerror}") from problem
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ChatNotFound(f"{path} is no regular file any more")

        async def chunks() -> AsyncIterator[bytes]:
            while data := await asyncio.to_thread(file.read, _CHUNK):
                yield data

        yield chunks()
