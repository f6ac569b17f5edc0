"""Unknown senders and new chats: somebody who may decide is asked once, and the message that asked goes on then.

The message stays with its event, read by nobody, until the decision: a yes reopens the event, which is routed like any
other one, by the facts of that moment.  Its rows have the ids that they would have had before, so it arrives once
however often it is reopened.  A no, and a question that expired, take its words away.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from jackfield.api import ApprovalState
from jackfield.clock import UnixMs
from jackfield.errors import Conflict, MalformedData
from jackfield.host import access
from jackfield.host.approvals import LOCAL_OPERATOR, Approvals, Decision, HostKind
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.registration.cards import (
    CONNECT,
    DENY,
    OPEN,
    cautious_wiring,
    chat_card,
    sender_card,
    whom,
)
from jackfield.host.routing import Facts
from jackfield.host.verdicts import Judged
from jackfield.ids import AgentGroupId, EventId, InboundId, MessagingGroupId, UserId, WiringId, derive_id
from jackfield.models import (
    Addressed,
    AgentGroup,
    Member,
    MessageReceived,
    MessagingGroup,
    Person,
    SenderScope,
    SessionStatus,
    Trust,
    UnknownSenderPolicy,
    Wiring,
    loads,
)
from jackfield.store import approvals as store_approvals
from jackfield.store import chats, denials, events, groups, inbound, people, sessions, wirings
from jackfield.store.approvals import Via

__all__ = ["CHAT", "PENDING_IN_CHAT", "SENDER", "Strangers"]

log = logging.getLogger(__name__)

SENDER, CHAT = "sender", "chat"
PENDING_IN_CHAT = 10
"""Strangers of one chat that people are asked about at the same time."""
DAY = 86_400_000
SETTLING = 60_000
"""Milliseconds after which a kept message without a question has lost it."""


class Strangers:
    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        approvals: Approvals,
        *,
        retake: Callable[[], Awaitable[None]],
        project: Callable[[AgentGroupId], Awaitable[None]],
    ) -> None:
        """`retake` takes up events that were reopened, `project` shows a group its destinations."""
        self._hub = hub
        self._channels = channels
        self._approvals = approvals
        self._retake = retake
        self._project = project
        approvals.kinds.register(HostKind(name=SENDER, title="New sender", apply=self._sender_decided, idempotent=True))
        approvals.kinds.register(HostKind(name=CHAT, title="New chat", apply=self._chat_decided, idempotent=True))

    # ---- asking

    async def ask(self, judged: Judged, facts: Facts | None) -> bool:
        """Have somebody asked about the message's sender or chat, unless that is being asked, or was denied.

        Whether the message must be kept, since its words are to go on after a yes.  Asking again for the same message
        gives the same answer.

        Raises:
            JackfieldError: it could not be recorded; the message is routed again.
        """
        event, user = judged.arrival.event, judged.arrival.sender.user_id
        if facts is None or user is None or event.sender.is_bot or self._wants_nobody(event):
            return False
        try:
            if judged.unwired:
                return await self._ask_chat(judged, user) if _is_addressed(event) else False
            asked = [outcome.wired.group for outcome in judged.outcomes if outcome.ask]
            if facts.chat is None or not asked:
                return False
            return await self._ask_sender(judged, user, facts.chat, asked, [wired.group for wired in facts.wired])
        except Conflict as problem:
            # Their next message asks again; to try this one for ever would hold up everybody else in the chat.
            log.warning("nobody is asked about %s in %s: %s", user, event.address, problem.message)
            return False

    def _wants_nobody(self, event: MessageReceived) -> bool:
        """Terminals ask nobody about their own user, and programs are let in by the operator only (C145)."""
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        return instance is None or instance.info is None or instance.info.local or instance.info.programs

    async def _ask_sender(
        self, judged: Judged, user: UserId, chat: MessagingGroup, asked: list[AgentGroup], wired: list[AgentGroup]
    ) -> bool:
        event = judged.arrival.event
        subject, now = whom(event, user), self._hub.clock.now()
        key = f"{chat.id} {subject}"

        def look(db: sqlite3.Connection) -> tuple[bool, int]:
            waiting = store_approvals.pending_keys(db, SENDER, f"{chat.id} ")
            others = len([one for one in waiting if one != key])
            return denials.is_denied(db, chat.id, subject, now), others

        denied, others = await self._hub.store.read(look)
        if denied:
            judged.refuse("sender_denied")
            return False
        if others >= PENDING_IN_CHAT:
            log.warning("nobody is asked about %s in %s: %d others wait already", subject, event.address, others)
            return False
        # Opening a chat concerns every agent there, so whoever decides must have the say over all of them.
        may_open = {group.id for group in wired} == {group.id for group in asked}
        if event.sender.trust is Trust.UNVERIFIED and not may_open:
            return False
        card = sender_card(event, user, chat, asked, may_open=may_open, days=self._days)
        ticket = await self._approvals.ask(
            SENDER,
            {"chat": chat.id, "user": subject, "event": judged.arrival.event_id, "groups": [one.id for one in asked]},
            key=key,
            title=card.title,
            fields=card.fields,
            choices=card.choices,
            group=asked[0] if len(asked) == 1 else None,
            origin=event.address,
        )
        return await self._is_about(ticket.id, judged.arrival.event_id)

    async def _ask_chat(self, judged: Judged, user: UserId) -> bool:
        event, now = judged.arrival.event, self._hub.clock.now()

        def look(db: sqlite3.Connection) -> tuple[MessagingGroup | None, list[AgentGroup]]:
            chat = chats.ensure_messaging_group(
                db,
                event.address.chat,
                name=event.conversation_name,
                is_group=event.is_group,
                policy=UnknownSenderPolicy.REQUEST_APPROVAL,
                now=now,
            )
            if chat.denied_at is not None and chat.denied_at + self._days * DAY > now:
                return None, []
            return chat, groups.agent_groups(db)

        chat, agents = await self._hub.store.write(look)
        if chat is None or not agents:
            return False
        card = chat_card(event, user, chat, agents, self._days)
        vouched = event.sender.trust is not Trust.UNVERIFIED
        ticket = await self._approvals.ask(
            CHAT,
            {"chat": chat.id, "user": user if vouched else None, "event": judged.arrival.event_id},
            key=chat.id,
            title=card.title,
            fields=card.fields,
            choices=card.choices,
            group=agents[0] if len(agents) == 1 else None,
            origin=event.address,
        )
        return await self._is_about(ticket.id, judged.arrival.event_id)

    @property
    def _days(self) -> int:
        return self._hub.configuration.approvals.deny_days

    async def _is_about(self, id: Any, event_id: EventId) -> bool:
        item = await self._approvals.get(id)
        return bool(json.loads(item.payload).get("event") == event_id)

    # ---- what was decided

    async def _sender_decided(self, decision: Decision) -> str:
        chat_id, user = MessagingGroupId(decision.payload["chat"]), UserId(decision.payload["user"])
        event_id, now = EventId(decision.payload["event"]), self._hub.clock.now()
        by = _person_of(decision)

        def deny(db: sqlite3.Connection) -> None:
            if chats.messaging_group(db, chat_id) is not None:
                until = UnixMs(now + self._days * DAY)
                denials.deny(
                    db,
                    denials.Denial(
                        messaging_group_id=chat_id, user_id=user, denied_by=decision.by, denied_at=now, until=until
                    ),
                )
            events.forget_words(db, event_id)

        if decision.value == DENY:
            await self._hub.store.write(deny)
            log.info("%s denied %s in %s for %d days", decision.by, user, chat_id, self._days)
            return f"Nobody is asked about them for {self._days} days"
        opens = decision.value == OPEN

        def allow(db: sqlite3.Connection) -> int:
            chat = chats.messaging_group(db, chat_id)
            if chat is None:
                return 0
            stored = events.event(db, event_id)
            person = None if stored is None else _sender_in(stored.body)
            wired = {wiring.agent_group_id: wiring for wiring in wirings.wirings_of_chat(db, chat_id)}
            still = [AgentGroupId(id) for id in decision.payload["groups"] if id in wired]
            for group_id in still:
                if not user.endswith(":"):
                    _let_in(db, user, chat.address.channel_type, person, group_id, by, now)
                if opens and wired[group_id].sender_scope is not SenderScope.ALL:
                    wirings.update_wiring(db, replace(wired[group_id], sender_scope=SenderScope.ALL))
            if still and opens:
                chats.set_policy(db, chat_id, UnknownSenderPolicy.PUBLIC)
            denials.forget(db, chat_id, user)
            if still:
                _route_again(db, list(wired.values()), still, event_id)
            return len(still)

        count = await self._hub.store.write(allow)
        if not count:
            raise Conflict("the chat is not wired to that agent any more", fix="wire it with `jackfield wire`")
        if opens:
            log.warning("%s opened chat %s to everybody (it was request_approval)", decision.by, chat_id)
        await self._retake()
        return "Everybody in the chat is answered from now on" if opens else "They are answered from now on"

    async def _chat_decided(self, decision: Decision) -> str:
        chat_id, event_id = MessagingGroupId(decision.payload["chat"]), EventId(decision.payload["event"])
        now, by = self._hub.clock.now(), _person_of(decision)

        def ignore(db: sqlite3.Connection) -> None:
            if chats.messaging_group(db, chat_id) is not None:
                chats.deny_chat(db, chat_id, now, decision.by)
            events.forget_words(db, event_id)

        if decision.value == DENY:
            await self._hub.store.write(ignore)
            log.info("%s wants no agent in chat %s for %d days", decision.by, chat_id, self._days)
            return f"Nobody is asked about the chat for {self._days} days"
        group_id = AgentGroupId(decision.value.removeprefix(f"{CONNECT}:"))
        user = decision.payload["user"]

        def connect(db: sqlite3.Connection) -> AgentGroup:
            chat, group = chats.messaging_group(db, chat_id), groups.agent_group(db, group_id)
            if chat is None or group is None:
                gone = "the chat" if chat is None else "the agent"
                raise Conflict(f"{gone} is gone", fix="see `jackfield channel chats` and `jackfield group list`")
            stored = events.event(db, event_id)
            person = None if stored is None else _sender_in(stored.body)
            if not any(one.agent_group_id == group_id for one in wirings.wirings_of_chat(db, chat_id)):
                wirings.add_wiring(
                    db, cautious_wiring(WiringId(derive_id("wr", decision.id, group_id)), chat, group_id, now)
                )
            chats.deny_chat(db, chat_id, None)
            if user is not None:
                _let_in(db, UserId(user), chat.address.channel_type, person, group_id, by, now)
            _reopen_kept(db, event_id)
            return group

        group = await self._hub.store.write(connect)
        log.warning("%s connected chat %s to %s", decision.by, chat_id, group.folder)
        await self._project(group_id)
        await self._retake()
        return f"{group.name} answers there from now on"

    # ---- what was never decided

    async def reconsider(self) -> None:
        """The operator let somebody in, or wired a chat: take back the questions that this answers, and route what
        waits for them."""
        items = await self._hub.store.read(store_approvals.approvals, ApprovalState.PENDING, 10_000)
        answered = [one for one in items if one.kind in (SENDER, CHAT)]
        for item in answered:
            if await self._hub.store.write(_reopen_if_answered, item.kind, json.loads(item.payload)):
                await self._approvals.cancel(
                    item.id, LOCAL_OPERATOR, Via.CLI, note="the operator settled it by a command"
                )
        if answered:
            await self._retake()

    async def sweep(self) -> None:
        """Take the words away of messages whose question expired or was cancelled."""
        now = self._hub.clock.now()
        if await self._hub.store.read(events.any_kept):
            await self._hub.store.write(_forget_undecided, UnixMs(now - SETTLING))
        if await self._hub.store.read(denials.any_old, now):
            await self._hub.store.write(denials.forget_old, now)


def _reopen_if_answered(db: sqlite3.Connection, kind: str, payload: dict[str, Any]) -> bool:
    """Whether nobody need be asked any more; then what waits goes on."""
    chat = chats.messaging_group(db, MessagingGroupId(payload["chat"]))
    found = [] if chat is None else wirings.wirings_of_chat(db, chat.id)
    wired = [one.agent_group_id for one in found]
    answered = chat is None or bool(wired)
    if kind == SENDER and chat is not None and chat.unknown_sender_policy is not UnknownSenderPolicy.PUBLIC:
        user = UserId(payload["user"])
        known, roles = people.user(db, user) is not None, people.roles_of(db, user)
        answered = all(
            access.can_access(known, roles, people.is_member(db, group, user), group).allowed
            for group in wired
            if group in payload["groups"]
        )
    if answered:
        _route_again(db, found, payload.get("groups", ()), EventId(payload["event"]))
    return answered


def _route_again(db: sqlite3.Connection, wired: Sequence[Wiring], asked: Collection[str], event_id: EventId) -> None:
    """Have the message routed for the agents that somebody was asked about; others may have taken it at once.

    Those keep what they have, since it has the same id in the same inbox.  Where the conversation of one was ended
    since, it would come there as something new: then the others don't get it either, and the sender must write again.
    """
    if _reopen_kept(db, event_id):
        return
    taken = {one.agent_group_id: inbound.entry(db, InboundId(derive_id("in", event_id, one.id))) for one in wired}
    had = [sessions.session(db, entry.session_id) for entry in taken.values() if entry is not None]
    lives = all(session is not None and session.status is SessionStatus.ACTIVE for session in had)
    if had and lives and any(group in asked and entry is None for group, entry in taken.items()):
        events.reopen(db, event_id)


def _reopen_kept(db: sqlite3.Connection, event_id: EventId) -> bool:
    """Have a kept message routed; it does not count any more as one that nobody took."""
    stored = events.event(db, event_id)
    if stored is None or not events.reopen_kept(db, event_id):
        return False
    try:
        message = loads(MessageReceived, stored.body)
    except MalformedData:
        return True  # the router tells what is wrong with it
    for reason in (stored.reason or "").split(", "):
        events.take_back_drop(db, message.address, message.sender.handle, reason)
    return True


def _is_addressed(event: MessageReceived) -> bool:
    return event.addressed is not Addressed.NONE or not event.is_group


def _person_of(decision: Decision) -> UserId | None:
    """Who decided, where that is somebody of a channel."""
    return UserId(decision.by) if ":" in decision.by else None


def _sender_in(body: str) -> Person | None:
    """The sender of a kept event, of whom a user is made."""
    try:
        return loads(MessageReceived, body).sender if body else None
    except MalformedData:
        return None


def _let_in(
    db: sqlite3.Connection,
    user: UserId,
    channel_type: str,
    person: Person | None,
    group_id: AgentGroupId,
    by: UserId | None,
    now: UnixMs,
) -> None:
    people.ensure_user(db, user, channel_type, None if person is None else person.display_name, now)
    if person is not None:
        people.see_aliases(db, user, channel_type, person.aliases, now)
    people.add_member(db, Member(user_id=user, agent_group_id=group_id, added_by=by, added_at=now))


def _forget_undecided(db: sqlite3.Connection, before: UnixMs) -> int:
    """Of what was kept before a moment, keep only what a question is still open for, or what its yes has to reopen."""
    waited_for = {json.loads(item).get("event") for item in store_approvals.open_payloads(db, (SENDER, CHAT))}
    gone = 0
    for event_id in events.kept(db, before):
        if event_id not in waited_for:
            gone += events.forget_words(db, event_id)
    return gone
