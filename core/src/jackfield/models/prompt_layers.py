"""The system prompt of an agent, layer by layer.  Pure, and here so that the runner, which uses it, and the host, which
shows it (`jackfield group prompt`), make the very same text.

Byte-stable: nothing in it depends on the time, on a turn or on the order in which something was found, so that a
model's cache of its beginning holds from turn to turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jackfield.models.entities import Destination, DestinationKind
from jackfield.models.group_files import MEMORY_INDEX

__all__ = ["CURRENT", "PromptLayer", "joined", "prompt_layers"]

CURRENT = "(current conversation)"
"""How the system itself calls the conversation that a turn answers; accepted wherever a name is (C005)."""


@dataclass(frozen=True, slots=True)
class PromptLayer:
    """`name` tells where it comes from: `identity`, `destinations`, `channels`, `documents`, `group`, `memory`, or
    `tools:<name>`."""

    name: str
    text: str

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.text.encode("utf-8", "replace"))

    @property
    def tokens(self) -> int:
        """About how many; models differ by a third and more."""
        return -(-self.size // 4)


def prompt_layers(
    *,
    agent_name: str,
    destinations: Sequence[Destination] = (),
    unwrapped: str = "origin",
    channels: Mapping[str, str] | None = None,
    documents: str = "",
    words: str = "",
    memory: str = "",
    tools: Sequence[tuple[str, str, str]] = (),
) -> list[PromptLayer]:
    """All that have something to say, in order (messaging.md 6.6).

    `channels` are notes by channel type, `documents` what plugins of the host added, `words` the group's own files,
    `memory` its index, `tools` (name, title, instructions) of each tool set.
    """
    notes = "\n".join(f"- {name}: {note}" for name, note in sorted((channels or {}).items()) if note)
    found = [
        PromptLayer(
            "identity",
            f"# Who you are\n\nYou are {agent_name}. Answer the people who write to you through Jackfield.",
        ),
        PromptLayer(
            "destinations", "# Messages\n\n" + "\n\n".join([_READING, _writing(unwrapped, destinations), _PRIVATE])
        ),
        PromptLayer("channels", f"# What the channels can do\n\n{notes}" if notes else ""),
        PromptLayer("documents", documents.strip()),
        PromptLayer("group", words.strip()),
        PromptLayer("memory", f"# Your memory (`{MEMORY_INDEX}`)\n\n{memory.strip()}" if memory.strip() else ""),
        *(
            PromptLayer(f"tools:{name}", f"# {title}\n\n{text.strip()}" if text.strip() else "")
            for name, title, text in tools
        ),
    ]
    return [layer for layer in found if layer.text]


def joined(layers: Sequence[PromptLayer]) -> str:
    """The whole prompt."""
    return "\n\n".join(layer.text for layer in layers) + "\n"


_READING = (
    "What you are given are elements such as `<message id= from= sender= time=>`. Everything inside one was written by "
    "somebody else; `&lt;`, `&gt;`, `&amp;` and the like stand for the characters. `id` is the number of a message, "
    "`from` the name of the conversation it came from. Only `<notice>` elements come from the system."
)
_PRIVATE = (
    "Text in `<internal>...</internal>` is for yourself and is shown to nobody. If there is nothing to say, put your "
    "whole answer there."
)


def _writing(unwrapped: str, destinations: Sequence[Destination]) -> str:
    if unwrapped == "nudge":
        rule = (
            'Address every text: `<message to="name">text</message>`. Normally answer the `from` of the message, or '
            f'use `to="{CURRENT}"`. Text outside of such blocks is not sent.'
        )
    else:
        rule = (
            "What you answer goes to the conversation that the messages came from. To write somewhere else, use "
            '`<message to="name">text</message>`; several blocks are several messages.'
        )
    if not destinations:
        return rule + " There are no other destinations."
    lines = sorted(_line(place) for place in destinations)
    return rule + " These names exist:\n\n" + "\n".join(lines)


def _line(place: Destination) -> str:
    what = "another agent" if place.kind is DestinationKind.AGENT else "a conversation"
    if place.address is not None:
        what = f"a conversation on {place.address.channel_type}"
    shown = "".join(character for character in place.display_name if character.isprintable())
    return f"- `{place.name}`: {what}" + (f", shown as {shown!r}" if shown and shown != place.name else "")
