"""Where the `jackfield` program starts.  Nothing is imported up here.

Two commands answer without click, whose import is most of what a small command costs: `--version`, and the one form of
`plugin list` that scripts and prompts call again and again.  Every other form goes through `jackfield.cli.app`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (`jackfield.errors.EXIT_CODES`)."""
    if arguments is None and sys.getfilesystemencoding() != "utf-8":
        _start_again_in_utf_8()
    words = list(sys.argv[1:] if arguments is None else arguments)
    text = _quickly(words)
    if text is not None:
        from jackfield.cli import streams

        streams.prepare()
        return streams.put_out(text)
    from jackfield.cli.app import run

    return run(words)


def _start_again_in_utf_8() -> None:
    """Replace this process by one whose file names are UTF-8, in whatever locale; returns where that can't be had.

    Python does so by itself in the C locale, unless it is told not to.  Runners always name files in UTF-8, and people
    send files under any name, so a host that names them in another way could not share a folder with them (C247).
    What is printed keeps the terminal's encoding.
    """
    if os.environ.get("PYTHONUTF8") == "1" or not sys.executable:  # it was tried, and told to ignore it
        return
    environment = os.environ | {"PYTHONUTF8": "1"}
    encoding = getattr(sys.stdout, "encoding", None)
    if encoding and encoding.lower() not in ("ascii", "us-ascii", "ansi_x3.4-1968"):
        environment.setdefault("PYTHONIOENCODING", encoding)
    os.execve(sys.executable, sys.orig_argv, environment)


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
