"""What `jackfield plugin` tells programs, made without click: `plugin list --json` must answer at once (C183)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jackfield.cli.printable import json_text
from jackfield.config.home import Home
from jackfield.plugins.broken import Knowledge
from jackfield.plugins.discovery import Inventory, discover
from jackfield.plugins.files import user_cache
from jackfield.plugins.listing import PluginInfo, survey

__all__ = ["Look", "list_of", "listed", "look", "plain"]

Look = tuple[Knowledge, Inventory, list[PluginInfo]]


def look(folder: Path | None, *, safe: bool) -> Look:
    """What is known, what is installed, and the state of each.  `folder` is the home's `plugins/`, None without one."""
    knowledge = Knowledge(folder / "broken.json" if folder is not None else None, well_file=user_cache() / "tried.json")
    inventory = discover(folder)
    return knowledge, inventory, survey(inventory, knowledge, safe=safe)


def listed() -> str:
    """The output of `jackfield plugin list --json` without other options."""
    home = Home.find()
    _, inventory, infos = look(home.plugins if home.initialised else None, safe=False)
    return json_text(list_of(infos, inventory))


def list_of(infos: Iterable[PluginInfo], inventory: Inventory, *, whole: bool = False) -> dict[str, Any]:
    """The answer of `plugin list` and `plugin info` as JSON values."""
    return {"plugins": [plain(info, whole=whole) for info in infos], "problems": list(inventory.problems)}


def plain(info: PluginInfo, *, whole: bool = False) -> dict[str, Any]:
    """One plugin for `--json`; every key is always there."""
    broken = info.broken
    out: dict[str, Any] = {
        "name": info.name,
        "kind": str(info.kind),
        "state": str(info.state),
        "distribution": info.distribution,
        "version": info.version,
        "title": info.title,
        "entry": info.entry,
        "problem": None if broken is None else {"phase": broken.phase, "reason": broken.reason, "fix": broken.fix},
        "notes": list(info.notes),
    }
    if whole:
        from jackfield.plugins.manifest import to_plain

        distribution = info.found.distribution
        out["place"] = distribution.place
        out["editable"] = distribution.editable
        out["directory"] = distribution.directory
        out["manifest"] = None if info.manifest is None else to_plain(info.manifest)
        out["manifest_path"] = distribution.manifest_path
    return out
