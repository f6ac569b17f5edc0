# ruff: noqa: PTH102, PTH103, PTH106, PTH112, PTH120, PTH211 - a launch has no time to import pathlib
"""A root folder of the runner's own, in which only what the plan names exists."""

from __future__ import annotations

import os

from jackfield.process.launch import calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jackfield.process.launch.plan import Mount

_OLD = "/.host"
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")


def build(mounts: list[Mount]) -> None:
    """Leave the host's file tree for one of the plan's.  This process must have a mount namespace of its own.

    The new root is a tmpfs, first laid over /tmp (every Linux has that folder), then swapped in; from then on the
    host's tree lies below `/.host`, until it is let go.
    """
    calls.mount("none", "/", "", calls.MS_REC | calls.MS_PRIVATE)
    calls.mount("jackfield", "/tmp", "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, "mode=0755,size=4m")
    os.mkdir("/tmp" + _OLD)
    calls.pivot_root("/tmp", "/tmp" + _OLD)
    os.chdir("/")
    for kind, target, source in mounts:
        _make(kind, target, source)
    calls.unmount(_OLD)
    os.rmdir(_OLD)
    calls.mount("", "/", "", calls.MS_REMOUNT | calls.MS_BIND | calls.MS_RDONLY | calls.MS_NOSUID | calls.MS_NODEV)


def _make(kind: str, target: str, source: str) -> None:
    if kind == "link":
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):
            os.symlink(source, target)
        return
    if kind == "file":
        os.makedirs(os.path.dirname(target), exist_ok=True)
        made = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
        os.write(made, source.encode())
        os.close(made)
        return
    if kind in ("read", "write"):
        _place(target, folder=os.path.isdir(_OLD + source))
        calls.bind(_OLD + source, target, read_only=kind == "read")
    elif kind == "tmpfs":
        _place(target, folder=True)
        calls.mount("tmpfs", target, "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, source)
    elif kind == "proc":
        _place(target, folder=True)
        calls.mount("proc", target, "proc", calls.MS_NOSUID | calls.MS_NODEV | calls.MS_NOEXEC)
    elif kind == "mask":
        calls.bind("/dev/null", target, read_only=True)
    elif kind == "dev":
        _devices(target)


def _place(target: str, *, folder: bool) -> None:
    """Somewhere to mount on; it may lie inside an earlier mount, where it must exist already."""
    if os.path.lexists(target):
        return
    if folder:
        os.makedirs(target)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _devices(target: str) -> None:
    os.mkdir(target)
    for name in _DEVICES:
        where = f"{target}/{name}"
        os.close(os.open(where, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        calls.mount(f"{_OLD}/dev/{name}", where, "", calls.MS_BIND)
    for name, to in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(to, f"{target}/{name}")
    os.mkdir(f"{target}/shm")
    calls.mount("tmpfs", f"{target}/shm", "tmpfs", calls.MS_NOSUID | calls.MS_NODEV, "mode=1777,size=64m")
    os.mkdir(f"{target}/pts")
    try:
        calls.mount(
            "devpts", f"{target}/pts", "devpts", calls.MS_NOSUID | calls.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
        )
    except OSError:
        return  # no pseudo terminals in there; nothing of ours needs one
    os.symlink("pts/ptmx", f"{target}/ptmx")
