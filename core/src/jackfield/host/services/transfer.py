"""Importing an agent group: it becomes known with settings that nobody has accepted yet."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.errors import Conflict
from jackfield.host.hub import accepted_key
from jackfield.host.launching import IMPORTED
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.entities import add_group
from jackfield.host.services.shapes import group_json
from jackfield.ids import AgentGroupId, new_id
from jackfield.models import AgentGroup, valid_folder
from jackfield.store import groups, notes

__all__: list[str] = []


@operation("group.import")
async def group_import(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Enter a group whose folder was unpacked.  Its `agent.toml` counts only once somebody has accepted it: it may let
    an agent out of its sandbox."""
    folder = valid_folder(args.text("folder"))
    group = AgentGroup(
        id=AgentGroupId(new_id("ag")), name=args.text("name"), folder=folder, created_at=context.hub.clock.now()
    )

    def add(db: sqlite3.Connection) -> None:
        if groups.agent_group_by_folder(db, folder) is not None:
            raise Conflict(f"there is an agent group {folder!r} already", fix="choose another name with --as")
        add_group(db, group)
        notes.set(db, accepted_key(group), IMPORTED)

    await context.hub.store.write(add)
    return group_json(group)
