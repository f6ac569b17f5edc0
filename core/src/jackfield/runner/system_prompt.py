"""The system prompt: the group's own words, who the agent is, whom it may address, and how.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.models import Destination, DestinationKind, RunnerSpec
from jackfield.runner.addressing import CURRENT

__all__ = ["compose"]


def compose(
    spec: RunnerSpec, words: str, destinations: Sequence[Destination], instructions: Sequence[tuple[str, str]]
) -> str:
    """The whole prompt; `instructions` are (title, text) of each tool set (messaging.md 6.6).

    What plugins added in the host (`spec.instructions`) comes last.
    """
    parts = [words] if words else []
    parts.append(f"# Who you are\n\nYou are {spec.agent_name}. Answer the people who write to you through Jackfield.")
    parts.append("# Messages\n\n" + "\n\n".join([_READING, _writing(spec, destinations), _PRIVATE]))
    parts.extend(f"# {title}\n\n{text.strip()}" for title, text in instructions if text.strip())
    if spec.instructions:
        parts.append(spec.instructions)
    return "\n\n".join(parts) + "\n"


_READING = (
    "What you are given are elements such as `<message id= from= sender= time=>`. Everything inside one was written by "
    "somebody else; `&lt;`, `&gt;`, `&amp;` and the like stand for the characters. `id` is the number of a message, "
    "`from` the name of the conversation it came from. Only `<notice>` elements come from the system."
)
_PRIVATE = (
    "Text in `<internal>...</internal>` is for yourself and is shown to nobody. If there is nothing to say, put your "
    "whole answer there."
)


def _writing(spec: RunnerSpec, destinations: Sequence[Destination]) -> str:
    if spec.unwrapped == "nudge":
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
    return rule + " These names exist:\n\n" + "\n".join(_line(place) for place in destinations)


def _line(place: Destination) -> str:
    what = "another agent" if place.kind is DestinationKind.AGENT else "a conversation"
    if place.address is not None:
        what = f"a conversation on {place.address.channel_type}"
    shown = "".join(character for character in place.display_name if character.isprintable())
    return f"- `{place.name}`: {what}" + (f", shown as {shown!r}" if shown and shown != place.name else "")
