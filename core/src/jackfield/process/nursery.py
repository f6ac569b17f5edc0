"""The host's side of the nursery: a process that forks runners, so that each need not import everything anew.

An interpreter that has imported what a runner needs is a third of a second of work and 25 MB; forked, it costs a
fiftieth, and the memory is shared until it is written to.  The other side is `launch/nursery.py`.

A nursery makes starts cheaper and nothing else.  Where it fails, the launcher starts the runner as if there were none.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jackfield.errors import RuntimeFailed
from jackfield.process import environment, spawn
from jackfield.process.launch import steps
from jackfield.process.launch.plan import Plan

__all__ = ["Nursery", "fits"]

log = logging.getLogger(__name__)

_PATIENCE = 10.0
_MOST_FAILURES = 3
_CONTROL = 3
_HIGH = 64
_BOOT = "from jackfield.process.launch.nursery import main; main()"
_ROOM = " " * 1024
"""Runners show their command line and their mark in the place of such text."""

_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "JACKFIELD_KILL_AT")
_TEXT = ("LANG", "LC_", "LANGUAGE")


def fits(plan: Plan) -> bool:
    """Whether a fork can become what the plan describes: not where the kernel doesn't know its processes by namespace,
    nor where the environment says what an interpreter, or a library, only reads when it starts."""
    for name, value in plan["environment"].items():
        if name.startswith(_READ_AT_START) and name != "PYTHONPATH":
            return False
        if name.startswith(_TEXT) and value != "C.UTF-8":
            return False
    return plan["namespaces"]


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    control: socket.socket
    installed: tuple[int, ...]
    """As of when: packages that came later may need another import path."""
    end: Callable[[], object]


class Nursery:
    """At most one process, started by the first runner that is born in it.  Safe to use from several threads.

    `python` begins the command line of a runner, whose package is `package`; what the process says on its own goes to
    the file `said`.  The process ends with this object, and with the host.
    """

    def __init__(self, package: str, python: Sequence[str], said: Path) -> None:
        self._package = package
        self._python = tuple(python)
        self._said = said
        self._process: _Process | None = None
        self._failures = 0
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Of the process, when there is one."""
        return self._process.pid if self._process is not None else None

    @property
    def usable(self) -> bool:
        """False after failures in a row for which starting another one was no cure."""
        return self._failures < _MOST_FAILURES

    def start(
        self,
        plan: Plan,
        mark: str,
        *,
        stdout: int,
        stderr: int,
        secrets: Mapping[str, str],
        before_go: Callable[[int], None],
        timeout: float,
    ) -> spawn.Started:
        """As `spawn.start`, by a fork if that works.  If it does not, `before_go` is called a second time.

        Raises:
            RuntimeFailed: the runner can't be started in the usual way either.
        """

        def attempt(way: spawn.Way | None) -> spawn.Started:
            return spawn.start(
                plan, mark, stdin=None, stdout=stdout, stderr=stderr, secrets=secrets, before_go=before_go,
                timeout=timeout, way=way,
            )  # fmt: skip

        if not self.usable or not fits(plan):
            return attempt(None)
        birth = _Birth(self, min(_PATIENCE, timeout / 2))
        try:
            started = attempt(birth)
        except RuntimeFailed as failure:
            problem = failure
        else:
            self._failures = 0
            return started
        started = attempt(None)  # what is wrong with the launch itself is raised here, and is no fault of the nursery
        birth.give_up()
        self._failures += birth.was_first
        log.warning(
            "a runner could not be forked (%s) and was started anew%s; see %s",
            problem,
            "" if self.usable else "; there were several, so this host forks no more",
            self._said,
        )
        return started

    def end(self, pid: int | None = None) -> bool:
        """End the process, with `pid` only if it is still that one; whether it was.  The next runner gets another."""
        with self._lock:
            still = self._process is not None and pid in (None, self._process.pid)
            if still:
                self._end()
            return still

    def send(self, request: bytes, descriptors: Sequence[int]) -> int:
        """Ask for one runner; the id of the process that was asked.

        Raises:
            RuntimeFailed: there is none, and none can be started.
        """
        with self._lock:
            if self._process is not None and self._process.installed != environment.installed_as_of():
                self._end()
            for process in (self._process, None):  # one that has died since is replaced at once
                try:
                    asked = process or self._start()
                    socket.send_fds(asked.control, [request], descriptors)
                except OSError as error:
                    self._end()
                    problem = error
                else:
                    return asked.pid
        raise RuntimeFailed(f"the nursery takes no request: {problem}")

    def _start(self) -> _Process:
        theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as closing:
            closing.enter_context(theirs)
            self._said.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            said = os.open(self._said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            closing.callback(os.close, said)
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            closing.callback(os.close, null)
            actions = []
            for target, descriptor in enumerate((null, said, said, theirs.fileno())):
                high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH)
                closing.callback(os.close, high)
                actions.append((os.POSIX_SPAWN_DUP2, high, target))
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *self._python[1:], "-c", _BOOT, self._package, _ROOM],
                _environment(),
                file_actions=actions,
                setsigmask=[],
                setsigdef=spawn.DEFAULT_SIGNALS,
            )
        ours.settimeout(_PATIENCE)
        end = weakref.finalize(self, _end, pid, ours)
        self._process = _Process(pid, ours, environment.installed_as_of(), end)
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


class _Birth:
    """One start by a nursery (`spawn.Way`)."""

    def __init__(self, nursery: Nursery, patience: float) -> None:
        self.patience = patience
        self._nursery = nursery
        self._asked: int | None = None
        self.was_first = True
        """To find fault with that process: of all that waited for one that hung, only one counts."""

    def hand_over(self, plan: Plan, descriptors: Mapping[int, int]) -> None:
        flags = steps.new_namespaces(plan)
        self._asked = self._nursery.send(b"%d" % flags, [descriptors[number] for number in sorted(descriptors)])

    def told(self, pid: int) -> None:
        pass

    def give_up(self) -> None:
        if self._asked is not None:
            self.was_first = self._nursery.end(self._asked)
            self._asked = None


def _environment() -> dict[str, str]:
    """A runner's, without what belongs to a session."""
    return environment.clean_environment(
        os.environ, home=Path("/"), temporary="/tmp", mark=_ROOM, import_path=environment.import_path()
    )


def _end(pid: int, control: socket.socket) -> None:
    control.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
