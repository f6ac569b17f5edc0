"""Roll back what a killed runner left: ``python -m jackfield.mailbox.recovery <session folder>``.

For a throw-away child only, confined like the runner was: opening a hostile file for writing is never the host's work
(architecture 6; C209).  Says nothing and exits with 0, or prints the problem and exits with 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jackfield.errors import MailboxError
from jackfield.mailbox.database import open_writer
from jackfield.mailbox.paths import SessionFolder

__all__ = ["main", "recover"]


def recover(folder: SessionFolder) -> None:
    """Open `outbound.db` for writing, which rolls a hot journal back, and close it.

    Raises:
        MailboxDamaged: it is no database, or its journal names a super-journal (runtime.md 3.7).
        MailboxBlocked, MailboxFull, MailboxError: it could not be rolled back now.
    """
    open_writer(folder.outbound_db).close()


def main(arguments: list[str]) -> int:
    """The program; its exit code."""
    if len(arguments) != 1:
        print("usage: python -m jackfield.mailbox.recovery <session folder>", file=sys.stderr)
        return 2
    try:
        recover(SessionFolder(Path(arguments[0]).absolute()))
    except MailboxError as problem:
        print(problem.message, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
