"""Secrets as they lie in the store: sealed, and who they are for.  Nothing here can read one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import NotFound
from jackfield.ids import AgentGroupId, SecretId

__all__ = ["SealedSecret", "SecretKind", "all_secrets", "assign", "assignments", "put", "remove", "reseal", "unassign"]

_COLUMNS = "id, name, kind, agent_group_id, key_id, sealed, created_at, updated_at"


class SecretKind(StrEnum):
    GENERIC = "generic"
    API_KEY = "api-key"
    CHANNEL_TOKEN = "channel-token"
    """Of a channel: it never reaches an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecret:
    """`agent_group_id` None is global: for channels, and for the agents that it is assigned to."""

    id: SecretId
    name: str
    kind: SecretKind
    agent_group_id: AgentGroupId | None
    key_id: str
    """Of the master key that it was sealed with."""
    sealed: bytes
    created_at: UnixMs
    updated_at: UnixMs


def _secret(row: tuple[Any, ...]) -> SealedSecret:
    return SealedSecret(
        id=SecretId(row[0]),
        name=row[1],
        kind=SecretKind(row[2]),
        agent_group_id=row[3],
        key_id=row[4],
        sealed=row[5],
        created_at=UnixMs(row[6]),
        updated_at=UnixMs(row[7]),
    )


def all_secrets(db: sqlite3.Connection) -> list[SealedSecret]:
    """By name, the global one first."""
    rows = db.execute(f"SELECT {_COLUMNS} FROM secrets ORDER BY name, coalesce(agent_group_id, '')")
    return [_secret(row) for row in rows]


def assignments(db: sqlite3.Connection) -> dict[SecretId, frozenset[AgentGroupId]]:
    """The agent groups that each secret is assigned to; one without any is left out."""
    found: dict[SecretId, set[AgentGroupId]] = {}
    for secret, group in db.execute("SELECT secret_id, agent_group_id FROM secret_assignments"):
        found.setdefault(SecretId(secret), set()).add(AgentGroupId(group))
    return {secret: frozenset(known) for secret, known in found.items()}


def put(db: sqlite3.Connection, secret: SealedSecret) -> None:
    """Insert it, or give the one of that id a new value and kind; assignments stay.

    A new one of a group is assigned to it at once, so that it is never invisible to its own group (pc#127).
    """
    fresh = db.execute("SELECT 1 FROM secrets WHERE id = ?", (secret.id,)).fetchone() is None
    db.execute(
        f"INSERT INTO secrets ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        "kind = excluded.kind, key_id = excluded.key_id, sealed = excluded.sealed, updated_at = excluded.updated_at",
        (
            secret.id,
            secret.name,
            secret.kind.value,
            secret.agent_group_id,
            secret.key_id,
            secret.sealed,
            secret.created_at,
            secret.updated_at,
        ),
    )
    if fresh and secret.agent_group_id is not None:
        assign(db, secret.id, secret.agent_group_id, secret.updated_at)


def reseal(db: sqlite3.Connection, secrets: Iterable[SealedSecret]) -> None:
    """The same values under another key: `updated_at` stays, as nothing changed for those who use them."""
    db.executemany(
        "UPDATE secrets SET key_id = ?, sealed = ? WHERE id = ?",
        [(secret.key_id, secret.sealed, secret.id) for secret in secrets],
    )


def remove(db: sqlite3.Connection, secret_id: SecretId) -> bool:
    """Whether there was one; its assignments go with it."""
    return db.execute("DELETE FROM secrets WHERE id = ?", (secret_id,)).rowcount == 1


def assign(db: sqlite3.Connection, secret_id: SecretId, group_id: AgentGroupId, now: UnixMs) -> bool:
    """Whether that is new.

    Raises:
        NotFound: no such secret or group.
    """
    for table, id_ in (("secrets", secret_id), ("agent_groups", group_id)):
        if db.execute(f"SELECT 1 FROM {table} WHERE id = ?", (id_,)).fetchone() is None:
            raise NotFound(f"there is no {id_}")
    done = db.execute(
        "INSERT INTO secret_assignments (secret_id, agent_group_id, assigned_at) VALUES (?, ?, ?) "
        "ON CONFLICT (secret_id, agent_group_id) DO NOTHING",
        (secret_id, group_id, now),
    )
    return done.rowcount == 1


def unassign(db: sqlite3.Connection, secret_id: SecretId, group_id: AgentGroupId) -> bool:
    """Whether it was assigned."""
    done = db.execute(
        "DELETE FROM secret_assignments WHERE secret_id = ? AND agent_group_id = ?", (secret_id, group_id)
    )
    return done.rowcount == 1
