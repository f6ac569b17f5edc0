"""Giving a group's uid exactly what it needs of the files: a few to write, some to read, the rest not at all.

Only for a host that is root.  Links are never followed, and a file with a second name is left alone: it could be
anybody's.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from jackfield.api import GroupPlace, SessionPlace

__all__ = ["give_group", "give_session", "open_folders"]

_WRITTEN = ("outbound.db", "outbound.db-journal", "heartbeat", "outbox")
_READ = ("inbound.db", "session.json", "inbox")


def give_session(place: SessionPlace, uid: int) -> None:
    """The folder can be entered and read by the group's uid, and four things in it written."""
    folder = place.folder
    # With the set-group-id bit what the host makes later (the doorbell's socket, files received) is of that group too.
    _set(folder, 0, uid, 0o2750)
    for name in _READ:
        _give_tree(folder / name, owner=0, group=uid, write=False)
    for name in _WRITTEN:
        _give_tree(folder / name, owner=uid, group=uid, write=True)
    _set(folder / "bell.sock", 0, uid, 0o660)


def give_group(group: GroupPlace, uid: int) -> None:
    """Workspace and memory belong to the uid; the rest of the group's folder can be read, `agent.toml` can't."""
    for folder in (group.workspace, group.memory):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.lstat().st_uid != uid:
            _give_tree(folder, owner=uid, group=uid, write=True)
    _set(group.folder, 0, uid, 0o2750)
    for entry in os.scandir(group.folder):
        path = Path(entry.path)
        if entry.name == "agent.toml":
            _set(path, 0, 0, 0o600)
        elif entry.name == "packages":
            _give_packages(path, uid)
        elif path not in (group.workspace, group.memory):
            _give_tree(path, owner=0, group=uid, write=False)


def _give_packages(top: Path, uid: int) -> None:
    """What is installed can be read by the uid.  A build never changes, so it is looked through once: it may hold tens
    of thousands of files."""
    if not stat.S_ISDIR(top.lstat().st_mode):
        return
    _set(top, 0, uid, 0o2750)
    for manager in list(os.scandir(top)):
        if not manager.is_dir(follow_symlinks=False):
            _set(Path(manager.path), 0, uid, 0o640)
            continue
        _set(Path(manager.path), 0, uid, 0o2750)
        for build in list(os.scandir(manager.path)):
            found = build.stat(follow_symlinks=False)
            if not build.is_dir(follow_symlinks=False) or (found.st_uid, found.st_gid) == (0, uid):
                continue
            for inside in list(os.scandir(build.path)):
                _give_tree(Path(inside.path), owner=0, group=uid, write=False)
            _set(Path(build.path), 0, uid, 0o2750)


def open_folders(home: Path, *targets: Path) -> None:
    """Let other uids pass through (not list) the folders between the home and these.

    Needed only where a runner sees the host's own file tree.  The files in those folders keep their modes: `state.db`
    and `master.key` are 0600.
    """
    for target in targets:
        for folder in target.parents:
            if folder != home and home not in folder.parents:
                break
            mode = stat.S_IMODE(folder.lstat().st_mode)
            if mode & 0o011 != 0o011:
                folder.chmod(mode | 0o011)


def _set(path: Path, owner: int, group: int, mode: int) -> None:
    """Owner, group and mode of one thing that is no link; nothing when it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            return
        if (found.st_uid, found.st_gid) != (owner, group):
            os.chown(path, owner, group, follow_symlinks=False)
        if stat.S_IMODE(found.st_mode) != mode:
            path.chmod(mode)


def _give_tree(top: Path, *, owner: int, group: int, write: bool) -> None:
    """A file, or a folder with all that is in it."""
    try:
        found = top.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            _set(top, owner, group, _file_mode(found.st_mode, write=write))
        return
    if write and found.st_uid == owner:
        return  # given before, and the owner's to arrange since
    for _, folders, files, here in os.fwalk(top, follow_symlinks=False):
        _set_open(here, owner, group, 0o700 if write else 0o2750)
        for name in (*files, *folders):
            one = os.stat(name, dir_fd=here, follow_symlinks=False)
            if stat.S_ISREG(one.st_mode) and one.st_nlink == 1:
                mode = _file_mode(one.st_mode, write=write)
                if (one.st_uid, one.st_gid) != (owner, group):
                    os.chown(name, owner, group, dir_fd=here, follow_symlinks=False)
                if stat.S_IMODE(one.st_mode) != mode:
                    os.chmod(name, mode, dir_fd=here)


def _set_open(folder: int, owner: int, group: int, mode: int) -> None:
    found = os.fstat(folder)
    if (found.st_uid, found.st_gid) != (owner, group):
        os.fchown(folder, owner, group)
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(folder, mode)


def _file_mode(mode: int, *, write: bool) -> int:
    executable = 0o110 if mode & 0o100 else 0
    return (0o600 | (executable & 0o100)) if write else (0o640 | executable)
