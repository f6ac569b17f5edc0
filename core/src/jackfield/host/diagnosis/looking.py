"""Gathering the facts of a home that need no store, no lock and no host: for `jackfield doctor`, in its own process."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from jackfield.config.home import Home
from jackfield.host.diagnosis import judging
from jackfield.host.diagnosis.findings import Finding, error, warning

__all__ = ["look_at_disk", "look_at_home", "skew_of"]


def look_at_home(home: Home) -> list[Finding]:
    """Permissions of everything that matters, and whether a file of secrets was left that nothing reads."""
    missing = [
        error("home", f"{folder} is missing", f"mkdir -m 700 {folder}")
        for folder in (home.groups, home.sessions, home.plugins, home.logs, home.backups)
        if not folder.is_dir()
    ]
    findings = missing + judging.permissions(_entries(home), os.geteuid())
    old = home.root / "secrets.toml"
    if old.exists():
        text = f"{old} is not read any more: secrets lie encrypted in the store"
        findings.append(warning("home", text, f"`jackfield secret import {old}`, then remove it"))
    return findings


def _entries(home: Home) -> Iterator[judging.Entry]:
    open_to_all = (home.root, home.groups, home.sessions, home.plugins, home.logs, home.backups)
    own = (home.jackfield_toml, home.state_db, home.master_key)
    for path in (*open_to_all, *own):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        yield judging.Entry(str(path), found.st_mode, found.st_uid, secret=stat.S_ISREG(found.st_mode))


def look_at_disk(home: Home) -> Finding:
    found = shutil.disk_usage(home.root)
    return judging.disk(found.free, found.total)


def skew_of(home: Home) -> float | None:
    """By how many seconds the file system dates a new file off the machine's clock; None when none can be made."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".doctor-", dir=home.root)
    except OSError:
        return None
    try:
        os.write(descriptor, b"?")
        os.fsync(descriptor)
        return os.fstat(descriptor).st_mtime - time.time()
    finally:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)
