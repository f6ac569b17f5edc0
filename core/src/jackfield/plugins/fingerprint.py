"""What a plugin's files are, in one hash: a verdict about a plugin holds as long as this does not change.

Versions are for people: the same version with other content is another plugin (spec/marketplace.md 0, finding 10).
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from jackfield import API_VERSION, __version__
from jackfield.plugins.discovery import Distribution

try:
    # Python's own code.  `hashlib` would load OpenSSL for it, which takes longer than everything here.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

__all__ = ["core_fingerprint", "fingerprint"]

MAX_FILES = 5000


def fingerprint(distribution: Distribution) -> str:
    """Name, version, entry points, and each file's name, size and time; in milliseconds, without reading them."""
    parts = [distribution.name, distribution.version, distribution.place]
    parts += [f"{kind}:{name}={value}" for kind, name, value in distribution.entries]
    for root in distribution.roots:
        parts += _files(root)
    return _digest(parts)


@cache
def core_fingerprint() -> str:
    """The same of the core, its API and the interpreter: what worked with another of them is to be tried again."""
    parts = [__version__, str(API_VERSION), sys.version, *_files(str(Path(__file__).parent.parent))]
    return _digest(parts)


def _digest(parts: list[str]) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()


def _files(root: str) -> list[str]:
    """`path size mtime` of each file below, sorted; caches of the interpreter and of editors left out."""
    found: list[str] = []
    waiting = [root]
    while waiting and len(found) < MAX_FILES:
        place = waiting.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name == "__pycache__" or entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        facts = entry.stat(follow_symlinks=False)
                        found.append(f"{entry.path} {facts.st_size} {facts.st_mtime_ns}")
        except NotADirectoryError:
            facts = os.stat(place)  # noqa: PTH116
            found.append(f"{place} {facts.st_size} {facts.st_mtime_ns}")
        except OSError as problem:
            found.append(f"{place} {problem.errno}")
    return sorted(found)
