"""Files of an agent's workspace that an MCP server is made of: what a person approved is what they held (C151)."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jackfield.errors import JackfieldError, VerificationFailed
from jackfield.host.approvals.digest import forget_copies, keep_copies

__all__ = ["named_files", "verify_files"]


def named_files(settings: Mapping[str, Any], seen_as: str, workspace: Path) -> list[Path]:
    """The regular files below the workspace that the command and its arguments name, each once.  Blocks.

    `seen_as` is the workspace as the agent's programs see it.
    """
    cwd = posixpath.join(seen_as, str(settings.get("cwd", "")))
    found: dict[Path, None] = {}
    for text in (settings.get("command", ""), *settings.get("args", ())):
        path = posixpath.normpath(posixpath.join(cwd, str(text)))
        if path.startswith(f"{seen_as}/"):
            file = workspace / path.removeprefix(f"{seen_as}/")
            if file.is_file():
                found[file] = None
    return list(found)


def verify_files(files: Sequence[Path], approved: Sequence[Path], workspace: Path, bench: Path, limit: int) -> None:
    """See that the files hold what the approved copies hold.  Blocks; `bench` is a folder for the while.

    Raises:
        VerificationFailed: they don't, or there are others.
    """
    try:
        now = [one.sha256 for one in keep_copies(files, (workspace,), bench, limit)]
        then = [hashlib.sha256(one.read_bytes()).hexdigest() for one in approved]
    except (JackfieldError, OSError) as problem:
        raise VerificationFailed(f"the files that the server is made of can't be read: {problem}") from problem
    finally:
        forget_copies(bench)
    if now != then:
        raise VerificationFailed(
            "a file that the server is made of was changed since it was asked for; nothing was done",
            fix="it must be asked for again",
        )
