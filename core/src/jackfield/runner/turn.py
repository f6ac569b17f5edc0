"""One turn: what it took in, what the provider makes of it, and the one transaction that ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from jackfield.api import (
    Compacting,
    ContinuationChanged,
    ContinuationLost,
    InputTaken,
    Notice,
    ProviderEvent,
    ProviderInput,
    RateLimitedUntil,
    Retrying,
    SendReceipt,
    SessionClosed,
    SessionReady,
    TextDelta,
    TextDiscarded,
    TextDone,
    Thinking,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
)
from jackfield.errors import ProviderError
from jackfield.ids import TurnId, new_id
from jackfield.mailbox import RunnerMailbox
from jackfield.models import Ack, AckStatus, InboundRow, MessageContent, OutboundKind, OutboundRow, TurnError
from jackfield.points import reach
from jackfield.runner.addressing import Target
from jackfield.runner.answer import Answer
from jackfield.runner.batch import Batch
from jackfield.runner.board import activity_of
from jackfield.runner.desk import Ledger, shorten
from jackfield.runner.drafts import Drafts
from jackfield.runner.following import FollowUps
from jackfield.runner.inputs import Inputs
from jackfield.runner.intake import CARRIED, LAST_ORIGIN, Scene, carry_on

if TYPE_CHECKING:
    from jackfield.runner.agent import Agent

__all__ = ["Turn"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_GRACE = 3.0


class Turn:
    """Drives the provider from the first prompt until everything that was handed in has its answer."""

    def __init__(self, agent: Agent, turn: TurnId, scene: Scene, batch: Batch | None) -> None:
        self.id = turn
        self._agent = agent
        self._scene = scene
        self._batch = batch
        self._inputs = Inputs(exact=agent.conversation.capabilities.consumed_input_ids)
        self._answer = Answer(scene, agent.desk, wrapped_only=agent.spec.unwrapped == "nudge")
        self._follow_ups = FollowUps(agent, self, scene, batch)
        self._tools_ran = False
        self._leaving = False
        self._continuation: str | None = None
        self._timers: set[asyncio.Timeout] = set()
        limit = agent.spec.limits.turn_seconds
        self._deadline = asyncio.get_running_loop().time() + limit if limit else None
        self._begin(turn, batch)

    # ---- the life of a turn

    async def run(self, prepare: Callable[[], Awaitable[str]] | None) -> None:
        """Hand in the prompt and see the turn through.  Without one the provider began by itself.

        `prepare` opens the conversation if need be and makes the prompt; it is called once more when the engine has
        lost the conversation (C124).  Every row that was claimed has its acknowledgement when this returns; it raises
        only for a mailbox that fails.
        """
        try:
            try:
                await self._start(prepare)
                self._follow_ups.begin()
                while await self._one_round():
                    pass
            except ProviderError as error:
                why = self._agent.continuations.begins_anew(error)
                if why is None or prepare is None or self._tools_ran or self._leaving:
                    raise
                await self._agent.begin_anew(error.message, why)
                self._answer.forget()
                self._inputs.clear()
                await self._start(prepare)
                while await self._one_round():
                    pass
        except TimeoutError:
            if self._leaving:
                await self._give_back()
            else:
                await self._halt()
                await self._failed(_too_long(self._agent.spec.limits.turn_seconds))
        except ProviderError as error:
            if self._leaving:
                await self._give_back()
            else:
                await self._failed(error)
        finally:
            self._drafts.stop()
            await self._follow_ups.end()

    async def leave(self) -> None:
        """The runner is to end: stop the provider; what is not answered within a few seconds is given back."""
        self._leaving = True
        self._deadline = asyncio.get_running_loop().time() + _GRACE + 1.0
        for timer in self._timers:
            timer.reschedule(self._deadline)
        await self._agent.conversation.interrupt(_GRACE)

    async def _start(self, prepare: Callable[[], Awaitable[str]] | None) -> None:
        if prepare is not None and self._batch is not None:
            prompt = await self._bounded(prepare())
            await self.hand_in(prompt, self._batch.all_rows, "after_turn")

    async def _bounded(self, work: Awaitable[T]) -> T:
        """Wait for the provider, but not beyond the turn's own limit.

        Raises:
            TimeoutError: the limit has passed.
        """
        async with asyncio.timeout_at(self._deadline) as timer:
            self._timers.add(timer)
            try:
                return await work
            finally:
                self._timers.discard(timer)

    def tool_ran(self) -> None:
        """One of our tools was called."""
        self._tools_ran = True

    # ---- in

    def _begin(self, turn: TurnId, batch: Batch | None) -> None:
        self.id = turn
        agent = self._agent
        ledger = Ledger.of(self._scene.sent_before)
        agent.desk.begin(turn, self._scene.origin, batch.newest.id if batch is not None else None, ledger)
        self._drafts = Drafts(turn, agent.mail, agent.clock, agent.ring, self._answer.place_of)

    async def hand_in(self, text: str, rows: Sequence[InboundRow], when: str) -> SendReceipt:
        """Give the provider a text that these rows are answered with."""
        message = ProviderInput(
            id=new_id("inp", self._agent.clock.now()),
            text=text,
            when="next_boundary" if when == "next_boundary" else "after_turn",
        )
        self._inputs.add(message.id, rows)
        receipt = await self._bounded(self._agent.conversation.send(message))
        self._inputs.received(message.id, receipt)
        if receipt == "rejected" and when == "after_turn":
            raise ProviderError(
                "the provider refused the prompt: it is busy or closed", kind="protocol", retryable=True
            )
        return receipt

    # ---- events

    async def _one_round(self) -> bool:
        """Until the provider ends its turn; whether another one is owed."""
        conversation = self._agent.conversation
        while True:
            event = conversation.next_event_now()
            if event is None:
                event = await self._next_event()
            self._agent.heartbeat.touch()
            if isinstance(event, TurnEnded):
                async with self._follow_ups.gate:
                    return await self._ended(event)
            await self._happened(event)

    async def _next_event(self) -> ProviderEvent:
        """The next event, if it comes before the turn's limit, and before the silence has become too long.

        Raises:
            TimeoutError: the turn has taken too long.
            ProviderError: the provider said nothing for too long, although nothing kept it.
        """
        loop, idle = asyncio.get_running_loop(), self._agent.spec.limits.provider_idle
        quiet = loop.time() + idle
        while True:
            limits = [limit for limit in (self._deadline, quiet if idle else None) if limit is not None]
            try:
                async with asyncio.timeout_at(min(limits, default=None)) as timer:
                    self._timers.add(timer)
                    try:
                        return await self._agent.conversation.next_event()
                    finally:
                        self._timers.discard(timer)
            except TimeoutError:
                if self._leaving or (self._deadline is not None and loop.time() >= self._deadline):
                    raise
            if not self._agent.board.busy:
                await self._halt()
                raise ProviderError(
                    f"the provider said nothing for {idle:g} s (limits.provider_idle) and was stopped",
                    kind="stalled",
                    retryable=True,
                )
            quiet = loop.time() + idle

    async def _happened(self, event: ProviderEvent) -> None:
        agent, board = self._agent, self._agent.board
        match event:
            case TextDelta():
                self._drafts.add(event.block, event.text)
            case TextDone():
                await self._text_done(event)
            case TextDiscarded():
                self._drafts.discard(event.block)
            case ToolStarted():
                self._tools_ran = True
                if not agent.tools.owns(event.name):
                    board.tool_started(event.call, event.name, event.deadline)
                    board.did(activity_of(event), event.name, event.summary)
            case ToolEnded():
                board.tool_ended(event.call)
            case InputTaken():
                self._inputs.take(event.inputs)
            case TurnStarted():
                self._inputs.take(event.inputs)
            case Retrying():
                board.waiting("provider", event.delay, f"the provider ({event.kind})")
            case RateLimitedUntil():
                board.waiting("provider", event.seconds, "the provider (rate limit)")
            case SessionClosed():
                agent.forget_session()
                raise ProviderError(
                    f"the engine ended: {event.reason}" + (f"; {event.stderr_tail}" if event.stderr_tail else ""),
                    kind="engine_crash",
                    retryable=True,
                    tools_ran=self._tools_ran,
                )
            case ContinuationChanged():
                self._continuation = agent.continuations.changed(event.continuation)
            case ContinuationLost():
                await agent.continuations.forget(event.reason)
            case Notice() | SessionReady() | Compacting() | Usage() | Thinking() | ToolProgress():
                agent.noted(event)
            case TurnEnded():
                raise AssertionError("handled by the caller")
        if not isinstance(event, (Retrying, RateLimitedUntil)):
            board.waited("provider")

    async def _text_done(self, event: TextDone) -> None:
        if event.final:
            self._answer.add(event.text)
        elif await self._answer.send_between(event.text, self._drafts):
            self._drafts.sent()
        else:
            self._drafts.discard(event.block)

    # ---- the end

    async def _ended(self, event: TurnEnded) -> bool:
        """Conclude what the provider's turn answered; whether it owes more."""
        self._inputs.take(event.inputs)
        if self._leaving and event.outcome != "ok":
            await self._give_back()
            return False
        if event.outcome == "interrupted" and self._follow_ups.stopped_by is not None:
            self._answer.forget()
            self._answer.note = "Stopped."
            return await self._next_turn()
        if event.outcome == "interrupted":
            raise ProviderError("the turn was interrupted", kind="cancelled", retryable=True, tools_ran=self._tools_ran)
        reply = self._answer.reply(event)
        if event.outcome == "error" or (event.outcome == "limit" and not reply.strip()):
            raise event.error or ProviderError(
                f"the provider ended the turn with outcome {event.outcome} and did not say why",
                kind="budget" if event.outcome == "limit" else "server",
                tools_ran=self._tools_ran,
            )
        may_correct = event.outcome == "ok" and not self._leaving
        mend = self._answer.place(reply, self._drafts, may_correct=may_correct)
        if mend is not None:
            await self.hand_in(mend, (), "after_turn")
            return True
        return await self._next_turn()

    async def _next_turn(self) -> bool:
        """Conclude what is answered, and go on with what the provider still owes."""
        done = self._inputs.settle()
        await self._conclude(done or [])
        if done is None:
            return True  # a turn that the provider had begun by itself ended first; ours comes after it
        rows = self._inputs.rows()
        if not rows:
            return False
        if not self._agent.conversation.is_open:
            await self.acknowledge(rows, AckStatus.RELEASED)
            return False
        self._batch = Batch(tuple(rows))
        self._begin(TurnId(new_id("trn", self._agent.clock.now())), self._batch)
        return True

    async def _conclude(self, rows: Sequence[InboundRow]) -> None:
        """Rows, acknowledgements and all that goes with them, in one transaction."""
        rows = [*rows, *self._follow_ups.take_stop_rows()]
        keys: dict[str, str | None] = {}
        if self._scene.carried is not None and rows:
            keys[CARRIED] = None
        if rows:
            keys |= self._agent.continuations.ended_well()
        origin = self._batch.origin if self._batch is not None else None
        if origin is not None and origin != self._agent.last_origin:
            keys[LAST_ORIGIN] = str(origin)
        await self._commit(self._answer.rows(), self._acks(rows, AckStatus.COMPLETED), keys)
        self._agent.last_origin = origin or self._agent.last_origin

    async def _commit(self, messages: Sequence[OutboundRow], acks: Sequence[Ack], keys: dict[str, str | None]) -> None:
        agent = self._agent
        self._drafts.stop()
        state, activity = agent.board.settle()
        used = agent.take_usage()
        if self._continuation is not None:
            keys[agent.continuations.key] = self._continuation
            self._continuation = None
        turn = self.id if self._drafts.any_shown else None

        def write(mailbox: RunnerMailbox) -> None:
            reach("runner.turn.before_commit")
            mailbox.write(
                messages=[shorten(mailbox, row) for row in messages],
                acks=acks,
                state=state,
                keys=keys,
                activity=activity,
                usage=used,
                end_drafts_of=turn,
            )
            reach("runner.turn.after_commit")
            agent.ring()

        await agent.mail.run(write)

    async def _failed(self, error: ProviderError) -> None:
        """The turn ends with the typed error; the host decides what comes next (architecture 5, rule 5)."""
        _LOG.warning("turn %s failed: %s: %s", self.id, error.kind, error.message)
        if self._answer.corrections:
            # The question was answered; only what the runner asked to mend was not.
            await self._conclude(self._open_rows())
            return
        tools_ran = error.tools_ran or self._tools_ran
        rows = self._open_rows()
        keys, anew = self._agent.continuations.failed(error)
        told = TurnError(
            kind=error.kind,
            message=error.message,
            retryable=error.retryable or anew,
            retry_after=error.retry_after,
            scope=error.scope,
            tools_ran=tools_ran,
            message_for_user=error.message_for_user,
        )
        if rows:
            carried = carry_on(self._scene.carried, self.id, rows, tools_ran=tools_ran, why="error")
            keys[CARRIED] = carried.dumps()
        if anew:
            self._continuation = None
            await self._agent.conversation.close(_GRACE)
        stops = self._follow_ups.take_stop_rows()
        acks = self._acks(rows, AckStatus.FAILED, told) + self._acks(stops, AckStatus.COMPLETED)
        await self._commit([], acks, keys)

    async def _give_back(self) -> None:
        """At a clean stop: the rows go back and cost no try; what was sent is remembered for the next runner."""
        rows = self._open_rows()
        keys: dict[str, str | None] = {}
        if rows:
            keys[CARRIED] = carry_on(self._scene.carried, self.id, rows, tools_ran=self._tools_ran, why="crash").dumps()
        await self._commit([], self._acks([*rows, *self._follow_ups.take_stop_rows()], AckStatus.RELEASED), keys)

    async def _halt(self) -> None:
        """Stop a turn that took too long: kindly, so that the engine can save its state, and then with its session."""
        conversation = self._agent.conversation
        ends = (TurnEnded, SessionClosed)
        try:
            async with asyncio.timeout(_GRACE * 2):
                await conversation.interrupt(_GRACE)
                while conversation.is_open and not isinstance(await conversation.next_event(), ends):
                    pass
        except TimeoutError:
            _LOG.warning("turn %s does not end although it was interrupted", self.id)
        await conversation.close(_GRACE)

    def _open_rows(self) -> list[InboundRow]:
        """Rows of this turn without an end yet."""
        if not self._inputs and self._batch is not None:
            return list(self._batch.all_rows)
        return self._inputs.rows()

    def _acks(self, rows: Iterable[InboundRow], status: AckStatus, error: TurnError | None = None) -> list[Ack]:
        return self._agent.acks(rows, status, self.id, error)

    async def acknowledge(self, rows: Sequence[InboundRow], status: AckStatus) -> None:
        """Give rows their end, on their own."""
        acks = self._acks(rows, status)
        await self._agent.mail.run(lambda mailbox: mailbox.write(acks=acks))
        self._agent.ring()

    async def say(self, rows: Sequence[InboundRow], text: str, target: Target) -> None:
        """A word of the runner itself, which completes these rows."""
        row = self._agent.desk.row(OutboundKind.MESSAGE, MessageContent(text=text, command=True), target)
        acks = self._acks(rows, AckStatus.COMPLETED)
        await self._agent.mail.run(lambda mailbox: mailbox.write(messages=[row], acks=acks))
        self._agent.ring()


def _too_long(seconds: float) -> ProviderError:
    return ProviderError(
        f"the turn took longer than {seconds:g} s (limits.turn_seconds) and was stopped",
        kind="stalled",
        message_for_user="That took too long and was stopped.",
    )
