"""Which plugins are installed, read from metadata only.

Nothing of a plugin is imported here, ever.  The answer is kept in a cache, folder by folder of `sys.path`: a folder's
part holds as long as the folder and what was read of each of its plugins are unchanged, so that one program with the
current directory on its path and another without it share everything else.  The warm way imports nothing but the
standard library; importlib-metadata, packaging and a TOML parser come in only when some folder must be read again
(spec/marketplace.md 3.9, 4.6; C183).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jackfield import API_VERSION, __version__
from jackfield.plugins.files import read_object, user_cache, write_object
from jackfield.plugins.kinds import Kind

if TYPE_CHECKING:
    from jackfield.plugins.manifest import Manifest

__all__ = [
    "CORE",
    "Discovery",
    "Distribution",
    "Found",
    "Inventory",
    "canonical",
    "discover",
    "distribution_from_plain",
    "distribution_to_plain",
    "watched",
]

CORE = "jackfield"
"""The core's own distribution; its entry points are the built-ins."""
MANIFEST_FILE = "jackfield-plugin.toml"
_CACHE_FORMAT = 1
_RACY_NS = 2_000_000_000
"""A folder that changed this recently may still be changing within its clock's tick; its part is not kept."""
_ANY_STAMP = (0, 0)
_METADATA = (".dist-info", ".egg-info")

_Stamp = tuple[int, int]

# Named tuples here and in `listing`: making a dataclass costs more than a millisecond, and this is imported by commands
# that have a hundred in all.


class Distribution(NamedTuple):
    """An installed distribution, or a directory plugin, that offers plugins."""

    name: str
    version: str
    place: str
    """Its metadata folder, or the directory plugin's own folder."""
    entries: tuple[tuple[Kind, str, str], ...] = ()
    """Kind, name and value of each entry point."""
    described: dict[str, Any] | None = None
    """The manifest as JSON values, None when it has none or a bad one; read `manifest`."""
    manifest_path: str | None = None
    manifest_problem: str | None = None
    compatible: bool = True
    """The manifest's range holds this core's API version; True without a manifest."""
    roots: tuple[str, ...] = ()
    """The package folders and modules that hold its code, found without importing them."""
    directory: bool = False
    editable: bool = False
    watch: tuple[tuple[str, int, int], ...] = ()
    """Path, mtime in ns and size of whatever this was read from; (-1, -1) stands for "not there"."""

    @property
    def title(self) -> str:
        """From the manifest; empty without one."""
        return str(self.described["title"]) if self.described is not None else ""

    @property
    def manifest(self) -> Manifest | None:
        """What it says about itself.  Its module is imported when it is first asked for: the list needs titles only."""
        if self.described is None:
            return None
        from jackfield.plugins.manifest import from_plain

        return from_plain(self.described, self.name)


class Found(NamedTuple):
    """One entry point: the plugin `name` of one kind, as one distribution offers it."""

    kind: Kind
    name: str
    value: str
    distribution: Distribution

    @property
    def key(self) -> str:
        """Names it in stored records."""
        return f"{self.kind}:{self.name}@{self.distribution.name}"

    @property
    def built_in(self) -> bool:
        return self.distribution.name == CORE

    @property
    def codeless(self) -> bool:
        """A directory plugin of documents only: there is nothing to import or to try."""
        return self.distribution.directory and self.kind is Kind.PACK and not self.value

    @property
    def named_well(self) -> bool:
        """Small letters, digits and single hyphens, at most 64: it becomes a word of the configuration."""
        parts = self.name.split("-")
        plain = all(part.isascii() and part.isalnum() and part == part.lower() for part in parts)
        return plain and self.name[0].isalpha() and len(self.name) <= 64


class Inventory(NamedTuple):
    """Everything that was found.  `problems` are metadata that could not be read, in words."""

    distributions: tuple[Distribution, ...]
    problems: tuple[str, ...] = ()
    cached: bool = True
    """No folder had to be read again."""

    def found(self) -> list[Found]:
        """All plugins, ordered by kind, name and distribution."""
        order = {kind: place for place, kind in enumerate(Kind)}
        every = [Found(kind, name, value, one) for one in self.distributions for kind, name, value in one.entries]
        return sorted(every, key=lambda one: (order[one.kind], one.name, one.distribution.name))


def canonical(name: str) -> str:
    """A distribution's name in the one spelling in which two of them are compared (PEP 503)."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


class Discovery:
    """Reads what is installed.

    `plugins_folder` is `<home>/plugins`: directory plugins lie in it, and the cache, when the folder's home exists.
    Without it the cache lies in the user's cache folder.  `JACKFIELD_EP_CACHE=0` turns the cache off.
    """

    def __init__(self, plugins_folder: Path | None = None, *, path: Sequence[str] | None = None) -> None:
        self._folder = plugins_folder
        self._path = path
        at_home = plugins_folder is not None and plugins_folder.parent.is_dir()
        self.cache_file = (
            plugins_folder / "cache.json" if plugins_folder is not None and at_home else user_cache() / "plugins.json"
        )

    def read(self) -> Inventory:
        """What is installed now.  Never raises, nor logs, for what a distribution's metadata say: see `problems`."""
        use_cache = os.environ.get("JACKFIELD_EP_CACHE", "1") != "0"
        stored = read_object(self.cache_file) if use_cache else {}
        known = stored.get("folders") if stored.get("for") == _cache_key() else None
        parts: dict[str, Any] = dict(known) if isinstance(known, dict) else {}
        before = dict(parts)
        problems: list[str] = []
        cached = True
        everything: dict[str, Distribution] = {}
        for folder in self._folders():
            stamp = _stamp(folder)
            if stamp is None:
                continue
            found = _from_cache(parts.get(folder), stamp)
            if found is None:
                found = self._scan(folder, problems)
                cached = cached and not found
                parts.pop(folder, None)
                if _settled(stamp) and not problems:
                    parts[folder] = {"stamp": list(stamp), "found": [distribution_to_plain(one) for one in found]}
            for one in found:
                everything.setdefault(canonical(one.name), one)
        directories, read_again = self._directories(parts, problems)
        if use_cache and parts != before:
            kept = {folder: part for folder, part in parts.items() if os.path.exists(folder)}  # noqa: PTH110
            write_object(self.cache_file, {"for": _cache_key(), "folders": kept})
        return Inventory((*everything.values(), *directories), tuple(problems), cached and not read_again)

    def _import_path(self) -> Sequence[str]:
        return sys.path if self._path is None else self._path

    def _folders(self) -> list[str]:
        entries = (os.path.abspath(entry or ".") for entry in self._import_path() if isinstance(entry, str))  # noqa: PTH100
        return list(dict.fromkeys(entries))

    def _directories(self, parts: dict[str, Any], problems: list[str]) -> tuple[list[Distribution], bool]:
        """The directory plugins, and whether any was read anew.  Each one's manifest is watched, not the folder."""
        folder = self._folder
        if folder is None or not folder.is_dir():
            return [], False
        kept = {one.place: one for one in _from_cache(parts.get(str(folder)), _ANY_STAMP) or ()}
        found: list[Distribution] = []
        again = False
        try:
            entries = sorted(folder.iterdir())
        except OSError as problem:
            problems.append(f"the directory plugins in {folder} can't be listed: {problem.strerror or problem}")
            return [], False
        for entry in entries:
            if entry.name.startswith(".") or not (entry / MANIFEST_FILE).is_file():
                continue
            one = kept.pop(str(entry), None)
            again = again or one is None
            found.append(one or self._directory(entry))
        if again or kept:
            parts[str(folder)] = {"stamp": list(_ANY_STAMP), "found": [distribution_to_plain(one) for one in found]}
        return found, again

    def _scan(self, folder: str, problems: list[str]) -> list[Distribution]:
        if not _may_hold_metadata(folder):
            return []
        from jackfield.plugins.scan import scan

        return scan(folder, self._import_path(), problems)

    def _directory(self, folder: Path) -> Distribution:
        from jackfield.plugins.scan import directory_plugin

        return directory_plugin(folder)


def discover(plugins_folder: Path | None = None) -> Inventory:
    """What is installed, for a program that looks once."""
    return Discovery(plugins_folder).read()


# ---- the cache: a pure function of what stat says


def _cache_key() -> list[Any]:
    return [_CACHE_FORMAT, __version__, list(API_VERSION), sys.version, sys.prefix]


def _stamp(folder: str) -> _Stamp | None:
    try:
        found = os.stat(folder)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_ino


def _settled(stamp: _Stamp) -> bool:
    return abs(time.time_ns() - stamp[0]) > _RACY_NS


def watched(path: str) -> tuple[str, int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return path, -1, -1
    return path, found.st_mtime_ns, found.st_size


def _from_cache(part: object, stamp: _Stamp) -> list[Distribution] | None:
    """A folder's part of the cache; None when it is stale, damaged or missing."""
    try:
        if not isinstance(part, dict) or tuple(part["stamp"]) != stamp:
            return None
        found = [distribution_from_plain(one) for one in part["found"]]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    for one in found:
        if any(watched(seen[0]) != seen for seen in one.watch):
            return None
    return found


def distribution_to_plain(one: Distribution) -> dict[str, Any]:
    return {
        "name": one.name,
        "version": one.version,
        "place": one.place,
        "entries": [[str(kind), name, value] for kind, name, value in one.entries],
        "described": one.described,
        "manifest_path": one.manifest_path,
        "manifest_problem": one.manifest_problem,
        "compatible": one.compatible,
        "roots": list(one.roots),
        "directory": one.directory,
        "editable": one.editable,
        "watch": [list(seen) for seen in one.watch],
    }


def distribution_from_plain(value: dict[str, Any]) -> Distribution:
    name = value["name"]
    if not isinstance(name, str):
        raise TypeError("a distribution's name must be text")
    described = value["described"]
    if described is not None:
        described["title"]
    return Distribution(
        name=name,
        version=value["version"],
        place=value["place"],
        entries=tuple((Kind(kind), entry, target) for kind, entry, target in value["entries"]),
        described=described,
        manifest_path=value["manifest_path"],
        manifest_problem=value["manifest_problem"],
        compatible=value["compatible"],
        roots=tuple(value["roots"]),
        directory=value["directory"],
        editable=value["editable"],
        watch=tuple((path, int(mtime), int(size)) for path, mtime, size in value["watch"]),
    )


def _may_hold_metadata(folder: str) -> bool:
    """Whether it is worth importing importlib-metadata for: most entries of `sys.path` are no site-packages."""
    if not os.path.isdir(folder):  # noqa: PTH112
        return folder.endswith((".zip", ".egg", ".whl"))
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(_METADATA) for entry in entries)
    except OSError:
        return False
