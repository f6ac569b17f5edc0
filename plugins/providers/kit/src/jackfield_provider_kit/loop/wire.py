"""What a model API must be able to do for the loop: send one request, and stream its reply in neutral words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from jackfield_provider_kit.loop.blocks import Block, Message

__all__ = [
    "BlockDone",
    "Part",
    "ReplyDone",
    "Request",
    "Stop",
    "TextPart",
    "ThinkingPart",
    "Tokens",
    "ToolSpec",
    "Wire",
]

Stop = Literal["end", "tools", "max_output", "pause", "refusal", "overflow"]
"""Why a reply ended.  `tools` is not relied upon: what counts is whether there are calls in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the model is told of it; `schema` is JSON Schema of one object."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request.  `tools` are sorted by name, so that the same tools are the same bytes."""

    system: str
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    max_output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What a request took.  `input` is without the cached parts; `reasoning` is part of `output`."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0

    @property
    def context(self) -> int:
        """How much of the window the conversation fills after this reply."""
        return self.input + self.cache_read + self.cache_write + self.output


@dataclass(frozen=True, slots=True)
class TextPart:
    """A piece of the text block number `index` of this reply."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingPart:
    text: str


@dataclass(frozen=True, slots=True)
class BlockDone:
    """The block number `index` is complete; for a text, `block` is authoritative."""

    index: int
    block: Block


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is complete.  `tokens` is None when the server did not say."""

    stop: Stop
    tokens: Tokens | None
    model: str = ""
    detail: str = ""
    """More about the stop, for example why a request was refused."""


Part = TextPart | ThinkingPart | BlockDone | ReplyDone


class Wire(Protocol):
    """One model API for the life of a session."""

    async def prepare(self) -> None:
        """Load what is slow to load.  Called early, and awaited before the first request.

        Raises:
            ProviderError: it is not installed, or set up wrongly.
        """
        ...

    def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """Send it and give the parts of the reply, in the order of their blocks, `ReplyDone` last.

        Closing the generator ends the request at once.

        Raises:
            ProviderError: it failed; nothing is tried again here.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
