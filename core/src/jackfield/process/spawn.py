"""Starting the launcher with a plan.  Blocking: everything here is called in a thread.

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

from jackfield.errors import RuntimeFailed
from jackfield.process.launch.plan import Plan

__all__ = ["SECRETS_DESCRIPTOR", "Started", "launcher_argv", "packed", "start"]

SECRETS_DESCRIPTOR = 6
"""Where a runner finds its secrets, when it has any: JSON of one object, to be read until the end and closed."""

_PLAN, _STATUS, _GO = 3, 4, 5
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
) -> Started:
    """Start a runner by its plan and return when it runs, that is, when its program has taken over.

    `before_go` is called with the process id while the runner still waits; when it raises, nothing is run.

    Raises:
        RuntimeFailed: a step of the launcher failed; the message names it.
    """
    opened: list[int] = []
    child: int | None = None
    try:
        plan_read, plan_write = _pipe(opened)
        status_read, status_write = _pipe(opened)
        go_read, go_write = _pipe(opened)
        null = _kept(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), opened)
        wanted = {0: null if stdin is None else stdin, 1: stdout, 2: stderr}
        wanted |= {_PLAN: plan_read, _STATUS: status_write, _GO: go_read}
        if secrets:
            wanted[SECRETS_DESCRIPTOR] = _secrets_pipe(secrets, opened)
        high = {target: _above(descriptor, opened) for target, descriptor in wanted.items()}
        first = os.posix_spawn(
            sys.executable,
            launcher_argv(mark, str(_PLAN), str(_STATUS), str(_GO)),
            {"JACKFIELD_SESSION": mark, "LC_ALL": "C.UTF-8"},
            file_actions=[(os.POSIX_SPAWN_DUP2, descriptor, target) for target, descriptor in high.items()],
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXFSZ, signal.SIGCHLD],
        )
        child = first
        for descriptor in (*high.values(), plan_read, status_write, go_read):
            _close(descriptor, opened)
        with contextlib.suppress(BrokenPipeError):
            _write_all(plan_write, packed(plan))
        _close(plan_write, opened)
        deadline = time.monotonic() + timeout
        line, rest = _until_line(status_read, deadline)
        pid = int(line)
        if pid != first:
            os.waitpid(first, 0)
            child = pid
        before_go(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(go_write, b"!")
        _close(go_write, opened)
        problem = (rest + _until_end(status_read, deadline)).decode("utf-8", "replace")
        if problem:
            raise RuntimeFailed(f"the runner was not started: {problem}")
    except BaseException:
        if child is not None:
            _end(child)
        raise
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return Started(pid=pid)


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
    data = json.dumps(dict(secrets)).encode()
    if len(data) > 60_000:
        raise RuntimeFailed(f"the runner's secrets take {len(data)} bytes; at most 60000 can be handed over")
    read, write = _pipe(opened)
    os.write(write, data)
    _close(write, opened)
    return read


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read_some(descriptor: int, deadline: float) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise RuntimeFailed("the runner was not started: it took too long; see launch_timeout in [runtimes.process]")
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
