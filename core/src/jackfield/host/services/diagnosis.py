"""Operations of `jackfield doctor` and `jackfield channel doctor`."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from enum import Enum
from typing import Any

from jackfield.api import Channel, Deletes, KeepsHistory, OutboundPart, SendPath, ServesRoutes
from jackfield.errors import ChannelError, Conflict, NotFound, Unsupported, UsageError
from jackfield.host.diagnosis import Finding, channels, checks, error
from jackfield.host.ingress import mount_points
from jackfield.host.outbound_hooks import Refusal, passed_hooks
from jackfield.host.services.context import Args, ServiceContext, chat_address, operation
from jackfield.host.services.shapes import delivery_json
from jackfield.host.text_of import text_of
from jackfield.ids import new_id
from jackfield.models import Delivery, DeliveryState, MessageRef, OutMessage
from jackfield.store import deliveries

__all__: list[str] = []

log = logging.getLogger(__name__)

_OPEN = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.RETRYING, DeliveryState.WAITING)
_BAD = (DeliveryState.FAILED, DeliveryState.BLOCKED)
_NEWEST = 5
_LOOKED_THROUGH = 500


@operation("doctor.checks")
async def doctor_checks(context: ServiceContext, args: Args) -> list[str]:
    """The names of all checks that need what only the holder of the home has."""
    return await checks.check_names(context)


@operation("doctor.check")
async def doctor_check(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """The findings of one."""
    return [finding.as_json() for finding in await checks.run_check(context, args.text("name"))]


@operation("channel.diagnose")
async def channel_diagnose(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Everything about one channel: its findings, state, routes, open and failed deliveries, and what it can do."""
    name = args.text("name")
    findings, channel = await channels.checked_channel(context, name)
    section = context.hub.configuration.channels[name]
    live = context.live.channels.instance(section.type, name) if context.live is not None else None
    routes, more = await _routes(context, name, channel)

    def look(db: sqlite3.Connection) -> tuple[list[Delivery], list[Delivery]]:
        def of(states: tuple[DeliveryState, ...]) -> list[Delivery]:
            found = [one for state in states for one in deliveries.deliveries(db, state=state, limit=_LOOKED_THROUGH)]
            return [one for one in found if (one.address.channel_type, one.address.instance) == (section.type, name)]

        return of(_OPEN), of(_BAD)

    waiting, failed = await context.hub.store.read(look)
    return {
        "name": name,
        "type": section.type,
        "enabled": section.enabled,
        "state": str(live.status.state) if live is not None else "stopped",
        "detail": live.status.detail if live is not None else "",
        "findings": [finding.as_json() for finding in (*findings, *more)],
        "routes": routes,
        "pending": len(waiting),
        "errors": [delivery_json(one, text_of(one)) for one in failed[:_NEWEST]],
        "capabilities": _abilities(channel),
    }


async def _routes(context: ServiceContext, name: str, channel: Channel | None) -> tuple[list[str], list[Finding]]:
    """Where the channel is called, and whether that can be reached."""
    if channel is None or not isinstance(channel, ServesRoutes):
        return [], []
    try:
        paths = sorted(mount_points(name, channel.http_routes()))
    except Exception as problem:
        log.exception("channel %s can't tell its routes", name)
        return [], [error(f"channel:{name}", f"it can't tell its routes: {problem!r}", "tell the plugin's author")]
    if not paths:
        return [], []
    if context.live is None:
        return paths, []
    report = context.live.channels.ingress.report()
    base = report["url"] if report is not None else ""
    found = await checks.run_check(context, "ingress")
    return [f"{base}{path}" for path in paths], found


def _abilities(channel: Channel | None) -> dict[str, Any]:
    """The capability table as JSON values."""
    if channel is None:
        return {}
    try:
        can = channel.capabilities(None)
    except Exception:
        log.exception("a channel can't tell its capabilities")
        return {}
    return {one.name: _plain(getattr(can, one.name)) for one in dataclasses.fields(can)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Enum):
        return value.value if isinstance(value, str) else value.name.lower()
    return value


@operation("channel.trial")
async def channel_trial(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Send one marked message to a chat; look for it in the chat's history and delete it, where the channel can.

    Raises:
        NoHost: only a running host's channel can send.
        Conflict: it is not ready.
        ChannelError, NotAllowed: the platform, or a guard, refused the message.
    """
    name, mark = args.text("name"), new_id("dl")
    address = chat_address(args.text("chat"))
    instance = context.running.channels.instance(address.channel_type, name)
    if address.instance != name:
        raise UsageError(f"{address} is a chat of channel {address.instance!r}, not of {name!r}")
    if instance is None or instance.channel is None:
        raise NotFound(f"the host has no running channel {name!r}", fix="see `jackfield channel list`")
    if not instance.ready.is_set():
        raise Conflict(f"channel {name} is {instance.status.state}: {instance.status.detail}", fix="mend that first")
    channel = instance.channel
    text = f"Jackfield tries this chat. Nobody needs to answer. ({mark})"
    part = OutboundPart(path=SendPath.NOTICE, address=address, message=OutMessage(text=text), session=None)
    try:
        message = await passed_hooks(context.hub, part)
    except Refusal as problem:
        raise Conflict(f"a plugin's guard blocked the message: {problem.error}") from problem
    result = await channel.send(address, message, idempotency_key=mark)
    found = await _found(channel, address, mark)
    removed = await _removed(channel, MessageRef(address, result.ids)) if found and result.ids else False
    return {"ids": list(result.ids), "final": result.final, "found": found, "removed": removed}


async def _found(channel: Channel, address: Any, mark: str) -> bool | None:
    """Whether the message is in the chat's history; None where the channel can't look."""
    if not isinstance(channel, KeepsHistory):
        return None
    try:
        return any(mark in one.text for one in await channel.history(address, limit=50))
    except Unsupported:
        return None


async def _removed(channel: Channel, ref: MessageRef) -> bool:
    if not isinstance(channel, Deletes):
        return False
    try:
        await channel.delete(ref)
    except ChannelError:
        return False
    return True
