"""What models were used for, for `jackfield usage`."""

from __future__ import annotations

import dataclasses
import sqlite3
from enum import StrEnum
from typing import Any, cast

from jackfield.clock import UnixMs, zone_or_utc
from jackfield.host.models.days import day_text
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.models import UsageTotals
from jackfield.store import groups, usage

__all__: list[str] = []


class _By(StrEnum):
    GROUP = "group"
    MODEL = "model"
    PROVIDER = "provider"
    DAY = "day"
    SESSION = "session"


@operation("usage.sums")
async def usage_sums(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Sums by group, model, provider, day or session, and of all; `since` in milliseconds since the epoch.

    A day is one of the host's zone.  Of what is older than `host.keep_days` only the days are known, without sessions.
    """
    named, of = args.optional_text("group"), args.optional_text("session")
    by = args.choice("by", _By, _By.GROUP)
    group_id = (await context.group(named)).id if named else None
    session_id = (await context.session(of)).id if of else None
    since = UnixMs(args.number("since", 0))

    def look(db: sqlite3.Connection) -> tuple[list[tuple[str, UsageTotals]], dict[str, str]]:
        made_by = cast(usage.By, "quarter" if by is _By.DAY else by.value)
        sums = usage.sums(db, made_by, agent_group_id=group_id, session_id=session_id, since=since)
        return sums, {one.id: one.folder for one in groups.agent_groups(db)}

    found, folders = await context.hub.store.read(look)
    if by is _By.DAY:
        zone = zone_or_utc(context.hub.settings.timezone)
        found = _together([(day_text(UnixMs(int(key) * usage.QUARTER), zone), sums) for key, sums in found])
    elif by is _By.GROUP:
        found = [(folders.get(key, key), sums) for key, sums in found]
    if by is not _By.DAY:
        found.sort(key=lambda one: (-one[1].cost, -one[1].tokens, one[0]))
    total = _together([("", sums) for _, sums in found])
    return {
        "by": by.value,
        "rows": [{by.value: key or None, **_shown(sums)} for key, sums in found],
        "total": _shown(total[0][1] if total else UsageTotals()),
    }


def _shown(sums: UsageTotals) -> dict[str, Any]:
    return {**dataclasses.asdict(sums), "tokens": sums.tokens}


def _together(parts: list[tuple[str, UsageTotals]]) -> list[tuple[str, UsageTotals]]:
    """Those of the same key as one, in the order in which they first come."""
    sums: dict[str, UsageTotals] = {}
    for key, part in parts:
        before = dataclasses.asdict(sums.get(key, UsageTotals()))
        sums[key] = UsageTotals(**{name: before[name] + value for name, value in dataclasses.asdict(part).items()})
    return list(sums.items())
