"""What a decision is bound to: a digest of all that will be done, and copies of the files that belong to it (C151)."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jackfield.errors import MalformedData, TooLarge, UnsafePath, VerificationFailed
from jackfield.mailbox import safe_name
from jackfield.store.approvals import Approval, ApprovedFile

__all__ = ["MAX_PAYLOAD", "SHOWN", "canonical", "copies", "digest_of", "forget_copies", "keep_copies", "verify"]

MAX_PAYLOAD = 256 * 1024
"""Bytes."""
MAX_FILES = 20
SHOWN = "shown"
"""The folder of long values as they were shown, beside the copies."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CHUNK = 1 << 18


def canonical(value: Any) -> str:
    """JSON in the one form that equal values have.

    Raises:
        MalformedData: it is nothing that JSON can say.
    """
    try:
        text = json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        raise MalformedData(f"it can't be written as JSON: {problem}") from None
    return text


def digest_of(item: Approval) -> str:
    """SHA-256 over everything that a person decides on: for whom, what, its files, and what the card says of it."""
    whole = canonical(
        {
            "kind": item.kind,
            "group": item.agent_group_id,
            "session": item.session_id,
            "payload": json.loads(item.payload),
            "files": [[one.name, one.sha256, one.size] for one in item.files],
            "title": item.title,
            "reason": item.reason,
            "fields": [[one.label, one.value] for one in item.fields],
            "choices": [[one.value, one.label, one.approves] for one in item.choices],
        }
    )
    return hashlib.sha256(whole.encode()).hexdigest()


def verify(item: Approval, folder: Path) -> None:
    """See that what is about to be done is what was decided on.  Blocks: it reads the copies in `folder`.

    Raises:
        VerificationFailed: something of it is another thing now.
    """
    again = "nothing was done; it must be asked for again"
    try:
        now = digest_of(item)
    except (MalformedData, ValueError):
        now = ""
    if now != item.digest:
        raise VerificationFailed("the request is not the one that was shown for approval", fix=again)
    for one in item.files:
        try:
            found = hashlib.sha256((folder / safe_name(one.name)).read_bytes()).hexdigest()
        except (OSError, UnsafePath):
            found = ""
        if found != one.sha256:
            raise VerificationFailed(f"the file {one.name} is not the one that was shown for approval", fix=again)


def copies(item: Approval, folder: Path) -> tuple[Path, ...]:
    """Where the approved contents lie."""
    return tuple(folder / one.name for one in item.files)


def keep_copies(files: Sequence[Path], roots: Sequence[Path], folder: Path, limit: int) -> tuple[ApprovedFile, ...]:
    """Copy the files as they are now into `folder`.  Blocks.

    Raises:
        UnsafePath: one is not there, lies outside `roots`, behind a link, is no regular file, or two have one name.
        TooLarge: together they are over `limit` bytes, or there are too many.
    """
    if len(files) > MAX_FILES:
        raise TooLarge(f"at most {MAX_FILES} files can be part of one approval", limit=MAX_FILES)
    kept: list[ApprovedFile] = []
    try:
        for file in files:
            name = safe_name(file.name)
            if name.casefold() in {SHOWN, *(one.name.casefold() for one in kept)}:
                raise UnsafePath(f"a file of this approval can't be named {name!r}: another one is")
            kept.append(_copy(file, roots, folder, name, limit - sum(one.size for one in kept)))
    except BaseException:
        forget_copies(folder)
        raise
    return tuple(kept)


def _copy(file: Path, roots: Sequence[Path], folder: Path, name: str, limit: int) -> ApprovedFile:
    sha, size = hashlib.sha256(), 0
    with os.fdopen(_open_below(file, roots), "rb") as source:
        found = os.fstat(source.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UnsafePath(f"{name} is no regular file")
        if found.st_nlink != 1:
            raise UnsafePath(f"{name} has {found.st_nlink} names, so it may be a file of elsewhere")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / name).open("wb") as copy:
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise TooLarge(f"{name} has more than the {limit:,} bytes that are left for it", limit=limit)
                sha.update(chunk)
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
    return ApprovedFile(name, sha.hexdigest(), size)


def _open_below(file: Path, roots: Sequence[Path]) -> int:
    """A descriptor of the file, reached from one of the roots through real folders only: whoever may change these
    folders meanwhile can't lead us elsewhere."""
    root = next((root for root in roots if root in file.parents), None)
    if root is None or ".." in file.parts:
        raise UnsafePath(f"{file} lies outside the places of the agent")
    *folders, name = file.relative_to(root).parts
    try:
        at = os.open(root, _READ | os.O_DIRECTORY)
        try:
            for part in folders:
                below = os.open(part, _READ | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = below
            return os.open(name, _READ, dir_fd=at)
        finally:
            os.close(at)
    except OSError as problem:
        raise UnsafePath(f"the file {name} can't be read: {problem.strerror}") from None


def forget_copies(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
