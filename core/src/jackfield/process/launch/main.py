"""The launcher itself.  Its arguments: a mark by which the process is found again, and three descriptors.

The plan is read from the first until its end.  (A shell in the sandbox has its plan on a descriptor too, error output
as its second, and -1 for the third.)  On the second go one line with the process id that the runner will
have for the host, and later either nothing (end of file: the runner runs) or why it does not.  From the third one byte
is awaited, sent when the host has noted that id: a host that dies in between leaves no runner that nobody knows.
"""

from __future__ import annotations

import os
import sys

from jackfield.process.launch import steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jackfield.process.launch.plan import Plan


def main() -> None:
    source, status, go = (int(text) for text in sys.argv[2:5])
    for descriptor in (source, status, go):
        if descriptor > 2:
            os.set_inheritable(descriptor, False)
    report = steps.Report(status)
    try:
        plan = steps.read_plan(source)
        # Whatever else the host was started with; one more is the runner's own.
        os.closerange(max(status, go, plan["secrets"], 2) + 1, 65_536)
        report.step = "making namespaces"
        if plan["namespaces"]:
            _enter(plan, report)
        elif not plan["attached"]:
            os.setsid()
            report.runs_as(os.getpid())
        if go >= 0:
            steps.await_go(go)
        steps.isolate(plan, report)
        os.execve(plan["argv"][0], plan["argv"], plan["environment"])
    except OSError as error:
        report.failed(error)


def _enter(plan: Plan, report: steps.Report) -> None:
    """Go on in a child that is process 1 of new namespaces, and whose parent is ours, not us."""
    from jackfield.process.launch import calls

    flags = steps.new_namespaces(plan)
    if plan["attached"]:
        child = calls.clone(flags)
        if child:
            _, state = os.waitpid(child, 0)
            os._exit(steps.exit_code(state))
        return
    child = calls.clone(flags | calls.CLONE_PARENT)
    if child:
        report.runs_as(child)
        os._exit(0)
    os.setsid()
