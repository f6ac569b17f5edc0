"""Starting a runner by its plan.  Blocking: everything here is called in a thread.

`posix_spawn` with fixed descriptor numbers, and not `subprocess`: the process that stays is in the end not the one that
was started (with namespaces it is its child), and no descriptor has to be made inheritable in a host with many threads.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import marshal
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jackfield.errors import RuntimeFailed
from jackfield.process.launch.plan import Plan

__all__ = [
    "DEFAULT_SIGNALS", "GO", "PLAN", "SECRETS_DESCRIPTOR", "STATUS", "Launcher", "Started", "Way", "launcher_argv",
    "packed", "start",
]  # fmt: skip

SECRETS_DESCRIPTOR = 6
"""Where a runner finds its secrets, when it has any: JSON of one object, to be read until the end and closed."""

PLAN, STATUS, GO = 3, 4, 5
"""What the launcher finds besides: the plan, where it reports, and where it waits for "go"."""

DEFAULT_SIGNALS = (
    signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ, signal.SIGCHLD,
)  # fmt: skip
"""What this process may ignore and a child must not."""

_LATE_BOUND = 2.0
_PIPE_BYTES = 60_000
"""What a pipe holds everywhere; Linux makes room for a mebibyte if asked."""
_SOURCE_ROOT = str(Path(__file__).resolve().parents[2])
_BOOT = f"import sys; sys.path.append({_SOURCE_ROOT!r}); from jackfield.process.launch.main import main; main()"


def launcher_argv(mark: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", _BOOT, mark, *arguments]


def packed(plan: Plan) -> bytes:
    """As the launcher reads it."""
    return marshal.dumps(plan)  # type: ignore[arg-type]  # typeshed wants a plain dict; a TypedDict is one


@dataclass(frozen=True, slots=True)
class Started:
    """`pid` is a child of this process, not awaited yet."""

    pid: int


class Way(Protocol):
    """How a process comes to be that takes the plan, tells its id, waits for "go" and becomes the runner."""

    patience: float
    """Seconds in which it must have told its id."""

    def hand_over(self, plan: Plan, descriptors: Mapping[int, int]) -> None:
        """Have it made; `descriptors` are those that it must have, by the number that they have for it."""

    def told(self, pid: int) -> None:
        """It has told its id."""

    def give_up(self) -> None:
        """It has not, and must not any more."""


class Launcher:
    """A fresh interpreter that runs `launch.main`."""

    def __init__(self, mark: str, patience: float) -> None:
        self.patience = patience
        self._mark = mark
        self._first: int | None = None

    def hand_over(self, plan: Plan, descriptors: Mapping[int, int]) -> None:
        self._first = os.posix_spawn(
            sys.executable,
            launcher_argv(self._mark, str(PLAN), str(STATUS), str(GO)),
            {"JACKFIELD_SESSION": self._mark, "LC_ALL": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, target) for target, descriptor in descriptors.items()],
            setsigmask=[],
            setsigdef=DEFAULT_SIGNALS,
        )

    def told(self, pid: int) -> None:
        if self._first is not None and pid != self._first:
            os.waitpid(self._first, 0)

    def give_up(self) -> None:
        if self._first is not None:
            _end(self._first)


def start(
    plan: Plan,
    mark: str,
    *,
    stdin: int | None,
    stdout: int,
    stderr: int,
    secrets: Mapping[str, str] | None = None,
    before_go: Callable[[int], None],
    timeout: float,
    way: Way | None = None,
) -> Started:
    """Start a runner by its plan and return when it runs, that is, when its program has taken over.

    `before_go` is called with the process id while the runner still waits; when it raises, nothing is run.

    Raises:
        RuntimeFailed: a step of the launcher failed; the message names it.
    """
    way = way or Launcher(mark, timeout)
    opened: list[int] = []
    child: int | None = None
    status_read = -1
    try:
        plan_read, plan_write = _pipe(opened)
        status_read, status_write = _pipe(opened)
        go_read, go_write = _pipe(opened)
        null = _kept(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), opened)
        wanted = {0: null if stdin is None else stdin, 1: stdout, 2: stderr}
        wanted |= {PLAN: plan_read, STATUS: status_write, GO: go_read}
        if secrets:
            wanted[SECRETS_DESCRIPTOR] = _secrets_pipe(secrets, opened)
        high = {target: _above(descriptor, opened) for target, descriptor in wanted.items()}
        way.hand_over(plan, high)
        for descriptor in (*high.values(), plan_read, status_write, go_read):
            _close(descriptor, opened)
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            _write_all(plan_write, packed(plan), began + way.patience)
        _close(plan_write, opened)
        line, rest = _until_line(status_read, began + way.patience)
        child = int(line)
        way.told(child)
        before_go(child)
        with contextlib.suppress(BrokenPipeError):
            os.write(go_write, b"!")
        _close(go_write, opened)
        problem = (rest + _until_end(status_read, began + timeout)).decode("utf-8", "replace")
        if problem:
            raise RuntimeFailed(f"the runner was not started: {problem}")
    except BaseException:
        if child is not None:
            _end(child)
        else:
            way.give_up()
            _end_late(status_read, opened)
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return Started(pid=child)


def _end_late(status_read: int, opened: list[int]) -> None:
    """A process may have been made although nobody waited for it any longer.  It ends when it gets no "go", and is a
    child of ours."""
    for descriptor in [one for one in opened if one != status_read]:
        _close(descriptor, opened)
    if status_read not in opened:
        return
    with contextlib.suppress(RuntimeFailed):
        line, _ = _until_line(status_read, time.monotonic() + _LATE_BOUND)
        _end(int(line))


def _end(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)


def _kept(descriptor: int, opened: list[int]) -> int:
    opened.append(descriptor)
    return descriptor


def _close(descriptor: int, opened: list[int]) -> None:
    opened.remove(descriptor)
    os.close(descriptor)


def _pipe(opened: list[int]) -> tuple[int, int]:
    read, write = os.pipe()
    opened += [read, write]
    return read, write


def _above(descriptor: int, opened: list[int]) -> int:
    """A copy with a number that none of the fixed ones overwrites."""
    return _kept(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 64), opened)


def _secrets_pipe(secrets: Mapping[str, str], opened: list[int]) -> int:
    """A pipe that holds all of them already: nobody writes while the runner reads.

    Raises:
        RuntimeFailed: they are more than a pipe can hold.
    """
    data = json.dumps(dict(secrets)).encode()
    read, write = _pipe(opened)
    limit = _PIPE_BYTES
    if len(data) > limit and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            limit = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, len(data))
    if len(data) > limit:
        raise RuntimeFailed(
            f"the runner's secrets take {len(data):,} bytes; at most {limit:,} can be handed over",
            fix="assign fewer to the group: `jackfield secret list --group GROUP`",
        )
    os.write(write, data)
    _close(write, opened)
    return read


def _write_all(descriptor: int, data: bytes, deadline: float) -> None:
    """A plan may be larger than a pipe holds, and whoever should read it may hang."""
    os.set_blocking(descriptor, False)
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    while data:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise _too_late()
        data = data[os.write(descriptor, data) :]


def _too_late() -> RuntimeFailed:
    return RuntimeFailed("the runner was not started: it took too long; see launch_timeout in [runtimes.process]")


def _read_some(descriptor: int, deadline: float) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise _too_late()
    return os.read(descriptor, 4096)


def _until_line(descriptor: int, deadline: float) -> tuple[str, bytes]:
    data = b""
    while b"\n" not in data:
        more = _read_some(descriptor, deadline)
        if not more:
            text = data.decode("utf-8", "replace") or "its launcher ended without a word; see the host's error output"
            raise RuntimeFailed(f"the runner was not started: {text}")
        data += more
    line, _, rest = data.partition(b"\n")
    return line.decode("ascii"), rest


def _until_end(descriptor: int, deadline: float) -> bytes:
    data = b""
    while more := _read_some(descriptor, deadline):
        data += more
    return data
