"""Agents among themselves: what the host half of a tool set may ask for (messaging.md 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jackfield.api.approvals import ApprovalTicket
from jackfield.ids import RequestId

if TYPE_CHECKING:
    from jackfield.api.plugins import ActionContext

__all__ = ["AgentService"]


class AgentService(Protocol):
    """`HostContext.agents`."""

    async def create(
        self, context: ActionContext, request_id: RequestId, name: str, instructions: str = ""
    ) -> ApprovalTicket:
        """Ask for a new agent, made by the one whose mailbox the request lay in.

        It thinks by the same provider, model and runtime, can send messages and no more, is reached by no chat, and the
        two may write to each other: the new one is a destination called after `name`, its maker is its `parent`.  The
        agent is told the outcome by a notice.  The same `request_id` gets the same ticket.

        Raises:
            MalformedData, TooLarge: the name or the instructions can't be used.
            Conflict: the agent has a destination of that name already.
            NotAllowed: it has created as many agents as it may, or its `[permissions]` say `never`.
        """
        ...
