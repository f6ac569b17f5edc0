"""From an accepted event to rows in inboxes: sender, chat, wirings, engage, access, session.

Each wiring is decided on its own; one that fails stops no other.  Everything here may be repeated: the row for (event,
wiring) has one id for ever, the inbox ignores what it has, the ledger too.  Only when every wiring has its outcome is
the event finished.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from jackfield.api import (
    EngageDecision,
    EngageRequest,
    EnqueuedMessage,
    ResolvedSender,
    SendPath,
)
from jackfield.clock import UnixMs
from jackfield.errors import HookFailed, JackfieldError
from jackfield.host import access, commands, engage
from jackfield.host.admission import ask_plugins
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.intake import StoredEvent
from jackfield.host.session_keys import SessionKey, effective_mode, session_key
from jackfield.ids import InboundId, UserId, derive_id, user_id
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    AgentGroup,
    ChatContent,
    ConversationChange,
    ConversationChanged,
    DeliveryReport,
    EventState,
    IgnoredPolicy,
    InboundKind,
    InboundRow,
    InboundState,
    MessageReceived,
    MessagingGroup,
    OutMessage,
    Role,
    Session,
    Threads,
    UnknownSenderPolicy,
    Wiring,
)
from jackfield.points import reach
from jackfield.store import chats, deliveries, events, groups, inbound, people, questions, sessions, wirings

__all__ = ["Router"]

log = logging.getLogger(__name__)

PREVIEW = 200
"""Characters of a message that the ledger shows."""


@dataclass(frozen=True, slots=True)
class _Wired:
    wiring: Wiring
    group: AgentGroup
    sticky: bool
    is_member: bool
    key: SessionKey
    session: Session | None
    """The session under `key`, when there is one."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the store knows about a message's chat and sender, read in one go."""

    chat: MessagingGroup | None
    wired: tuple[_Wired, ...] = ()
    user_known: bool = False
    roles: tuple[Role, ...] = ()
    own_message: bool = False
    asked: bool = False
    """Whether a question waits for an answer in this chat."""


@dataclass(frozen=True, slots=True)
class _Routed:
    """One wiring's outcome, for the ledger."""

    wired: _Wired
    session: Session | None
    row_id: InboundId | None
    state: InboundState
    reason: str
    stick_until: UnixMs | None = None


class Router:
    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        inbox: Inbox,
        *,
        on_action: Callable[[ActionInvoked], Awaitable[None]],
        on_report: Callable[[DeliveryReport], Awaitable[None]],
        on_text_answer: Callable[[MessageReceived, UserId], Awaitable[bool]],
        say: Callable[..., Awaitable[None]],
        wake: Callable[[Session, Address | None], None],
    ) -> None:
        """`on_text_answer` tells whether a text answered an open question; `say` sends the host's own words."""
        self._hub = hub
        self._channels = channels
        self._inbox = inbox
        self._on_action = on_action
        self._on_report = on_report
        self._on_text_answer = on_text_answer
        self._say = say
        self._wake = wake

    async def route(self, stored: StoredEvent) -> None:
        """Bring one event to its end.

        Raises:
            JackfieldError: it could not be; it stays `received` and is routed again.
        """
        event = stored.event
        match event:
            case MessageReceived():
                await self._route_message(stored, event)
            case ActionInvoked():
                await self._on_action(event)
                await self._finish(stored, EventState.ROUTED)
            case DeliveryReport():
                await self._on_report(event)
                await self._finish(stored, EventState.ROUTED)
            case ConversationChanged():
                await self._conversation_changed(event)
                await self._finish(stored, EventState.ROUTED)
            case _:
                # Edits, deletions and reactions of people change nothing that an agent was already told.
                await self._finish(stored, EventState.IGNORED, "not_for_agents")

    # ---- messages

    async def _route_message(self, stored: StoredEvent, event: MessageReceived) -> None:
        ignored = await self._taken_away(event)
        if ignored is not None:
            await self._finish(stored, EventState.IGNORED, ignored)
            return
        sender = await self._resolve(event)
        event = self._without_useless_thread(event)
        facts = self._hub.store.peek(_facts, event, sender.user_id, self._threaded(event), self._hub.clock.now())
        if facts.own_message:
            await self._finish(stored, EventState.IGNORED, "own_message")
            return
        if facts.chat is None or not facts.wired:
            await self._nobody_wired(stored, event, sender, facts)
            return
        if facts.asked and sender.user_id is not None and await self._on_text_answer(event, sender.user_id):
            await self._finish(stored, EventState.ROUTED, "answer")
            return
        routed = []
        failed: JackfieldError | None = None
        for wired in facts.wired:
            try:
                routed.append(await self._route_wiring(stored, event, sender, facts, wired))
            except JackfieldError as problem:
                failed = problem
                self._hub.trouble("routing")
                log.warning("event %s could not be routed to %s: %s", stored.id, wired.group.folder, problem)
        reach("host.route.before_ledger")
        # Not waited for: until it is in the ledger the event is `received`, and routing it again changes nothing.
        self._hub.store.write_soon(_record, stored, event, sender, tuple(routed), failed is None, self._hub.clock.now())
        reach("host.route.after_ledger")
        for outcome in routed:
            if outcome.session is not None and outcome.state is InboundState.QUEUED:
                self._wake(outcome.session, event.answer_to or event.address)
        if failed is not None:
            raise failed

    async def _taken_away(self, event: MessageReceived) -> str | None:
        """Why the message goes to no agent at all, or None."""
        if event.sender.is_self:
            return "own_message"
        if event.sender.is_bot:
            return "bot"
        dispatcher = self._hub.plugins.dispatcher
        if dispatcher.has("intercept_inbound"):
            try:
                verdict = await dispatcher.first("intercept_inbound", event=event)
            except HookFailed as problem:
                log.warning("a message in %s was held back: %s", event.address, problem)
                return "intercept_failed"
            if verdict is not None and verdict.consume:
                return verdict.reason or "intercepted"
        return None

    async def _resolve(self, event: MessageReceived) -> ResolvedSender:
        dispatcher = self._hub.plugins.dispatcher
        if dispatcher.has("resolve_sender"):
            try:
                resolved = await dispatcher.first("resolve_sender", event=event)
            except HookFailed as problem:
                log.warning("the sender of a message in %s counts as unknown: %s", event.address, problem)
                return ResolvedSender(user_id=None, person=event.sender)
            if isinstance(resolved, ResolvedSender):
                return resolved
        handle = event.sender.handle.strip()
        found = user_id(event.address.channel_type, handle) if handle else None
        return ResolvedSender(user_id=found, person=event.sender)

    def _without_useless_thread(self, event: MessageReceived) -> MessageReceived:
        """On a channel without threads a thread id means nothing."""
        if event.address.thread_id is None or self._threaded(event):
            return event
        return replace(event, address=event.address.chat)

    def _threaded(self, event: MessageReceived) -> bool:
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        if instance is None or instance.channel is None:
            return event.address.thread_id is not None
        return instance.channel.capabilities(event.address).threads is not Threads.NONE

    def _is_local(self, event: MessageReceived) -> bool:
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        return instance is not None and instance.info is not None and instance.info.local

    async def _nobody_wired(
        self, stored: StoredEvent, event: MessageReceived, sender: ResolvedSender, facts: _Facts
    ) -> None:
        """A chat that no agent is wired to: nothing is written but for an addressed message's audit (appendix D.1)."""
        addressed = event.addressed is not Addressed.NONE or not event.is_group
        now = self._hub.clock.now()

        def note(db: sqlite3.Connection) -> None:
            if addressed:
                chats.ensure_messaging_group(
                    db,
                    event.address.chat,
                    name=event.conversation_name,
                    is_group=event.is_group,
                    policy=UnknownSenderPolicy.REQUEST_APPROVAL,
                    now=now,
                )
                _audit(db, event, "no_agent_wired", now)
            events.finish(db, stored.id, EventState.IGNORED, now=now, reason="no_agent_wired")

        await self._hub.store.write(note)

    async def _route_wiring(
        self, stored: StoredEvent, event: MessageReceived, sender: ResolvedSender, facts: _Facts, wired: _Wired
    ) -> _Routed:
        assert facts.chat is not None
        decision = await self._engages(event, wired)
        local, trust = self._is_local(event), event.sender.trust
        granted = access.can_access(facts.user_known, facts.roles, wired.is_member, wired.group.id)
        role = access.role_in(granted, trust, local)
        command = commands.gate(event.text, role)
        if isinstance(command, commands.Filtered):
            return _Routed(wired, None, None, InboundState.DROPPED, f"filtered {command.token}")
        if not decision.engage and wired.wiring.ignored_policy is IgnoredPolicy.DROP:
            return _Routed(wired, None, None, InboundState.DROPPED, decision.reason)
        if not granted.allowed:
            granted = await ask_plugins(self._hub, sender, facts.chat, wired.group) or granted
        verdict = access.gate(
            policy=facts.chat.unknown_sender_policy,
            scope=wired.wiring.sender_scope,
            access=granted,
            trust=trust,
            local=local,
        )
        if not verdict.allowed:
            # What a refused sender wrote is stored nowhere, also not as context (messaging.md 17.4, pitfall 3).
            return _Routed(wired, None, None, InboundState.REFUSED, verdict.reason)
        if isinstance(command, commands.Denied):
            await self._say(event.address, OutMessage(text=command.text), path=SendPath.COMMAND)
            return _Routed(wired, None, None, InboundState.REFUSED, f"denied {command.token}")
        session = wired.session or await self._new_session(wired)
        row = InboundRow(
            id=InboundId(derive_id("in", stored.id, wired.wiring.id)),
            kind=InboundKind.CHAT,
            content=ChatContent(
                text=event.text,
                sender=event.sender.display_name or event.sender.handle,
                sender_id=sender.user_id or "",
                sender_role=role,
                quote=event.reply_to,
                command=command.token if isinstance(command, commands.Command) else None,
            ),
            at=event.occurred_at,
            origin=event.answer_to or event.address,
            trigger=decision.engage,
            platform_message_id=event.ref.ids[0] if event.ref.ids else None,
        )
        await self._inbox.deliver(session, row, event)
        reach("host.route.after_enqueue")
        await self._tell_enqueued(session, row)
        stick = None
        if decision.engage and event.is_group and wired.wiring.engage_mode == "mention-sticky":
            stick = UnixMs(self._hub.clock.now() + round(self._hub.settings.sticky_hours * 3_600_000))
        state = InboundState.QUEUED if decision.engage else InboundState.CONTEXT
        return _Routed(wired, session, row.id, state, decision.reason, stick)

    async def _engages(self, event: MessageReceived, wired: _Wired) -> EngageDecision:
        dispatcher = self._hub.plugins.dispatcher
        if dispatcher.has("decide_engage"):
            request = EngageRequest(event=event, wiring=wired.wiring, sticky=wired.sticky)
            try:
                decided = await dispatcher.first("decide_engage", request=request)
            except HookFailed as problem:
                log.warning("a message in %s engages nobody: %s", event.address, problem)
                return EngageDecision(engage=False, reason="hook_failed")
            if isinstance(decided, EngageDecision):
                return decided
        return engage.decide(wired.wiring, event, wired.sticky)

    async def _new_session(self, wired: _Wired) -> Session:
        key = wired.key
        session, _ = await self._hub.store.write(
            sessions.session_for,
            wired.group.id,
            key.key,
            mode=key.mode,
            messaging_group_id=key.messaging_group_id,
            thread_id=key.thread_id,
            now=self._hub.clock.now(),
        )
        return session

    async def _tell_enqueued(self, session: Session, row: InboundRow) -> None:
        dispatcher = self._hub.plugins.dispatcher
        if dispatcher.has("message_enqueued"):
            message = EnqueuedMessage(session=session, message_id=row.id, trigger=row.trigger)
            await dispatcher.notify("message_enqueued", message=message)

    # ---- the rest

    async def _conversation_changed(self, event: ConversationChanged) -> None:
        def change(db: sqlite3.Connection) -> None:
            chat = chats.messaging_group_at(db, event.address.chat)
            if chat is None:
                return
            if event.change is ConversationChange.MIGRATED and event.new_address is not None:
                chats.move_chat(db, chat.id, event.new_address.chat)
            elif event.name is not None:
                chats.rename_chat(db, chat.id, event.name)

        await self._hub.store.write(change)

    async def _finish(self, stored: StoredEvent, state: EventState, reason: str | None = None) -> None:
        await self._hub.store.write(events.finish, stored.id, state, now=self._hub.clock.now(), reason=reason)


def _facts(
    db: sqlite3.Connection, event: MessageReceived, sender: UserId | None, threaded: bool, now: UnixMs
) -> _Facts:
    address = event.address
    own = any(
        deliveries.is_own_message(db, address.channel_type, address.instance, platform_id)
        for platform_id in event.ref.ids
    )
    chat = chats.messaging_group_at(db, address.chat)
    if chat is None or own:
        return _Facts(chat=chat, own_message=own)
    wired = []
    for wiring in wirings.wirings_of_chat(db, chat.id):
        group = groups.agent_group(db, wiring.agent_group_id)
        if group is None:
            continue
        mode = effective_mode(wiring.session_mode, threaded=threaded, is_group=event.is_group)
        key = session_key(mode, chat.id, address.thread_id)
        wired.append(
            _Wired(
                wiring=wiring,
                group=group,
                sticky=wirings.is_stuck(db, wiring.id, address.thread_id, now),
                is_member=sender is not None and people.is_member(db, group.id, sender),
                key=key,
                session=sessions.active_session(db, group.id, key.key),
            )
        )
    known = sender is not None and people.user(db, sender) is not None
    return _Facts(
        chat=chat,
        wired=tuple(wired),
        user_known=known,
        roles=tuple(people.roles_of(db, sender)) if known and sender is not None else (),
        asked=bool(questions.open_in_chat(db, address, now)),
    )


def _record(
    db: sqlite3.Connection,
    stored: StoredEvent,
    event: MessageReceived,
    sender: ResolvedSender,
    routed: tuple[_Routed, ...],
    complete: bool,
    now: UnixMs,
) -> None:
    """The ledger of one routed message: an entry a wiring, the audit of what was not taken, the event's end."""
    preview = event.text[:PREVIEW]
    taken = False
    for outcome in routed:
        if outcome.session is None or outcome.row_id is None:
            if outcome.state is InboundState.REFUSED:
                _audit(db, event, outcome.reason, now, outcome.wired.group)
            continue
        taken = True
        inbound.record(
            db,
            id=outcome.row_id,
            event_id=stored.id,
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
    if not complete:
        return
    reasons = ", ".join(sorted({outcome.reason for outcome in routed}))
    if not taken and not any(outcome.state is InboundState.REFUSED for outcome in routed):
        _audit(db, event, "no_agent_engaged", now)
    events.finish(
        db, stored.id, EventState.ROUTED if taken else EventState.IGNORED, now=now, reason=None if taken else reasons
    )


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
