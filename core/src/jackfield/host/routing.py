"""What routing asks of `state.db`, and what it enters there: the facts of a message, and the ledger of its outcome."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.api import ResolvedSender
from jackfield.clock import UnixMs
from jackfield.host.session_keys import SessionKey, effective_mode, session_key
from jackfield.ids import EventId, UserId
from jackfield.models import (
    Addressed,
    AgentGroup,
    EventState,
    InboundRow,
    InboundState,
    MessageReceived,
    MessagingGroup,
    Role,
    Session,
    Trust,
    UnknownSenderPolicy,
    Wiring,
)
from jackfield.store import (
    approval_cards,
    chats,
    deliveries,
    events,
    groups,
    inbound,
    people,
    questions,
    sessions,
    wirings,
)

__all__ = ["Arrival", "Facts", "Foreseen", "Outcome", "Wired", "facts_of", "note_unwired", "record"]

PREVIEW = 200
"""Characters of a message that the ledger shows."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message on its way: the event, and who wrote it."""

    event_id: EventId
    event: MessageReceived
    sender: ResolvedSender
    threaded: bool
    """Whether its chat has threads."""


@dataclass(frozen=True, slots=True)
class Wired:
    """A wiring of the message's chat."""

    wiring: Wiring
    group: AgentGroup
    sticky: bool
    is_member: bool
    key: SessionKey
    session: Session | None
    """The session under `key`, when there is one."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the store knows about a message's chat and sender."""

    chat: MessagingGroup | None
    wired: tuple[Wired, ...] = ()
    user_known: bool = False
    roles: tuple[Role, ...] = ()
    asked: bool = False
    """Whether a question or an approval waits for an answer in this chat."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The facts of a message that was not on the disk yet, so its arrival has no id."""

    arrival: Arrival
    facts: Facts | None
    written: int
    """What the store's `handed_in` was with the message itself: with anything more the facts may be others."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One wiring's outcome; with a session and a row when the message goes to the agent."""

    wired: Wired
    session: Session | None
    row: InboundRow | None
    state: InboundState
    reason: str
    stick_until: UnixMs | None = None
    ask: bool = False
    """Whether somebody is to be asked about the sender, who was refused for being unknown."""
    denial: str = ""
    """What the sender of a command that is not theirs to give is told."""


def facts_of(db: sqlite3.Connection, arrivals: Sequence[Arrival], now: UnixMs) -> list[Facts | None]:
    """The facts of messages of one chat, in one view of the store; None for what we sent ourselves."""
    known: dict[tuple[UserId | None, str | None, bool, bool], Facts] = {}
    found: list[Facts | None] = []
    for arrival in arrivals:
        event, sender = arrival.event, arrival.sender.user_id
        at = event.address
        if any(deliveries.is_own_message(db, at.channel_type, at.instance, id) for id in event.ref.ids):
            found.append(None)
            continue
        key = (sender, at.thread_id, arrival.threaded, event.is_group)
        if key not in known:
            known[key] = _facts(db, event, sender, arrival.threaded, now)
        found.append(known[key])
    return found


def _facts(db: sqlite3.Connection, event: MessageReceived, sender: UserId | None, threaded: bool, now: UnixMs) -> Facts:
    address = event.address
    chat = chats.messaging_group_at(db, address.chat)
    if chat is None:
        return Facts(chat=None)
    wired = []
    for wiring in wirings.wirings_of_chat(db, chat.id):
        group = groups.agent_group(db, wiring.agent_group_id)
        if group is None:
            continue
        mode = effective_mode(wiring.session_mode, threaded=threaded, is_group=event.is_group)
        key = session_key(mode, chat.id, address.thread_id)
        wired.append(
            Wired(
                wiring=wiring,
                group=group,
                sticky=event.is_group and wirings.is_stuck(db, wiring.id, address.thread_id, now),
                is_member=sender is not None and people.is_member(db, group.id, sender),
                key=key,
                session=sessions.active_session(db, group.id, key.key),
            )
        )
    known = sender is not None and people.user(db, sender) is not None
    return Facts(
        chat=chat,
        wired=tuple(wired),
        user_known=known,
        roles=tuple(people.roles_of(db, sender)) if known and sender is not None else (),
        asked=bool(questions.open_in_chat(db, address, now)) or approval_cards.waits_in_chat(db, address, now),
    )


def record(
    db: sqlite3.Connection,
    arrival: Arrival,
    outcomes: Sequence[Outcome],
    complete: bool,
    now: UnixMs,
    *,
    keep: bool = False,
) -> None:
    """The ledger of one routed message: an entry a wiring, the event's end, the audit of what was not taken.

    Until it is complete the event stays `received`; with `keep` its words stay, too.  Doing it again changes nothing.
    """
    event, sender = arrival.event, arrival.sender
    preview = event.text[:PREVIEW]
    taken = False
    for outcome in outcomes:
        if outcome.session is None or outcome.row is None:
            continue
        taken = True
        inbound.record(
            db,
            id=outcome.row.id,
            event_id=arrival.event_id,
            wiring_id=outcome.wired.wiring.id,
            session_id=outcome.session.id,
            state=outcome.state,
            preview=preview,
            now=now,
        )
        if outcome.stick_until is not None:
            wirings.stick(db, outcome.wired.wiring.id, event.address.thread_id, outcome.stick_until, now)
    if sender.user_id is not None and taken:
        people.ensure_user(db, sender.user_id, event.address.channel_type, event.sender.display_name, now)
        if event.sender.aliases and event.sender.trust is not Trust.UNVERIFIED:
            people.see_aliases(db, sender.user_id, event.address.channel_type, event.sender.aliases, now)
    if not complete:
        return
    reasons = None if taken else ", ".join(sorted({outcome.reason for outcome in outcomes}))
    state = EventState.ROUTED if taken else EventState.IGNORED
    if not events.finish(db, arrival.event_id, state, now=now, reason=reasons, keep=keep):
        return
    # By reason, since a message that several agents refused is one message.
    refused = {outcome.reason: outcome for outcome in outcomes if outcome.state is InboundState.REFUSED}
    for outcome in refused.values():
        _audit(db, event, outcome.reason, now, outcome.wired.group)
    if not taken and not refused:
        _audit(db, event, "no_agent_engaged", now)


def note_unwired(db: sqlite3.Connection, arrival: Arrival, now: UnixMs, *, keep: bool = False) -> None:
    """A chat that no agent is wired to: nothing is written but for an addressed message's audit (appendix D.1)."""
    event = arrival.event
    ended = events.finish(db, arrival.event_id, EventState.IGNORED, now=now, reason="no_agent_wired", keep=keep)
    if ended and (event.addressed is not Addressed.NONE or not event.is_group):
        chats.ensure_messaging_group(
            db,
            event.address.chat,
            name=event.conversation_name,
            is_group=event.is_group,
            policy=UnknownSenderPolicy.REQUEST_APPROVAL,
            now=now,
        )
        _audit(db, event, "no_agent_wired", now)


def _audit(
    db: sqlite3.Connection, event: MessageReceived, reason: str, now: UnixMs, group: AgentGroup | None = None
) -> None:
    """Count a message that no agent took, for `jackfield channel drops`; not a word of it."""
    events.audit_drop(
        db,
        event.address,
        event.sender.handle,
        reason,
        now,
        sender_name=event.sender.display_name,
        agent_group_id=group.id if group is not None else None,
    )
