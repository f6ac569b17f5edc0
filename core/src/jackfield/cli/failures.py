"""How a command ends when it didn't work: what people read, what programs read, and the exit code."""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

import click

from jackfield import __version__
from jackfield.cli import printable
from jackfield.cli.state import State
from jackfield.errors import JackfieldError, OperatorError, PluginBroken, UsageError

__all__ = ["report", "report_any"]

INTERRUPTED = 130


def report_any(state: State, error: BaseException) -> int:
    """Whatever ended the command: tell it, and return the exit code."""
    if isinstance(error, click.Abort):
        # Click raises it for Ctrl-C and for the end of input at a question, and it is the answer "no".
        if isinstance(error.__context__, EOFError):
            return report(state, JackfieldError("the input ended before the question was answered"))
        if isinstance(error.__context__, KeyboardInterrupt):
            return _stopped()
        click.echo("nothing was changed", err=True)
        return 1
    if isinstance(error, KeyboardInterrupt):
        return _stopped()
    if isinstance(error, click.ClickException):
        return _report_click(state, error)
    if isinstance(error, JackfieldError):
        return report(state, error)
    # A plugin's failure without a place is told as the plugin's, whose name alone tells where to look.
    if isinstance(error, OSError) and (error.filename is not None or state.plugin is None):
        known = _of_the_machine(error)
        if known is not None:
            return report(state, known)
    return _report_crash(state, error)


_FIXES = {
    errno.EROFS: "the home, and what else a command writes, must lie where writing is allowed",
    errno.EACCES: "check that this user may read and write there; `ls -ld` shows to whom it belongs",
    errno.EPERM: "check that this user may read and write there; `ls -ld` shows to whom it belongs",
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room: the quota of this user is used up",
    errno.EFBIG: "raise the limit on the size of files (`ulimit -f`)",
    errno.EIO: "look at the disk; `dmesg` says more",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOTDIR: "name another place: a part of that path is no folder",
    errno.EISDIR: "name a file: that is a folder",
    errno.ELOOP: "name another place: links on that path lead in a circle",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`)",
    errno.ENFILE: "close other programs: the machine has too many files open",
    errno.ENOMEM: "close other programs: the machine is out of memory",
}
"""What to do about a failure of the machine, not of the program."""


def _of_the_machine(error: OSError) -> OperatorError | None:
    """The failure in words, when it is one that whoever runs the machine can mend; no mistake of ours."""
    known: OperatorError
    if (fix := _FIXES.get(error.errno or 0)) is not None:
        place = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
        known = OperatorError(f"{place}{error.strerror}", fix=fix)
    elif isinstance(error, FileNotFoundError) and error.filename is None and not _stands_somewhere():
        known = OperatorError("the folder that this command was started in is gone", fix="`cd` into one that is there")
    else:
        return None
    known.__cause__ = error
    return known


def _stands_somewhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _stopped() -> int:
    click.echo("stopped", err=True)
    return INTERRUPTED


def report(state: State, error: JackfieldError) -> int:
    """Say what went wrong and what to do, on stderr or as JSON on stdout; no secret of the command line with it."""
    from jackfield.redaction import REDACTOR

    # `--secret token=-` only says that the secret comes from elsewhere.
    REDACTOR.register(*(one for one in REDACTOR.suspects(" ".join(sys.argv)) if not one.endswith("=-")))
    message, fix = REDACTOR.values(error.message), REDACTOR.values(error.fix or "") or None
    if state.json:
        body = {"error": {"code": error.code, "message": message, "fix": fix}}
        click.echo(printable.json_text(body))
    else:
        click.echo(click.style("error:", fg="red") + " " + printable.told(message), err=True, color=state.color)
        if fix:
            click.echo(click.style("fix:", fg="cyan") + " " + printable.told(fix), err=True, color=state.color)
    if state.verbose and error.__cause__ is not None:
        click.echo(_harmless_traceback(error), err=True)
    return error.exit_code


def _report_click(state: State, error: click.ClickException) -> int:
    """Click's own complaints, in the same form; a group without a command shows its help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx is not None else "jackfield"
    known = UsageError(" ".join(error.format_message().split()), fix=f"`{path} --help` shows how it is used")
    report(state, known)
    return error.exit_code


def _report_crash(state: State, error: BaseException) -> int:
    """Something nobody foresaw: one line, and where the rest was written."""
    from jackfield.host.secrets.reading import learn_secrets
    from jackfield.redaction import REDACTOR

    learn_secrets(state.home)
    said = REDACTOR(_said(error))
    if state.plugin is not None:
        distribution, command = state.plugin
        broken = PluginBroken(
            distribution,
            f"command {command!r}",
            said,
            fix="run it again with -v to see where; tell the plugin's author",
        )
        if state.verbose:
            click.echo(_harmless_traceback(error), err=True)
        return report(state, broken)
    if state.verbose:
        click.echo(_harmless_traceback(error), err=True)
        return report(state, JackfieldError(f"this should not have happened: {said}"))
    place = _write_down(state, error)
    where = f"the details are in {place}" if place else "run it again with -v to see the details"
    return report(state, JackfieldError(f"this should not have happened: {said}", fix=where))


def _traceback(error: BaseException) -> str:
    import traceback  # only ever needed here, and not quick to import

    return "".join(traceback.format_exception(error))


def _harmless_traceback(error: BaseException) -> str:
    """For the terminal: people paste it where others read it."""
    from jackfield.redaction import REDACTOR

    return REDACTOR(_traceback(error))


def _said(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _write_down(state: State, error: BaseException) -> str | None:
    """The traceback into the home's logs; None where there is no place for it.  The arguments may hold secrets and are
    left out."""
    logs = state.home.logs
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    place = logs / f"crash-{stamp}-{os.getpid()}.log"
    text = f"jackfield {__version__}, Python {sys.version.split()[0]}, {sys.platform}\n\n"
    try:
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError:
        return None
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
        stream.write(text + _harmless_traceback(error))
    return str(place)
