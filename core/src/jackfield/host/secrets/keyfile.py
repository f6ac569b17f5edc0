"""`master.key`: 32 random bytes, for its owner only; made, read, and replaced so that a kill leaves a key that fits.

While it is replaced, `master.key.next` holds the new key and `master.key.previous` the old one.  Which of them counts
says the store, whose note changes in the very transaction that seals every secret anew.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from jackfield.config.home import Home
from jackfield.errors import SecretsLocked
from jackfield.host.secrets.sealing import KEY_BYTES

__all__ = ["finish", "leftovers", "make", "next_of", "prepare", "previous_of", "read", "tidy"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def next_of(home: Home) -> Path:
    return home.master_key.with_name("master.key.next")


def previous_of(home: Home) -> Path:
    return home.master_key.with_name("master.key.previous")


def leftovers(home: Home) -> list[Path]:
    """What a rotation that was killed has left."""
    return [path for path in (next_of(home), previous_of(home)) if path.exists()]


def read(path: Path) -> bytes | None:
    """The key in that file; None when there is no file.

    Raises:
        SecretsLocked: it is no key, belongs to somebody else, or others may read it or put another in its place.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise SecretsLocked(f"{path} can't be read: {problem.strerror}", fix=f"look at `ls -l {path}`") from problem
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise SecretsLocked(f"{path} is not a regular file", fix="put the key file back that was there")
        if found.st_uid != os.geteuid():
            raise SecretsLocked(
                f"{path} belongs to uid {found.st_uid}, so it is not used", fix=f"chown {os.geteuid()} {path}"
            )
        if found.st_mode & _OTHERS:
            raise SecretsLocked(
                f"{path} has the mode {stat.S_IMODE(found.st_mode):04o}, so others may read it; it is not used",
                fix=f"chmod 600 {path}; if others use this machine, then `jackfield secret rotate`, "
                "and set every secret to a new value",
            )
        data = stream.read(KEY_BYTES + 1)
    if path.parent.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SecretsLocked(
            f"others may write to {path.parent}, and so replace {path.name}; it is not used",
            fix=f"chmod 700 {path.parent}",
        )
    if len(data) != KEY_BYTES:
        raise SecretsLocked(
            f"{path} is no master key: one has {KEY_BYTES} bytes, and this has "
            f"{len(data) if len(data) < KEY_BYTES else f'more than {KEY_BYTES}'}",
            fix="put the key file back that was there; a backup of the home holds it, unless made with --without-key",
        )
    return data


def make(home: Home) -> bytes:
    """A new key where there is none.

    Raises:
        SecretsLocked: there is one already, or it can't be written.
    """
    key = os.urandom(KEY_BYTES)
    _write(home.master_key, key)
    return key


def prepare(home: Home) -> bytes:
    """Begin a rotation: a new key lies beside the old one, and the old one has a second name."""
    next_of(home).unlink(missing_ok=True)
    previous_of(home).unlink(missing_ok=True)
    key = os.urandom(KEY_BYTES)
    _write(next_of(home), key)
    os.link(home.master_key, previous_of(home))
    _sync(home.root)
    return key


def finish(home: Home) -> None:
    """The new key takes the old one's place; the old one keeps its second name until `tidy`."""
    next_of(home).replace(home.master_key)
    _sync(home.root)


def tidy(home: Home) -> None:
    """The key in place was seen to be the right one: what a rotation needed besides goes."""
    for path in leftovers(home):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    _sync(home.root)


def _write(path: Path, key: bytes) -> None:
    """Whole under its name or not at all, and never over another."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o600)
            stream.write(key)
            stream.flush()
            os.fsync(descriptor)
        os.link(part, path)
    except OSError as problem:
        raise SecretsLocked(f"{path} can't be made: {problem.strerror}", fix=f"look at {path.parent}") from problem
    finally:
        part.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
