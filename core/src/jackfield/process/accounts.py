"""As whom runners run when the host is root: one uid for each agent group, from a range that belongs to nobody."""

from __future__ import annotations

import hashlib
import json
import os
import pwd
from pathlib import Path

from jackfield.api import GroupPlace
from jackfield.errors import RuntimeFailed
from jackfield.ids import AgentGroupId

__all__ = ["BLOCK", "BLOCKS", "FIRST_UID", "Accounts", "first_uid"]

FIRST_UID = 210_000
BLOCK = 1_000
BLOCKS = 64
"""An install takes its uids from one of 64 blocks of 1,000, by its id: two installs on one machine, which know nothing
of each other, hardly ever share one."""


def first_uid(install_id: str) -> int:
    """Where the install's block begins."""
    return FIRST_UID + BLOCK * (int.from_bytes(hashlib.sha256(install_id.encode()).digest()[:4], "big") % BLOCKS)


class Accounts:
    """Remembers which group has which uid in a file of the host's; a restored home is known again by who owns the
    workspace."""

    def __init__(self, file: Path, install_id: str) -> None:
        self._file = file
        self._first = first_uid(install_id)
        self._known: dict[str, int] | None = None

    def uid_of(self, group: GroupPlace) -> int:
        """The group's uid, made up and noted when it has none.

        Raises:
            RuntimeFailed: all uids of the block are taken.
        """
        known = self._read()
        found = known.get(group.agent_group_id)
        if found is None:
            found = self._choose(group, set(known.values()))
            known[group.agent_group_id] = found
            self._write(known)
        return found

    def probe_uid(self) -> int:
        """One that no group gets: the last of the block."""
        return self._first + BLOCK - 1

    def all(self) -> dict[AgentGroupId, int]:
        return {AgentGroupId(group): uid for group, uid in self._read().items()}

    def _choose(self, group: GroupPlace, taken: set[int]) -> int:
        ours = range(self._first, self._first + BLOCK - 1)
        if group.workspace.is_dir() and not group.workspace.is_symlink():
            owner = group.workspace.lstat().st_uid
            if owner in ours and owner not in taken and not _is_account(owner):
                return owner
        for uid in ours:
            if uid not in taken and not _is_account(uid):
                return uid
        raise RuntimeFailed(
            f"no uid is left for agent group {group.agent_group_id}: {ours.start} to {ours.stop - 1} are taken",
            fix=f"remove groups that are gone from {self._file}",
        )

    def _read(self) -> dict[str, int]:
        if self._known is None:
            try:
                raw = json.loads(self._file.read_text(encoding="utf-8"))
                self._known = {str(group): int(uid) for group, uid in raw.items()}
            except FileNotFoundError:
                self._known = {}
            except (ValueError, AttributeError) as error:
                raise RuntimeFailed(
                    f"{self._file} does not say which uid each agent group has: {error}",
                    fix="remove it; the owners of the groups' workspaces are taken instead",
                ) from error
        return self._known

    def _write(self, known: dict[str, int]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh = self._file.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as stream:
            json.dump(known, stream, indent=1, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(self._file)


def _is_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
