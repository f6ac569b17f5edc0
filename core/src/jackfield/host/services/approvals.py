"""Operations on approvals: who sits at this machine's command line decides as its operator."""

from __future__ import annotations

import sqlite3
from typing import Any

from jackfield.api import ApprovalChoice, ApprovalState
from jackfield.clock import zone_or_utc, zoned_text
from jackfield.errors import Conflict, NotFound, UsageError
from jackfield.host.approvals import LOCAL_OPERATOR
from jackfield.host.approvals.requests import folder_of
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import moment
from jackfield.ids import ApprovalId
from jackfield.store import approvals, groups
from jackfield.store.approvals import Approval, Via

__all__: list[str] = []

ABOUT = 200
"""Characters of what is asked, in a list."""


def approval_json(item: Approval, folders: dict[str, str]) -> dict[str, Any]:
    """An approval in short; `about` is the opening of the first thing that its card shows."""
    return {
        "id": item.id,
        "kind": item.kind,
        "title": item.title,
        "about": " ".join(item.fields[0].value.split())[:ABOUT] if item.fields else None,
        "group": folders.get(item.agent_group_id or ""),
        "session": item.session_id,
        "state": item.state,
        "outcome": item.outcome,
        "outcome_text": item.outcome_text,
        "value": item.value,
        "decided_by": item.decided_by,
        "via": item.via,
        "note": item.note,
        "created_at": moment(item.created_at),
        "expires_at": moment(item.expires_at),
        "decided_at": moment(item.decided_at),
    }


def _folders(db: sqlite3.Connection) -> dict[str, str]:
    return {group.id: group.folder for group in groups.agent_groups(db)}


async def _found(context: ServiceContext, args: Args) -> Approval:
    id = ApprovalId(args.text("id").lower())
    item = await context.hub.store.read(approvals.approval, id)
    if item is None:
        raise NotFound(f"there is no approval {id!r}", fix="see `jackfield approval list --all`")
    return item


async def _shown(context: ServiceContext, id: ApprovalId) -> dict[str, Any]:
    def look(db: sqlite3.Connection) -> dict[str, Any]:
        item = approvals.approval(db, id)
        assert item is not None
        return approval_json(item, _folders(db))

    return await context.hub.store.read(look)


@operation("approval.list")
async def approval_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    state = None if args.flag("all") else args.choice("state", ApprovalState, ApprovalState.PENDING)
    limit = args.number("limit", 100, low=1, high=10_000)

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        folders = _folders(db)
        return [approval_json(item, folders) for item in approvals.approvals(db, state, limit)]

    return await context.hub.store.read(look)


@operation("approval.show")
async def approval_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Everything that was asked, with what would be handed over (`payload`) and where the files' copies lie."""
    item = await _found(context, args)
    folder = folder_of(context.hub, item.id)
    zone = zone_or_utc(context.hub.settings.timezone)
    return await _shown(context, item.id) | {
        "expires_local": zoned_text(item.expires_at, zone),
        "reason": item.reason,
        "origin": None if item.origin is None else str(item.origin),
        "fields": [{"label": one.label, "value": one.value} for one in item.fields],
        "choices": [{"value": one.value, "label": one.label, "approves": one.approves} for one in item.choices],
        "payload": item.payload,
        "files": [
            {"name": one.name, "size": one.size, "sha256": one.sha256, "path": str(folder / one.name)}
            for one in item.files
        ],
        "digest": item.digest,
    }


@operation("approval.decide")
async def approval_decide(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Choose `value`, a choice's value or its label; without it, the one choice that approves, or with `reject` the
    first that doesn't.

    With no host only a no can be given: what is approved is done by a host.

    Raises:
        NotFound: no such approval, or it has no such choice.
        UsageError: several choices approve, and none is named.
    """
    item = await _found(context, args)
    choice = _chosen(item, args.optional_text("value"), reject=args.flag("reject"))
    note = args.optional_text("note")
    if context.live is not None:
        _, counts = await context.live.approvals.decide(item.id, choice.value, LOCAL_OPERATOR, Via.CLI, note=note)
    elif choice.approves:
        context.running  # noqa: B018 - raises that a host is needed
        counts = False
    else:
        counts = await _write(context, item, ApprovalState.REJECTED, choice.value, note)
    return await _told(context, item.id, counts)


def _chosen(item: Approval, wanted: str | None, *, reject: bool) -> ApprovalChoice:
    fix = "its choices are " + ", ".join(f"'{one.label}'" for one in item.choices) + ": name one with --choice"
    if wanted is None:
        fitting = [one for one in item.choices if one.approves is not reject]
        if len(fitting) > 1 and not reject:
            raise UsageError(f"{item.id} has several choices that say yes", fix=fix)
    else:
        fitting = [one for one in item.choices if wanted == one.value or wanted.lower() == one.label.lower()]
    if not fitting:
        raise NotFound(f"{item.id} has no such choice", fix=fix)
    return fitting[0]


@operation("approval.cancel")
async def approval_cancel(context: ServiceContext, args: Args) -> dict[str, Any]:
    item, note = await _found(context, args), args.optional_text("note")
    if context.live is not None:
        _, counts = await context.live.approvals.cancel(item.id, LOCAL_OPERATOR, Via.CLI, note=note)
    else:
        counts = await _write(context, item, ApprovalState.CANCELLED, None, note)
    return await _told(context, item.id, counts)


async def _write(
    context: ServiceContext, item: Approval, state: ApprovalState, value: str | None, note: str | None
) -> bool:
    """Without a host the decision is put on record; what follows from it comes with the next start."""
    now = context.hub.clock.now()
    decided = await context.hub.store.write(
        approvals.decide, item.id, state, now, value=value, by=LOCAL_OPERATOR, via=Via.CLI, note=note
    )
    return decided is not None


async def _told(context: ServiceContext, id: ApprovalId, counts: bool) -> dict[str, Any]:
    shown = await _shown(context, id)
    if not counts and shown["state"] == ApprovalState.PENDING:
        raise Conflict(f"the time of {id} is over", fix="it must be asked for again")
    if not counts:
        by = f" by {shown['decided_by']}" if shown["decided_by"] else ""
        raise Conflict(f"{id} is {shown['state']} already{by}", fix="it must be asked for again")
    return shown
