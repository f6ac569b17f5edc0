"""Where the `jackfield` program starts.  `--version` must cost next to nothing, so nothing is imported up here."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (`jackfield.errors.EXIT_CODES`)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        from jackfield import __version__

        print(f"jackfield {__version__}")
        return 0
    from jackfield.cli.app import run

    return run(words)
