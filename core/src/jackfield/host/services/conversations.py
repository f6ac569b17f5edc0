"""Operations on sessions and messages: what an operator sees and mends."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from jackfield.clock import UnixMs
from jackfield.errors import Conflict, NotFound
from jackfield.host.access import REFUSALS
from jackfield.host.agents.ends import other_end
from jackfield.host.parking import SCOPES, Keys, scope_keys
from jackfield.host.services.context import Args, ServiceContext, operation
from jackfield.host.services.shapes import delivery_json, inbound_json, refused_json, session_json
from jackfield.host.text_of import text_of
from jackfield.host.unfinished import OPERATOR
from jackfield.ids import DeliveryId, EventId, InboundId, new_id
from jackfield.models import (
    Address,
    ChatContent,
    DeliveryState,
    InboundEntry,
    InboundKind,
    InboundRow,
    InboundState,
    Session,
    SessionStatus,
)
from jackfield.store import approvals, chats, deliveries, events, groups, inbound, questions, sessions

__all__: list[str] = []

SETTLE_POLL = 0.05
BAD = (InboundState.FAILED, InboundState.DROPPED, InboundState.REFUSED)
REFUSED_FOR = (*REFUSALS, "denied", "loop")
"""The first words of reasons for which a message that an agent would have taken is kept from it."""
OPEN_INBOUND = (InboundState.QUEUED, InboundState.CLAIMED, InboundState.RETRYING, InboundState.PARKED)
OPEN_DELIVERY = (DeliveryState.PENDING, DeliveryState.SENDING, DeliveryState.RETRYING)


@operation("session.list")
async def session_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    name = args.optional_text("group")
    group = await context.group(name) if name else None
    status = args.choice("status", SessionStatus, SessionStatus.ACTIVE) if args.optional_text("status") else None

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        by_id = {item.id: item for item in groups.agent_groups(db)}
        found = sessions.sessions(
            db,
            agent_group_id=group.id if group is not None else None,
            status=status,
            limit=args.number("limit", 50, low=1, high=10_000),
        )
        return [session_json(session, by_id.get(session.agent_group_id)) for session in found]

    listed = await context.hub.store.read(look)
    return [item | {"runner": _runner_of(context, item["id"])} for item in listed]


def _runner_of(context: ServiceContext, session_id: str) -> str:
    if context.live is None:
        return "none"
    return str(context.live.report()["runners"].get(session_id, "none"))


@operation("session.show")
async def session_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    session = await context.session(args.text("id"))

    def look(db: sqlite3.Connection) -> dict[str, Any]:
        shown = session_json(session, groups.agent_group(db, session.agent_group_id))
        chat = chats.messaging_group(db, session.messaging_group_id) if session.messaging_group_id else None
        shown["chat"] = str(chat.address) if chat is not None else None
        shown["open"] = [inbound_json(entry) for entry in inbound.open_entries(db, session.id)]
        return shown

    shown = await context.hub.store.read(look)
    shown["runner"] = _runner_of(context, session.id)
    shown["folder"] = str(context.hub.folder_of(session).root)
    return shown


@operation("session.tail")
async def session_tail(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """What was said, oldest first; with `after` (an `at` of an earlier answer) only what came since."""
    session = await context.session(args.text("id"))
    after, limit = args.optional_text("after", empty=True) or "", args.number("limit", 50, low=1, high=1000)

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        said = [
            inbound_json(entry) | {"at": inbound_json(entry)["created_at"]}
            for entry in inbound.entries(db, session_id=session.id, limit=limit)
        ]
        sent = [
            delivery_json(item, text_of(item)) | {"at": delivery_json(item, "")["created_at"]}
            for item in deliveries.deliveries(db, session_id=session.id, limit=limit)
        ]
        items = sorted(
            (item for item in said[::-1] + sent[::-1] if item["at"] > after), key=lambda item: str(item["at"])
        )
        return items[-limit:]

    return await context.hub.store.read(look)


@operation("session.stop")
async def session_stop(context: ServiceContext, args: Args) -> dict[str, Any]:
    session = await context.session(args.text("id"))
    stopped = await context.running.stop_runner(session.id, "the operator stopped it")
    return {"id": session.id, "stopped": stopped}


@operation("session.clear")
async def session_clear(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Close the session: the next message begins a new one, with an empty mailbox and no memory of this one.

    What waits to be answered is dropped, and open questions and approvals end.  What the agent has answered is still
    delivered: people read it as part of what was said before.
    """
    session = await context.session(args.text("id"))
    if session.status is SessionStatus.CLOSED:
        raise Conflict(f"session {session.id} is closed already")
    now = context.hub.clock.now()

    def close(db: sqlite3.Connection) -> int:
        left = inbound.open_entries(db, session.id)
        for entry in left:
            inbound.set_state(db, entry.id, InboundState.DROPPED, now, reason="session cleared")
        questions.expire_of_session(db, session.id, now)
        approvals.cancel_of_session(db, session.id, now)
        sessions.close_session(db, session.id, now)
        return len(left)

    # Closed before its runner ends: what comes meanwhile belongs to the next session.
    dropped = await context.hub.store.write(close)
    if context.live is not None:
        await context.live.retire_runner(session.id)
        await context.live.settle_tasks()
        await context.live.tell_askers()
        await context.live.approvals.sweep()
    return {"id": session.id, "dropped": dropped}


@operation("session.send")
async def session_send(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Write to a session as its operator; the answer goes to the session's own chat."""
    session, text = await context.session(args.text("id")), args.text("text")
    live = context.running
    if session.status is SessionStatus.CLOSED:
        raise Conflict(f"session {session.id} is closed", fix="write to its chat; that begins a new one")
    origin = await _address_of(context, session)
    now = context.hub.clock.now()
    row = InboundRow(
        id=InboundId(new_id("in")),
        kind=InboundKind.CHAT,
        content=ChatContent(text=text, sender="operator", sender_id="operator", sender_role="owner"),
        at=now,
        origin=origin,
    )
    await live.enqueue(session, row)
    return {"id": session.id, "message": row.id}


async def _address_of(context: ServiceContext, session: Session) -> Address | None:
    if session.messaging_group_id is None:
        return None
    chat = await context.hub.store.read(chats.messaging_group, session.messaging_group_id)
    return context.running.answer_address(session, chat)


@operation("message.list")
async def message_list(context: ServiceContext, args: Args) -> list[dict[str, Any]]:
    """The ledger, newest first: messages in and parts out.

    Refused messages belong to no session and are listed only when asked for by state: anybody can send them, and many.
    """
    direction, limit = args.optional_text("direction"), args.number("limit", 50, low=1, high=10_000)
    state, named = args.optional_text("state"), args.optional_text("session")
    session_id = (await context.session(named)).id if named else None

    def look(db: sqlite3.Connection) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if direction in (None, "in") and (state is None or state in tuple(InboundState)):
            wanted = InboundState(state) if state else None
            entries = inbound.entries(db, session_id=session_id, state=wanted, limit=limit)
            found += [inbound_json(entry) for entry in entries]
            if wanted is InboundState.REFUSED and session_id is None:
                found += [refused_json(event) for event in events.ignored(db, REFUSED_FOR, limit)]
        if direction in (None, "out") and (state is None or state in tuple(DeliveryState)):
            wanted_out = DeliveryState(state) if state else None
            parts = deliveries.deliveries(db, session_id=session_id, state=wanted_out, limit=limit)
            found += [delivery_json(part, text_of(part)) for part in parts]
        # Each part of the list is in order; parts of one message have the same moment.
        return sorted(found, key=lambda item: str(item["created_at"]), reverse=True)[:limit]

    return await context.hub.store.read(look)


@operation("message.show")
async def message_show(context: ServiceContext, args: Args) -> dict[str, Any]:
    message_id = args.text("id")
    event = await context.hub.store.read(events.event, EventId(message_id.lower()))
    if event is not None and events.ignored_for(event, REFUSED_FOR):
        return refused_json(event)
    return await _shown(context, message_id)


async def _shown(context: ServiceContext, message_id: str) -> dict[str, Any]:
    message_id = message_id.lower()

    def look(db: sqlite3.Connection) -> dict[str, Any] | None:
        entry = inbound.entry(db, InboundId(message_id))
        if entry is not None:
            return inbound_json(entry) | other_end(db, entry)
        part = deliveries.delivery(db, DeliveryId(message_id))
        return delivery_json(part, text_of(part)) | other_end(db, part) if part is not None else None

    shown = await context.hub.store.read(look)
    if shown is None:
        raise NotFound(f"there is no message {message_id!r}", fix="see `jackfield message list`")
    return shown


@operation("message.retry")
async def message_retry(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Try a failed message again: an inbound one by its agent, an outbound part by its channel."""
    shown = await _shown(context, args.text("id"))
    now = context.hub.clock.now()
    shared = await _scope_of(context, shown["session"])

    def revive(db: sqlite3.Connection) -> str | None:
        if shown["direction"] == "in":
            entry: InboundEntry | None = inbound.entry(db, shown["id"])
            if entry is None or entry.state not in (InboundState.FAILED, InboundState.RETRYING, InboundState.PARKED):
                return None
            sessions.unpark(db, entry.session_id)
            for scope in SCOPES:
                sessions.unpark_scope(db, scope, shared[scope])
            inbound.revive(db, entry.id, now)
            # As a retry that is due now: the timer raises the attempt in the mailbox and wakes the session.
            inbound.set_state(db, entry.id, InboundState.RETRYING, now, next_try_at=now, reason=OPERATOR)
            return ""
        part = deliveries.delivery(db, shown["id"])
        if part is None or part.state not in (DeliveryState.FAILED, DeliveryState.RETRYING, DeliveryState.WAITING):
            return None
        if part.state is DeliveryState.FAILED:
            deliveries.revive(db, part.id, now)
        else:
            deliveries.retry_at(db, part.id, now, OPERATOR, part.last_error, now, counts=False)
        return str(part.address)

    destination = await context.hub.store.write(revive)
    if destination is None:
        raise Conflict(f"message {shown['id']} is {shown['state']}: there is nothing to try again")
    if context.live is not None:
        context.live.nudge()
        if destination:
            context.live.kick([destination])
    return await _shown(context, args.text("id"))


async def _scope_of(context: ServiceContext, session_id: str) -> Keys:
    """What the session shares with others: trying again is also trying that again."""
    session = await context.session(session_id)
    group = await context.hub.store.read(groups.agent_group, session.agent_group_id)
    return scope_keys(context.hub, group) if group is not None else {"credential": "", "provider": ""}


@operation("message.drop")
async def message_drop(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Give up on a message that is still waiting."""
    shown = await _shown(context, args.text("id"))
    now = context.hub.clock.now()

    def drop(db: sqlite3.Connection) -> Session | None:
        if shown["direction"] == "in":
            inbound.set_state(db, shown["id"], InboundState.DROPPED, now, reason="dropped by the operator")
            return sessions.session(db, shown["session"])
        deliveries.drop(db, shown["id"], now)
        return None

    open_states = (*OPEN_INBOUND, *OPEN_DELIVERY, InboundState.CONTEXT, DeliveryState.WAITING)
    if shown["state"] not in open_states:
        raise Conflict(f"message {shown['id']} is {shown['state']} already")
    session = await context.hub.store.write(drop)
    if session is not None:
        folder = context.hub.folder_of(session)
        await context.hub.mailboxes.run(folder, lambda box: box.withdraw([shown["id"]]))
        if context.live is not None:
            await context.live.settle_tasks()
            await context.live.tell_askers()
    elif context.live is not None:
        context.live.kick([shown["to"]])
    return await _shown(context, args.text("id"))


@operation("channel.settled")
async def channel_settled(context: ServiceContext, args: Args) -> dict[str, Any]:
    """Wait until a chat has no open message and no open delivery; what a piped chat waits for.

    Returns early, not settled, when all that is open waits for a parked session: nothing will come for a while.
    `failed` are the messages since `since` (milliseconds) that ended without an answer, `parked` those that wait.
    """
    address = Address("terminal", args.text("instance"), args.text("platform_id"))
    since = UnixMs(args.number("since", 0))
    hub = context.hub
    context.running  # noqa: B018 - refuses when no host runs: nothing would ever settle
    deadline = hub.clock.monotonic() + args.seconds("timeout", 600.0)

    def look(db: sqlite3.Connection, now: UnixMs) -> tuple[int, list[InboundEntry], list[InboundEntry]]:
        unrouted = events.unrouted(db, address.channel_type, address.instance)
        chat = chats.messaging_group_at(db, address)
        if chat is None:
            return unrouted, [], []
        waiting = []
        for entry in inbound.of_chat(db, chat.id, OPEN_INBOUND, UnixMs(0)):
            session = sessions.session(db, entry.session_id)
            if session is not None and session.parked_until is not None and session.parked_until > now:
                waiting.append(entry)
        left = unrouted + inbound.active_in_chat(db, chat.id) + deliveries.open_in_chat(db, address)
        return left, waiting, inbound.of_chat(db, chat.id, BAD, since)

    while True:
        left, parked, failed = await hub.store.read(look, hub.clock.now())
        late = hub.clock.monotonic() >= deadline
        if not left or late or len(parked) == left:
            return {
                "settled": not left,
                "open": left,
                "failed": [inbound_json(entry) for entry in failed],
                "parked": [inbound_json(entry) for entry in parked],
            }
        await asyncio.sleep(SETTLE_POLL)
