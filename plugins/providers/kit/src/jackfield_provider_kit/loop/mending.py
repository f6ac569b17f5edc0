"""Makes a history sendable, whatever a crash, an interruption or a bad block did to it.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.errors import ProviderError

from jackfield_provider_kit.loop.blocks import Block, Image, Message, Role, Text, Thinking, ToolCall, ToolOutput

__all__ = ["UNFINISHED", "cut_text", "lighten", "mend"]

UNFINISHED = (
    "The process ended before this call did. Whether it took effect is not known: look before you call it again."
)
_NO_IMAGE = "(There was an image here that the model's API could not take.)"
_BEGINNING = "(The conversation goes on.)"
_LARGE = 16_000
"""Characters above which a block is cut when a request was too large."""
_KEPT = 6_000

Said = tuple[Role, Block]


def mend(said: Sequence[Said]) -> list[Message]:
    """The messages to send: sides alternate, the user begins, each tool call has exactly one output, right after it.

    A call without an output gets one that says so (an API refuses it otherwise); an output without a call, an empty
    text and an empty message are left out.
    """
    messages: list[Message] = []
    calls: list[ToolCall] = []

    def close(blocks: Sequence[Block]) -> list[Block]:
        given = {block.call: block for block in blocks if isinstance(block, ToolOutput)}
        outputs = [given.get(call.id) or ToolOutput(call.id, UNFINISHED, failed=True) for call in calls]
        calls.clear()
        return [*outputs, *(block for block in blocks if not isinstance(block, ToolOutput))]

    for role, blocks in _grouped(said):
        if role == "assistant":
            if calls:
                messages.append(Message("user", tuple(close(()))))
            elif not messages:
                messages.append(Message("user", (Text(_BEGINNING),)))
            calls.extend(block for block in blocks if isinstance(block, ToolCall))
        else:
            blocks = close(blocks)
        if blocks:
            messages.append(Message(role, tuple(blocks)))
    if calls:
        messages.append(Message("user", tuple(close(()))))
    return messages


def _grouped(said: Sequence[Said]) -> list[tuple[Role, list[Block]]]:
    groups: list[tuple[Role, list[Block]]] = []
    for role, block in said:
        if isinstance(block, Text) and not block.text.strip():
            continue
        if groups and groups[-1][0] == role:
            groups[-1][1].append(block)
        else:
            groups.append((role, [block]))
    return groups


def lighten(said: Sequence[Said], error: ProviderError) -> list[Said] | None:
    """The history without what an API may have refused the request for; None when there is nothing to leave out.

    Thoughts, when it speaks of them; else images, replaced by a word; else, when the request was too large (413), every
    tool output above 16,000 characters is cut to 6,000.
    """
    if "thinking" in error.message.lower():
        kept: list[Said] = [(role, block) for role, block in said if not isinstance(block, Thinking)]
        return kept if len(kept) < len(said) else None
    if any(isinstance(block, Image) for _, block in said):
        return [(role, Text(_NO_IMAGE) if isinstance(block, Image) else block) for role, block in said]
    if error.status != 413 or not any(isinstance(b, ToolOutput) and len(b.text) > _LARGE for _, b in said):
        return None
    return [(role, _cut(block) if isinstance(block, ToolOutput) else block) for role, block in said]


def _cut(output: ToolOutput) -> ToolOutput:
    if len(output.text) <= _LARGE:
        return output
    return ToolOutput(output.call, cut_text(output.text, _KEPT), output.failed)


def cut_text(text: str, limit: int, note: str = "") -> str:
    """At most about `limit` characters: three quarters of them from the beginning, the rest from the end."""
    if len(text) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    left_out = len(text) - head - tail
    return f"{text[:head]}\n\n[... {left_out} characters are left out{note} ...]\n\n{text[len(text) - tail :]}"
