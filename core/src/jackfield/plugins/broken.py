"""What is known of plugins: which are broken, and which were tried and are well.

A `Broken` record holds while the plugin's files and the core are the ones it was made for; then the plugin is tried
again by itself, and otherwise only by `jackfield plugin retry NAME` (architecture 4; C179, C181).  That a plugin is
well is kept in the user's cache folder and shared by all homes, since it is a fact about the installation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from jackfield.errors import PluginBroken
from jackfield.models.reserved import AGENT_CHANNEL
from jackfield.plugins.discovery import CORE, Distribution, Found
from jackfield.plugins.files import read_object, user_cache, write_object
from jackfield.plugins.kinds import Kind

__all__ = ["Broken", "Knowledge", "Phase", "conflicts", "verdict_from_metadata"]

Phase = Literal["metadata", "manifest", "compatibility", "conflict", "import", "hooks", "register"]
"""Where it failed, in the order in which things are tried."""

_FORMAT = 1
_KEPT = 500
"""Verdicts kept in one file."""


class Broken(NamedTuple):
    """Why a plugin can't be used: `reason` in one line, and what to do about it in one."""

    phase: Phase
    reason: str
    fix: str
    since: int = 0
    """When it was found out, in ms since 1970; 0 for what is plain from the metadata."""

    def as_error(self, found: Found) -> PluginBroken:
        """The exception for whoever asked for this plugin."""
        return PluginBroken(f"{found.name} ({found.distribution.name})", self.phase, self.reason, fix=self.fix)


def verdict_from_metadata(found: Found, everything: Iterable[Found]) -> Broken | None:
    """What can be said without trying it: a bad name or manifest, a wrong API range, a name that is taken."""
    one = found.distribution
    if not found.named_well:
        return Broken(
            phase="metadata",
            reason=f"its name {found.name!r} is not made of small letters, digits and single hyphens (at most 64)",
            fix=f"ask the author of {one.name} to rename the entry point",
        )
    if (found.kind, found.name) == (Kind.CHANNEL, AGENT_CHANNEL):
        # Addresses between agents have that channel type; only the host gives them.
        return Broken(
            phase="metadata",
            reason=f"a channel can't be called {found.name!r}: agents write to each other there",
            fix=f"ask the author of {one.name} to rename the entry point",
        )
    if one.manifest_problem is not None:
        return Broken(
            phase="manifest",
            reason=one.manifest_problem,
            fix=f"correct {one.manifest_path}, or tell the author of {one.name}",
        )
    if not one.compatible:
        return Broken(phase="compatibility", reason=_range_text(one), fix=_range_fix(one))
    rivals = conflicts(found, everything)
    if rivals:
        names = ", ".join(f"{rival.distribution.name} {rival.distribution.version}" for rival in rivals)
        return Broken(
            phase="conflict",
            reason=f"the {found.kind} {found.name!r} is also offered by {names}",
            fix=f"remove one of them: {', '.join(sorted({one.name, *(rival.distribution.name for rival in rivals)}))}"
            if not any(rival.built_in for rival in rivals)
            else f"remove {one.name}: the name belongs to the core",
        )
    return None


def conflicts(found: Found, everything: Iterable[Found]) -> list[Found]:
    """Other distributions' plugins of the same kind and name.  A built-in has none: its name is its own."""
    if found.built_in:
        return []
    return [
        other
        for other in everything
        if (other.kind, other.name) == (found.kind, found.name)
        and (other.distribution.name, other.distribution.place) != (found.distribution.name, found.distribution.place)
    ]


def _api_text() -> str:
    from jackfield import API_VERSION

    return f"{API_VERSION[0]}.{API_VERSION[1]}"


def _range_text(one: Distribution) -> str:
    wanted = one.manifest.api if one.manifest is not None else "?"
    return f"{one.name} {one.version} asks for plugin API {wanted}, this is {_api_text()}"


def _range_fix(one: Distribution) -> str:
    return f"install a release of {one.name} for API {_api_text()}, or another jackfield"


class Knowledge:
    """The stored verdicts.  `state_file` is `<home>/plugins/broken.json`; None keeps them in memory only.

    Two processes that write at the same moment may lose one's record; the plugin is then simply tried once more.
    """

    def __init__(self, state_file: Path | None, *, well_file: Path | None = None) -> None:
        self._state_file = state_file
        self._well_file = well_file if well_file is not None or state_file is None else user_cache() / "tried.json"
        self._broken: dict[str, Any] = self._entries(state_file, "broken")
        self._well: dict[str, Any] = self._entries(self._well_file, "well")
        self._hashes: dict[str, str] = {}

    @staticmethod
    def _entries(path: Path | None, key: str) -> dict[str, Any]:
        if path is None:
            return {}
        stored = read_object(path)
        found = stored.get(key) if stored.get("format") == _FORMAT else None
        if not isinstance(found, dict):
            return {}
        return {str(name): value for name, value in found.items() if isinstance(value, dict)}

    def broken(self, found: Found) -> Broken | None:
        """The verdict of an earlier try, if it still holds."""
        stored = self._broken.get(found.key)
        if stored is None or not self._holds(stored, found):
            return None
        phase, reason, fix, since = (stored.get(key) for key in ("phase", "reason", "fix", "since"))
        if phase not in get_args(Phase) or not isinstance(reason, str) or not isinstance(fix, str):
            return None
        return Broken(phase=phase, reason=reason, fix=fix, since=since if isinstance(since, int) else 0)

    def well(self, found: Found) -> bool:
        """It was tried in this state and is well.  The core's own need no trial, nor does what has no code."""
        if found.distribution.name == CORE or found.codeless:
            return True
        stored = self._well.get(self._well_key(found))
        return stored is not None and self._holds(stored, found)

    def notes(self, found: Found) -> tuple[str, ...]:
        """What the trial noticed that is no failure."""
        stored = self._well.get(self._well_key(found), {}).get("notes", ())
        return tuple(str(note) for note in stored) if isinstance(stored, (list, tuple)) else ()

    def record_broken(self, found: Found, broken: Broken) -> None:
        """Keep the verdict with the plugin's present hash."""
        entry = {
            **self._hash_of(found),
            "phase": broken.phase,
            "reason": broken.reason,
            "fix": broken.fix,
            "since": broken.since or time.time_ns() // 1_000_000,
        }
        self._broken = self._change(self._state_file, "broken", self._broken, found.key, entry)
        self._well.pop(self._well_key(found), None)

    def record_well(self, found: Found, notes: Iterable[str] = ()) -> None:
        """It was tried and is well; an earlier verdict is void."""
        entry = {**self._hash_of(found), "notes": list(notes)}
        self._well = self._change(self._well_file, "well", self._well, self._well_key(found), entry)
        if found.key in self._broken:
            self._broken = self._change(self._state_file, "broken", self._broken, found.key, None)

    def forget(self, found: Found) -> bool:
        """Drop what is known, good or bad, so that the plugin is tried again; whether it was known as broken."""
        self._hashes.clear()
        was_broken = found.key in self._broken
        if was_broken:
            self._broken = self._change(self._state_file, "broken", self._broken, found.key, None)
        if self._well_key(found) in self._well:
            self._well = self._change(self._well_file, "well", self._well, self._well_key(found), None)
        return was_broken

    def _change(
        self, path: Path | None, section: str, ours: dict[str, Any], key: str, entry: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Set or drop one entry, on top of what other processes wrote meanwhile; the newest `_KEPT` stay."""
        merged = {**ours, **self._entries(path, section)}
        merged.pop(key, None)
        if entry is not None:
            merged[key] = entry
        kept = dict(list(merged.items())[-_KEPT:])
        if path is not None:
            write_object(path, {"format": _FORMAT, section: kept})
        return kept

    @staticmethod
    def _well_key(found: Found) -> str:
        return f"{found.key} {found.distribution.place}"

    def _holds(self, stored: dict[str, Any], found: Found) -> bool:
        now = self._hash_of(found)
        return stored.get("hash") == now["hash"] and stored.get("core") == now["core"]

    def _hash_of(self, found: Found) -> dict[str, str]:
        from jackfield.plugins.fingerprint import core_fingerprint, fingerprint

        place = found.distribution.place
        if place not in self._hashes:
            self._hashes[place] = fingerprint(found.distribution)
        return {"hash": self._hashes[place], "core": core_fingerprint()}
