"""Where a group's packages lie, and what of them is there.

``groups/<folder>/packages/installed.json`` names, for each package manager, the folder beside it that holds the whole
of what is installed (``pip/<id>``, ``npm/<id>``).  A new one is built elsewhere, moved in, and named by replacing that
file: so runners have the old set or the new one, never half of each.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jackfield.config.files import write_atomically
from jackfield.models.packages import MANAGERS, Manager, Packages, name_of

__all__ = [
    "Installed",
    "Shelf",
    "build_of",
    "folders_seen",
    "forget_builds",
    "holds",
    "missing",
    "read_installed",
    "write_installed",
]

FILE = "installed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """What one package manager installed.  `base` is the image that it was installed for."""

    build: str
    base: str
    packages: tuple[str, ...]
    """As they were asked for; what these needed is there besides."""


@dataclass(frozen=True, slots=True)
class Installed:
    """Everything that is installed for a group."""

    shelves: Mapping[Manager, Shelf] = field(default_factory=dict)


def packages_of(group: Path) -> Path:
    """The group's `packages` folder."""
    return group / "packages"


def build_of(group: Path, manager: Manager, build: str) -> Path:
    """Where a build lies."""
    return packages_of(group) / manager / build


def read_installed(group: Path) -> Installed:
    """What is installed; nothing where the file is missing, no record, or names a folder that is gone."""
    try:
        raw: Any = json.loads((packages_of(group) / FILE).read_bytes())
        found: dict[Manager, Shelf] = {}
        for manager in MANAGERS:
            entry = raw.get(manager)
            if entry is not None:
                shelf = Shelf(
                    build=str(entry["build"]), base=str(entry["base"]), packages=tuple(map(str, entry["packages"]))
                )
                if "/" not in shelf.build and build_of(group, manager, shelf.build).is_dir():
                    found[manager] = shelf
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return Installed()
    return Installed(found)


def write_installed(group: Path, installed: Installed) -> None:
    """Name these builds from now on, all at once."""
    record = {
        manager: {"build": shelf.build, "base": shelf.base, "packages": list(shelf.packages)}
        for manager, shelf in installed.shelves.items()
    }
    packages_of(group).mkdir(mode=0o750, exist_ok=True)
    write_atomically(packages_of(group) / FILE, json.dumps(record, indent=1).encode(), mode=0o640)


def folders_seen(group: Path, seen_as: str) -> dict[str, str]:
    """The installed folders by package manager, as a runner sees them that sees the group's folder at `seen_as`."""
    return {
        manager: f"{seen_as}/packages/{manager}/{shelf.build}"
        for manager, shelf in read_installed(group).shelves.items()
    }


def holds(known: Shelf | None, names: Iterable[str], base: str) -> bool:
    """Whether exactly these are installed, for that image."""
    return known is not None and known.base == base and set(known.packages) == set(names)


def missing(recorded: Packages, installed: Installed, base: str) -> Packages:
    """What is recorded but not there: never installed, or installed for another image (C178).

    Packages of the operating system are looked for on this machine, whose they are (`process`).
    """
    gone: dict[str, tuple[str, ...]] = {"apt": tuple(one for one in recorded.apt if not _of_the_system(one))}
    for manager in ("npm", "pip"):
        shelf = installed.shelves.get(manager)
        there = {one if manager == "npm" else _versioned(one) for one in shelf.packages} if shelf else set()
        if shelf is not None and shelf.base != base:
            there = set()
        gone[manager] = tuple(
            one for one in recorded.of(manager) if (one if manager == "npm" else _versioned(one)) not in there
        )
    return Packages(**gone)


def _versioned(package: str) -> str:
    name, equals, version = package.partition("==")
    return f"{name_of('pip', name)}{equals}{version}"


def _of_the_system(name: str) -> bool:
    folder = Path("/var/lib/dpkg/info")
    return (folder / f"{name}.list").exists() or any(folder.glob(f"{name}:*.list"))


def forget_builds(group: Path, kept: Iterable[Installed]) -> None:
    """Remove all builds but these: what is installed now, and before, which runners may still use."""
    named = {(manager, one.build) for installed in kept for manager, one in installed.shelves.items()}
    for manager in MANAGERS:
        folder = packages_of(group) / manager
        for build in folder.iterdir() if folder.is_dir() else ():
            if (manager, build.name) not in named:
                shutil.rmtree(build, ignore_errors=True)
