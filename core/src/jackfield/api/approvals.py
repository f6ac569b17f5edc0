"""Asking a person before something risky is done (architecture 8).

Whoever wants it asks once, with everything that will be done; a person who may decide says yes or no, exactly once;
then the kind's `apply` does it, at most once.  What was decided on is bound to a digest: nothing can be swapped after
the person saw it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from jackfield.ids import ApprovalId, RequestId

if TYPE_CHECKING:
    from jackfield.api.plugins import ActionContext

__all__ = ["ApprovalChoice", "ApprovalField", "ApprovalService", "ApprovalState", "ApprovalTicket"]


class ApprovalState(StrEnum):
    """`expired` and `cancelled` are neither yes nor no: nothing was done, and it may be asked again."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalField:
    """One thing that the person must see before they decide, like `command` and `npx -y server`."""

    label: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalChoice:
    """A button of the card.  `approves` tells whether choosing it means yes; `selected_label` is shown afterwards."""

    value: str
    label: str
    approves: bool
    selected_label: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalTicket:
    """The request is on record.  It may be approved already, where the group's `[permissions]` say so."""

    id: ApprovalId
    state: ApprovalState


class ApprovalService(Protocol):
    """`HostContext.approvals`."""

    async def request(
        self,
        context: ActionContext,
        request_id: RequestId,
        kind: str,
        payload: dict[str, Any],
        *,
        fields: Sequence[ApprovalField],
        reason: str = "",
        files: Sequence[Path] = (),
    ) -> ApprovalTicket:
        """Ask for `kind` on behalf of the agent whose mailbox the request lay in.

        `payload` is what `ApprovalKind.apply` will get, as JSON values; `fields` show all of it to the person;
        `reason` is the agent's own, shown as such.  `files` lie in the group's workspace or the session's outbox and
        are read now: what is approved is what they hold at this moment.  The same `request_id` gets the same ticket.
        The agent is told the outcome by a notice.

        Raises:
            NotFound: no such kind of approval.
            NotAllowed: the group's `[permissions]` say `never`.
            MalformedData, TooLarge: the payload, the fields or the files can't be asked about.
        """
        ...
