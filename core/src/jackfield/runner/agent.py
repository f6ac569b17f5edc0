"""The agent's side once it is loaded: its provider, its conversation and its tools, for the life of a runner."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jackfield.api import (
    Compacting,
    Continuation,
    ContinuationChanged,
    ContinuationLost,
    Notice,
    ProviderEvent,
    ProviderSpec,
    SessionClosed,
    Tool,
    ToolContext,
    TurnStarted,
    Usage,
)
from jackfield.clock import Clock
from jackfield.errors import MalformedData, ProviderError
from jackfield.ids import TurnId, new_id
from jackfield.mailbox import RunnerMailbox
from jackfield.models import (
    SCRIPT_FAILED,
    Ack,
    AckStatus,
    ActivityKind,
    Address,
    ChatContent,
    Destination,
    InboundRow,
    MessageContent,
    OutboundKind,
    RunnerSpec,
    TaskContent,
    TurnError,
    dumps,
    loads,
)
from jackfield.models.commands import COMMANDS
from jackfield.runner.addressing import CURRENT, Target, known_names
from jackfield.runner.batch import STOP, Batch
from jackfield.runner.bell import Bell, Pulse
from jackfield.runner.board import Board
from jackfield.runner.context import SessionContext
from jackfield.runner.conversation import Conversation
from jackfield.runner.desk import Desk
from jackfield.runner.environment import add_packages
from jackfield.runner.heartbeat import Heartbeat
from jackfield.runner.intake import CARRIED, Taken, scene_of
from jackfield.runner.loading import Engine
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.prompt import format_recap, notice
from jackfield.runner.prompting import prompt_of
from jackfield.runner.scripts import check_scripts
from jackfield.runner.secrets import Secrets
from jackfield.runner.system_prompt import compose
from jackfield.runner.toolbox import Toolbox
from jackfield.runner.tools import Bound, bind
from jackfield.runner.turn import Turn
from jackfield.runner.usage import Tally

if TYPE_CHECKING:
    from jackfield.runner.endpoint import Endpoint

__all__ = ["Agent"]

_LOG = logging.getLogger(__name__)
_CLOSE_SECONDS = 5.0
_RECAP = 20


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
        self.continuation_key = f"continuation:{spec.provider.lower()}"
        self._engine = engine
        add_packages(os.environ, spec.package_folders)
        self.tools = Toolbox.of(self._bind(engine), spec, secrets, board, clock, self._tool_called)
        self.last_origin: Address | None = None
        """Where the last answered person spoke, as far as this runner has written it down."""
        self._endpoint: Endpoint | None = None
        self._continuation: Continuation | None = None
        self._lost: str | None = None
        self._told_instead: str | None = None
        self._composed: tuple[tuple[str, tuple[Destination, ...]], str] | None = None
        """The last system prompt, and what it was made of."""
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
        if self._endpoint is not None:
            await self._endpoint.close()
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

    def continuation_changed(self, continuation: Continuation) -> str | None:
        """Store it at once when a crash would lose the conversation; else give it back, to be stored with the turn."""
        before, self._continuation = self._continuation, continuation
        text = dumps(continuation)
        if before is not None and (before.token, before.engine_version) == (
            continuation.token,
            continuation.engine_version,
        ):
            return text if before != continuation else None
        key = self.continuation_key
        self.mail.post("the continuation", lambda mailbox: mailbox.write(keys={key: text}))
        return None

    async def continuation_lost(self, reason: str) -> None:
        """The engine does not know the conversation any more: forget it, once, and tell the agent (C124)."""
        _LOG.warning("the provider lost the conversation: %s", reason or "no reason given")
        self._lost = reason
        self._continuation = None
        key = self.continuation_key
        await self.mail.run(lambda mailbox: mailbox.write(keys={key: None}))

    async def begin_anew(self, reason: str) -> None:
        """As above, and close the session: the next one begins without a continuation."""
        await self.conversation.close(_CLOSE_SECONDS)
        await self.continuation_lost(reason)

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
            and self._lost is None
            and self.conversation.system_prompt == self._system_prompt(taken.words, taken.scene.destinations)
            and not any(isinstance(row.content, TaskContent) for row in taken.batch.rows)
            and not self.tools.changed
            and not self.tools.has_news
        )

    async def _take_turn(self, taken: Taken, claim: asyncio.Future[Any]) -> None:
        batch = taken.batch
        printed: dict[str, str] = {}
        if any(isinstance(row.content, TaskContent) for row in batch.rows):
            await claim
            left = await self._check_tasks(taken, printed)
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
        system_prompt = self._system_prompt(taken.words, scene.destinations)
        known = self.conversation.is_open
        notices = [notice(text, "tools") for text in self.tools.take_news()]
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
        await self._drain()
        if self._lost is not None:
            notices += await self._recap(batch)
            known, self._lost = False, None
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

    def _system_prompt(self, words: str, destinations: tuple[Destination, ...]) -> str:
        made_of = (words, destinations)
        if self._composed is None or self._composed[0] != made_of:
            changed = self.spec.tool_instructions
            told = [(each.title, changed.get(each.name, each.instructions)) for each, _ in self._engine.tool_sets]
            self._composed = (made_of, compose(self.spec, words, destinations, told))
        return self._composed[1]

    async def _open(self, system_prompt: str) -> bool:
        """Open the conversation; whether it is an old one."""
        key = self.continuation_key
        continuation = _read_continuation(await self.mail.run(lambda mailbox: mailbox.key(key)))
        self._continuation = continuation
        try:
            spec = await self._provider_spec(system_prompt)
        except OSError as problem:
            raise ProviderError(
                f"could not prepare a session of {self.spec.provider}: {problem}", kind="config", scope="session"
            ) from problem
        try:
            await self.conversation.open(spec, continuation)
        except ProviderError as error:
            if error.kind != "continuation_lost" or continuation is None:
                raise
            await self.continuation_lost(error.message)
            await self.conversation.open(spec, None)
            return False
        return continuation is not None

    async def _provider_spec(self, system_prompt: str) -> ProviderSpec:
        paths = self.spec.paths
        state = Path(paths.workspace) / ".jackfield" / self.spec.session_id
        await self.mail.run(lambda mailbox: state.mkdir(parents=True, exist_ok=True))
        endpoints = []
        await self.tools.ready()
        if self.tools and not self.conversation.capabilities.in_process_tools:
            if self._endpoint is None:
                from jackfield.runner.endpoint import Endpoint

                self._endpoint = Endpoint(self.tools)
                await self._endpoint.start()
            endpoints.append(self._endpoint.address)
        return ProviderSpec(
            session_id=self.spec.session_id,
            cwd=paths.workspace,
            state_dir=str(state),
            system_prompt=system_prompt,
            model=self.spec.model,
            settings=self._engine.settings,
            tools=self.tools,
            endpoints=endpoints,
            extra_dirs=(paths.group, paths.session),
            env={name: value for name, value in os.environ.items() if name != "JACKFIELD_KILL_AT"},
            wait_budget=self.spec.limits.provider_wait,
        )

    async def _drain(self) -> None:
        """What the session said before it was asked anything."""
        while (event := self.conversation.next_event_now()) is not None:
            if isinstance(event, SessionClosed):
                self.forget_session()
                raise ProviderError(f"the engine ended: {event.reason}", kind="engine_crash", retryable=True)
            await self._between(event)

    async def _between(self, event: ProviderEvent) -> None:
        if isinstance(event, ContinuationChanged):
            text = self.continuation_changed(event.continuation)
            if text is not None:
                key = self.continuation_key
                self.mail.post("the continuation", lambda mailbox: mailbox.write(keys={key: text}))
        elif isinstance(event, ContinuationLost):
            await self.continuation_lost(event.reason)
        else:
            self.noted(event)

    async def _recap(self, batch: Batch) -> list[str]:
        """What was said before, as far as the mailbox still knows."""
        first = min(row.seq for row in batch.all_rows)

        def look(mailbox: RunnerMailbox) -> list[tuple[str, str, str]]:
            found = []
            for seq in range(first - 1, max(0, first - 1 - 3 * _RECAP), -1):
                row = mailbox.message_at(seq)
                if isinstance(row, InboundRow) and isinstance(row.content, ChatContent) and not row.content.command:
                    found.append((f"{seq}", row.content.sender, row.content.text))
                elif row is not None and isinstance(row.content, MessageContent) and not row.content.command:
                    found.append((f"{seq}", self.spec.agent_name, row.content.text))
                if len(found) == _RECAP:
                    break
            return found[::-1]

        earlier = await self.mail.run(look)
        told = notice("Your earlier conversation is lost; this is a new one. What was said last follows.", "history")
        return [told, format_recap(earlier)] if earlier else []

    async def _check_tasks(self, taken: Taken, printed: dict[str, str]) -> Batch | None:
        """Run the pre-check scripts; rows that need no model get their end here.  None when no row is left.

        A task that was cancelled or paused before its claim was on the disk does not begin (C115).
        """
        of_tasks = [row.id for row in taken.batch.rows if isinstance(row.content, TaskContent)]
        taken_back = await self.mail.run(lambda mailbox: mailbox.withdrawn(of_tasks))
        await self._end([row for row in taken.batch.rows if row.id in taken_back], AckStatus.RELEASED, taken.turn)
        left = [row for row in taken.batch.rows if row.id not in taken_back]
        verdicts = await check_scripts(left, self.spec.paths.workspace)
        rows: list[InboundRow] = []
        for row in left:
            verdict = verdicts.get(row.id)
            if verdict is None or verdict.wake:
                rows.append(row)
                if verdict is not None and verdict.output is not None:
                    printed[row.id] = verdict.output
                continue
            error = None
            if verdict.problem is not None:
                error = TurnError(kind="config", message=f"{SCRIPT_FAILED}: {verdict.problem}")
            status = AckStatus.COMPLETED if error is None else AckStatus.FAILED
            await self._end([row], status, taken.turn, error)
        if any(row.trigger for row in rows):
            return Batch(tuple(rows), taken.batch.skipped)
        await self._end(rows + list(taken.batch.skipped), AckStatus.RELEASED, taken.turn)
        return None

    # ---- commands

    async def _clear(self, taken: Taken) -> None:
        await self.conversation.close(_CLOSE_SECONDS)
        self._continuation = self._lost = None
        await self.reply(taken, "Session cleared.", keys={self.continuation_key: None, CARRIED: None})

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

    async def _end(
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


def _read_continuation(text: str | None) -> Continuation | None:
    if text is None:
        return None
    try:
        return loads(Continuation, text)
    except MalformedData as problem:
        _LOG.error("the stored continuation can't be read, a new conversation begins: %s", problem)
        return None
