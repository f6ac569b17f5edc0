"""Tool functions to tools that a model can call: schema, validation, a time limit, and an answer in every case."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jackfield.api import Tool, ToolContext, ToolFailed, ToolResult
from jackfield.clock import Clock
from jackfield.ids import new_id
from jackfield.models import ActivityKind
from jackfield.runner.board import Board
from jackfield.runner.secrets import Secrets

if TYPE_CHECKING:
    from jackfield.runner.parameters import Parameters

__all__ = ["LIMIT", "Bound", "Limit", "bind"]

_LOG = logging.getLogger(__name__)
_CANCEL_GRACE = 5.0


class Limit:
    """The time that a call may take.  It stands still while the call waits for a person or the host on purpose."""

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        self._clock = clock
        self._left = seconds if seconds else math.inf
        self._since: float | None = clock.monotonic()

    @property
    def paused(self) -> bool:
        return self._since is None

    def left(self) -> float:
        return self._left if self._since is None else self._left - (self._clock.monotonic() - self._since)

    def pause(self) -> None:
        if self._since is not None:
            self._left, self._since = self.left(), None

    def resume(self) -> None:
        if self._since is None:
            self._since = self._clock.monotonic()


LIMIT: ContextVar[Limit | None] = ContextVar("LIMIT", default=None)
"""The limit of the tool call that runs in this task."""


class Bound:
    """A tool of this session (`jackfield.api.BoundTool`)."""

    def __init__(
        self,
        tool: Tool,
        context: ToolContext,
        *,
        limit: float,
        board: Board,
        clock: Clock,
        secrets: Secrets,
        on_call: Callable[[], None],
    ) -> None:
        self._tool = tool
        self._context = context
        self._limit = limit if tool.timeout is None else tool.timeout
        self._board = board
        self._clock = clock
        self._secrets = secrets
        self._on_call = on_call

    @property
    def name(self) -> str:
        return self._tool.name

    @property
    def description(self) -> str:
        return self._tool.description

    @property
    def input_schema(self) -> dict[str, Any]:
        return self._parameters.schema

    @cached_property
    def _parameters(self) -> Parameters:
        from jackfield.runner.parameters import Parameters

        return Parameters(self._tool)

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """Validate, run within the limit, report, without the agent's secrets.  Raises nothing but cancellation."""
        return self._secrets.without(await self._answer(arguments))

    async def _answer(self, arguments: dict[str, Any]) -> ToolResult:
        self._on_call()
        self._board.did(ActivityKind.MCP_CALL, self.name, ", ".join(arguments))
        try:
            given = self._parameters.read(arguments)
        except ValueError as problem:
            return _error(str(problem))
        limit = Limit(self._clock, self._limit)
        number = new_id("call", self._clock.now())
        self._board.tool_started(number, self.name, self._limit or None)
        try:
            return await self._run(given, limit)
        finally:
            self._board.tool_ended(number)

    async def _run(self, given: dict[str, Any], limit: Limit) -> ToolResult:
        token = LIMIT.set(limit)
        task: asyncio.Task[object] = asyncio.ensure_future(_awaited(self._tool.function(self._context, **given)))
        LIMIT.reset(token)
        try:
            while not task.done() and (left := limit.left()) > 0:
                await asyncio.wait({task}, timeout=1.0 if limit.paused else None if left == math.inf else left)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_GRACE)
            raise
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_CANCEL_GRACE)
            if not task.done():
                _LOG.error("tool %s does not end although it was cancelled", self.name)
            elif not task.cancelled():
                task.exception()
            return _error(f"{self.name} took longer than {self._limit:g} s and was stopped (C093)")
        return self._result(task)

    def _result(self, task: asyncio.Task[object]) -> ToolResult:
        if task.cancelled():
            return _error(f"{self.name} was cancelled")
        problem = task.exception()
        if isinstance(problem, ToolFailed):
            return _error(problem.message)
        if problem is not None:
            _LOG.error("tool %s failed", self.name, exc_info=problem)
            return _error("the tool failed")
        return _text_of(task.result())


def bind(
    tools: Sequence[tuple[Tool, ToolContext]],
    *,
    limit: float,
    board: Board,
    clock: Clock,
    secrets: Secrets,
    on_call: Callable[[], None],
) -> list[Bound]:
    """All tools of a session.  A name that is there already is left out, with a warning (messaging.md 7)."""
    bound: dict[str, Bound] = {}
    for tool, context in tools:
        if tool.name in bound:
            _LOG.warning("tool %s is offered twice; the first one is taken", tool.name)
            continue
        bound[tool.name] = Bound(tool, context, limit=limit, board=board, clock=clock, secrets=secrets, on_call=on_call)
    return list(bound.values())


async def _awaited(pending: Awaitable[object]) -> object:
    return await pending


def _error(text: str) -> ToolResult:
    return ToolResult(text=f"Error: {text}", is_error=True)


def _text_of(value: object) -> ToolResult:
    if isinstance(value, ToolResult):
        return value
    if value is None:
        return ToolResult(text="Done.")
    if isinstance(value, str):
        return ToolResult(text=value)
    return ToolResult(text=json.dumps(value, ensure_ascii=False, default=str))
