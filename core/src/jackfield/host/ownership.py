"""One host owns one home: an OS lock that goes with the process, and a note of who holds it (architecture 10)."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator

from filelock import FileLock, Timeout

from jackfield.config.home import Home
from jackfield.errors import HostRunning

__all__ = ["holder", "is_owned", "own"]


@contextlib.contextmanager
def own(home: Home, *, wait: float = 0.0) -> Iterator[None]:
    """Hold the home's lock for the block.  `wait` is how many seconds to wait for another holder to leave.

    Whatever the shell's umask says, what is made meanwhile can be read by runners, which have uids of their own, and
    written to by nobody else; what others must not read has a mode of its own.

    Raises:
        HostRunning: somebody else holds it; names their process id.
    """
    lock = FileLock(home.host_lock, mode=0o600)
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        pid = holder(home)
        raise HostRunning(
            f"another Jackfield (process {pid or 'unknown'}) uses {home.root}",
            pid=pid,
            fix="wait for it to end, or stop it with `jackfield down`",
        ) from None
    note = home.root / "host.json"
    umask = os.umask(0o022)
    try:
        note.write_text(json.dumps({"pid": os.getpid(), "started": round(time.time())}), encoding="utf-8")
        yield
    finally:
        note.unlink(missing_ok=True)
        os.umask(umask)
        lock.release()


def is_owned(home: Home) -> bool:
    """Whether somebody holds the home's lock at this moment."""
    lock = FileLock(home.host_lock, mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def holder(home: Home) -> int:
    """The process id that the lock's holder noted; 0 when unknown.  A note, not a proof: only the lock is."""
    try:
        return int(json.loads((home.root / "host.json").read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
