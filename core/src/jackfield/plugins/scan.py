"""The cold way of discovery: reads the metadata of one folder, and finds manifests and code without importing them.

Only this module uses importlib-metadata.  It is imported when a folder has changed (architecture 4).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import importlib_metadata

from jackfield import API_VERSION
from jackfield.errors import MalformedData
from jackfield.plugins.discovery import MANIFEST_FILE, Distribution, watched
from jackfield.plugins.files import one_line
from jackfield.plugins.kinds import GROUPS, Kind
from jackfield.plugins.manifest import allows, find_in_package, read, to_plain

__all__ = ["directory_plugin", "scan"]

Metadata = Any
"""`importlib_metadata.Distribution`, or what stands in for it in one of its types."""


def scan(folder: str, import_path: Iterable[str], problems: list[str]) -> list[Distribution]:
    """The plugins whose metadata lie in one folder of the import path."""
    found: list[Distribution] = []
    for one in importlib_metadata.distributions(path=[folder]):
        try:
            entries = tuple(
                (GROUPS[point.group], point.name, point.value) for point in one.entry_points if point.group in GROUPS
            )
            if entries:
                found.append(_describe(one, one.metadata["Name"], one.version, entries, import_path))
        except Exception as problem:  # noqa: BLE001 - one damaged distribution must not hide the others (C179)
            problems.append(
                f"the metadata of a distribution in {folder} can't be read: "
                f"{type(problem).__name__}: {one_line(str(problem))}"
            )
    return found


def _describe(
    one: Metadata,
    name: str,
    version: str,
    entries: tuple[tuple[Kind, str, str], ...],
    import_path: Iterable[str],
) -> Distribution:
    metadata_folder = Path(str(getattr(one, "_path", one.locate_file(""))))
    searched, editable = _code_folders(one, metadata_folder, import_path)
    modules = list(dict.fromkeys(value.partition(":")[0].strip() for _, _, value in entries))
    manifest_path = next((path for module in modules if (path := find_in_package(module, searched)) is not None), None)
    roots = tuple(dict.fromkeys(root for module in modules if (root := _root_of(module, searched)) is not None))
    watch = [watched(str(metadata_folder / "entry_points.txt")), watched(str(metadata_folder / "direct_url.json"))]
    if manifest_path is None:
        # A manifest may be added to an editable install, or the missing code may come, without a change that shows in
        # site-packages; the folders in which that would happen show it.
        watch += [watched(root) for root in roots] or [watched(str(folder)) for folder in searched[:2]]
    base = Distribution(
        name=name,
        version=version,
        place=str(metadata_folder),
        entries=entries,
        roots=roots,
        editable=editable,
    )
    return _with_manifest(base, manifest_path, watch)


def _with_manifest(base: Distribution, path: Path | None, watch: list[tuple[str, int, int]]) -> Distribution:
    if path is None:
        return base._replace(watch=tuple(watch))
    watch = [*watch, watched(str(path))]
    try:
        manifest = read(path)
    except MalformedData as problem:
        return base._replace(manifest_path=str(path), manifest_problem=one_line(problem.message), watch=tuple(watch))
    return base._replace(
        described=to_plain(manifest),
        manifest_path=str(path),
        compatible=allows(manifest, API_VERSION),
        watch=tuple(watch),
    )


def _root_of(module: str, folders: list[Path]) -> str | None:
    """The top-level package or module file that holds `module`."""
    top = module.partition(".")[0]
    for folder in folders:
        package = folder / top
        if package.is_dir():
            return str(package)
        for suffix in (".py", ".pyc"):
            if package.with_suffix(suffix).is_file():
                return str(package.with_suffix(suffix))
    return None


def _code_folders(one: Metadata, metadata_folder: Path, import_path: Iterable[str]) -> tuple[list[Path], bool]:
    """Where the distribution's modules may lie, the likeliest first, and whether it is installed editable.

    A wheel's code lies beside its metadata.  An editable one's does not: a `.pth` file of its own names the folder, or
    an import hook does, and then `direct_url.json` still tells the project's.
    """
    site = metadata_folder.parent
    folders: list[Path] = []
    project: Path | None = None
    try:
        direct = json.loads(one.read_text("direct_url.json") or "{}")
        if direct.get("dir_info", {}).get("editable") is True:
            project = Path(unquote(urlsplit(direct["url"]).path))
    except (ValueError, KeyError, AttributeError, TypeError):
        project = None
    if project is not None:
        for record in (one.read_text("RECORD") or "").splitlines():
            name = record.partition(",")[0]
            if name.endswith(".pth") and "/" not in name:
                folders += _pth_folders(site / name)
        folders += [project / "src", project]
    folders.append(site)
    folders += [Path(entry or ".").absolute() for entry in import_path if isinstance(entry, str)]
    return list(dict.fromkeys(folders)), project is not None


def _pth_folders(path: Path) -> list[Path]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    plain = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "import "))]
    return [path.parent / line for line in plain]


def directory_plugin(folder: Path) -> Distribution:
    """A folder in `<home>/plugins` with a manifest at its root; its kinds come from there."""
    manifest_path = folder / MANIFEST_FILE
    base = Distribution(name=folder.name, version="0", place=str(folder), roots=(str(folder),), directory=True)
    read = _with_manifest(base, manifest_path, [])
    manifest = read.manifest
    if manifest is None:
        return read._replace(entries=((Kind.PACK, folder.name, ""),))
    named = tuple(
        (Kind(kind), name, value) for kind, points in manifest.entry_points.items() for name, value in points.items()
    )
    silent = tuple((kind, folder.name, "") for kind in manifest.kinds if kind not in {one[0] for one in named})
    return read._replace(entries=named + silent)
