"""Rows to models and back.

The host's readers take nothing on trust: a runner is the hostile side, and each cell must have its type, its range and,
where it becomes a path, a plain name.  What fails is `MalformedData`, told of one row only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from jackfield.clock import UnixMs
from jackfield.errors import MalformedData
from jackfield.ids import AgentGroupId, InboundId, OutboundId, TurnId
from jackfield.mailbox.names import safe_name
from jackfield.mailbox.schema import ROW_LIMIT
from jackfield.models import (
    Ack,
    AckStatus,
    ActionRequest,
    ActivityKind,
    ActivityRow,
    Address,
    Delivered,
    Destination,
    DestinationKind,
    Draft,
    EditContent,
    InboundContent,
    InboundKind,
    InboundRow,
    MessageContent,
    OutboundContent,
    OutboundKind,
    OutboundRow,
    ReactionContent,
    RunnerState,
    TurnError,
    UsageEntry,
    dumps,
    loads,
)

__all__ = [
    "ACK_COLUMNS",
    "ACTIVITY_COLUMNS",
    "DRAFT_COLUMNS",
    "INBOUND_COLUMNS",
    "OUTBOUND_COLUMNS",
    "USAGE_COLUMNS",
    "ack_row",
    "ack_values",
    "activity_row",
    "delivered_row",
    "destination_row",
    "destination_values",
    "draft_row",
    "inbound_row",
    "inbound_values",
    "json_names",
    "outbound_row",
    "outbound_values",
    "plain",
    "state_row",
    "usage_row",
    "usage_values",
]

INBOUND_COLUMNS: Final = (
    'seq, id, kind, content, at, origin, due_at, "trigger", attempt, platform_message_id, source_session_id, hops'
)
OUTBOUND_COLUMNS: Final = (
    "seq, id, kind, content, at, epoch, turn, destination, address, agent_group_id, in_reply_to, draft_block"
)
ACK_COLUMNS: Final = "change, message_id, status, attempt, epoch, at, turn, error"
ACTIVITY_COLUMNS: Final = "seq, kind, target, summary, at"
USAGE_COLUMNS: Final = "seq, content, at"
DRAFT_COLUMNS: Final = "turn, block, address, text, at"

K = TypeVar("K", bound=StrEnum)

_CONTENT_OF: Final[dict[OutboundKind, type]] = {
    OutboundKind.MESSAGE: MessageContent,
    OutboundKind.EDIT: EditContent,
    OutboundKind.REACTION: ReactionContent,
    OutboundKind.ACTION: ActionRequest,
}
_YEAR_9999: Final = 253_402_300_799_999
_ID_LENGTH: Final = 200
_USAGE_LENGTH: Final = 2000
_NAME_LENGTH: Final = 4096


def plain(text: str) -> str:
    """The text as SQLite takes it: half a surrogate pair becomes '?'."""
    return text.encode("utf-8", "replace").decode()


def _limited(content: str, row_id: str) -> str:
    if len(content) * 4 > ROW_LIMIT and len(content.encode()) > ROW_LIMIT:
        raise MalformedData(
            f"row {row_id} has {len(content.encode())} bytes of content, more than {ROW_LIMIT}",
            fix="put long text into a file",
        )
    return content


# Written by the host, read by the runner.


def inbound_values(row: InboundRow, seq: int) -> tuple[object, ...]:
    """The cells for `INBOUND_COLUMNS`.

    Raises:
        MalformedData: its content is over 1 MiB.
    """
    return (
        seq,
        row.id,
        row.kind.value,
        _limited(dumps(row.content), row.id),
        row.at,
        None if row.origin is None else _address_text(row.origin),
        row.due_at,
        int(row.trigger),
        row.attempt,
        None if row.platform_message_id is None else plain(row.platform_message_id),
        row.source_session_id,
        row.hops,
    )


def inbound_row(cells: Sequence[Any]) -> InboundRow:
    """A row from the cells of `INBOUND_COLUMNS`."""
    seq, id_, kind, content, at, origin, due_at, trigger, attempt, platform_message_id, source, hops = cells
    return InboundRow(
        id=InboundId(id_),
        kind=InboundKind(kind),
        content=loads(InboundContent, content),
        at=UnixMs(at),
        origin=None if origin is None else Address.parse(origin),
        due_at=UnixMs(due_at),
        trigger=bool(trigger),
        attempt=attempt,
        platform_message_id=platform_message_id,
        source_session_id=source,
        hops=hops,
        seq=seq,
    )


def destination_values(destination: Destination) -> tuple[object, ...]:
    """The cells of a row of `destinations`."""
    return (
        plain(destination.name),
        destination.kind.value,
        plain(destination.display_name),
        None if destination.address is None else _address_text(destination.address),
        destination.agent_group_id,
    )


def destination_row(cells: Sequence[Any]) -> Destination:
    """A destination from its cells."""
    name, kind, display_name, address, agent_group_id = cells
    return Destination(
        name=name,
        kind=DestinationKind(kind),
        display_name=display_name,
        address=None if address is None else Address.parse(address),
        agent_group_id=None if agent_group_id is None else AgentGroupId(agent_group_id),
    )


def delivered_row(cells: Sequence[Any]) -> Delivered:
    """What became of an outbound row, from its cells."""
    out_seq, state, platform_ids, at = cells
    return Delivered(out_seq=out_seq, state=state, platform_ids=loads(tuple[str, ...], platform_ids), at=UnixMs(at))


# Written by the runner, read by the host as the work of a stranger.


def outbound_values(row: OutboundRow, seq: int) -> tuple[object, ...]:
    """The cells for `OUTBOUND_COLUMNS`.

    Raises:
        MalformedData: its content is over 1 MiB or of another kind, or it has not exactly one addressee.
    """
    _coherent(row)
    return (
        seq,
        row.id,
        row.kind.value,
        _limited(dumps(row.content), row.id),
        row.at,
        row.epoch,
        row.turn,
        None if row.destination is None else plain(row.destination),
        None if row.address is None else _address_text(row.address),
        row.agent_group_id,
        row.in_reply_to,
        row.draft_block,
    )


def outbound_row(cells: Sequence[object]) -> OutboundRow:
    """A row from the cells of `OUTBOUND_COLUMNS`, text as bytes or str.

    Raises:
        MalformedData: a cell is not what it must be; the message names it.
    """
    seq, id_, kind, content, at, epoch, turn, destination, address, agent_group_id, in_reply_to, draft_block = cells
    number = _integer(seq, "seq", 1)
    if number % 2 == 0:
        raise MalformedData(f"seq: {number} is even, which is the host's side")
    row = OutboundRow(
        id=OutboundId(safe_name(_text(id_, "id", _ID_LENGTH))),
        kind=_kind(OutboundKind, kind, "kind"),
        content=loads(OutboundContent, _text(content, "content", ROW_LIMIT)),
        at=_moment(at),
        epoch=_integer(epoch, "epoch"),
        turn=_turn(turn),
        destination=None if destination is None else _text(destination, "destination", _NAME_LENGTH),
        address=None if address is None else Address.parse(_text(address, "address", _NAME_LENGTH)),
        agent_group_id=None
        if agent_group_id is None
        else AgentGroupId(_text(agent_group_id, "agent_group_id", _ID_LENGTH)),
        in_reply_to=None if in_reply_to is None else InboundId(_text(in_reply_to, "in_reply_to", _ID_LENGTH)),
        draft_block=None if draft_block is None else _integer(draft_block, "draft_block"),
        seq=number,
    )
    _coherent(row)
    return row


def _coherent(row: OutboundRow) -> None:
    if not isinstance(row.content, _CONTENT_OF[row.kind]):
        raise MalformedData(f"content: a row of kind {row.kind.value} holds {type(row.content).__name__}")
    targets = (row.address is not None) + (row.agent_group_id is not None)
    if targets != (0 if row.kind is OutboundKind.ACTION else 1):
        raise MalformedData(
            f"row {row.id}: kind {row.kind.value} with {targets} of address and agent_group_id; "
            "an action has none, everything else exactly one"
        )


def ack_values(ack: Ack, change: int) -> tuple[object, ...]:
    """The cells for `ACK_COLUMNS`."""
    error = None if ack.error is None else _limited(dumps(ack.error), ack.message_id)
    return (change, ack.message_id, ack.status.value, ack.attempt, ack.epoch, ack.at, ack.turn, error)


def ack_row(cells: Sequence[object]) -> Ack:
    """An acknowledgement from the cells of `ACK_COLUMNS`.

    Raises:
        MalformedData: a cell is not what it must be.
    """
    change, message_id, status, attempt, epoch, at, turn, error = cells
    return Ack(
        message_id=InboundId(_text(message_id, "message_id", _ID_LENGTH)),
        status=_kind(AckStatus, status, "status"),
        attempt=_integer(attempt, "attempt"),
        epoch=_integer(epoch, "epoch"),
        at=_moment(at),
        turn=_turn(turn),
        error=None if error is None else loads(TurnError, _text(error, "error", ROW_LIMIT)),
        change=_integer(change, "change", 1),
    )


def activity_row(cells: Sequence[object]) -> ActivityRow:
    """An activity from the cells of `ACTIVITY_COLUMNS`.

    Raises:
        MalformedData: a cell is not what it must be.
    """
    seq, kind, target, summary, at = cells
    return ActivityRow(
        kind=_kind(ActivityKind, kind, "kind"),
        target=_text(target, "target", ROW_LIMIT),
        summary=_text(summary, "summary", ROW_LIMIT),
        at=_moment(at),
        seq=_integer(seq, "seq", 1),
    )


def usage_values(entry: UsageEntry, seq: int) -> tuple[object, ...]:
    """The cells for `USAGE_COLUMNS`."""
    return (seq, _limited(dumps(replace(entry, seq=0)), f"of the use of {entry.model[:60]}"), entry.at)


def usage_row(cells: Sequence[object]) -> UsageEntry:
    """What a turn used, from the cells of `USAGE_COLUMNS`.

    Raises:
        MalformedData: a cell is not what it must be.
    """
    seq, content, at = cells
    entry = loads(UsageEntry, _text(content, "content", _USAGE_LENGTH))
    return replace(entry, seq=_integer(seq, "seq", 1), at=_moment(at))


def draft_row(cells: Sequence[object]) -> Draft:
    """A draft from the cells of `DRAFT_COLUMNS`.

    Raises:
        MalformedData: a cell is not what it must be.
    """
    turn, block, address, text, at = cells
    return Draft(
        turn=TurnId(_text(turn, "turn", _ID_LENGTH)),
        block=_integer(block, "block"),
        address=Address.parse(_text(address, "address", _NAME_LENGTH)),
        text=_text(text, "text", ROW_LIMIT),
        at=_moment(at),
    )


def draft_values(draft: Draft) -> tuple[object, ...]:
    """The cells for `DRAFT_COLUMNS`.

    Raises:
        MalformedData: its text is over 1 MiB.
    """
    text = _limited(plain(draft.text), f"of a draft of {draft.turn}")
    return (draft.turn, draft.block, _address_text(draft.address), text, draft.at)


def state_row(cells: Sequence[object]) -> RunnerState:
    """What the runner says of itself, from its JSON text.

    Raises:
        MalformedData: it is not what it must be.
    """
    return loads(RunnerState, _text(cells[0], "value", ROW_LIMIT))


def _address_text(address: Address) -> str:
    try:
        return str(address)
    except UnicodeEncodeError:
        raise MalformedData(f"the address {address!r} holds half a character") from None


def _text(cell: object, name: str, limit: int) -> str:
    if isinstance(cell, bytes):
        if len(cell) > limit:
            raise MalformedData(f"{name}: {len(cell)} bytes, more than {limit}")
        try:
            return cell.decode()
        except UnicodeDecodeError as problem:
            raise MalformedData(f"{name}: not UTF-8: {problem}") from None
    if isinstance(cell, str):
        if len(cell) > limit:
            raise MalformedData(f"{name}: {len(cell)} characters, more than {limit}")
        return cell
    raise MalformedData(f"{name}: expected text, got {cell!r:.60}")


def _integer(cell: object, name: str, least: int = 0) -> int:
    if not isinstance(cell, int) or cell < least:
        raise MalformedData(f"{name}: expected a whole number of at least {least}, got {cell!r:.60}")
    return cell


def _moment(cell: object) -> UnixMs:
    value = _integer(cell, "at")
    if value > _YEAR_9999:
        raise MalformedData(f"at: {value} is no moment in milliseconds")
    return UnixMs(value)


def _turn(cell: object) -> TurnId | None:
    return None if cell is None else TurnId(_text(cell, "turn", _ID_LENGTH))


def _kind(kinds: type[K], cell: object, name: str) -> K:
    text = _text(cell, name, _ID_LENGTH)
    try:
        return kinds(text)
    except ValueError:
        raise MalformedData(f"{name}: {text!r} is none of {', '.join(kind.value for kind in kinds)}") from None


def json_names(names: Sequence[str]) -> str:
    """A list of platform ids as JSON text."""
    return json.dumps([plain(name) for name in names], ensure_ascii=False, separators=(",", ":"))
