"""The plan of one launch, as it goes from the host to the launcher.  Imported by the host and by type checkers only."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["Landlock", "Mount", "Plan"]

Mount = tuple[Literal["read", "write", "link", "file", "tmpfs", "proc", "dev", "mask"], str, str]
"""What, where in the runner's view, and from what.

`read` and `write` bind a path of the host; `link` makes a symbolic link and `file` a file with that text; `tmpfs` has
mount options as its source; `mask` lays an empty, read-only file over a file.
"""


class Landlock(TypedDict):
    """Which paths stay usable; everything else is refused by the kernel."""

    read: list[str]
    """Read, list and execute below."""
    write: list[str]
    """All of that, and write, make and remove below."""
    devices: list[str]
    """Read, write and control, make nothing."""
    folders: list[str]
    """List only."""


class Plan(TypedDict):
    argv: list[str]
    environment: dict[str, str]
    cwd: str
    limits: list[tuple[int, int]]
    """Pairs of `resource.RLIMIT_*` and value, soft and hard."""
    uid: int | None
    """Become this uid and gid of the same number; None stays as it is."""
    namespaces: bool
    user_namespace: bool
    network: bool
    """False: no network but the runner's own loopback (with namespaces), or no network sockets at all (without)."""
    local_sockets: bool
    """False: no Unix sockets, because no file rule keeps a process from connecting to one."""
    mounts: list[Mount]
    landlock: Landlock | None
    seccomp: bool
    secrets: int
    """The descriptor from which the runner reads its secrets; -1 when it has none."""
    attached: bool
    """Keep the terminal and wait for the end, instead of going on as a process of its own."""
