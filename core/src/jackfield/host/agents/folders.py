"""The folder of a new agent: written aside, then named (see `jackfield.host.agents.creation`)."""

from __future__ import annotations

import os
import shutil
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import tomlkit

from jackfield.config import template
from jackfield.config.files import write_atomically
from jackfield.config.load import check_agent_text
from jackfield.config.problems import refuse
from jackfield.errors import Conflict
from jackfield.ids import AgentGroupId, is_id
from jackfield.models import AgentGroup

__all__ = ["TOOLS", "clear_away", "free_folder", "name_it", "stage", "unfinished"]

TOOLS = ("messaging",)
_ASIDE = ".new-"
_PARTS = ("memory", "skills", "packages", "workspace")


def free_folder(home: Path, wanted: str, known: Collection[str]) -> str:
    """A name for the group's folder, with -2, -3 and so on when a group or anything else is called so already."""
    taken = {folder.casefold() for folder in (*known, "global")}
    number, folder = 1, wanted
    while folder in taken or os.path.lexists(home / folder):
        number += 1
        folder = f"{wanted}-{number}"
    return folder


def stage(home: Path, group: AgentGroup, parent: AgentGroup, payload: dict[str, Any]) -> None:
    """Write the new group's folder aside; what an earlier try left there goes.

    Raises:
        ConfigError: the parent's settings can't be passed on.
        OSError: the disk can't take it; nothing is left.
    """
    aside = _aside(home, group.id)
    settings = _settings(home / parent.folder / "agent.toml", group.name, payload)
    checked = check_agent_text(home / group.folder, settings)
    if checked.problems:
        raise refuse(checked.problems, f"agent group {group.folder!r} was not made")
    clear_away(home, group.id)
    try:
        aside.mkdir(mode=0o700)
        for part in _PARTS:
            (aside / part).mkdir(mode=0o700)
        write_atomically(aside / "agent.toml", settings.encode(), mode=0o600)
        words = _words(group.name, parent.name, str(payload["instructions"]))
        write_atomically(aside / "AGENTS.md", words.encode(), mode=0o600)
    except OSError:
        clear_away(home, group.id)
        raise


def name_it(home: Path, group: AgentGroup) -> None:
    """Give the folder its name.  Done already is fine.

    Raises:
        Conflict: something else has taken the name meanwhile.
    """
    aside = _aside(home, group.id)
    if not aside.is_dir():
        return
    if os.path.lexists(home / group.folder):
        raise Conflict(f"{home / group.folder} is there already", fix=f"move it away; the agent's own is {aside}")
    aside.rename(home / group.folder)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_away(home: Path, group_id: AgentGroupId) -> None:
    shutil.rmtree(_aside(home, group_id), ignore_errors=True)


def unfinished(home: Path) -> list[str]:
    """The ids of groups whose folders lie aside."""
    found = [entry.name.removeprefix(_ASIDE) for entry in home.iterdir() if entry.name.startswith(_ASIDE)]
    return [name for name in found if is_id(name, "ag")]


def _aside(home: Path, group_id: AgentGroupId) -> Path:
    return home / f"{_ASIDE}{group_id}"


def _settings(parent: Path, name: str, payload: dict[str, Any]) -> str:
    """The new `agent.toml`: what was approved, and what holds the parent's provider and runtime within bounds."""
    provider = str(payload["provider"])
    document = tomlkit.parse(template.agent_toml(name=name, provider=provider, runtime=str(payload["runtime"])))
    document["tools"] = list(TOOLS)
    said = tomllib.loads(parent.read_text(encoding="utf-8-sig")) if parent.is_file() else {}
    if payload["model"]:
        document["model"] = str(payload["model"])
    for key in ("timezone", "allow_unisolated"):
        if key in said:
            document[key] = said[key]
    for key in ("limits", "runtime_settings"):
        if said.get(key):
            document[key] = said[key]
    own = said.get("providers", {}).get(provider)
    if own:
        document["providers"] = {provider: own}
    return tomlkit.dumps(document)


def _words(name: str, parent: str, instructions: str) -> str:
    told = instructions.strip() or "Do what you are asked, be brief, and say so when you don't know something."
    maker = " ".join(parent.split())
    return (
        f"# {name}\n\nYou are {name}. The agent {maker} asked for you, and you reach it as `parent`. What you answer "
        f"goes back to whoever asked you.\n\n{told}\n"
    )
