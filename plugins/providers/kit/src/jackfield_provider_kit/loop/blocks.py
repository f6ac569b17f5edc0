"""What a conversation is made of, in words of no model API: blocks, each said by the user's or the assistant's side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Block", "Image", "Message", "Role", "Text", "Thinking", "ToolCall", "ToolOutput", "from_json", "to_json"]

Role = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """A thought.  `raw` is what its wire gave, signature and all; it is given back as it is, to that wire only."""

    text: str
    raw: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants to be called.  `broken` holds arguments that are no JSON object, as they came."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    broken: str | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What came of the call with that id."""

    call: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Image:
    """A picture that the user's side gave; `data` is base64."""

    media_type: str
    data: str


Block = Text | Thinking | ToolCall | ToolOutput | Image


@dataclass(frozen=True, slots=True)
class Message:
    """Neighbouring blocks of one side."""

    role: Role
    blocks: tuple[Block, ...]


def to_json(role: Role, block: Block) -> dict[str, Any]:
    """The block as one record of a history."""
    match block:
        case Text():
            return {"role": role, "text": block.text}
        case Thinking():
            return {"role": role, "thinking": block.text, "raw": dict(block.raw)}
        case ToolCall():
            call: dict[str, Any] = {"role": role, "call": block.id, "name": block.name}
            return {**call, "arguments": dict(block.arguments), **({"broken": block.broken} if block.broken else {})}
        case ToolOutput():
            return {"role": role, "output": block.call, "result": block.text, "failed": block.failed}
        case Image():
            return {"role": role, "image": block.media_type, "data": block.data}


def from_json(record: Mapping[str, Any]) -> tuple[Role, Block]:
    """The block of a record.

    Raises:
        ValueError: it is none.
    """
    role: Role = "assistant" if record.get("role") == "assistant" else "user"
    try:
        if "text" in record:
            return role, Text(str(record["text"]))
        if "thinking" in record:
            return role, Thinking(str(record["thinking"]), dict(record["raw"]))
        if "call" in record:
            name, arguments = str(record["name"]), dict(record["arguments"])
            return role, ToolCall(str(record["call"]), name, arguments, record.get("broken"))
        if "output" in record:
            return role, ToolOutput(str(record["output"]), str(record["result"]), bool(record["failed"]))
        return role, Image(str(record["image"]), str(record["data"]))
    except (KeyError, TypeError) as problem:
        raise ValueError(f"no block: {problem!r}") from problem
