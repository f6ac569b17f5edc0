"""Agents among themselves: permission, delivery, limits, and making new ones (messaging.md 11)."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

from jackfield.clock import UnixMs
from jackfield.host.agents.entering import Entered, enter
from jackfield.host.agents.line import AgentLine
from jackfield.host.agents.outcomes import Outcomes
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import InboundId, TurnId
from jackfield.models import Delivery, Session

__all__ = ["Agents"]


class Agents:
    """Joined to the host: the line between agents, and what is told when it breaks."""

    def __init__(
        self,
        hub: Hub,
        channels: ChannelDirectory,
        inbox: Inbox,
        *,
        before: Callable[[Session], Awaitable[None]],
        wake: Callable[[Session], None],
    ) -> None:
        self._hub = hub
        self._inbox = inbox
        self.outcomes = Outcomes(hub, inbox, wake=wake)
        channels.join_agents(AgentLine(hub, inbox, before=before, wake=wake))

    def enter(
        self, db: sqlite3.Connection, writer: Session, part: Delivery, turn: TurnId | None, now: UnixMs
    ) -> Entered:
        """See `jackfield.host.agents.entering`; with the present budget."""
        return enter(db, writer, part, turn, self._hub.configuration.agents, now)

    async def refused(self, writer: Session, part: Delivery, notice: InboundId) -> None:
        """Tell the agent that its message was not entered.

        That starts no turn: it could be the next round of a loop.
        """
        self._hub.trouble(f"agent message: {part.reason}")
        text = f"Your message #{part.out_seq} to another agent was not delivered ({part.reason}): {part.last_error}."
        await self._inbox.notify(writer, text, subject="delivery failed", row_id=notice)
