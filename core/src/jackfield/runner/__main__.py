"""`python -m jackfield.runner <session folder>`.

Exit codes: 0 done (idle, told to stop, or replaced), 1 the mailbox failed, 2 usage, 78 host and runner don't fit
together (C207).  What goes wrong is said on stderr, in one line.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from pathlib import Path

from jackfield.clock import SystemClock
from jackfield.errors import JackfieldError, MailboxFormat, MalformedData
from jackfield.mailbox import READABLE_FORMATS, SessionFolder
from jackfield.models import RUNNER_PROTOCOL, RunnerSpec
from jackfield.runner.loop import Runner
from jackfield.runner.secrets import read_secrets

MISMATCH = 78
"""EX_CONFIG of sysexits.h: starting again without a change makes no sense."""


_NEEDED = (
    "concurrent.futures.thread", "jackfield.api.hookspecs", "jackfield.runner.agent", "jackfield.runner.endpoint",
    "jackfield.runner.loading",
)  # fmt: skip


def warm() -> None:
    """Import what every session comes to need, for a process that is forked into many runners: no plugin."""
    for name in _NEEDED:
        importlib.import_module(name)


def main(arguments: list[str]) -> int:
    """Run the session in the given folder."""
    if len(arguments) != 1:
        print("usage: python -m jackfield.runner <session folder>", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    folder = SessionFolder(Path(arguments[0]).absolute())
    try:
        secrets = read_secrets()
        return asyncio.run(Runner(folder, read_spec(folder), SystemClock(), secrets).run())
    except MailboxFormat as problem:
        return _ended(problem, MISMATCH)
    except JackfieldError as problem:
        return _ended(problem, 1)


def read_spec(folder: SessionFolder) -> RunnerSpec:
    """What the host says this runner is.

    Raises:
        MailboxFormat: it was written for another version of the runner (C207).
        MalformedData: it can't be read.
    """
    try:
        raw = json.loads(folder.spec_file.read_bytes())
    except (OSError, ValueError) as problem:
        raise MalformedData(f"could not read {folder.spec_file}: {problem}") from None
    for key, known in (("protocol", (RUNNER_PROTOCOL,)), ("format", tuple(READABLE_FORMATS))):
        found = raw.get(key, 1) if isinstance(raw, dict) else None
        if found not in known:
            raise MailboxFormat(
                f"{folder.spec_file} was written for {key} {found}, this runner knows {', '.join(map(str, known))}",
                fix="host and runner have different versions: rebuild the image, or update the runner",
            )
    return folder.read_spec()


def _ended(problem: JackfieldError, code: int) -> int:
    fix = f" ({problem.fix})" if problem.fix else ""
    print(f"jackfield runner: {problem.message}{fix}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
