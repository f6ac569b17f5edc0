"""What comes while a turn runs: who wants to stop it, and what may join it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from jackfield.models import AckStatus, InboundRow
from jackfield.runner.addressing import CURRENT, Target
from jackfield.runner.batch import Batch, may_stop, sender_of
from jackfield.runner.intake import Scene, take_during
from jackfield.runner.prompting import rows_prompt

if TYPE_CHECKING:
    from jackfield.runner.agent import Agent
    from jackfield.runner.turn import Turn

__all__ = ["FollowUps"]

_LOG = logging.getLogger(__name__)
_GRACE = 3.0
QUICK = 0.02
"""Seconds after which a turn begins to look for follow-ups and requests to stop."""


class FollowUps:
    """Looks for what concerns a turn that runs: requests to stop it, and rows that may join it."""

    def __init__(self, agent: Agent, turn: Turn, scene: Scene, batch: Batch | None) -> None:
        self.gate = asyncio.Lock()
        """Held while it looks, and while the turn ends a round."""
        self.stopped_by: InboundRow | None = None
        """The request that stopped the turn."""
        self._agent = agent
        self._turn = turn
        self._scene = scene
        self._people = (
            frozenset(filter(None, (sender_of(row) for row in batch.rows if row.trigger))) if batch else frozenset()
        )
        self._initiator = sender_of(batch.lead) if batch is not None else None
        self._extra_done: list[InboundRow] = []
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look from a moment later on: most turns that are over at once have nothing to follow."""
        seen = self._agent.pulse.count
        self._timer = asyncio.get_running_loop().call_later(QUICK, self._begin, seen)

    async def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled() and (problem := self._task.exception()) is not None:
                _LOG.error("looking for follow-ups failed", exc_info=problem)

    def take_stop_rows(self) -> list[InboundRow]:
        """Requests to stop that have no end yet; whoever asks gives them one."""
        rows = [*self._extra_done, *([self.stopped_by] if self.stopped_by is not None else [])]
        self._extra_done, self.stopped_by = [], None
        return rows

    def _begin(self, seen: int) -> None:
        self._task = asyncio.create_task(self._follow(seen), name="follow-ups")

    async def _follow(self, seen: int) -> None:
        """Look for requests to stop, and for rows that may join, whenever something may have come."""
        agent = self._agent
        while True:
            await agent.pulse.wait(seen, agent.spec.limits.poll or None)
            seen = agent.pulse.count
            async with self.gate:
                await self._look()

    async def _look(self) -> None:
        agent = self._agent
        inject = agent.conversation.capabilities.inject in ("next_step", "immediate")
        now, limit = agent.clock.now(), agent.spec.limits.messages_per_prompt
        origin, people, turn = self._scene.origin, self._people, self._turn.id
        stops, joining = await agent.mail.run(
            lambda mailbox: take_during(mailbox, now, origin, people, limit, turn, inject=inject)
        )
        for row in stops:
            await self._asked_to_stop(row)
        if joining is not None:
            await self._join(joining.rows)

    async def _join(self, rows: tuple[InboundRow, ...]) -> None:
        text = rows_prompt(self._agent.spec, self._scene, rows)
        receipt = await self._turn.hand_in(text, rows, "next_boundary")
        if receipt == "rejected":
            await self._turn.acknowledge(rows, AckStatus.RELEASED)
        else:
            self._agent.desk.reply_to = rows[-1].id

    async def _asked_to_stop(self, row: InboundRow) -> None:
        if not may_stop(row, self._initiator):
            if row.origin is None:
                self._extra_done.append(row)
                return
            text = "Only the person who began this, or an admin, can stop it."
            await self._turn.say([row], text, Target(CURRENT, row.origin))
            return
        if self.stopped_by is None:
            self.stopped_by = row
            await self._agent.conversation.interrupt(_GRACE)
        else:
            self._extra_done.append(row)
