"""One command in the sandbox, with input, a time limit and bounded output.  Blocking: called in a thread."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import tempfile
import threading
import time
from collections.abc import Callable

from jackfield.api import Completed
from jackfield.process import proc, spawn
from jackfield.process.launch.plan import Plan
from jackfield.process.launch.steps import exit_code

__all__ = ["run_once"]

_LOOK_UP = 0.1
_DRAIN = 1.0


def run_once(
    plan: Plan,
    mark: str,
    stdin: bytes,
    *,
    timeout: float,
    output_limit: int,
    launch_timeout: float,
    cancelled: threading.Event,
) -> Completed:
    """Run until it ends, its time is over or `cancelled` is set; output over the limit is read and dropped.

    Raises:
        RuntimeFailed: it could not be started.
    """
    with tempfile.TemporaryFile() as given, contextlib.ExitStack() as stack:
        given.write(stdin)
        given.flush()
        os.lseek(given.fileno(), 0, os.SEEK_SET)
        outputs: dict[int, bytearray] = {}
        writers = []
        for _ in range(2):
            read, write = os.pipe()
            stack.callback(os.close, read)
            outputs[read] = bytearray()
            writers.append(write)
        try:
            pid = spawn.start(
                plan,
                mark,
                stdin=given.fileno(),
                stdout=writers[0],
                stderr=writers[1],
                before_go=lambda _pid: None,
                timeout=launch_timeout,
            ).pid
        finally:
            for write in writers:
                os.close(write)
        code, timed_out = _follow(
            pid,
            outputs,
            deadline=time.monotonic() + timeout,
            limit=output_limit,
            cancelled=cancelled,
            end=lambda: _end(pid, plan, mark),
        )
        stdout, stderr = (bytes(data) for data in outputs.values())
    return Completed(exit_code=code, stdout=stdout, stderr=stderr, timed_out=timed_out)


def _end(pid: int, plan: Plan, mark: str) -> None:
    if plan["namespaces"]:
        os.kill(pid, signal.SIGKILL)
    else:
        proc.end_family(pid, mark)


def _follow(
    pid: int,
    outputs: dict[int, bytearray],
    *,
    deadline: float,
    limit: int,
    cancelled: threading.Event,
    end: Callable[[], None],
) -> tuple[int, bool]:
    """Read both outputs until the process has ended.  It is a child of ours that nobody else awaits."""
    timed_out = False
    with selectors.DefaultSelector() as selector:
        for descriptor in outputs:
            selector.register(descriptor, selectors.EVENT_READ)
        ended_at: float | None = None
        while selector.get_map():
            now = time.monotonic()
            if ended_at is None and _has_ended(pid):
                ended_at = now
                end()  # what it left behind must not keep the pipes open
            elif ended_at is None and (now >= deadline or cancelled.is_set()):
                timed_out = now >= deadline
                end()
                ended_at = now
            elif ended_at is not None and now - ended_at > _DRAIN:
                break
            for key, _ in selector.select(_LOOK_UP):
                data = os.read(key.fd, 65_536)
                if not data:
                    selector.unregister(key.fd)
                kept = outputs[key.fd]
                kept += data[: max(0, limit - len(kept))]
        while ended_at is None:  # it closed its outputs and goes on
            if _has_ended(pid):
                break
            if time.monotonic() >= deadline or cancelled.is_set():
                timed_out = time.monotonic() >= deadline
                break
            cancelled.wait(_LOOK_UP)
    with contextlib.suppress(ProcessLookupError):
        end()
    _, state = os.waitpid(pid, 0)
    return exit_code(state), timed_out


def _has_ended(pid: int) -> bool:
    """Without taking the exit code, so that the id stays ours until everything of it is gone."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    found = proc.entry(pid)
    return found is None or found.state in "ZX"
