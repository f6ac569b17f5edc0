"""What a tool set implements: async functions that the model may call.  They run in the runner.

    @tool
    async def add_numbers(context: ToolContext, a: int, b: int) -> str:
        '''Add two whole numbers.'''
        return str(a + b)

The docstring is what the model reads; the parameters' annotations become the JSON Schema (`Annotated[int, "what it
is"]` describes one).  Raise `ToolFailed` with a sentence for the model; any other exception reaches it only as "the
tool failed", and the log in full.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, overload

from jackfield.errors import JackfieldError
from jackfield.models import Address, Card, Destination, Prompt

__all__ = ["BoundTool", "Sent", "Tool", "ToolContext", "ToolFailed", "ToolResult", "ToolSet", "tool"]


class ToolFailed(JackfieldError):
    """What the model should read about why its call did not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`seq` is the message number that the agent may edit or react to; `name` where it went."""

    seq: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """A call's outcome as an MCP server reports it: one text, and whether it is an error."""

    text: str
    is_error: bool = False


class ToolContext(Protocol):
    """What a tool may do.  `to` is a destination's name, a label that the system printed, or None for the current
    conversation; an unknown one raises `ToolFailed` naming the known (C005)."""

    @property
    def agent_name(self) -> str: ...

    @property
    def workspace(self) -> Path: ...

    @property
    def origin(self) -> Address | None: ...

    @property
    def settings(self) -> dict[str, Any]:
        """What the group's `agent.toml` says for this tool set."""
        ...

    async def destinations(self) -> Sequence[Destination]: ...

    async def send(
        self, *, text: str = "", to: str | None = None, files: Sequence[Path] = (), card: Card | None = None
    ) -> Sent:
        """Write a message; it is delivered by the host.  Files are copied to the outbox."""
        ...

    async def edit(self, seq: int, text: str) -> None: ...

    async def react(self, seq: int, emoji: str, *, added: bool = True) -> None: ...

    async def ask(self, prompt: Prompt, *, to: str | None = None, timeout: float) -> str:
        """Send the question and wait for its answer: a choice's value, or a text where the prompt allows it.

        Raises:
            ToolFailed: nobody answered in time.
        """
        ...

    async def act(self, name: str, arguments: dict[str, Any], *, timeout: float = 30.0) -> Any:
        """Ask the host for what only it can do; its answer as JSON values.

        Raises:
            ToolFailed: it refused, failed, or did not answer in time.
        """
        ...

    async def secret(self, name: str) -> str:
        """The value of a secret that this agent was given (`jackfield secret assign`); its use is on record.

        Keep it out of results, messages, files and logs: use it, for a request's header, say.  Values that stand in a
        result all the same are masked.

        Raises:
            ToolFailed: the agent has no such secret; it names those that it has.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A decorated function and what the model is told of it."""

    name: str
    description: str
    function: Callable[..., Awaitable[object]]
    timeout: float | None = None
    """Seconds; None takes the group's `limits.tool_seconds` (C093)."""


@overload
def tool(function: Callable[..., Awaitable[object]], /) -> Tool: ...


@overload
def tool(
    *, name: str | None = None, timeout: float | None = None
) -> Callable[[Callable[..., Awaitable[object]]], Tool]: ...


def tool(
    function: Callable[..., Awaitable[object]] | None = None, *, name: str | None = None, timeout: float | None = None
) -> Any:
    """Turn an async function into a `Tool`.  Usable with and without parentheses."""

    def decorate(wrapped: Callable[..., Awaitable[object]]) -> Tool:
        import inspect

        if not inspect.iscoroutinefunction(wrapped):
            raise TypeError(f"tool {wrapped.__qualname__} must be an async function")
        text = inspect.getdoc(wrapped)
        if not text:
            raise TypeError(f"tool {wrapped.__qualname__} needs a docstring: it is what the model reads")
        return Tool(name=name or wrapped.__name__, description=text, function=wrapped, timeout=timeout)

    return decorate(function) if function is not None else decorate


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSet:
    """What `register_tools` returns.  `name` is the entry point's name; `instructions` go into the system prompt."""

    name: str
    title: str
    tools: tuple[Tool, ...]
    instructions: str = ""


class BoundTool(Protocol):
    """A tool of this session, ready to be called by an in-process provider or the tools endpoint."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of one flat object."""
        ...

    async def call(self, arguments: dict[str, Any]) -> ToolResult:
        """Validate, run within its time limit, and report; never raises but for cancellation."""
        ...
