"""The environment of a runner: built from a list of what it may have, never copied."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

__all__ = [
    "clean_environment",
    "import_path",
    "installed_as_of",
    "interpreter_paths",
    "mark_of",
    "named_files",
    "source_folders",
]

_PASSED = ("TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "PIP_CERT")
_FILES_NAMED = ("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "PIP_CERT")


def mark_of(install_id: str, session_id: str, epoch: int | str) -> str:
    """What `JACKFIELD_SESSION` says in a runner and everything that it starts: whose process it is (C099)."""
    return f"{install_id}:{session_id}:{epoch}"


def clean_environment(
    host: Mapping[str, str],
    *,
    home: Path,
    temporary: str,
    mark: str,
    import_path: Sequence[str] = (),
    passed: Iterable[str] = (),
    added: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of a runner: `host` is the host's environment, `added` what the launch wants besides.

    Locale is C.UTF-8 whatever the host's is, so that text is UTF-8 everywhere (C247).
    """
    programs = str(Path(sys.prefix) / "bin")
    path = host.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    out = {
        "PATH": path if programs in path.split(os.pathsep) else f"{programs}{os.pathsep}{path}",
        "HOME": str(home),
        "USER": "agent",
        "LOGNAME": "agent",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": temporary,
    }
    out.update({name: host[name] for name in (*_PASSED, *passed) if name in host})
    if import_path:
        out["PYTHONPATH"] = os.pathsep.join(import_path)
    out.update(added or {})
    out["JACKFIELD_SESSION"] = mark
    return out


def named_files(host: Mapping[str, str]) -> list[str]:
    """Certificate files and folders that the passed variables point to; a runner must be able to read them."""
    return [host[name] for name in _FILES_NAMED if host.get(name)]


@cache
def _found_without_help() -> frozenset[str]:
    """Folders that an interpreter of this installation imports from by itself: standard library, site-packages, and
    what `.pth` files in there add (editable installs)."""
    found: set[str] = set()
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        folder = sysconfig.get_paths().get(name)
        if folder:
            found.add(os.path.realpath(folder))
    for folder in list(found):
        if not Path(folder).is_dir():
            continue
        for pth in Path(folder).glob("*.pth"):
            for line in pth.read_text(encoding="utf-8", errors="replace").splitlines():
                line = line.strip()
                if line and not line.startswith(("#", "import ", "import\t")):
                    found.add(os.path.realpath(Path(folder) / line))
    return frozenset(found)


def import_path() -> list[str]:
    """Folders that `PYTHONPATH` must name so that a runner finds `jackfield` and its plugins; usually none."""
    own = str(Path(__file__).resolve().parents[2])
    entries = tuple(entry for entry in dict.fromkeys([own, *sys.path]) if entry)
    return list(_import_path(own, entries, _changed_at(entries)))


@lru_cache(maxsize=4)
def _import_path(own: str, entries: tuple[str, ...], _as_of: tuple[int, ...]) -> tuple[str, ...]:
    """Kept until one of the folders changes: looking through them takes longer than all else that a launch plans."""
    out = []
    for entry in entries:
        folder = Path(entry)
        if not folder.is_dir() or os.path.realpath(entry) in _found_without_help():
            continue
        if str(folder.resolve()) == own or any(folder.glob("jackfield_*")):
            out.append(str(folder.resolve()))
    return tuple(dict.fromkeys(out))


def _changed_at(folders: Iterable[str]) -> tuple[int, ...]:
    """When something last came into or left each of the folders; 0 for one that is not there."""
    out = []
    for folder in folders:
        try:
            out.append(os.stat(folder).st_mtime_ns)  # noqa: PTH116 - asked at each launch
        except OSError:
            out.append(0)
    return tuple(out)


def installed_as_of() -> tuple[int, ...]:
    """Differs when something was installed or removed since, where an interpreter looks by itself."""
    return _changed_at(sorted(_found_without_help()))


def source_folders() -> list[Path]:
    """Our own packages, installed, editable or on the path; not what others wrote."""
    roots = dict.fromkeys([str(Path(__file__).resolve().parents[2]), *sorted(_found_without_help()), *import_path()])
    return [
        found for root in roots for found in sorted(Path(root).glob("jackfield*")) if (found / "__init__.py").exists()
    ]


def interpreter_paths() -> list[str]:
    """Every folder that a runner's interpreter reads: its prefixes, and where modules are imported from."""
    out = [sys.prefix, sys.base_prefix, sys.exec_prefix, *_found_without_help(), *import_path()]
    return [folder for folder in dict.fromkeys(out) if Path(folder).is_dir()]
