"""What agents did, for `jackfield activity`."""

from __future__ import annotations

from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import UsageError
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import moment
from jackfield.models import ActivityKind
from jackfield.store import activity, groups

__all__: list[str] = []


@operation("activity.list")
async def activity_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """The newest first; `since` in milliseconds since the epoch."""
    named, of = args.optional_text("group"), args.optional_text("session")
    wanted = args.optional_text("kind")
    try:
        kind = ActivityKind(wanted) if wanted is not None else None
    except ValueError:
        raise UsageError(f"kind can't be {wanted!r}; it is one of {', '.join(ActivityKind)}") from None
    found = await context.hub.store.read(
        activity.entries,
        agent_group_id=(await context.group(named)).id if named else None,
        session_id=(await context.session(of)).id if of else None,
        kind=kind,
        since=UnixMs(args.number("since", 0)),
        limit=args.number("limit", 100, low=1, high=10_000),
    )
    folders = {group.id: group.folder for group in await context.hub.store.read(groups.agent_groups)}
    return [
        {
            "id": one.ord,
            "at": moment(one.at),
            "group": folders.get(one.agent_group_id),
            "session": one.session_id,
            "kind": one.kind.value,
            "target": one.target,
            "summary": one.summary,
        }
        for one in found
    ]
