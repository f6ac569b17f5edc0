"""What a runner sees of the host's files, and the plan that makes it so.  Pure, but for looking at links.

Runners see everything under its own path, at every level, so paths mean the same on both sides.
"""

from __future__ import annotations

import os
import resource
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jackfield.api import Isolation, Limits, SessionPlace
from jackfield.process.launch.plan import Landlock, Mount, Plan

__all__ = ["NOTHING", "Confinement", "View", "links_to", "make_plan", "session_view"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
_SETTINGS = (
    "/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies", "/etc/gai.conf",
    "/etc/host.conf", "/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/localtime", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/pki",
    "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl", "/etc/timezone",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts")
_TEMPORARY_SIZE = "mode=1777,size=512m"
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """The means that a level is made of."""

    isolation: Isolation
    own_uid: bool = False
    """The host is root, and each agent group gets a uid of its own."""
    namespaces: bool = False
    user_namespace: bool = False
    landlock: bool = False
    seccomp: bool = False


NOTHING = Confinement(isolation=Isolation.NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Absolute paths of the host.  What lies below a `write` path is writable, all else at most readable."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    """May be listed, though not everything in them may be read."""
    masked: tuple[str, ...] = ()
    """Files inside a readable folder that must look empty."""
    cwd: str = "/"
    temporary: str = "/tmp"


def session_view(place: SessionPlace, *, code: Iterable[str], readable: Iterable[str], temporary: str) -> View:
    """What the runner of a session may see (architecture 6): the session's folder with four writable places in it, the
    group's folder with its memory writable and without `agent.toml`, and the workspace."""
    session, group = place.folder, place.group
    inside_group = sorted(path for path in _children(group.folder) if path.name != "agent.toml")
    return View(
        read=(*code, *readable, str(session), *(str(path) for path in inside_group)),
        write=(
            *(str(session / name) for name in ("outbound.db", "outbound.db-journal", "heartbeat", "outbox")),
            str(group.workspace),
            str(group.memory),
        ),
        folders=(str(group.folder),),
        masked=(str(group.folder / "agent.toml"),),
        cwd=str(group.workspace),
        temporary=temporary,
    )


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def links_to(path: str) -> tuple[list[tuple[str, str]], str]:
    """The symbolic links on the way to a path, with their texts, and the real path at its end."""
    links: list[tuple[str, str]] = []
    # Text and not `Path`: a launch asks for half a hundred, and the host has better things to do.
    here, rest = "/", path.split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - text, not a file
            continue
        step = here.rstrip("/") + "/" + part
        try:
            is_link = stat.S_ISLNK(os.lstat(step).st_mode)
        except OSError:
            is_link = False
        if not is_link or len(links) >= _MOST_LINKS:
            here = step
            continue
        text = os.readlink(step)  # noqa: PTH115 - the text as it is
        links.append((step, text))
        if text.startswith("/"):
            here = "/"
        rest += text.split("/")[::-1]
    return links, here


def _accounts(uid: int, gid: int, home: str) -> list[Mount]:
    """Names for the few ids in there: some programs don't start for a uid without one, and the host's own accounts are
    nobody's business."""
    users = (
        f"root:x:0:0:root:/:/bin/false\nagent:x:{uid}:{gid}:agent:{home}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"
    )
    groups = f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n"
    return [("file", "/etc/passwd", users), ("file", "/etc/group", groups)]


def _mounts(view: View, *, hidden: Iterable[str], uid: int, gid: int) -> list[Mount]:
    """Everything of the view as mounts, outer ones first; links on the way are made again."""
    binds: dict[str, str] = {}
    links: dict[str, str] = {}
    for paths, kind in (((*_SYSTEM, *_SETTINGS, *view.read, *view.folders), "read"), (view.write, "write")):
        for path in paths:
            on_the_way, real = links_to(path)
            if not os.path.exists(real):  # noqa: PTH110
                continue
            links.update(on_the_way)
            if kind == "write" or real not in binds:
                binds[real] = kind
    out: list[Mount] = [("dev", "/dev", ""), ("proc", "/proc", ""), ("tmpfs", "/tmp", _TEMPORARY_SIZE)]
    out += _accounts(uid, gid, view.cwd)
    for real in sorted(binds):
        above = _nearest(real, binds)
        if above is not None and binds[above] == binds[real]:
            continue
        kind = binds[real]
        out.append(("write", real, real) if kind == "write" else ("read", real, real))
    out += [("link", where, text) for where, text in links.items() if _nearest(where, binds) is None]
    out += [("mask", path, "") for path in hidden if os.path.isfile(path)]  # noqa: PTH113
    return out


def _nearest(path: str, binds: Mapping[str, str]) -> str | None:
    """The innermost bound folder that the path lies in."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        if path in binds:
            return path
    return None


def _landlock(view: View, confinement: Confinement) -> Landlock:
    if confinement.namespaces:
        # Only what may be seen exists, and what is read-only is so by its mount.
        return {"read": ["/"], "write": [*view.write, "/tmp", "/dev/shm"], "devices": ["/dev"], "folders": []}
    return {
        "read": [*_SYSTEM, *_SETTINGS, "/etc/passwd", "/etc/group", *view.read, "/proc"],
        "write": [*view.write, view.temporary],
        "devices": list(_DEVICES),
        "folders": list(view.folders),
    }


def limits_of(limits: Limits, *, own_count: bool) -> list[tuple[int, int]]:
    """As pairs for `setrlimit`.  The number of processes is counted by uid, so it is set only where the uid is not
    shared with the host's own processes."""
    out = [(resource.RLIMIT_CORE, 0)]
    if limits.memory is not None:
        out.append((resource.RLIMIT_AS, limits.memory))
    if limits.file_size is not None:
        out.append((resource.RLIMIT_FSIZE, limits.file_size))
    if limits.open_files is not None:
        out.append((resource.RLIMIT_NOFILE, limits.open_files))
    if limits.processes is not None and own_count:
        out.append((resource.RLIMIT_NPROC, limits.processes))
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def make_plan(
    command: Command, view: View, confinement: Confinement, *, limits: Limits, uid: int | None, network: bool
) -> Plan:
    """Everything that the launcher has to do for one process."""
    ids = (os.getuid(), os.getgid()) if uid is None else (uid, uid)
    confined = confinement.isolation is not Isolation.NONE and sys.platform.startswith("linux")
    return {
        "argv": list(command.argv),
        "environment": dict(command.environment),
        "cwd": view.cwd,
        "limits": limits_of(limits, own_count=uid is not None or confinement.user_namespace),
        "uid": uid,
        "namespaces": confined and confinement.namespaces,
        "user_namespace": confined and confinement.user_namespace,
        "network": network,
        # With the host's own uid and file tree, a runner could connect to the host's control socket, to an SSH agent or
        # to a container engine.  It then hears no doorbell, and looks every second.
        "local_sockets": uid is not None or (confined and confinement.namespaces),
        "secrets": -1,
        "attached": False,
        "mounts": (
            _mounts(view, hidden=view.masked, uid=ids[0], gid=ids[1]) if confined and confinement.namespaces else []
        ),
        "landlock": _landlock(view, confinement) if confined and confinement.landlock else None,
        "seccomp": confined and confinement.seccomp,
    }
