"""What the kernel tells about processes, and signals that never reach a stranger.

A process id alone means nothing: it may have been given to another process since.  A process is known by its id and
its start time; and a signal goes through a descriptor of the process (pidfd) where there is one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HAS_PROC", "ProcessEntry", "boot_id", "carries", "end_family", "entry", "family", "marked", "send"]

_SWEEP_BOUND = 5.0

HAS_PROC = sys.platform.startswith("linux") and Path("/proc/self/stat").exists()


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """`started` is in clock ticks since the machine's start."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    state: str


def entry(pid: int) -> ProcessEntry | None:
    """The process of that id, or None; also None without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return parse_stat(pid, text)


def parse_stat(pid: int, text: str) -> ProcessEntry | None:
    """One line of /proc/<pid>/stat; the name in it may hold spaces and parentheses."""
    _, found, rest = text.rpartition(")")
    fields = rest.split()
    if not found or len(fields) < 20:
        return None
    try:
        parent, group, session, started = (int(fields[n]) for n in (1, 2, 3, 19))
    except ValueError:
        return None
    return ProcessEntry(pid=pid, parent=parent, group=group, session=session, started=started, state=fields[0])


def boot_id() -> str:
    """Differs after each start of the machine; empty where it can't be known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _all() -> dict[int, ProcessEntry]:
    out = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - a Path for each process costs more than the reading
        if name.isdigit() and (found := entry(int(name))) is not None:
            out[found.pid] = found
    return out


def carries(pid: int, mark: str) -> bool | None:
    """Whether the process carries the mark in its environment or its arguments; None when neither can be read."""
    readable = False
    for name in ("environ", "cmdline"):
        try:
            data = Path(f"/proc/{pid}/{name}").read_bytes()
        except OSError:
            continue
        readable = readable or bool(data)
        wanted = mark.encode()
        if f"JACKFIELD_SESSION={mark}".encode() in data.split(b"\0") or wanted in data.split(b"\0"):
            return True
    return False if readable else None


def marked(prefix: str) -> dict[int, str]:
    """Processes whose environment has a `JACKFIELD_SESSION` that begins with `prefix`, and the whole mark."""
    out = {}
    wanted = f"JACKFIELD_SESSION={prefix}".encode()
    for name in os.listdir("/proc") if HAS_PROC else ():  # noqa: PTH208
        if not name.isdigit():
            continue
        try:
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(wanted):
                out[int(name)] = variable.partition(b"=")[2].decode("utf-8", "replace")
    return out


def family(pid: int | None, mark: str) -> set[int]:
    """Everything that belongs to the runner `pid`, itself left out: what descends from it, is in its session or
    process group, or carries its mark (a child that made itself a daemon).

    None for a runner that has gone: its id may be a stranger's by now, so only the mark counts.
    """
    everything = _all()
    out = {found for found, whose in marked(mark).items() if whose == mark}
    if pid is not None:
        out |= {found.pid for found in everything.values() if pid in (found.group, found.session, found.parent)}
    grown = True
    while grown:
        more = {found.pid for found in everything.values() if found.parent in out} - out
        out |= more
        grown = bool(more)
    return out - {pid, os.getpid()}


def end_family(pid: int | None, mark: str) -> int:
    """Kill all that belongs to a runner outside a process namespace, the runner last; the number of kills.

    `pid` must be a process that can't be another's by now (alive, or dead and not awaited); None when it has gone.
    The runner is stopped first, so that it starts nothing meanwhile, and the search is repeated until it finds
    nothing more.  Blocking: call it in a thread.
    """
    if not HAS_PROC:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid is not None:
                os.killpg(pid, signal.SIGKILL)
        return 0
    killed = 0
    if pid is not None:
        _quietly(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _SWEEP_BOUND
    while time.monotonic() < deadline:
        found = {p for p in family(pid, mark) if (one := entry(p)) is not None and one.state not in "ZX"}
        if not found:
            break
        for member in found:
            killed += _quietly(member, signal.SIGKILL)
    if pid is not None:
        _quietly(pid, signal.SIGKILL)
    return killed


def _quietly(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def send(pid: int, descriptor: int | None, number: signal.Signals) -> bool:
    """Signal a process, by its descriptor if there is one; False when it has gone."""
    try:
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)
        else:
            os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
