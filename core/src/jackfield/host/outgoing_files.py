"""Copies of the files that are on their way out, where no runner can reach them."""

from __future__ import annotations

import mimetypes
import shutil
from pathlib import Path

from jackfield.errors import UnsafePath
from jackfield.mailbox import SessionFolder, safe_name
from jackfield.models import OutFile
from jackfield.redaction import REDACTOR

__all__ = ["copy_file", "remove_files", "write_file"]


def copy_file(source: SessionFolder, row_id: str, name: str, target: Path, limit: int) -> OutFile:
    """Copy a file of an outbound row into the folder `target`; people see its name without any secret.

    Raises:
        UnsafePath: its name or what lies there is not to be trusted, or it has more than `limit` bytes.
        OSError: it can't be read, or the disk is full.
    """
    safe_name(name)
    with source.open_outbox(row_id, name) as file:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = target / name
        with path.open("wb") as copy:
            size = 0
            while chunk := file.read(1 << 18):
                size += len(chunk)
                if size > limit:
                    break
                copy.write(chunk)
        if size > limit:
            path.unlink()
            raise UnsafePath(f"it is larger than {limit:,} bytes")
    return OutFile(name=REDACTOR.values(name), path=str(path), size=size, mime=mimetypes.guess_type(name)[0])


def write_file(path: Path, data: bytes) -> None:
    """Keep what became a file; its folder is made."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(data)


def remove_files(folder: Path) -> None:
    """Forget the copies of a row's files; missing is fine."""
    shutil.rmtree(folder, ignore_errors=True)
