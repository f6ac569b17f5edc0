"""People: users, their roles, members of agent groups (architecture 8)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound
from jackfield.ids import AgentGroupId, UserId
from jackfield.models import Member, Role, RoleName, User
from jackfield.store.text import storable

__all__ = [
    "add_member",
    "aliases_of",
    "all_roles",
    "ensure_user",
    "grant",
    "is_member",
    "known_as",
    "members",
    "memberships",
    "remove_member",
    "revoke",
    "roles_of",
    "see_aliases",
    "set_timezone",
    "user",
    "users",
]

_USER = "id, channel_type, display_name, created_at, timezone"
MAX_ALIASES = 8
"""Of one person that are looked at."""
ALIAS_LENGTH = 200

_ROLE = "user_id, role, agent_group_id, granted_by, granted_at"
_MEMBER = "user_id, agent_group_id, added_by, added_at"


def _user(row: tuple[Any, ...]) -> User:
    return User(id=UserId(row[0]), channel_type=row[1], display_name=row[2], created_at=UnixMs(row[3]), timezone=row[4])


def _role(row: tuple[Any, ...]) -> Role:
    return Role(
        user_id=row[0], role=RoleName(row[1]), agent_group_id=row[2], granted_by=row[3], granted_at=UnixMs(row[4])
    )


def _member(row: tuple[Any, ...]) -> Member:
    return Member(user_id=row[0], agent_group_id=row[1], added_by=row[2], added_at=UnixMs(row[3]))


def ensure_user(
    db: sqlite3.Connection, user_id: UserId, channel_type: str, display_name: str | None, now: UnixMs
) -> User:
    """The user, made when new.  A known name stays when the new one is None (messaging.md 1.2)."""
    row = db.execute(f"SELECT {_USER} FROM users WHERE id = ?", (user_id,)).fetchone()
    if row is None or (display_name is not None and row[2] != display_name):
        row = db.execute(
            "INSERT INTO users (id, channel_type, display_name, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (id) "
            f"DO UPDATE SET display_name = coalesce(excluded.display_name, display_name) RETURNING {_USER}",
            (user_id, channel_type, storable(display_name), now),
        ).fetchone()
    return _user(row)


def user(db: sqlite3.Connection, user_id: UserId) -> User | None:
    row = db.execute(f"SELECT {_USER} FROM users WHERE id = ?", (user_id,)).fetchone()
    return None if row is None else _user(row)


def users(db: sqlite3.Connection) -> list[User]:
    return [_user(row) for row in db.execute(f"SELECT {_USER} FROM users ORDER BY id")]


def set_timezone(db: sqlite3.Connection, user_id: UserId, timezone: str | None) -> User:
    """In which zone this person is told times; None for the agent's.

    Raises:
        NotFound: no such user.
    """
    _require_user(db, user_id)
    row = db.execute(f"UPDATE users SET timezone = ? WHERE id = ? RETURNING {_USER}", (timezone, user_id)).fetchone()
    return _user(row)


# Aliases: what else a channel calls a person.  They may be taken by somebody else, so they find and never grant (C141).


def see_aliases(
    db: sqlite3.Connection, user_id: UserId, channel_type: str, aliases: Sequence[str], now: UnixMs
) -> None:
    """Remember a known user's aliases; what was seen within a day is left as it is."""
    for alias in aliases[:MAX_ALIASES]:
        folded = _folded(alias)
        if folded:
            db.execute(
                "INSERT INTO user_aliases (channel_type, alias, user_id, seen_at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (channel_type, alias, user_id) DO UPDATE SET seen_at = excluded.seen_at "
                "WHERE excluded.seen_at > seen_at + 86400000",
                (channel_type, folded, user_id, now),
            )


def known_as(db: sqlite3.Connection, channel_type: str, alias: str) -> list[UserId]:
    """Who was seen under an alias; several when it changed hands, the newest first."""
    rows = db.execute(
        "SELECT user_id FROM user_aliases WHERE channel_type = ? AND alias = ? ORDER BY seen_at DESC, user_id",
        (channel_type, _folded(alias)),
    )
    return [UserId(id) for (id,) in rows]


def aliases_of(db: sqlite3.Connection, user_id: UserId) -> list[str]:
    rows = db.execute("SELECT alias FROM user_aliases WHERE user_id = ? ORDER BY seen_at DESC, alias", (user_id,))
    return [alias for (alias,) in rows]


def _folded(alias: str) -> str:
    return storable(alias.strip().casefold())[:ALIAS_LENGTH]


def grant(db: sqlite3.Connection, role: Role) -> bool:
    """Give a role.  False when they have it already.

    Raises:
        Conflict: an owner of one group only; owners are global.
        NotFound: no such user or group.
    """
    if role.role is RoleName.OWNER and role.agent_group_id is not None:
        raise Conflict(f"{role.user_id} can't own only {role.agent_group_id}: owners are global; make them its admin")
    _require_user(db, role.user_id)
    if role.agent_group_id is not None:
        _require_group(db, role.agent_group_id)
    done = db.execute(
        f"INSERT INTO roles ({_ROLE}) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (user_id, role, coalesce(agent_group_id, '')) DO NOTHING",
        (role.user_id, role.role.value, role.agent_group_id, role.granted_by, role.granted_at),
    )
    return done.rowcount == 1


def revoke(db: sqlite3.Connection, user_id: UserId, role: RoleName, agent_group_id: AgentGroupId | None = None) -> bool:
    """Take a role away.  False when they don't have it."""
    done = db.execute(
        "DELETE FROM roles WHERE user_id = ? AND role = ? AND agent_group_id IS ?",
        (user_id, role.value, agent_group_id),
    )
    return done.rowcount == 1


def roles_of(db: sqlite3.Connection, user_id: UserId) -> list[Role]:
    """All roles of one person, global ones first."""
    rows = db.execute(f"SELECT {_ROLE} FROM roles WHERE user_id = ? ORDER BY role DESC, agent_group_id", (user_id,))
    return [_role(row) for row in rows]


def all_roles(db: sqlite3.Connection, agent_group_id: AgentGroupId | None = None) -> list[Role]:
    """Every role there is; with a group, those that count for it: its own and the global ones."""
    rows = db.execute(
        f"SELECT {_ROLE} FROM roles WHERE ?1 IS NULL OR agent_group_id IS NULL OR agent_group_id = ?1 "
        "ORDER BY role DESC, agent_group_id, user_id",
        (agent_group_id,),
    )
    return [_role(row) for row in rows]


def add_member(db: sqlite3.Connection, member: Member) -> bool:
    """Make somebody known to a group.  False when they are.

    Raises:
        NotFound: no such user or group.
    """
    _require_user(db, member.user_id)
    _require_group(db, member.agent_group_id)
    done = db.execute(
        f"INSERT INTO members ({_MEMBER}) VALUES (?, ?, ?, ?) ON CONFLICT (agent_group_id, user_id) DO NOTHING",
        (member.user_id, member.agent_group_id, member.added_by, member.added_at),
    )
    return done.rowcount == 1


def remove_member(db: sqlite3.Connection, agent_group_id: AgentGroupId, user_id: UserId) -> bool:
    done = db.execute("DELETE FROM members WHERE agent_group_id = ? AND user_id = ?", (agent_group_id, user_id))
    return done.rowcount == 1


def members(db: sqlite3.Connection, agent_group_id: AgentGroupId) -> list[Member]:
    rows = db.execute(f"SELECT {_MEMBER} FROM members WHERE agent_group_id = ? ORDER BY user_id", (agent_group_id,))
    return [_member(row) for row in rows]


def memberships(db: sqlite3.Connection, user_id: UserId) -> list[Member]:
    """The groups that somebody is a member of."""
    rows = db.execute(f"SELECT {_MEMBER} FROM members WHERE user_id = ? ORDER BY agent_group_id", (user_id,))
    return [_member(row) for row in rows]


def is_member(db: sqlite3.Connection, agent_group_id: AgentGroupId, user_id: UserId) -> bool:
    row = db.execute(
        "SELECT 1 FROM members WHERE agent_group_id = ? AND user_id = ?", (agent_group_id, user_id)
    ).fetchone()
    return row is not None


def _require_user(db: sqlite3.Connection, user_id: UserId) -> None:
    if db.execute("SELECT 1 FROM users WHERE id = ?", (user_id,)).fetchone() is None:
        raise NotFound(f"there is no user {user_id!r}", fix="users are named <channel type>:<handle>")


def _require_group(db: sqlite3.Connection, agent_group_id: AgentGroupId) -> None:
    if db.execute("SELECT 1 FROM agent_groups WHERE id = ?", (agent_group_id,)).fetchone() is None:
        raise NotFound(f"there is no agent group {agent_group_id!r}")
