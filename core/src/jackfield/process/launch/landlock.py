"""Landlock: the kernel refuses every path but those named.  Needs no privilege; Linux 5.13 and later."""

from __future__ import annotations

import os
import struct

from jackfield.process.launch import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jackfield.process.launch.plan import Landlock

_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REMOVE = 1 << 4 | 1 << 5
_MAKE_DEVICE = 1 << 6 | 1 << 11
_MAKE = 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 12  # folders, files, sockets, FIFOs, links
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15

_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3


def rights(abi: int) -> int:
    """Every file right that the version knows; what is not handled is allowed."""
    known = _EXECUTE | _WRITE_FILE | _READ_FILE | _READ_DIR | _REMOVE | _MAKE_DEVICE | _MAKE
    if abi >= 2:
        known |= _REFER
    if abi >= 3:
        known |= _TRUNCATE
    if abi >= 5:
        known |= _IOCTL_DEVICE
    return known


def attributes(abi: int) -> bytes:
    """The rule set's head, in the size that the version takes."""
    if abi >= 6:
        return struct.pack("=QQQ", rights(abi), 0, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS)
    if abi >= 4:
        return struct.pack("=QQ", rights(abi), 0)
    return struct.pack("=Q", rights(abi))


def restrict(rules: Landlock) -> None:
    """Confine this process and all that come after it.  Paths that don't exist are passed over.

    Raises:
        OSError: the kernel has no Landlock, or refuses.
    """
    abi = calls.landlock_abi()
    if abi == 0:
        raise OSError(95, "this kernel has no Landlock")
    known = rights(abi)
    read = _READ_FILE | _READ_DIR | _EXECUTE
    kinds = (
        (rules["read"], read),
        (rules["write"], read | _WRITE_FILE | _REMOVE | _MAKE | _REFER | _TRUNCATE),
        (rules["devices"], _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE),
        (rules["folders"], _READ_DIR),
    )
    ruleset = calls.landlock_create(attributes(abi))
    for paths, allowed in kinds:
        for path in paths:
            _allow(ruleset, path, allowed & known)
    calls.landlock_restrict(ruleset)
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    try:
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    try:
        if not os.path.isdir(f"/proc/self/fd/{found}") and not os.path.isdir(path):  # noqa: PTH112
            allowed &= _ON_FILES
        if allowed:
            calls.landlock_add(ruleset, struct.pack("=Qi", allowed, found), path)
    finally:
        os.close(found)
