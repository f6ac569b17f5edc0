"""Byte code for what only runners import: they can't write it themselves, and without it each start compiles anew."""

from __future__ import annotations

import importlib.util
import logging
import os
import py_compile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["compile_stale"]

log = logging.getLogger(__name__)

_HEADER = 16


def compile_stale(folders: Iterable[Path]) -> int:
    """Compile every module below the folders whose byte code is missing or of an older source; how many.

    A folder that this process may not write to is passed over: whoever installed it has to compile it.
    """
    done = 0
    for folder in folders:
        for source in folder.rglob("*.py"):
            if not _is_stale(source):
                continue
            try:
                done += py_compile.compile(str(source), quiet=2) is not None
            except OSError as error:
                log.debug("%s can't be compiled beforehand: %s", source, error)
                break
    return done


def _is_stale(source: Path) -> bool:
    """By the rule of the import system: the byte code's header names the source's time and size."""
    compiled = Path(importlib.util.cache_from_source(str(source)))
    try:
        with compiled.open("rb") as stream:
            header = stream.read(_HEADER)
        found = source.stat()
    except OSError:
        return os.access(source, os.R_OK)
    if len(header) < _HEADER or header[:4] != importlib.util.MAGIC_NUMBER:
        return True
    if int.from_bytes(header[4:8], "little") != 0:  # checked by a hash, which only the import system does
        return False
    as_of = int(found.st_mtime) & 0xFFFFFFFF, found.st_size & 0xFFFFFFFF
    return (int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")) != as_of
