"""What an agent is told of a message that did not arrive, or not all of it (C001, C075, C079).  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.errors import MalformedData
from jackfield.models import Delivery, DeliveryState, EditContent, OutMessage, ReactionContent, loads
from jackfield.store.deliveries import FILES_REFUSED

__all__ = ["EARLIER_PART_FAILED", "files_alone", "undelivered"]

EARLIER_PART_FAILED = "EarlierPartFailed"
"""The reason of parts that were not tried, because one before them failed."""


def files_alone(part: Delivery) -> tuple[str, ...]:
    """The names of a part's files; none when it holds something else as well."""
    try:
        content = loads(OutMessage | EditContent | ReactionContent, part.content)
    except MalformedData:
        return ()
    if not isinstance(content, OutMessage) or content.text.strip() or content.card or content.prompt:
        return ()
    return tuple(file.name for file in content.files)


def undelivered(parts: Sequence[Delivery]) -> str | None:
    """The sentence for one row's parts, which all have their ends; a line for each file that is missing.

    None when nothing is missing.
    """
    failed = [one for one in parts if _has_failed(one) and one.reason != EARLIER_PART_FAILED]
    missing = [line for one in parts if one.reason == FILES_REFUSED for line in (one.last_error or "").splitlines()]
    if not failed and not missing:
        return None
    first = parts[0]
    where = "another agent" if first.address.is_agent else first.address
    text = f"Your message #{first.out_seq} ({first.out_id}) to {where} was not delivered"
    count = sum(one.state in (DeliveryState.SENT, DeliveryState.ACCEPTED) for one in parts)
    arrived = f"; {count} of {first.parts} parts arrived" if first.parts > 1 else ""
    if missing or len(failed) > 1 or (arrived and files_alone(failed[0])):
        missing += [f"{_named(one)}: {_why(one)}" for one in failed]
        return "\n- ".join([f"{text} completely{arrived}. Missing:", *missing])
    (one,) = failed
    tried = "" if not one.attempts else "; tried once" if one.attempts == 1 else f"; tried {one.attempts} times"
    return f"{text} ({_why(one)}){tried}{arrived}."


def _has_failed(part: Delivery) -> bool:
    return part.state in (DeliveryState.FAILED, DeliveryState.BLOCKED, DeliveryState.DROPPED)


def _named(part: Delivery) -> str:
    return ", ".join(map(repr, files_alone(part))) or f"part {part.part}"


def _why(part: Delivery) -> str:
    return f"{part.reason}: {part.last_error}" if part.last_error else part.reason or part.state.value
