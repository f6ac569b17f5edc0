"""Try an unknown plugin in a child process, so that whatever it does there is done to the child.

The child imports it, checks its hooks and calls its registration hooks, exactly as a load would (`loading.load`), and
has 10 s for it.  That tells an exception from a `SystemExit`, an `os._exit` or `abort` from a hang, and a misspelt hook
from a wrong name (architecture 4; spec/marketplace.md 4.7; C183, C185).

The child reports into an unlinked file, not through a pipe: a process that the plugin started and left behind must not
keep us waiting for an end of file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from dataclasses import dataclass
from typing import IO, Any, get_args

from jackfield.plugins.broken import Broken, Phase
from jackfield.plugins.discovery import Found, distribution_from_plain, distribution_to_plain
from jackfield.plugins.files import one_line
from jackfield.plugins.kinds import Kind

__all__ = ["PROBE_SECONDS", "Trial", "probe"]

_log = logging.getLogger(__name__)

PROBE_SECONDS = 10.0
_OUTPUT_SHOWN = 2000
_ENVIRONMENT = ("HOME", "PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME", "XDG_CACHE_HOME")
"""What a trial may see of the environment; keys and tokens that lie there are none of its business."""
_START = (
    "import json, os, sys; request = json.loads(sys.stdin.read()); sys.path[:] = request['path'];"
    " from jackfield.plugins.probe import answer; answer(request)"
)
_DOING: dict[str, str] = {
    "import": "while it was imported",
    "hooks": "while its hooks were checked",
    "register": "in its registration hooks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of it.  `tried` is False when the child could not even start, which is no fault of the plugin's."""

    broken: Broken | None = None
    notes: tuple[str, ...] = ()
    tried: bool = True


def probe(found: Found, *, seconds: float = PROBE_SECONDS) -> Trial:
    """Load the plugin in a child and tell what happened.  Blocks for at most `seconds` and a moment."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        request = {
            "path": [os.path.abspath(entry or ".") for entry in sys.path if isinstance(entry, str)],  # noqa: PTH100
            "report": report.fileno(),
            "kind": str(found.kind),
            "name": found.name,
            "value": found.value,
            "distribution": distribution_to_plain(found.distribution),
        }
        environment = {key: os.environ[key] for key in _ENVIRONMENT if key in os.environ}
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", *_flags(), "-c", _START],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=tempfile.gettempdir(),
                env=environment,
                pass_fds=[report.fileno()],
                start_new_session=True,
            )
        except OSError as problem:
            _log.warning("plugin %s can't be tried in a child process: %s", found.name, problem)
            return Trial(tried=False)
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(request).encode())
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        try:
            code: int | None = child.wait(seconds)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()
            code = None
        return _judge(found, code, _text(report), _text(out), _text(err), seconds)


def _flags() -> list[str]:
    """Compiled modules go where this process would put them: `-I` hides the variables that say so."""
    flags = ["-B"] if sys.dont_write_bytecode else []
    return [*flags, "-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else flags


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(65_536).decode("utf-8", "replace")


def _judge(found: Found, code: int | None, report: str, out: str, err: str, seconds: float) -> Trial:
    """The child's end as a verdict; `code` is None when its time was up."""
    phase: Phase | None = None
    verdict: dict[str, Any] | None = None
    for line in report.splitlines():
        with contextlib.suppress(ValueError):
            message = json.loads(line)
            if not isinstance(message, dict):
                continue
            if message.get("phase") in get_args(Phase):
                phase = message["phase"]
            if isinstance(message.get("verdict"), dict):
                verdict = message["verdict"]
    printed = one_line(out[:_OUTPUT_SHOWN], 120)
    notes = (f"it prints to standard output while being loaded: {printed}",) if printed else ()
    if verdict is not None:
        told = verdict.get("notes")
        notes = (*notes, *(one_line(str(note)) for note in (told if isinstance(told, list) else ())))
        return Trial(broken=_broken(verdict.get("broken")), notes=notes)
    if phase is None:
        _log.warning("plugin %s can't be tried in a child process: %s", found.name, _last_line(err) or f"exit {code}")
        return Trial(tried=False)
    retry = f"jackfield plugin retry {found.name}"
    doing = _DOING.get(phase, "")
    if code is None:
        reason = f"did not come to an end within {seconds:g} s {doing}"
        fix = f"tell the author of {found.distribution.name}; if only this machine was slow: {retry}"
    else:
        reason = f"{_ended(code)} {doing}"
        if words := _last_line(err):
            reason += f"; its last words: {words}"
        fix = f"remove it, or install another release of {found.distribution.name}, then: {retry}"
    return Trial(broken=Broken(phase=phase, reason=reason, fix=fix), notes=notes)


def _broken(told: Any) -> Broken | None:
    """What the child wrote, read with care: the plugin's code ran there, and could have written it."""
    if told is None:
        return None
    if isinstance(told, dict) and told.get("phase") in get_args(Phase):
        reason, fix = told.get("reason"), told.get("fix")
        if isinstance(reason, str) and isinstance(fix, str):
            return Broken(phase=told["phase"], reason=one_line(reason, 1000), fix=one_line(fix))
    return Broken(phase="import", reason="it disturbed its own trial", fix="remove it, or tell its author")


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended the whole process with exit code {code}, as os._exit does,"
    import signal

    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"crashed the whole process ({name})"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return one_line(lines[-1], 160) if lines else ""


# ---- the child


def answer(request: dict[str, Any]) -> None:
    """The child's whole work.  It ends by `os._exit`, so that no thread of the plugin's can hold it back."""
    from jackfield.plugins.loading import Refused, load

    report = request["report"]

    def tell(**message: Any) -> None:
        os.write(report, json.dumps(message).encode() + b"\n")

    distribution = distribution_from_plain(request["distribution"])
    found = Found(Kind(request["kind"]), request["name"], request["value"], distribution)
    # The API is ours; what importing it costs is not counted as the plugin's doing.
    import jackfield.api  # noqa: F401

    try:
        loaded = load(found, lambda phase: tell(phase=phase))
        verdict: dict[str, Any] = {"notes": [*loaded.offers.notes, *_threads()]}
    except Refused as refused:
        broken = refused.broken
        verdict = {"broken": {"phase": broken.phase, "reason": broken.reason, "fix": broken.fix}}
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    tell(verdict=verdict)
    os._exit(0)


def _threads() -> list[str]:
    import threading

    extra = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    return [f"it starts threads while being loaded: {', '.join(extra)}"] if extra else []


if __name__ == "__main__":
    answer(json.loads(sys.stdin.read()))
