"""From accepted events to rows in inboxes: sender, chat, wirings, engage, access, session.

Each wiring is decided on its own; one that fails stops no other.  Everything here may be repeated: the row for (event,
wiring) has one id for ever, the inbox ignores what it has, the ledger too.  Only when every wiring has its outcome is
the event finished.

Messages of one chat that wait together are routed together: each is judged in its turn, then each inbox gets its rows
in one transaction and is woken once.  They are judged by what the store knew before the first of them, which is right
because the first one that changes what the next must be judged by is the last of its batch.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from jackfield.api import EngageDecision, EngageRequest, EnqueuedMessage, ResolvedSender, SendPath
from jackfield.clock import UnixMs
from jackfield.errors import HookFailed, JackfieldError
from jackfield.host import access, commands, engage
from jackfield.host.admission import ask_plugins
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.intake import StoredEvent
from jackfield.host.routing import Arrival, Facts, Outcome, Wired, facts_of
from jackfield.host.verdicts import Judged, by_session, ledger
from jackfield.ids import EventId, InboundId, SessionId, UserId, derive_id, user_id
from jackfield.models import (
    ActionInvoked,
    Address,
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
    OutMessage,
    Session,
    Threads,
)
from jackfield.models.commands import command_token
from jackfield.points import reach
from jackfield.store import chats, events, sessions

__all__ = ["Router"]

log = logging.getLogger(__name__)

_HOOKS = ("intercept_inbound", "resolve_sender", "decide_engage", "decide_access", "message_enqueued")
"""A plugin that is asked about messages, or told of them, gets one after the other, each with all before it done."""


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
        before: Callable[[Session], Awaitable[None]],
        ring: Callable[[SessionId], bool],
        wake: Callable[[Session, Address | None, bool], None],
        entered: Callable[[SessionId, Sequence[InboundId], Sequence[InboundId]], Awaitable[None]],
    ) -> None:
        """`entered` is told which messages of a session the ledger has now, and which of them its inbox had before;
        `on_text_answer` tells whether a text answered an open question; `say` sends the host's own words; `before`
        comes ahead of what is put into a session's inbox; `ring` right after it, from any thread, where a runner lives;
        `wake` then, and hears whether the runner was rung."""
        self._hub = hub
        self._channels = channels
        self._inbox = inbox
        self._on_action = on_action
        self._on_report = on_report
        self._on_text_answer = on_text_answer
        self._say = say
        self._before = before
        self._ring = ring
        self._wake = wake
        self._entered = entered

    def together(self, waiting: Sequence[StoredEvent]) -> int:
        """How many of a chat's waiting events, from the first on, may be handed to `route` at once: at least one."""
        if len(waiting) == 1 or any(self._hub.plugins.dispatcher.has(hook) for hook in _HOOKS):
            return 1
        return max(1, sum(1 for _ in takewhile(_is_plain, waiting)))

    async def route(self, waiting: Sequence[StoredEvent]) -> int:
        """Bring the first of these events of one chat to their ends; how many.

        Raises:
            JackfieldError: some could not be; these stay `received`, and all may be routed again.
        """
        stored = waiting[0]
        event = stored.event
        match event:
            case MessageReceived():
                return await self._route_messages(waiting)
            case ActionInvoked():
                await self._on_action(event)
                await self._finish(stored.id, EventState.ROUTED)
            case DeliveryReport():
                await self._on_report(event)
                await self._finish(stored.id, EventState.ROUTED)
            case ConversationChanged():
                await self._conversation_changed(event)
                await self._finish(stored.id, EventState.ROUTED)
            case _:
                # Edits, deletions and reactions of people change nothing that an agent was already told.
                await self._finish(stored.id, EventState.IGNORED, "not_for_agents")
        return 1

    # ---- messages

    async def _route_messages(self, waiting: Sequence[StoredEvent]) -> int:
        looked_at: list[tuple[Arrival, str | None]] = []
        for stored in waiting:
            assert isinstance(stored.event, MessageReceived)
            ignored = await self._taken_away(stored.event)
            looked_at.append((await self._arrival(stored.id, stored.event, ask=ignored is None), ignored))
        asked = [arrival for arrival, ignored in looked_at if ignored is None]
        facts = iter(self._hub.store.peek(facts_of, asked, self._hub.clock.now()) if asked else ())
        judged: list[Judged] = []
        for arrival, ignored in looked_at:
            known = next(facts) if ignored is None else None
            if known is not None and known.asked and known.wired:
                if judged:
                    break  # what came before it is in the inbox first
                user = arrival.sender.user_id
                if user is not None and await self._on_text_answer(arrival.event, user):
                    await self._finish(arrival.event_id, EventState.ROUTED, "answer")
                    return 1
            verdict = await self._judge(arrival, ignored, known)
            judged.append(verdict)
            if verdict.changes(known):
                await self._carry_out(judged, lasting=True)
                return len(judged)
        await self._carry_out(judged, lasting=False)
        return len(judged)

    async def _arrival(self, event_id: EventId, event: MessageReceived, *, ask: bool) -> Arrival:
        sender = await self._resolve(event) if ask else ResolvedSender(user_id=None, person=event.sender)
        threaded = self._threaded(event)
        if event.address.thread_id is not None and not threaded:
            event = replace(event, address=event.address.chat)  # on a channel without threads it means nothing
        return Arrival(event_id, event, sender, threaded)

    async def _judge(self, arrival: Arrival, ignored: str | None, facts: Facts | None) -> Judged:
        if ignored is not None or facts is None:
            return Judged(arrival, ignored=ignored or "own_message")
        if facts.chat is None or not facts.wired:
            return Judged(arrival, unwired=True)
        judged = Judged(arrival)
        for wired in facts.wired:
            try:
                judged.outcomes.append(await self._judge_wiring(arrival, facts, wired))
            except JackfieldError as problem:
                judged.failed = problem
                self._could_not([judged], wired, problem)
        return judged

    def _could_not(self, judged: Sequence[Judged], wired: Wired, problem: JackfieldError) -> None:
        self._hub.trouble("routing")
        which = ", ".join(verdict.arrival.event_id for verdict in judged)
        log.warning("event %s could not be routed to %s: %s", which, wired.group.folder, problem)

    async def _carry_out(self, judged: Sequence[Judged], *, lasting: bool) -> None:
        """Fill the inboxes and the ledger, and wake; `lasting` when the next message must find it in the ledger.

        Raises:
            JackfieldError: some message could not be routed to some agent.
        """
        waits = lasting or not all(verdict.routed for verdict in judged)
        rung: set[SessionId] = set()
        filled = [
            (session.id, mine, await self._put(session, mine, None if waits else rung))
            for session, mine in by_session(judged)
        ]
        reach("host.route.before_ledger")
        now = self._hub.clock.now()
        units = [ledger(verdict, now) for verdict in judged]
        if waits:
            await asyncio.gather(*(self._hub.store.write(unit) for unit in units))
            self._wake_all(judged, rung)
        else:
            # Not waited for: until it is in the ledger the event is `received`, and routing it again changes nothing.
            # Nothing that the runners do is recorded before it, since that is asked for later.
            self._wake_all(judged, rung)
            for unit in units:
                self._hub.store.write_soon(unit)
        reach("host.route.after_ledger")
        for session_id, mine, repeated in filled:
            ids = [outcome.row.id for _, outcome in mine if outcome.row is not None]
            await self._entered(session_id, ids, repeated)
        for verdict in judged:
            if verdict.failed is not None:
                raise verdict.failed

    def _wake_all(self, judged: Sequence[Judged], rung: set[SessionId]) -> None:
        """Wake each session once that got a message which engages it; the runners of some were `rung` already."""
        woken: set[SessionId] = set()
        for verdict in judged:
            for outcome in verdict.outcomes:
                to = outcome.session
                if to is None or outcome.state is not InboundState.QUEUED or to.id in woken:
                    continue
                woken.add(to.id)
                event = verdict.arrival.event
                self._wake(to, event.answer_to or event.address, to.id in rung)

    async def _put(
        self, session: Session, mine: Sequence[tuple[Judged, Outcome]], rung: set[SessionId] | None
    ) -> list[InboundId]:
        """Put what goes to one session into its inbox; what can't be put loses its outcome.  Those that were there.

        Its runner is rung at once, and the session added to `rung`, unless that is None.
        """
        engaged = any(outcome.state is InboundState.QUEUED for _, outcome in mine)

        def ring() -> None:
            if rung is not None and engaged and self._ring(session.id):
                rung.add(session.id)

        try:
            rows = []
            for verdict, outcome in mine:
                assert outcome.row is not None
                rows.append(await self._inbox.with_files(session, outcome.row, verdict.arrival.event))
            await self._before(session)
            repeated = await self._inbox.deliver(session, rows, ring)
        except JackfieldError as problem:
            for verdict, outcome in mine:
                verdict.outcomes.remove(outcome)
                verdict.failed = problem
            self._could_not([verdict for verdict, _ in mine], mine[0][1].wired, problem)
            return []
        for row in rows:
            reach("host.route.after_enqueue")
            await self._tell_enqueued(session, row)
        return repeated

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

    def _threaded(self, event: MessageReceived) -> bool:
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        if instance is None or instance.channel is None:
            return event.address.thread_id is not None
        return instance.channel.capabilities(event.address).threads is not Threads.NONE

    def _is_local(self, event: MessageReceived) -> bool:
        instance = self._channels.instance(event.address.channel_type, event.address.instance)
        return instance is not None and instance.info is not None and instance.info.local

    async def _judge_wiring(self, arrival: Arrival, facts: Facts, wired: Wired) -> Outcome:
        assert facts.chat is not None
        event, sender = arrival.event, arrival.sender
        decision = await self._engages(event, wired)
        local, trust = self._is_local(event), event.sender.trust
        granted = access.can_access(facts.user_known, facts.roles, wired.is_member, wired.group.id)
        role = access.role_in(granted, trust, local)
        command = commands.gate(event.text, role)
        if isinstance(command, commands.Filtered):
            return Outcome(wired, None, None, InboundState.DROPPED, f"filtered {command.token}")
        if not decision.engage and wired.wiring.ignored_policy is IgnoredPolicy.DROP:
            return Outcome(wired, None, None, InboundState.DROPPED, decision.reason)
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
            return Outcome(wired, None, None, InboundState.REFUSED, verdict.reason)
        if isinstance(command, commands.Denied):
            await self._say(event.address, OutMessage(text=command.text), path=SendPath.COMMAND)
            return Outcome(wired, None, None, InboundState.REFUSED, f"denied {command.token}")
        session = wired.session or await self._new_session(wired)
        row = InboundRow(
            id=InboundId(derive_id("in", arrival.event_id, wired.wiring.id)),
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
        stick = None
        if decision.engage and event.is_group and wired.wiring.engage_mode == "mention-sticky":
            stick = UnixMs(self._hub.clock.now() + round(self._hub.settings.sticky_hours * 3_600_000))
        state = InboundState.QUEUED if decision.engage else InboundState.CONTEXT
        return Outcome(wired, session, row, state, decision.reason, stick)

    async def _engages(self, event: MessageReceived, wired: Wired) -> EngageDecision:
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

    async def _new_session(self, wired: Wired) -> Session:
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

    async def _finish(self, event_id: EventId, state: EventState, reason: str | None = None) -> None:
        await self._hub.store.write(events.finish, event_id, state, now=self._hub.clock.now(), reason=reason)


def _is_plain(stored: StoredEvent) -> bool:
    """Whether judging it needs no waiting, and does nothing: no file to fetch, and no command."""
    event = stored.event
    return isinstance(event, MessageReceived) and not event.attachments and command_token(event.text) is None
