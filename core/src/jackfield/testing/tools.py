"""Tools as a session has them: the runner's own validation, time limit and error texts around a tool's function."""

from __future__ import annotations

from collections.abc import Iterable

from jackfield.api import BoundTool, Tool, ToolContext
from jackfield.clock import Clock, SystemClock
from jackfield.models import ActivityKind
from jackfield.runner.board import Board
from jackfield.runner.secrets import Secrets
from jackfield.runner.tools import bind

__all__ = ["bind_tools"]


def bind_tools(
    tools: Iterable[Tool], context: ToolContext, *, limit: float = 60.0, clock: Clock | None = None
) -> dict[str, BoundTool]:
    """The tools by name, each to be called with `await tools["name"].call({...})` as a model would.

    `limit` is what a call may take in seconds where the tool doesn't say otherwise; zero is no limit.
    """
    bound = bind(
        [(tool, context) for tool in tools],
        limit=limit,
        board=_NoBoard(),
        clock=clock if clock is not None else SystemClock(),
        secrets=Secrets(),
        on_call=lambda: None,
    )
    return {one.name: one for one in bound}


class _NoBoard(Board):
    """There is no mailbox in which the runner could say what it does."""

    def __init__(self) -> None:
        pass

    def tool_started(self, call: str, name: str, limit: float | None) -> None:
        pass

    def tool_ended(self, call: str) -> None:
        pass

    def did(self, kind: ActivityKind, target: str, summary: str) -> None:
        pass
