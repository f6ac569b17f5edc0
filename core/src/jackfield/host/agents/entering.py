"""A message from agent to agent enters the ledger at both ends, or at neither.

It happens in the transaction that records what a runner wrote, so a crash leaves all or nothing: the writer's delivery,
the reader's message, the chain's count.  Then the delivery's worker puts it into the reader's mailbox, under an id that
follows from the delivery's, however often it must begin again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from jackfield.clock import UnixMs
from jackfield.config import AgentsSettings
from jackfield.errors import MalformedData
from jackfield.host.agents.budget import CHAIN_REASONS, MINUTE, Counts, judge
from jackfield.host.agents.places import Refused, address_of, conversation, place_of_group, reader_of
from jackfield.ids import AgentGroupId, DeliveryId, InboundId, TurnId, derive_id
from jackfield.models import Delivery, DeliveryState, InboundEntry, InboundState, OutMessage, Session, loads
from jackfield.store import chains, deliveries, inbound

__all__ = ["Entered", "arrival_id", "enter", "send_again"]

PREVIEW = 200


@dataclass(frozen=True, slots=True)
class Entered:
    """The part as it goes into the ledger.  One that is refused has its end already, and the id of the notice that
    tells so: the same for all that are refused for the same reason and request, so that it is told once."""

    part: Delivery
    notice: InboundId | None = None


def arrival_id(part: DeliveryId) -> InboundId:
    """The message that a delivery to an agent becomes."""
    return InboundId(derive_id("in", part))


def enter(
    db: sqlite3.Connection, writer: Session, part: Delivery, turn: TurnId | None, budget: AgentsSettings, now: UnixMs
) -> Entered:
    """Enter a planned message for another agent.  Doing it again changes nothing."""
    known = deliveries.parts_of(db, writer.id, part.out_seq)
    if known:
        return Entered(known[0])
    group_id = AgentGroupId(part.address.platform_id)
    before = chains.standing(db, writer.id, turn)
    try:
        reader = reader_of(db, writer, part.address)
        so_far = chains.chain(db, before.chain)
        counts = Counts(
            hops=before.hops + 1,
            chain=so_far.messages if so_far is not None else 0,
            lately=chains.count_written(db, writer.agent_group_id, group_id, UnixMs(now - MINUTE)),
            to_itself=group_id == writer.agent_group_id,
        )
        stopped = judge(counts, budget)
        if stopped is not None:
            raise Refused(stopped.reason, stopped.text)
        reader = reader or conversation(db, group_id, writer.id, now)
    except Refused as refused:
        blocked = replace(part, state=DeliveryState.BLOCKED, reason=refused.reason, last_error=refused.text)
        if refused.reason in CHAIN_REASONS:
            chains.stop(db, before.chain, refused.reason, now)
        return Entered(blocked, InboundId(derive_id("in", before.chain, writer.id, refused.reason, group_id)))
    inbound.record(
        db,
        id=arrival_id(part.id),
        event_id=None,
        wiring_id=None,
        session_id=reader.id,
        state=InboundState.QUEUED,
        preview=_preview(part),
        now=now,
        hops=counts.hops,
        chain=before.chain,
        source=writer.id,
    )
    chains.grow(db, before.chain, now)
    return Entered(replace(part, address=address_of(reader)))


def send_again(db: sqlite3.Connection, reader: Session, entry: InboundEntry, now: UnixMs) -> bool:
    """The reader's mailbox has lost the message: have it delivered into the fresh one.  False when nobody wrote it."""
    if entry.source is None:
        return False
    part = deliveries.by_platform_id(db, place_of_group(reader.agent_group_id), entry.id)
    return part is not None and deliveries.revive(db, part.id, now, arrived=True)


def _preview(part: Delivery) -> str:
    try:
        message = loads(OutMessage, part.content)
    except MalformedData:
        return ""
    return (message.text or ", ".join(file.name for file in message.files))[:PREVIEW]
