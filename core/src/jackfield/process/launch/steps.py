"""The steps from a fresh process to a confined one, the same however the process came to be (`main`, `nursery`)."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` costs 5 ms and 2 MB for its enumerations
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from jackfield.process.launch.plan import Plan

__all__ = ["FAILED", "Report", "await_go", "exit_code", "isolate", "new_namespaces", "read_plan"]

FAILED = 125

_outer_ids = (os.getuid(), os.getgid())


class Report:
    """What the host is told by the status descriptor: a process id, then nothing more, or the step that failed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.step = "reading the plan"

    def runs_as(self, pid: int) -> None:
        os.write(self.descriptor, b"%d\n" % pid)

    def problem(self, error: OSError) -> None:
        os.write(self.descriptor, f"{self.step}: {error}".replace("\n", " ")[:2000].encode("utf-8", "replace"))

    def failed(self, error: OSError) -> NoReturn:
        self.problem(error)
        os._exit(FAILED)


def read_plan(descriptor: int) -> Plan:
    with os.fdopen(descriptor, "rb") as stream:
        # Not JSON: importing `json` would take as long as all the rest, and both ends are one interpreter.
        plan: Plan = marshal.loads(stream.read())
    return plan


def new_namespaces(plan: Plan) -> int:
    """The flags of `clone` for the namespaces that the plan asks for."""
    from jackfield.process.launch import calls

    flags = calls.CLONE_NEWNS | calls.CLONE_NEWPID | calls.CLONE_NEWIPC | calls.CLONE_NEWUTS
    if plan["user_namespace"]:
        flags |= calls.CLONE_NEWUSER
    if not plan["network"]:
        flags |= calls.CLONE_NEWNET
    return flags


def await_go(descriptor: int) -> None:
    """Until the host has noted the process; end when it has gone before."""
    if os.read(descriptor, 1) != b"!":
        os._exit(FAILED)
    os.close(descriptor)


def isolate(plan: Plan, report: Report) -> None:
    """Do what the plan says to this process, which has its namespaces already; with them, go on in a child of it.

    Raises:
        OSError: a step failed; `report` knows which.
    """
    if plan["user_namespace"]:
        report.step = "mapping the user"
        _map_user()
    if plan["namespaces"]:
        report.step = "building the file tree"
        from jackfield.process.launch import mounts

        mounts.build(plan["mounts"])
        if not plan["network"]:
            report.step = "bringing up loopback"
            _loopback()
    report.step = "confining"
    _confine(plan)
    report.step = f"starting {plan['argv'][0]}"
    if plan["namespaces"]:
        _start_below_init(plan)
    os.chdir(plan["cwd"])


def _map_user() -> None:
    """The same uid and gid inside as outside, and no other."""
    uid, gid = _outer_ids
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        target = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(target, text.encode())
        os.close(target)


def _loopback() -> None:
    """Programs of one runner may talk to each other by 127.0.0.1, also without a network."""
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


def _confine(plan: Plan) -> None:
    import resource

    os.umask(0o022)
    for which, value in plan["limits"]:
        _, hard = resource.getrlimit(which)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(which, (value, value))
    if not sys.platform.startswith("linux"):
        return
    from jackfield.process.launch import calls

    uid = plan["uid"]
    if uid is not None or plan["user_namespace"]:
        calls.drop_bounding_set()
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    if not plan["namespaces"]:
        calls.become_subreaper()
    if plan["landlock"] is not None or plan["seccomp"] or plan["namespaces"]:
        calls.no_new_privileges()
    if plan["landlock"] is not None:
        from jackfield.process.launch import landlock

        landlock.restrict(plan["landlock"])
    if plan["seccomp"]:
        from jackfield.process.launch import seccomp

        seccomp.restrict(network=plan["network"] or plan["namespaces"], local=plan["local_sockets"])
    if uid is not None or plan["user_namespace"]:
        calls.drop_capabilities()


def _start_below_init(plan: Plan) -> None:
    """Fork: the child goes on to be the runner, this process stays as its init and ends with its exit code.

    Process 1 of a namespace takes only signals that it handles, inherits every orphan, and takes everything with it
    when it ends.  A runner should do its own work instead.
    """
    from jackfield.process.launch import calls

    runner = os.fork()
    if runner == 0:
        if not plan["attached"]:
            os.setsid()
        return

    def forward(number: int, _frame: object) -> None:
        os.kill(runner, number)

    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, forward)
    calls.stay_readable()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 65_536)
    while True:
        try:
            ended, state = os.waitpid(-1, 0)
        except ChildProcessError:
            os._exit(FAILED)
        if ended == runner:
            os._exit(exit_code(state))


def exit_code(state: int) -> int:
    """As a shell says it: 128 + signal for a process that was killed."""
    code = os.waitstatus_to_exitcode(state)
    return code if code >= 0 else 128 - code
