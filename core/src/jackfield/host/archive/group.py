"""One agent group into an archive, to be shared, and from one into this home."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from jackfield import __version__
from jackfield.config.home import Home
from jackfield.config.load import check_agent_text
from jackfield.config.problems import refuse
from jackfield.errors import Conflict, RolledBack, VerificationFailed
from jackfield.host.archive.gathering import Gatherer
from jackfield.host.archive.manifest import Manifest
from jackfield.host.archive.swapping import put_in_place, sync_tree
from jackfield.host.archive.unpacking import room_at, unpack, verify
from jackfield.host.archive.writing import ArchiveWriter, held, remove_tree
from jackfield.models import valid_folder

__all__ = ["Imported", "export", "unpack_group"]

HINTS = "wirings.json"
_UNFINISHED = ".importing"
"""Lies in a group's folder until the host knows the group."""
_HINT_LIMIT = 1 << 20
_KEPT = ("chat", "engage", "pattern", "scope", "ignored", "session", "priority")
"""What is told of a wiring: nothing of who writes there."""
_PARTS = ("memory", "skills", "packages")
_FILES = ("agent.toml", "AGENTS.md", "CLAUDE.md")


def export(home: Home, folder: str, out: BinaryIO, *, workspace: bool, wirings: Sequence[dict[str, Any]]) -> Manifest:
    """Write the group's folder: settings, instructions, memory, skills, packages; with `workspace` that too, without
    what engines keep there of conversations.  Neither members nor conversations nor secrets are in it.

    Raises:
        RolledBack: it can't be written.
    """
    place = home.groups / folder
    home.backups.mkdir(mode=0o700, exist_ok=True)
    try:
        with held(home.backups, ".export-") as scratch:
            archive = ArchiveWriter(out)
            gatherer = Gatherer(archive, scratch)
            for name in _FILES:
                gatherer.file(place / name, name)
            for name in (*_PARTS, *(("workspace",) if workspace else ())):
                gatherer.tree(place / name, name, skip=lambda inside: inside == "workspace/.jackfield")
            if wirings:
                hints = [{key: one.get(key) for key in _KEPT} for one in wirings]
                (scratch / HINTS).write_text(json.dumps(hints, indent=1), encoding="utf-8")
                archive.path(HINTS, scratch / HINTS, scratch)
            return archive.finish(_manifest(home, folder))
    except OSError as problem:
        raise RolledBack(f"the export could not be written: {problem}", fix="make room") from problem


def _manifest(home: Home, folder: str) -> Manifest:
    return Manifest(
        kind="group",
        app=__version__,
        schema=0,
        install="",
        made_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        home="",
        name=folder,
        sessions=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`problems`: what this version finds odd in its `agent.toml`, in words; `hints`: wirings that it had."""

    manifest: Manifest
    folder: str
    name: str
    problems: tuple[str, ...]
    hints: tuple[dict[str, Any], ...]


def unpack_group(
    path: Path, home: Home, folder: str | None, register: Callable[[str, str], object], known: Callable[[str], bool]
) -> Imported:
    """Put an exported group into this home, under another folder's name if one is given.  `register(folder, name)`
    makes it known to the host, `known(folder)` says whether it is.  Nothing is touched before the whole archive was
    found sound.  What an import left that was killed before it had made its folder known is replaced.

    Raises:
        VerificationFailed, StoreNewer, NotFound: the archive can't be used.
        MalformedData, ConfigError: its name or its `agent.toml` can't be used.
        Conflict: the folder exists.
        RolledBack: the disk is full, or the like; nothing of it stays.
    """
    manifest = verify(path, "group", limit=room_at(home.groups))
    chosen = valid_folder(folder or manifest.name)
    place = home.groups / chosen
    leftover = (place / _UNFINISHED).is_file() and not place.is_symlink() and not known(chosen)
    if not leftover and (place.exists() or place.is_symlink()):
        raise Conflict(f"{place} exists already", fix="choose another name with --as")
    try:
        with held(home.groups, f".{chosen}.import-") as new:
            unpack(path, manifest, new)
            text = _text(new / "agent.toml")
            checked = check_agent_text(place, text)
            if checked.settings is None:
                raise refuse(checked.problems, f"agent group {chosen!r} was not imported")
            hints = _hints(new / HINTS)
            for name in (*_PARTS, "workspace"):
                (new / name).mkdir(mode=0o700, exist_ok=True)
            (new / _UNFINISHED).touch(mode=0o600)
            sync_tree(new)
            if leftover:
                remove_tree(place)
            put_in_place(new, place, None)
            try:
                register(chosen, checked.settings.name)
            except BaseException:
                place.rename(new)  # and so it is removed
                raise
            (place / _UNFINISHED).unlink()
    except OSError as problem:
        raise RolledBack(f"{path} was not imported: {problem}", fix="make room, or mend the disk") from problem
    problems = tuple(str(problem) for problem in checked.problems)
    return Imported(manifest=manifest, folder=chosen, name=checked.settings.name, problems=problems, hints=hints)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise VerificationFailed(f"{file.name} in the archive is no text", fix="use another export") from None


def _hints(file: Path) -> tuple[dict[str, Any], ...]:
    """The wirings that the group had, which are taken out of its folder."""
    try:
        if file.stat().st_size > _HINT_LIMIT:
            raise ValueError
        found = json.loads(file.read_bytes())
        file.unlink()
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise ValueError
    except FileNotFoundError:
        return ()
    except (ValueError, RecursionError):
        raise VerificationFailed(f"{HINTS} in the archive has another shape than agreed", fix="use another") from None
    kinds = (str, int, type(None))
    return tuple({key: one.get(key) for key in _KEPT if isinstance(one.get(key), kinds)} for one in found)
