"""A warm parent of runners: a process that has imported what they all need, and forks one for each request.

Started as ``python -s -P -c ...``, argument: the runner's package.  Descriptor 3 is a socket of the host's.  A message
on it holds the flags of `clone` as text, and the descriptors that the runner will have, from 0 on: input, output, error
output, plan, status, go, and secrets if there are any.  There is no answer but what comes by the status descriptor, and
the end of the socket is the end of this process.

It never sees a plan or a secret: those are read from the descriptors by the children alone.  A child is made with the
host as its parent, so nothing of it depends on the nursery any more.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import os
import socket
import sys
import threading
import time
from typing import NoReturn, Protocol, cast

# What a child would import otherwise, one by one, in each launch.
from jackfield.process.launch import calls, landlock, mounts, seccomp, steps

__all__ = ["main"]

_CONTROL = 3
_PLAN, _STATUS, _GO = 3, 4, 5
_MOST_DESCRIPTORS = 7
_HIGH = 64

_STEPS = (landlock, mounts, seccomp)


class Runner(Protocol):
    """The module `<package>.__main__` of a runner."""

    __file__: str

    def warm(self) -> None:
        """Import what every runner needs.  No plugin, no thread, nothing opened that stays open."""

    def main(self, arguments: list[str]) -> int:
        """Be the runner; its exit code."""


def main() -> None:
    os.closerange(_CONTROL + 1, 65_536)
    os.setsid()
    control = socket.socket(fileno=_CONTROL)
    package = sys.argv[1]
    runner = cast("Runner", importlib.import_module(f"{package}.__main__"))
    runner.warm()
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208
        raise SystemExit(f"{package} has started a thread while it was imported; only a process without can be forked")
    shown = calls.Shown()
    gc.collect()
    gc.freeze()  # no collection in a child may touch, and so copy, what it shares with all others
    while True:
        request, given, _, _ = socket.recv_fds(control, 64, _MOST_DESCRIPTORS)
        if not request:
            return
        report = steps.Report(given[_STATUS])
        report.step = "making namespaces"
        try:
            child = calls.clone(int(request) | calls.CLONE_PARENT)
        except OSError as error:
            report.problem(error)
        else:
            if child == 0:
                control.detach()
                _become(runner, given, shown)
        for descriptor in given:
            os.close(descriptor)


def _become(runner: Runner, given: list[int], shown: calls.Shown) -> NoReturn:
    """Go on as the runner that the plan describes, with nothing of the nursery but its memory."""
    report = steps.Report(_STATUS)
    try:
        _arrange(given)
        plan = steps.read_plan(_PLAN)
        os.environ.clear()
        os.environ.update(plan["environment"])
        shown.replace(plan["argv"], f"JACKFIELD_SESSION={plan['environment']['JACKFIELD_SESSION']}")
        os.setsid()
        # This is still the host's /proc, which tells the id that the host knows us by.
        report.runs_as(int(os.readlink("/proc/self")))  # noqa: PTH115
        steps.await_go(_GO)
        steps.isolate(plan, report)
        calls.stay_readable()  # as any program is that was started and not forked
    except OSError as error:
        report.failed(error)
    arguments = plan["argv"][plan["argv"].index("-m") + 2 :]
    _pretend(runner, plan["argv"], arguments)
    os.close(_STATUS)
    os._exit(_run(runner, arguments))


def _arrange(given: list[int]) -> None:
    """Have what was given at the numbers from 0 on, and no other descriptor."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _HIGH) for descriptor in given]
    for target, descriptor in enumerate(high):
        os.dup2(descriptor, target, inheritable=target not in (_PLAN, _STATUS, _GO))
    os.closerange(len(high), 65_536)


def _pretend(runner: Runner, argv: list[str], arguments: list[str]) -> None:
    """What an interpreter would have made of the command line and of the environment at its start."""
    sys.modules["__main__"] = runner  # type: ignore[assignment]  # a module, behind its protocol
    sys.orig_argv = argv
    sys.argv = [runner.__file__, *arguments]
    path = os.environ.get("PYTHONPATH", "")
    for folder in reversed(path.split(os.pathsep) if path else []):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    importlib.invalidate_caches()  # packages may have been installed since
    time.tzset()


def _run(runner: Runner, arguments: list[str]) -> int:
    """The exit code, after all that an interpreter does at its end but taking its memory apart."""
    try:
        code = runner.main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - the outermost there is: said as the interpreter says it
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # what `multiprocessing` calls in the same place
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    return code
