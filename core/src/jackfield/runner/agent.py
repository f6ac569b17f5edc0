"""The agent's side once it is loaded: its provider, its conversation and its tools, for the life of a runner."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

from jackfield.api import (
    Compacting,
    ContinuationChanged,
    ContinuationLost,
    Notice,
    ProviderEvent,
    SessionClosed,
    Tool,
    ToolContext,
    TurnStarted,
    Usage,
)
from jackfield.clock import Clock
from jackfield.errors import ProviderError
from jackfield.ids import TurnId, new_id
from jackfield.models import (
    Ack,
    AckStatus,
    ActivityKind,
    Address,
    ChatContent,
    InboundRow,
    MessageContent,
    OutboundKind,
    RunnerSpec,
    TaskContent,
    TurnError,
    UsageEntry,
)
from jackfield.models.commands import COMMANDS
from jackfield.runner.addressing import CURRENT, Target, known_names
from jackfield.runner.batch import STOP, Batch
from jackfield.runner.bell import Bell, Pulse
from jackfield.runner.board import Board
from jackfield.runner.context import SessionContext
from jackfield.runner.continuations import Continuations
from jackfield.runner.conversation import Conversation
from jackfield.runner.desk import Desk
from jackfield.runner.environment import add_packages
from jackfield.runner.heartbeat import Heartbeat
from jackfield.runner.intake import CARRIED, Taken, scene_of
from jackfield.runner.loading import Engine
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.opening import Opening
from jackfield.runner.prompt import notice
from jackfield.runner.prompting import prompt_of
from jackfield.runner.recap import recap
from jackfield.runner.recovery import Reason, anew_after_crashes
from jackfield.runner.secrets import Secrets
from jackfield.runner.task_checks import check_tasks
from jackfield.runner.toolbox import Toolbox
from jackfield.runner.tools import Bound, bind
from jackfield.runner.turn import Turn
from jackfield.runner.usage import Tally

__all__ = ["Agent"]

_LOG = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0


class Agent:
    """Answers batches, one at a time."""

    def __init__(
        self,
        spec: RunnerSpec,
        engine: Engine,
        mail: MailRoom,
        clock: Clock,
        bell: Bell,
        pulse: Pulse,
        board: Board,
        heartbeat: Heartbeat,
        secrets: Secrets,
    ) -> None:
        self.spec = spec
        self.mail = mail
        self.clock = clock
        self.pulse = pulse
        self.board = board
        self.heartbeat = heartbeat
        self.secrets = secrets
        secrets.tell(self._used_secret)
        self.ring = bell.ring
        self.desk = Desk(mail, clock, spec.epoch, bell.ring)
        self.conversation = Conversation(engine.provider, self._event_came)
        self.continuations = Continuations(mail, spec.provider)
        add_packages(os.environ, spec.package_folders)
        self.tools = Toolbox.of(self._bind(engine), spec, secrets, board, clock, self._tool_called)
        in_process = self.conversation.capabilities.in_process_tools
        self._opening = Opening(spec, engine, mail, self.tools, in_process=in_process, token=secrets.gateway_token)
        self.last_origin: Address | None = None
        """Where the last answered person spoke, as far as this runner has written it down."""
        self._told_instead: str | None = None
        self._may_be_suspected = True
        """Whether this runner has not asked yet if the conversation is what ends runners."""
        self._tally = Tally()
        self._turn: Turn | None = None
        self._leaving = False

    @property
    def has_news(self) -> bool:
        """Whether the provider said something although nobody asked."""
        return self.conversation.has_events

    # ---- what the loop calls

    async def answer(self, taken: Taken, claim: asyncio.Future[Any]) -> None:
        """See a batch through to its acknowledgements.

        `claim` is done when the batch is claimed on the disk.  A prompt for an open conversation is made meanwhile;
        everything else, and the provider above all, waits for it.

        Raises:
            MailboxError: it could not be claimed, or the mailbox fails.
        """
        batch = taken.batch
        if not self._may_prepare(taken):
            await claim
        if batch.command == "/clear":
            await self._clear(taken)
        elif batch.command == STOP:
            await self.reply(taken, "Nothing is running.")
        elif batch.command is None or batch.command in self.conversation.capabilities.native_commands:
            await self._take_turn(taken, claim)
        elif batch.command == "/compact" and self.conversation.capabilities.compaction:
            await self._compact(taken)
        elif batch.command == "/context":
            await self.reply(taken, self._tally.context_text())
        elif batch.command == "/cost":
            await self.reply(taken, self._tally.cost_text())
        elif batch.command in COMMANDS:
            await self.reply(taken, f"{batch.command} is not available with this agent's engine.")
        else:
            await self._take_turn(taken, claim)

    async def hear(self) -> None:
        """Take in what the provider said between turns; a turn that it began by itself is seen through."""
        while (event := self.conversation.next_event_now()) is not None:
            if isinstance(event, TurnStarted):
                scene = await self.mail.run(lambda mailbox: scene_of(mailbox, None))
                self._turn = Turn(self, TurnId(new_id("trn", self.clock.now())), scene, None)
                try:
                    await self._turn.run(None)
                finally:
                    self._turn = None
            elif isinstance(event, SessionClosed):
                _LOG.warning("the engine ended between turns: %s", event.reason)
                self.forget_session()
                await self.conversation.close(_CLOSE_SECONDS)
            else:
                await self._between(event)

    async def leave(self) -> None:
        """The runner is to end: hurry the running turn."""
        self._leaving = True
        if self._turn is not None:
            await self._turn.leave()

    async def close(self) -> None:
        await self.conversation.close(_CLOSE_SECONDS)
        if used := self.take_usage():
            self.mail.post("what was used", lambda mailbox: mailbox.write(usage=used))
        await self._opening.close()
        await self.tools.close()

    # ---- what a turn calls

    def acks(
        self, rows: Iterable[InboundRow], status: AckStatus, turn: TurnId, error: TurnError | None = None
    ) -> list[Ack]:
        now = self.clock.now()
        return [
            Ack(
                message_id=row.id,
                status=status,
                attempt=row.attempt,
                epoch=self.spec.epoch,
                at=now,
                turn=turn,
                error=error,
            )
            for row in rows
        ]

    async def begin_anew(self, reason: str, why: Reason = "lost") -> None:
        """Give the conversation up: close the session, and let the next one begin without a continuation."""
        await self.conversation.close(_CLOSE_SECONDS)
        await self.continuations.forget(reason, why)

    def take_usage(self) -> list[UsageEntry]:
        """What the host was not told yet; nothing when a gateway counts it."""
        return [] if self.spec.gateway else self._tally.take(self.spec.provider, self.clock.now())

    def forget_session(self) -> None:
        """The engine is gone; the continuation stays."""
        self.conversation.gone()

    def noted(self, event: ProviderEvent) -> None:
        """Chatter of the engine goes to the log, never into a reply."""
        match event:
            case Notice():
                level = logging.WARNING if event.level in ("warning", "error") else logging.DEBUG
                _LOG.log(level, "engine: %s %s", event.code, event.text)
            case Usage():
                self._tally.add(event)
                _LOG.debug("usage of a %s: %d in, %d out", event.scope, event.input, event.output)
            case Compacting():
                _LOG.info("compacting %s, %s -> %s tokens", event.phase, event.before, event.after)
            case _:
                return

    # ---- turns

    def _may_prepare(self, taken: Taken) -> bool:
        """Whether making the prompt changes nothing that a failed claim could not take back."""
        return (
            taken.batch.command is None
            and self.conversation.is_open
            and self.continuations.lost is None
            and self.conversation.system_prompt == self._opening.system_prompt(taken.words, taken.scene.destinations)
            and not any(isinstance(row.content, TaskContent) for row in taken.batch.rows)
            and not self.tools.changed
            and not self.tools.has_news
        )

    async def _take_turn(self, taken: Taken, claim: asyncio.Future[Any]) -> None:
        batch = taken.batch
        printed: dict[str, str] = {}
        if any(isinstance(row.content, TaskContent) for row in batch.rows):
            await claim
            left = await check_tasks(self, taken, printed)
            if left is None:
                return
            batch = left

        async def prepare() -> str:
            prompt = await self._prepare(taken, batch, printed)
            await claim
            return prompt

        self._turn = turn = Turn(self, taken.turn, taken.scene, batch)
        if self._leaving:
            await turn.leave()
        try:
            await turn.run(prepare)
        finally:
            self._turn = None

    async def _prepare(self, taken: Taken, batch: Batch, printed: dict[str, str]) -> str:
        """Have a conversation open whose system prompt is up to date, and make the prompt."""
        scene = taken.scene
        broken = scene.carried
        if broken is not None and self._may_be_suspected and not self.conversation.is_open:
            self._may_be_suspected = False
            why = anew_after_crashes(len(broken.turns), broken.reason)
            if why is not None:
                await self.begin_anew(f"{len(broken.turns)} turns in a row", why)
        if not self.conversation.is_open:
            await self._opening.look_at_memory()
        system_prompt = self._opening.system_prompt(taken.words, scene.destinations)
        known = self.conversation.is_open
        notices: list[str] = []
        if known and self.tools.changed:
            await self._tools_have_changed(notices)
        if known and self.conversation.system_prompt != system_prompt:
            if self.conversation.capabilities.resume:
                await self.conversation.close(_CLOSE_SECONDS)
            elif self._told_instead != system_prompt:
                self._told_instead = system_prompt
                names = known_names(scene.destinations, scene.origin)
                notices.append(notice(f"The destinations that you may address are now: {names}", "destinations"))
        if not self.conversation.is_open:
            known = await self._open(system_prompt)
        # Only now: servers are started when the conversation is opened.
        notices += [notice(text, "tools") for text in self.tools.take_news()]
        await self._drain()
        if self.continuations.lost is not None:
            notices += await recap(self.mail, batch, self.spec.agent_name, self.continuations.lost)
            known, self.continuations.lost = False, None
        content = batch.rows[0].content
        native = batch.command is not None and batch.command in self.conversation.capabilities.native_commands
        if native and isinstance(content, ChatContent):
            return content.text
        return prompt_of(self.spec, scene, batch, resumes=known, notices=notices, script_output=printed)

    async def _tools_have_changed(self, notices: list[str]) -> None:
        """An engine lists its tools once, so it is opened anew where it can go on with the conversation."""
        capabilities = self.conversation.capabilities
        if not capabilities.in_process_tools and capabilities.resume:
            await self.conversation.close(_CLOSE_SECONDS)
            return
        self.tools.accept()
        if not capabilities.in_process_tools:
            notices.append(notice("The tools of your MCP servers have changed; some may be missing.", "tools"))

    async def _open(self, system_prompt: str) -> bool:
        """Open the conversation; whether it is an old one."""
        continuation = await self.continuations.load()
        try:
            spec = await self._opening.spec(system_prompt)
        except OSError as problem:
            raise ProviderError(
                f"could not prepare a session of {self.spec.provider}: {problem}", kind="config", scope="session"
            ) from problem
        try:
            await self.conversation.open(spec, continuation)
        except ProviderError as error:
            if error.kind != "continuation_lost" or continuation is None:
                raise
            await self.continuations.forget(error.message)
            await self.conversation.open(spec, None)
            return False
        return continuation is not None

    async def _drain(self) -> None:
        """What the session said before it was asked anything."""
        while (event := self.conversation.next_event_now()) is not None:
            if isinstance(event, SessionClosed):
                self.forget_session()
                raise ProviderError(f"the engine ended: {event.reason}", kind="engine_crash", retryable=True)
            await self._between(event)

    async def _between(self, event: ProviderEvent) -> None:
        if isinstance(event, ContinuationChanged):
            self.continuations.keep(event.continuation)
        elif isinstance(event, ContinuationLost):
            await self.continuations.forget(event.reason)
        else:
            self.noted(event)

    # ---- commands

    async def _clear(self, taken: Taken) -> None:
        await self.conversation.close(_CLOSE_SECONDS)
        keys = await self.continuations.clear()
        await self.reply(taken, "Session cleared.", keys={**keys, CARRIED: None})

    async def _compact(self, taken: Taken) -> None:
        try:
            if not self.conversation.is_open:
                await self._prepare(taken, taken.batch, {})
            await self.conversation.compact()
            await self._drain()
        except ProviderError as error:
            _LOG.warning("could not compact: %s", error.message)
            await self.reply(taken, "The conversation could not be compacted.")
            return
        await self.reply(taken, "Conversation compacted.")

    async def reply(self, taken: Taken, text: str, *, keys: dict[str, str | None] | None = None) -> None:
        """Answer a command and complete it."""
        batch = taken.batch
        self.desk.begin(taken.turn, taken.scene.origin, batch.newest.id, self.desk.ledger)
        messages = []
        if taken.scene.origin is not None:
            said = MessageContent(text=text, command=True)
            messages.append(self.desk.row(OutboundKind.MESSAGE, said, Target(CURRENT, taken.scene.origin)))
        acks = self.acks(batch.all_rows, AckStatus.COMPLETED, taken.turn)
        told = keys or {}
        await self.mail.run(lambda mailbox: mailbox.write(messages=messages, acks=acks, keys=told))
        self.ring()

    async def end(
        self, rows: Sequence[InboundRow], status: AckStatus, turn: TurnId, error: TurnError | None = None
    ) -> None:
        if not rows:
            return
        acks = self.acks(rows, status, turn, error)
        await self.mail.run(lambda mailbox: mailbox.write(acks=acks))
        self.ring()

    # ---- tools

    def _bind(self, engine: Engine) -> list[Bound]:
        pairs: list[tuple[Tool, ToolContext]] = []
        for found, settings in engine.tool_sets:
            context = SessionContext(self.spec, settings, self.desk, self.pulse, self.board, self.secrets)
            pairs.extend((tool, context) for tool in found.tools)
        return bind(
            pairs,
            limit=self.spec.limits.tool_seconds,
            board=self.board,
            clock=self.clock,
            secrets=self.secrets,
            on_call=self._tool_called,
        )

    def _used_secret(self, name: str) -> None:
        self.board.did(ActivityKind.SECRET_USE, name, "")

    def _tool_called(self) -> None:
        if self._turn is not None:
            self._turn.tool_ran()

    def _event_came(self) -> None:
        if self._turn is None:
            self.pulse.beat()
