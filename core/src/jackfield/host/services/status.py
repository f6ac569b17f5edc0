"""Operations on the host itself: status, reload, stop."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from jackfield import __version__
from jackfield.host.agents.ends import stopped_chains
from jackfield.host.logs.files import log_troubles
from jackfield.host.registration.claiming import unowned
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import moment
from jackfield.store import alerts, approvals, deliveries, inbound, tasks

__all__: list[str] = []


@operation("status")
async def status(context: ServiceContext, args: Args) -> dict[str, Any]:
    """The host at a glance.  `running` is False when the command looked into the store itself."""

    def look(db: sqlite3.Connection) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
        counts = {
            "messages": inbound.counts(db),
            "deliveries": deliveries.counts(db),
            "approvals": approvals.counts(db),
            "tasks": tasks.counts(db),
        }
        return counts, stopped_chains(db), [_alert(one) for one in alerts.alerts(db)]

    ledger, stopped, to_mend = await context.hub.store.read(look)
    live = context.live.report() if context.live is not None else {}
    return {
        "running": context.live is not None,
        "version": __version__,
        "pid": os.getpid() if context.live is not None else None,
        "home": str(context.hub.home.root),
        "install": context.hub.install_id,
        **live,
        "unowned": await unowned(context.hub),
        "ledger": ledger,
        "stopped_chains": stopped,
        "alerts": to_mend,
        "problems": [*map(str, context.hub.configuration.problems), *context.hub.vault.complaints()],
        "plugins": [
            {
                "name": info.name,
                "kind": info.kind,
                "state": info.state,
                "reason": info.broken.reason if info.broken else None,
            }
            for info in context.hub.plugins.listing()
        ],
        "troubles": {**context.hub.troubles, **log_troubles()},
    }


def _alert(one: alerts.Alert) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "text": one.text,
        "raised_at": moment(one.raised_at),
        "told_at": moment(one.told_at),
    }


@operation("host.reload")
async def reload(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Read the configuration again, as a whole; an invalid one is refused and the old one stays."""
    return await context.running.reload()


@operation("host.stop")
async def stop(context: ServiceContext, args: Args) -> dict[str, Any]:
    context.running.request_stop()
    return {"stopping": True, "pid": os.getpid()}
