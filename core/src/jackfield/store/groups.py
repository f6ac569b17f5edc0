"""Agent groups: identities and workspaces."""

from __future__ import annotations

import sqlite3

from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound
from jackfield.ids import AgentGroupId
from jackfield.models import AgentGroup, valid_folder
from jackfield.store import approvals, deliveries, inbound

__all__ = [
    "add_agent_group",
    "agent_group",
    "agent_group_by_folder",
    "agent_groups",
    "count_created",
    "creator",
    "remove_agent_group",
    "rename_agent_group",
]

_COLUMNS = "id, name, folder, created_at"


def _group(row: tuple[str, str, str, int]) -> AgentGroup:
    return AgentGroup(id=AgentGroupId(row[0]), name=row[1], folder=row[2], created_at=UnixMs(row[3]))


def add_agent_group(db: sqlite3.Connection, group: AgentGroup, *, created_by: AgentGroupId | None = None) -> bool:
    """Store a new group.  False when this very id is there already.  `created_by` is the one whose agent made it.

    Raises:
        Conflict: its folder belongs to another group.
        MalformedData: its folder's name can't be one (messaging.md 4.4).
    """
    valid_folder(group.folder)
    owner = db.execute(
        "SELECT id, folder FROM agent_groups WHERE folder = ? COLLATE NOCASE", (group.folder,)
    ).fetchone()
    if owner is not None and owner[0] != group.id:
        raise Conflict(f"the folder {group.folder!r} belongs to the agent group {owner[0]} already ({owner[1]!r})")
    done = db.execute(
        f"INSERT INTO agent_groups ({_COLUMNS}, created_by) VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (group.id, group.name, group.folder, group.created_at, created_by),
    )
    return done.rowcount == 1


def agent_group(db: sqlite3.Connection, id: AgentGroupId) -> AgentGroup | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM agent_groups WHERE id = ?", (id,)).fetchone()
    return None if row is None else _group(row)


def agent_group_by_folder(db: sqlite3.Connection, folder: str) -> AgentGroup | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM agent_groups WHERE folder = ?", (folder,)).fetchone()
    return None if row is None else _group(row)


def agent_groups(db: sqlite3.Connection) -> list[AgentGroup]:
    """All of them, by name."""
    return [_group(row) for row in db.execute(f"SELECT {_COLUMNS} FROM agent_groups ORDER BY name, id")]


def creator(db: sqlite3.Connection, id: AgentGroupId) -> AgentGroup | None:
    """The group whose agent made that one, if it is still there; None for one that people made."""
    row = db.execute(
        f"SELECT {_COLUMNS} FROM agent_groups WHERE id = (SELECT created_by FROM agent_groups WHERE id = ?)", (id,)
    ).fetchone()
    return None if row is None else _group(row)


def count_created(db: sqlite3.Connection, id: AgentGroupId) -> int:
    """How many groups an agent has made that are still there."""
    return int(db.execute("SELECT count(*) FROM agent_groups WHERE created_by = ?", (id,)).fetchone()[0])


def rename_agent_group(db: sqlite3.Connection, id: AgentGroupId, name: str) -> AgentGroup:
    """Change the display name; the folder never changes.

    Raises:
        NotFound: no such group.
    """
    row = db.execute(f"UPDATE agent_groups SET name = ? WHERE id = ? RETURNING {_COLUMNS}", (name, id)).fetchone()
    if row is None:
        raise NotFound(f"there is no agent group {id!r}")
    return _group(row)


def remove_agent_group(db: sqlite3.Connection, id: AgentGroupId, now: UnixMs) -> bool:
    """Forget a group with its wirings, sessions, destinations, roles and members.

    Its unfinished messages and deliveries become `dropped`, so that each keeps a visible end (architecture 5, rule 2);
    the ledger stays.  False when there is no such group.
    """
    reason = "the agent group was removed"
    inbound.drop_of_group(db, id, reason, now)
    deliveries.drop_of_group(db, id, reason, now)
    approvals.cancel_of_group(db, id, now)
    db.execute("DELETE FROM wirings WHERE agent_group_id = ?", (id,))
    return db.execute("DELETE FROM agent_groups WHERE id = ?", (id,)).rowcount == 1
