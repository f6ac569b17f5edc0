"""Load one plugin in a child process under observation, and tell what it did meanwhile.

Stricter than the host's own trial (`jackfield.plugins.probe`), which only asks whether a plugin can be used: an audit
hook sees each socket, process, thread and written file (marketplace.md 5.2, row "all").
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from jackfield.plugins.discovery import Distribution, Found, distribution_from_plain, distribution_to_plain
from jackfield.plugins.kinds import Kind
from jackfield.testing.waiting import BOUND

__all__ = ["Observed", "observe"]

_START = (
    "import json, os, sys; request = json.loads(sys.stdin.read()); sys.path[:] = request['path'];"
    " from jackfield.testing.trial import answer; answer(request)"
)
_SHOWN = 2000
_WATCHED = {
    "socket.__new__": "opens a socket",
    "socket.connect": "connects to a server",
    "socket.bind": "binds a port",
    "socket.getaddrinfo": "asks for a name's address",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.posix_spawn": "starts a process",
    "os.exec": "replaces the process",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """How the child ended and what was seen.  `deeds` are what a plugin must not do while it is loaded."""

    finished: bool
    """It came to its end within the bound."""
    problem: str = ""
    """Why it could not be loaded, with the fix; empty when it could."""
    printed: str = ""
    deeds: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Oddities that the loader reports."""
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """What the registration hooks offered, called once and called again: `hook: name` each."""
    modules: tuple[str, ...] = ()
    """Modules of the core's inner rooms that it brought in."""


def observe(found: Found, *, seconds: float = BOUND) -> Observed:
    """Load it in a child.  Blocks for at most `seconds` and a moment."""
    with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as out:
        request = {
            "path": [os.path.abspath(entry or ".") for entry in sys.path if isinstance(entry, str)],  # noqa: PTH100
            "report": report.fileno(),
            "entry": [str(found.kind), found.name, found.value],
            "distribution": distribution_to_plain(found.distribution),
        }
        child = subprocess.Popen(
            [sys.executable, "-I", "-c", _START],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=tempfile.gettempdir(),
            pass_fds=[report.fileno()],
            start_new_session=True,
        )
        try:
            child.communicate(json.dumps(request).encode(), seconds)
            finished = True
        except subprocess.TimeoutExpired:
            finished = False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, 9)
            child.wait()
        printed, told = _text(out), _text(report)
    if not told:
        problem = f"it ended the process (exit code {child.returncode})" if finished else f"no end in {seconds:g} s"
        return Observed(finished=finished, problem=problem, printed=printed)
    seen = json.loads(told)
    first, second = ((tuple(one)) for one in seen.pop("names"))
    return Observed(
        finished=finished,
        printed=printed,
        names=(first, second),
        problem=str(seen["problem"]),
        deeds=tuple(seen["deeds"]),
        notes=tuple(seen["notes"]),
        modules=tuple(seen["modules"]),
    )


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")[:200_000].strip()


# ---- the child


def answer(request: dict[str, Any]) -> None:
    """The child's whole work; it ends by `os._exit`, so that nothing of the plugin's can hold it back."""
    kind, name, value = request["entry"]
    distribution: Distribution = distribution_from_plain(request["distribution"])
    found = Found(Kind(kind), name, value, distribution)
    # What the loader itself needs is there before anything is watched.
    import jackfield.plugins.loading as loading

    inner = _inner_modules()
    deeds = _watch()
    problem = ""
    notes: tuple[str, ...] = ()
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    try:
        loaded = loading.load(found)
        notes = loaded.offers.notes
        again = loaded.offers if found.codeless else loading.offers_of(loaded.plugin)
        names = (_names(loaded.offers), _names(again))
    except loading.Refused as refused:
        problem = f"{refused.broken.phase}: {refused.broken.reason} ({refused.broken.fix})"
    seen = list(dict.fromkeys(deeds))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    told = {
        "problem": problem,
        "deeds": seen,
        "notes": list(notes),
        "names": names,
        "modules": sorted(_inner_modules() - inner),
    }
    os.write(request["report"], json.dumps(told).encode())
    os._exit(0)


def _names(offers: Any) -> tuple[str, ...]:
    by_kind = [f"{kind}: {name}" for kind, named in offers.by_kind.items() for name in named]
    smaller = [
        f"{what}: {one.name}"
        for what in ("actions", "routes", "document_kinds", "object_types", "approvals")
        for one in getattr(offers, what)
    ]
    return tuple(sorted([*by_kind, *smaller]))


_INNER = ("host", "runner", "store", "mailbox", "config", "process", "cli")


def _inner_modules() -> set[str]:
    return {name for name in sys.modules if name.startswith(tuple(f"jackfield.{room}" for room in _INNER))}


def _watch() -> list[str]:
    """From now on whatever is watched for is noted in this list."""
    deeds: list[str] = []

    def see(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED:
            deeds.append(f"{_WATCHED[event]}{_who()}")
        elif event == "open" and _writes(arguments):
            deeds.append(f"writes the file {arguments[0]!s}{_who()}"[:_SHOWN])

    start = threading.Thread.start

    def start_seen(thread: threading.Thread) -> None:
        deeds.append(f"starts a thread{_who()}")
        start(thread)

    # There is no audit event for threads before Python 3.12.
    threading.Thread.start = start_seen  # type: ignore[assignment, method-assign]  # on purpose
    sys.addaudithook(see)
    return deeds


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, mode, flags = (*arguments, None, None, None)[:3]
    if not isinstance(path, str) or "__pycache__" in path or path == os.devnull:
        return False
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _who() -> str:
    """` (file:line)` of the innermost line that belongs neither to us nor to the standard library."""
    frame = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        inside = file.startswith(_LIBRARY) and "site-packages" not in file
        if file.endswith(".py") and file != __file__ and not inside:
            return f" ({file}:{frame.f_lineno})"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return ""


_LIBRARY = str(Path(os.__file__).parent)
