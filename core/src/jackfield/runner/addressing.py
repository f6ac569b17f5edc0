"""Names to places: which destination the agent means.  Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jackfield.ids import AgentGroupId
from jackfield.models import Address, Destination
from jackfield.models.prompt_layers import CURRENT
from jackfield.runner.output import Segment
from jackfield.runner.prompt import name_of

__all__ = ["CURRENT", "Plan", "Target", "fold_text", "known_names", "plan_output", "resolve", "target_of"]


@dataclass(frozen=True, slots=True)
class Target:
    """Where something goes.  `name` is what the agent is told; `destination` is None for the turn's conversation."""

    name: str
    address: Address | None = None
    agent_group_id: AgentGroupId | None = None
    destination: str | None = None

    @property
    def is_agent(self) -> bool:
        return self.address is None or self.address.is_agent

    @property
    def key(self) -> str:
        """The place with its thread, as text."""
        return f"agent:{self.agent_group_id}" if self.address is None else str(self.address)


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a reply: texts with a place, blocks whose name is unknown, texts without any name."""

    sends: tuple[tuple[int, Target, str], ...] = ()
    """With the number of the segment, from 0."""
    unknown: tuple[Segment, ...] = ()
    unwrapped: tuple[str, ...] = ()


def target_of(place: Destination, origin: Address | None) -> Target:
    """A destination as a target.  The thread of the turn is kept only within the same chat (C050; pitfall 31).

    The agent that asked is answered in the conversation in which it asked, by whatever name it is called.
    """
    address = place.address
    if origin is not None and origin.is_agent and origin.platform_id == place.agent_group_id:
        address = origin
    if address is not None and origin is not None and address.chat == origin.chat:
        address = origin if address.thread_id is None else address
    return Target(place.name, address, place.agent_group_id if address is None else None, place.name)


def resolve(name: str | None, destinations: Sequence[Destination], origin: Address | None) -> Target | None:
    """The place that the name means, or None when nothing here is called like that.

    The exact name first, then variants in case, spaces and brackets, then display names; at last the labels that the
    system prints for the current conversation (C005).  What could mean two places means none.
    """
    if name is None:
        return None if origin is None else Target(CURRENT, origin)
    for place in destinations:
        if place.name == name:
            return target_of(place, origin)
    folded = _fold(name)
    for label in ("name", "display_name"):
        found = [place for place in destinations if _fold(getattr(place, label)) == folded]
        if len(found) == 1:
            return target_of(found[0], origin)
        if found:
            return None
    if origin is not None and folded in (_fold(CURRENT), "", _fold(name_of(origin, destinations) or CURRENT)):
        return Target(CURRENT, origin)
    return None


def known_names(destinations: Sequence[Destination], origin: Address | None) -> str:
    """The names that may be used, for an answer to one that may not."""
    names = [place.name for place in destinations]
    if origin is not None:
        names.append(CURRENT)
    return ", ".join(f'"{name}"' for name in names) or "none"


def plan_output(
    segments: Sequence[Segment], destinations: Sequence[Destination], origin: Address | None, *, wrapped_only: bool
) -> Plan:
    """Give each segment its place.  With `wrapped_only` nothing goes to the origin unless it is addressed to it."""
    sends: list[tuple[int, Target, str]] = []
    unknown: list[Segment] = []
    unwrapped: list[str] = []
    for number, segment in enumerate(segments):
        if segment.to is None and (wrapped_only or origin is None):
            unwrapped.append(segment.text)
            continue
        target = resolve(segment.to, destinations, origin)
        if target is None:
            unknown.append(segment)
        else:
            sends.append((number, target, segment.text))
    return Plan(tuple(sends), tuple(unknown), tuple(unwrapped))


def fold_text(text: str) -> str:
    """A text for comparing: runs of white space are one blank (C010)."""
    return " ".join(text.split())


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]+", "-", re.sub(r"[()\[\]{}<>\"'`@#]", "", name).strip().casefold()).strip("-")
