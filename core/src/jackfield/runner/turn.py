"""One turn: what it took in, what the provider makes of it, and the one transaction that ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
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
from jackfield.models import (
    Ack,
    AckStatus,
    ActivityKind,
    Address,
    InboundRow,
    MessageContent,
    OutboundKind,
    OutboundRow,
    TurnError,
)
from jackfield.points import reach
from jackfield.runner.addressing import CURRENT, Target, plan_output, resolve
from jackfield.runner.batch import Batch, may_stop, sender_of
from jackfield.runner.desk import Ledger, shorten
from jackfield.runner.drafts import Drafts
from jackfield.runner.intake import CARRIED, LAST_ORIGIN, Scene, carry_on, take_during
from jackfield.runner.output import Segment, parse_output
from jackfield.runner.prompting import correction, rows_prompt

if TYPE_CHECKING:
    from jackfield.runner.agent import Agent

__all__ = ["Turn"]

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_CORRECTIONS = 2
_GRACE = 3.0
_SHELLS = frozenset({"bash", "shell", "exec", "command", "local_shell"})


@dataclass(slots=True)
class _Input:
    """One thing handed to the provider: rows, or something that the runner itself had to say (no rows)."""

    rows: tuple[InboundRow, ...]
    receipt: SendReceipt = "started"
    taken: bool = False


@dataclass(slots=True)
class _Round:
    """The texts since the provider last ended a turn."""

    blocks: list[str] = field(default_factory=list)

    def reply(self, ended: TurnEnded) -> str:
        return ended.reply if ended.reply is not None else "\n\n".join(self.blocks)

    def segments(self, reply: str) -> list[Segment]:
        """The reply's; before them what earlier texts address to somebody, if the reply doesn't hold them."""
        earlier = [text for text in self.blocks if text not in reply and "<" in text]
        return [s for text in earlier for s in parse_output(text) if s.to is not None] + parse_output(reply)


class Turn:
    """Drives the provider from the first prompt until everything that was handed in has its answer."""

    def __init__(self, agent: Agent, turn: TurnId, scene: Scene, batch: Batch | None) -> None:
        self.id = turn
        self._agent = agent
        self._scene = scene
        self._batch = batch
        self._inputs: dict[str, _Input] = {}
        self._people = (
            frozenset(filter(None, (sender_of(row) for row in batch.rows if row.trigger))) if batch else frozenset()
        )
        self._initiator = sender_of(batch.lead) if batch is not None else None
        self._round = _Round()
        self._interim: list[Segment] = []
        self._ready: list[tuple[Target, str, int | None]] = []
        self._corrections = 0
        self._tools_ran = False
        self._stopped_by: InboundRow | None = None
        self._extra_done: list[InboundRow] = []
        self._leaving = False
        self._gate = asyncio.Lock()
        self._continuation: str | None = None
        self._timers: set[asyncio.Timeout] = set()
        limit = agent.spec.limits.turn_seconds
        self._deadline = asyncio.get_running_loop().time() + limit if limit else None
        self._last_note: str | None = None
        self._begin(turn, batch)

    # ---- the life of a turn

    async def run(self, prepare: Callable[[], Awaitable[str]] | None) -> None:
        """Hand in the prompt and see the turn through.  Without one the provider began by itself.

        `prepare` opens the conversation if need be and makes the prompt; it is called once more when the engine has
        lost the conversation (C124).  Every row that was claimed has its acknowledgement when this returns; it raises
        only for a mailbox that fails.
        """
        following: asyncio.Task[None] | None = None
        try:
            try:
                await self._start(prepare)
                following = asyncio.create_task(self._follow(), name="follow-ups")
                while await self._one_round():
                    pass
            except ProviderError as error:
                if error.kind != "continuation_lost" or prepare is None or self._tools_ran:
                    raise
                await self._agent.begin_anew(error.message)
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
            if following is not None:
                following.cancel()
                await asyncio.wait({following})
                if not following.cancelled() and (problem := following.exception()) is not None:
                    _LOG.error("looking for follow-ups failed", exc_info=problem)

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
            await self._hand_in(prompt, self._batch.all_rows, "after_turn")

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
        self._drafts = Drafts(turn, agent.mail, agent.clock, agent.ring, self._draft_place)

    async def _hand_in(self, text: str, rows: Sequence[InboundRow], when: str) -> SendReceipt:
        message = ProviderInput(
            id=new_id("inp", self._agent.clock.now()),
            text=text,
            when="next_boundary" if when == "next_boundary" else "after_turn",
        )
        given = self._inputs[message.id] = _Input(tuple(rows))
        given.receipt = await self._bounded(self._agent.conversation.send(message))
        if given.receipt == "rejected":
            del self._inputs[message.id]
            if when == "after_turn":
                raise ProviderError(
                    "the provider refused the prompt: it is busy or closed", kind="protocol", retryable=True
                )
        return given.receipt

    async def _follow(self) -> None:
        """Look for requests to stop, and for rows that may join, whenever something may have come."""
        agent = self._agent
        seen = agent.pulse.count
        while True:
            await agent.pulse.wait(seen, agent.spec.limits.poll or None)
            seen = agent.pulse.count
            async with self._gate:
                await self._look()

    async def _look(self) -> None:
        agent = self._agent
        inject = agent.conversation.capabilities.inject in ("next_step", "immediate")
        now, limit = agent.clock.now(), agent.spec.limits.messages_per_prompt
        origin, people, turn = self._scene.origin, self._people, self.id
        stops, joining = await agent.mail.run(
            lambda mailbox: take_during(mailbox, now, origin, people, limit, turn, inject=inject)
        )
        for row in stops:
            await self._asked_to_stop(row)
        if joining is not None:
            await self._join(joining.rows)

    async def _join(self, rows: tuple[InboundRow, ...]) -> None:
        text = rows_prompt(self._agent.spec, self._scene, rows)
        receipt = await self._hand_in(text, rows, "next_boundary")
        if receipt == "rejected":
            await self._acknowledge(rows, AckStatus.RELEASED)
        else:
            self._agent.desk.reply_to = rows[-1].id

    async def _asked_to_stop(self, row: InboundRow) -> None:
        if not may_stop(row, self._initiator):
            if row.origin is None:
                self._extra_done.append(row)
                return
            text = "Only the person who began this, or an admin, can stop it."
            await self._say([row], text, Target(CURRENT, row.origin))
            return
        if self._stopped_by is None:
            self._stopped_by = row
            await self._agent.conversation.interrupt(_GRACE)
        else:
            self._extra_done.append(row)

    # ---- events

    async def _one_round(self) -> bool:
        """Until the provider ends its turn; whether another one is owed."""
        while True:
            event = await self._bounded(self._agent.conversation.next_event())
            self._agent.heartbeat.touch()
            if isinstance(event, TurnEnded):
                async with self._gate:
                    return await self._ended(event)
            await self._happened(event)

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
                own = event.name.rsplit("__", 1)[-1] in agent.tool_names
                if not own:
                    board.tool_started(event.call, event.name, event.deadline)
                    board.did(_activity_of(event), event.name, event.summary)
            case ToolEnded():
                board.tool_ended(event.call)
            case InputTaken():
                self._mark_taken(event.inputs)
            case TurnStarted():
                self._mark_taken(event.inputs)
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
                self._continuation = agent.continuation_changed(event.continuation)
            case ContinuationLost():
                await agent.continuation_lost(event.reason)
            case Notice() | SessionReady() | Compacting() | Usage() | Thinking() | ToolProgress():
                agent.noted(event)
            case TurnEnded():
                raise AssertionError("handled by the caller")
        if not isinstance(event, (Retrying, RateLimitedUntil)):
            board.waited("provider")

    async def _text_done(self, event: TextDone) -> None:
        """A text between tools is not the answer, but what it addresses to somebody is sent at once."""
        if event.final:
            self._round.blocks.append(event.text)
            return
        addressed = [(n, s) for n, s in enumerate(parse_output(event.text)) if s.to is not None]
        for number, segment in addressed:
            target = resolve(segment.to, self._scene.destinations, self._scene.origin)
            if target is None:
                self._interim.append(segment)
                continue
            draft = self._drafts.number_of(number, target.address)
            await self._agent.desk.send(target, segment.text, draft_block=draft)
        if addressed:
            self._drafts.sent()
        else:
            self._drafts.discard(event.block)

    def _mark_taken(self, inputs: Iterable[str]) -> None:
        for number in inputs:
            if number in self._inputs:
                self._inputs[number].taken = True

    def _draft_place(self, segment: Segment) -> Address | None:
        if segment.to is None and self._agent.spec.unwrapped == "nudge":
            return None
        target = resolve(segment.to, self._scene.destinations, self._scene.origin)
        return None if target is None else target.address

    # ---- the end

    async def _ended(self, event: TurnEnded) -> bool:
        """Conclude what the provider's turn answered; whether it owes more."""
        self._mark_taken(event.inputs)
        if self._leaving and event.outcome != "ok":
            await self._give_back()
            return False
        if event.outcome == "interrupted" and self._stopped_by is not None:
            self._round = _Round()
            self._last_note = "Stopped."
            return await self._next_turn()
        if event.outcome == "interrupted":
            raise ProviderError("the turn was interrupted", kind="cancelled", retryable=True, tools_ran=self._tools_ran)
        reply = self._round.reply(event)
        if event.outcome == "error" or (event.outcome == "limit" and not reply.strip()):
            raise event.error or ProviderError(
                f"the provider ended the turn with outcome {event.outcome} and did not say why",
                kind="budget" if event.outcome == "limit" else "server",
                tools_ran=self._tools_ran,
            )
        segments = self._round.segments(reply)
        self._round = _Round()
        if await self._place(segments, may_correct=event.outcome == "ok" and not self._leaving):
            return True
        return await self._next_turn()

    async def _next_turn(self) -> bool:
        """Conclude what is answered, and go on with what the provider still owes."""
        done, owed = self._split()
        if not done and owed and self._batch is not None:
            # A turn that the provider had begun by itself ended first; ours comes after it.
            await self._conclude([], self._scene.origin)
            return True
        await self._conclude([row for item in done for row in item.rows], self._scene.origin)
        if not owed:
            return False
        self._inputs = owed
        rows = [row for item in owed.values() for row in item.rows]
        if not rows:
            return False
        self._batch = Batch(tuple(rows))
        self._begin(TurnId(new_id("trn", self._agent.clock.now())), self._batch)
        return True

    def _split(self) -> tuple[list[_Input], dict[str, _Input]]:
        """Inputs that this end answers, and those that the provider still owes."""
        exact = self._agent.conversation.capabilities.consumed_input_ids and any(
            item.taken for item in self._inputs.values()
        )
        owed = {
            number: item
            for number, item in self._inputs.items()
            if not item.taken and (exact or item.receipt == "queued")
        }
        return [item for number, item in self._inputs.items() if number not in owed], owed

    async def _place(self, segments: Sequence[Segment], *, may_correct: bool) -> bool:
        """Find a place for each text of the reply; whether the agent was asked to mend something (C005)."""
        agent, scene = self._agent, self._scene
        wrapped_only = agent.spec.unwrapped == "nudge" and (may_correct or scene.origin is None)
        plan = plan_output(segments, scene.destinations, scene.origin, wrapped_only=wrapped_only)
        for number, target, text in plan.sends:
            self._ready.append((target, text, self._drafts.number_of(number, target.address)))
        unknown, self._interim = [*self._interim, *plan.unknown], []
        if not unknown and not plan.unwrapped:
            return False
        limit = _CORRECTIONS if unknown else 1
        if may_correct and self._corrections < limit:
            self._corrections += 1
            self._drafts.sent()
            await self._hand_in(correction(unknown, plan.unwrapped, scene), (), "after_turn")
            return True
        for segment in unknown:
            _LOG.warning("turn %s: a text for the unknown destination %r was not sent", self.id, segment.to)
        if plan.unwrapped and scene.origin is not None:
            self._ready.extend((Target(CURRENT, scene.origin), text, None) for text in plan.unwrapped)
        elif plan.unwrapped:
            _LOG.warning("turn %s: %d texts have no destination and were not sent", self.id, len(plan.unwrapped))
        if unknown and not self._ready and not agent.desk.ledger.sent:
            self._last_note = "(There was an answer, but it was addressed to a destination that does not exist.)"
        return False

    async def _conclude(self, rows: Sequence[InboundRow], origin: Address | None) -> None:
        """Rows, acknowledgements and all that goes with them, in one transaction."""
        agent = self._agent
        rows = [*rows, *self._stop_rows()]
        messages: list[OutboundRow] = []
        for target, text, draft in self._ready:
            if agent.desk.ledger.seq_of(target, text) is not None:
                continue
            agent.desk.ledger.remember(target, text, 0)
            messages.append(agent.desk.row(OutboundKind.MESSAGE, MessageContent(text=text), target, draft_block=draft))
        self._ready = []
        if self._last_note is not None and origin is not None:
            note = MessageContent(text=self._last_note, command=True)
            messages.append(agent.desk.row(OutboundKind.MESSAGE, note, Target(CURRENT, origin)))
            self._last_note = None
        keys: dict[str, str | None] = {"last_turn": self.id}
        if self._scene.carried is not None and rows:
            keys[CARRIED] = None
        if self._batch is not None and self._batch.origin is not None:
            keys[LAST_ORIGIN] = str(self._batch.origin)
        await self._commit(messages, self._acks(rows, AckStatus.COMPLETED), keys)

    async def _commit(self, messages: Sequence[OutboundRow], acks: Sequence[Ack], keys: dict[str, str | None]) -> None:
        agent = self._agent
        self._drafts.stop()
        state, activity = agent.board.settle()
        if self._continuation is not None:
            keys[agent.continuation_key] = self._continuation
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
                end_drafts_of=turn,
            )
            reach("runner.turn.after_commit")

        await agent.mail.run(write)
        agent.ring()

    async def _failed(self, error: ProviderError) -> None:
        """The turn ends with the typed error; the host decides what comes next (architecture 5, rule 5)."""
        _LOG.warning("turn %s failed: %s: %s", self.id, error.kind, error.message)
        if self._corrections:
            # The question was answered; only what the runner asked to mend was not.
            await self._conclude(self._open_rows(), self._scene.origin)
            return
        tools_ran = error.tools_ran or self._tools_ran
        rows = self._open_rows()
        told = TurnError(
            kind=error.kind,
            message=error.message,
            retryable=error.retryable,
            retry_after=error.retry_after,
            scope=error.scope,
            tools_ran=tools_ran,
            message_for_user=error.message_for_user,
        )
        keys: dict[str, str | None] = {}
        if rows:
            carried = carry_on(self._scene.carried, self.id, rows, tools_ran=tools_ran, why="error")
            keys[CARRIED] = carried.dumps()
        if error.kind == "continuation_lost":
            keys[self._agent.continuation_key] = None
            self._continuation = None
        acks = self._acks(rows, AckStatus.FAILED, told) + self._acks(self._stop_rows(), AckStatus.COMPLETED)
        await self._commit([], acks, keys)

    async def _give_back(self) -> None:
        """At a clean stop: the rows go back and cost no try; what was sent is remembered for the next runner."""
        rows = self._open_rows()
        keys: dict[str, str | None] = {}
        if rows:
            keys[CARRIED] = carry_on(self._scene.carried, self.id, rows, tools_ran=self._tools_ran, why="crash").dumps()
        await self._commit([], self._acks([*rows, *self._stop_rows()], AckStatus.RELEASED), keys)

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

    def _stop_rows(self) -> list[InboundRow]:
        """Requests to stop that have no end yet."""
        rows = [*self._extra_done, *([self._stopped_by] if self._stopped_by is not None else [])]
        self._extra_done, self._stopped_by = [], None
        return rows

    def _open_rows(self) -> list[InboundRow]:
        """Rows of this turn without an end yet."""
        rows = [row for item in self._inputs.values() for row in item.rows]
        if not self._inputs and self._batch is not None:
            rows = list(self._batch.all_rows)
        return rows

    def _acks(self, rows: Iterable[InboundRow], status: AckStatus, error: TurnError | None = None) -> list[Ack]:
        return self._agent.acks(rows, status, self.id, error)

    async def _acknowledge(self, rows: Sequence[InboundRow], status: AckStatus) -> None:
        acks = self._acks(rows, status)
        await self._agent.mail.run(lambda mailbox: mailbox.write(acks=acks))
        self._agent.ring()

    async def _say(self, rows: Sequence[InboundRow], text: str, target: Target) -> None:
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


def _activity_of(event: ToolStarted) -> ActivityKind:
    if event.source == "mcp":
        return ActivityKind.MCP_CALL
    return ActivityKind.CMD_EXEC if event.name.lower() in _SHELLS else ActivityKind.TOOL_CALL
