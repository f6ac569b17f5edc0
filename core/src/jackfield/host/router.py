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

from jackfield.api import EnqueuedMessage
from jackfield.errors import JackfieldError
from jackfield.host.admission import namesake
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.intake import StoredEvent
from jackfield.host.judging import Judging
from jackfield.host.routing import Arrival, Facts, Foreseen, Outcome, facts_of
from jackfield.host.verdicts import Judged, by_session, ledger
from jackfield.ids import EventId, InboundId, SessionId, UserId
from jackfield.models import (
    ActionInvoked,
    Address,
    ConversationChange,
    ConversationChanged,
    DeliveryReport,
    Event,
    EventState,
    InboundRow,
    InboundState,
    MessageReceived,
    Session,
)
from jackfield.models.commands import command_token
from jackfield.points import reach
from jackfield.store import chats, events

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
        ask: Callable[[Judged, Facts | None], Awaitable[bool]],
        claim: Callable[[MessageReceived], Awaitable[None]],
        before: Callable[[Session], Awaitable[None]],
        ring: Callable[[SessionId], bool],
        wake: Callable[[Session, Address | None, bool], None],
        entered: Callable[[SessionId, Sequence[InboundId], Sequence[InboundId]], Awaitable[None]],
    ) -> None:
        """`entered` is told which messages of a session the ledger has now, and which of them its inbox had before;
        `on_text_answer` tells whether a text answered an open question; `say` sends the host's own words; `ask` has
        somebody asked about an unknown sender or chat, and tells whether to keep the message; `claim` gets what claims
        ownership; `before`
        comes ahead of what is put into a session's inbox; `ring` right after it, from any thread, where a runner lives;
        `wake` then, and hears whether the runner was rung."""
        self._hub = hub
        self._judging = Judging(hub, channels, say=say, claim=claim)
        self._ask = ask
        self._inbox = inbox
        self._on_action = on_action
        self._on_report = on_report
        self._on_text_answer = on_text_answer
        self._before = before
        self._ring = ring
        self._wake = wake
        self._entered = entered

    def together(self, waiting: Sequence[StoredEvent]) -> int:
        """How many of a chat's waiting events, from the first on, may be handed to `route` at once: at least one."""
        if len(waiting) == 1 or self._asks_plugins:
            return 1
        return max(1, sum(1 for _ in takewhile(_is_plain, waiting)))

    def foresee(self, event: Event) -> Foreseen | None:
        """The facts of a message that is being accepted.  They hold as long as nothing else is written."""
        if not isinstance(event, MessageReceived) or self._asks_plugins or not self._judging.is_ordinary(event):
            return None
        written = self._hub.store.handed_in
        arrival = self._judging.arrival_of(EventId(""), event, namesake(event))
        try:
            (facts,) = self._hub.store.peek(facts_of, [arrival], self._hub.clock.now())
        except JackfieldError:
            return None
        return Foreseen(arrival, facts, written)

    @property
    def _asks_plugins(self) -> bool:
        return any(self._hub.plugins.dispatcher.has(hook) for hook in _HOOKS)

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
                self._hub.loops.person(event.address, event.user.handle)
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
        foreseen = waiting[0].foreseen if len(waiting) == 1 else None
        if isinstance(foreseen, Foreseen) and foreseen.written == self._hub.store.handed_in:
            looked_at.append((replace(foreseen.arrival, event_id=waiting[0].id), None))
            facts = iter([foreseen.facts])
        else:
            for stored in waiting:
                assert isinstance(stored.event, MessageReceived)
                ignored = await self._judging.taken_away(stored.event)
                looked_at.append((await self._judging.arrival(stored.id, stored.event, ask=ignored is None), ignored))
            asked = [arrival for arrival, ignored in looked_at if ignored is None]
            facts = iter(self._hub.store.peek(facts_of, asked, self._hub.clock.now()) if asked else ())
        judged: list[Judged] = []
        for arrival, ignored in looked_at:
            known = next(facts) if ignored is None else None
            if known is not None and known.asked:
                if judged:
                    break  # what came before it is in the inbox first
                user = arrival.sender.user_id
                if user is not None and await self._on_text_answer(arrival.event, user):
                    await self._finish(arrival.event_id, EventState.ROUTED, "answer")
                    return 1
            verdict = await self._judging.judge(arrival, ignored, known)
            if verdict.asks:
                verdict.keep = await self._ask(verdict, known)
            judged.append(verdict)
            if verdict.changes(known):
                await self._carry_out(judged, lasting=True)
                return len(judged)
        await self._carry_out(judged, lasting=False)
        return len(judged)

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
            self._judging.could_not([verdict for verdict, _ in mine], mine[0][1].wired, problem)
            return []
        for row in rows:
            reach("host.route.after_enqueue")
            await self._tell_enqueued(session, row)
        return repeated

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
