"""The secrets as the host holds them, and who gets which: pure.  One rule serves listing and handing over (pc#129)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from jackfield.errors import UsageError
from jackfield.ids import AgentGroupId
from jackfield.models.reserved import RESERVED_SECRETS
from jackfield.store.secrets import SealedSecret, SecretKind

__all__ = ["Given", "HeldSecret", "Mode", "check_name", "from_environment", "given_to", "global_one", "variable"]

Mode = Literal["selective", "all"]
_FOR_AGENTS = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_FOR_CHANNELS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
ENVIRONMENT = "JACKFIELD_SECRET_"


@dataclass(frozen=True, slots=True)
class HeldSecret:
    row: SealedSecret
    value: str | None
    """None: it can't be read with the present key.  Such a row is kept as it is until somebody removes it."""
    groups: frozenset[AgentGroupId]
    """Those that it is assigned to."""

    def __repr__(self) -> str:
        return f"HeldSecret({self.row.name!r})"


@dataclass(frozen=True, slots=True)
class Given:
    """One secret that a group's agents get, and why: it is the group's own, was assigned to it, or the group gets all.
    Of several the nearest is told."""

    secret: HeldSecret
    why: Literal["scoped", "assigned", "all"]


NAME_LENGTH = 100
"""Characters of a secret's name."""


def variable(name: str) -> str:
    """The environment variable that goes before the store, for channels."""
    return ENVIRONMENT + name.upper().replace("-", "_")


def from_environment() -> list[str]:
    """The values of all such variables."""
    return [value for name, value in os.environ.items() if name.startswith(ENVIRONMENT)]


def check_name(name: str, kind: SecretKind) -> str:
    """The name, when a secret of that kind can have it.

    Raises:
        UsageError: it can't.
    """
    if name.upper().startswith(RESERVED_SECRETS):
        raise UsageError(
            f"{_shown(name)} can't be the name of a secret: Jackfield keeps names that begin with {RESERVED_SECRETS}",
            fix="choose another name",
        )
    if len(name) > NAME_LENGTH:
        raise UsageError(
            f"the name of a secret has {NAME_LENGTH} characters at most, not {len(name):,}",
            fix="choose a shorter one; the value is asked for",
        )
    if kind is SecretKind.CHANNEL_TOKEN:
        if not _FOR_CHANNELS.fullmatch(name):
            raise UsageError(
                f"{_shown(name)} can't be the name of a secret",
                fix="use letters, digits, '_' and '-', first a letter, digit or '_'; the value is asked for",
            )
    elif not _FOR_AGENTS.fullmatch(name):
        raise UsageError(
            f"{_shown(name)} can't be the name of a secret that agents may get",
            fix="use letters, digits and '_', first no digit; for a channel's, add --kind channel-token",
        )
    return name


def _shown(name: str) -> str:
    """Somebody may have written the value where the name belongs."""
    return repr(name) if len(name) <= 40 and re.fullmatch(r"[\w.-]*", name) else "that"


def global_one(held: Iterable[HeldSecret], name: str) -> HeldSecret | None:
    """The secret of that name that channels are given."""
    return next((one for one in held if one.row.name == name and one.row.agent_group_id is None), None)


def given_to(held: Iterable[HeldSecret], group_id: AgentGroupId, mode: Mode) -> Mapping[str, Given]:
    """The secrets that agents of the group get, by name.

    Those of the group and global ones, as far as they are assigned to it or it gets all; a channel's never.  Of one
    name the group's own wins.  One that can't be read is in it, too: it is said to be missing, and not replaced by
    another of its name.
    """
    found: dict[str, Given] = {}
    for one in held:
        row = one.row
        if row.kind is SecretKind.CHANNEL_TOKEN or row.agent_group_id not in (None, group_id):
            continue
        assigned = group_id in one.groups
        if not assigned and mode != "all":
            continue
        if row.agent_group_id is not None:
            found[row.name] = Given(one, "scoped")
        elif row.name not in found:
            found[row.name] = Given(one, "assigned" if assigned else "all")
    return found
