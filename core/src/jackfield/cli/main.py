"""Where the `jackfield` program starts.  Nothing is imported up here.

Two commands answer without click, whose import is most of what a small command costs: `--version`, and the one form of
`plugin list` that scripts and prompts call again and again.  Every other form goes through `jackfield.cli.app`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (`jackfield.errors.EXIT_CODES`)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    text = _quickly(words)
    if text is not None:
        from jackfield.cli import streams

        streams.prepare()
        return streams.put_out(text)
    from jackfield.cli.app import run

    return run(words)


def _quickly(words: list[str]) -> str | None:
    """The whole output of a command that needs no click; None for all others, and when anything is out of order."""
    if words == ["--version"]:
        from jackfield import __version__

        return f"jackfield {__version__}"
    if words == ["plugin", "list", "--json"]:
        from jackfield.cli.plugin_facts import listed

        try:
            return listed()
        except Exception:  # noqa: BLE001 - the way through click meets it again, and reports it
            return None
    return None
