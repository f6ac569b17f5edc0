"""What shall become of a message: who wrote it, which agents it engages, and whether they may hear it.

Nothing is stored here but a session that is new; `router` carries out what was judged.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from jackfield.api import EngageDecision, EngageRequest, ResolvedSender, SendPath
from jackfield.clock import UnixMs
from jackfield.errors import HookFailed, JackfieldError
from jackfield.host import access, commands, engage
from jackfield.host.admission import ask_plugins, resolved_sender
from jackfield.host.channels import ChannelDirectory, ChannelInstance
from jackfield.host.hub import Hub
from jackfield.host.loops import Word
from jackfield.host.registration.claiming import is_claim
from jackfield.host.routing import Arrival, Facts, Outcome, Wired
from jackfield.host.verdicts import Judged
from jackfield.ids import EventId, InboundId, derive_id
from jackfield.models import (
    Addressed,
    ChatContent,
    IgnoredPolicy,
    InboundKind,
    InboundRow,
    InboundState,
    MessageReceived,
    OutMessage,
    Session,
    Threads,
    Trust,
)
from jackfield.store import sessions

__all__ = ["Judging"]

log = logging.getLogger(__name__)

Say = Callable[..., Awaitable[None]]
Claim = Callable[[MessageReceived], Awaitable[None]]


class Judging:
    def __init__(self, hub: Hub, channels: ChannelDirectory, *, say: Say, claim: Claim) -> None:
        """`say` sends the host's own words, `claim` gets what claims ownership."""
        self._hub = hub
        self._channels = channels
        self._say = say
        self._claim = claim

    def is_ordinary(self, event: MessageReceived) -> bool:
        """Whether `taken_away` would say no, as far as no plugin is asked."""
        return not (event.sender.is_self or event.sender.is_bot or is_claim(event.text))

    async def taken_away(self, event: MessageReceived) -> str | None:
        """Why the message goes to no agent at all, or None."""
        sender = event.sender
        if sender.is_self:
            return "own_message"
        if sender.is_bot and not self._takes_bot(event):
            return "bot"
        if is_claim(event.text):
            await self._claim(event)  # the code is nobody's business, plugins' neither
            return "claim"
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

    async def arrival(self, event_id: EventId, event: MessageReceived, *, ask: bool) -> Arrival:
        """The message and who wrote it; that is looked up only when somebody needs it (`ask`)."""
        sender = await resolved_sender(self._hub, event) if ask else ResolvedSender(user_id=None, person=event.sender)
        return self.arrival_of(event_id, event, sender)

    def arrival_of(self, event_id: EventId, event: MessageReceived, sender: ResolvedSender) -> Arrival:
        threaded = self._threaded(event)
        if event.address.thread_id is not None and not threaded:
            event = replace(event, address=event.address.chat)  # on a channel without threads it means nothing
        return Arrival(event_id, event, sender, threaded)

    async def judge(self, arrival: Arrival, ignored: str | None, facts: Facts | None) -> Judged:
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
                self.could_not([judged], wired, problem)
        for text in dict.fromkeys(outcome.denial for outcome in judged.outcomes if outcome.denial):
            # Once, however many agents there are; straight through the channel (messaging.md 1.7).
            await self._say(arrival.event.address, OutMessage(text=text), path=SendPath.COMMAND)
        if any(outcome.state is InboundState.QUEUED for outcome in judged.outcomes):
            await self._break_loop(judged)
        return judged

    def could_not(self, judged: Sequence[Judged], wired: Wired, problem: JackfieldError) -> None:
        """Some messages could not be routed to an agent: counted and logged."""
        self._hub.trouble("routing")
        which = ", ".join(verdict.arrival.event_id for verdict in judged)
        log.warning("event %s could not be routed to %s: %s", which, wired.group.folder, problem)

    # ---- who

    def _instance(self, event: MessageReceived) -> ChannelInstance | None:
        return self._channels.instance(event.address.channel_type, event.address.instance)

    def _threaded(self, event: MessageReceived) -> bool:
        instance = self._instance(event)
        if instance is None or instance.channel is None:
            return event.address.thread_id is not None
        return instance.channel.capabilities(event.address).threads is not Threads.NONE

    def _is_local(self, event: MessageReceived) -> bool:
        instance = self._instance(event)
        return instance is not None and instance.info is not None and instance.info.local

    def _takes_bot(self, event: MessageReceived) -> bool:
        """What the channel's `bots` says of this message (C228); a bot's reply to ours mentions nobody."""
        instance = self._instance(event)
        bots = instance.section.bots if instance is not None else "none"
        return bots == "all" or (bots == "mentions" and event.addressed in (Addressed.MENTION, Addressed.COMMAND))

    async def _break_loop(self, judged: Judged) -> None:
        """Keep the message from all agents when it belongs to a loop, and say so once (C228, C230)."""
        event = judged.arrival.event
        instance = self._instance(event)
        if instance is None or instance.info is None or instance.info.local or instance.info.programs:
            return
        person, settings = event.sender, self._hub.settings
        word = self._hub.loops.hear(
            event.address,
            "" if person.trust is Trust.UNVERIFIED else person.handle,
            length=len(event.text),
            marked=person.is_bot,
            now=self._hub.clock.monotonic(),
            turns=settings.loop_turns,
            rest=settings.loop_rest,
        )
        if word is Word.PASS:
            return
        judged.outcomes[:] = [
            Outcome(outcome.wired, None, None, InboundState.REFUSED, "loop")
            if outcome.state is InboundState.QUEUED
            else outcome
            for outcome in judged.outcomes
        ]
        if word is Word.TRIP:
            self._hub.trouble("loop")
            log.warning("%s in %s answers at a machine's pace and gets no answer", person.handle, event.address)
            text = (
                f"I stop answering {person.display_name or person.handle} here for a while: this looks like two "
                "programs that answer each other. A person may go on after half a minute of silence."
            )
            await self._say(event.address, OutMessage(text=text), path=SendPath.NOTICE)

    # ---- one wiring

    async def _judge_wiring(self, arrival: Arrival, facts: Facts, wired: Wired) -> Outcome:
        assert facts.chat is not None
        event, sender = arrival.event, arrival.sender
        decision = await self._engages(event, wired)
        local, trust = self._is_local(event), event.sender.trust
        granted = access.can_access(facts.user_known, facts.roles, wired.is_member, wired.group.id)
        role = access.role_in(granted, trust, local)
        command = commands.gate(event.text, role, self._hub.plugins.chat_commands())
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
            # Nor is anybody asked about who only talks to others there.
            ask = verdict.ask and decision.engage
            return Outcome(wired, None, None, InboundState.REFUSED, verdict.reason, ask=ask)
        if isinstance(command, commands.Denied):
            reason = f"denied {command.token}"
            return Outcome(wired, None, None, InboundState.REFUSED, reason, denial=command.text)
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
