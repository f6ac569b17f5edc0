"""Which tasks of a batch go to the model: the others get their end before the turn begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackfield.models import SCRIPT_FAILED, AckStatus, InboundRow, TaskContent, TurnError
from jackfield.runner.batch import Batch
from jackfield.runner.intake import Taken
from jackfield.runner.scripts import check_scripts

if TYPE_CHECKING:
    from jackfield.runner.agent import Agent

__all__ = ["check_tasks"]


async def check_tasks(agent: Agent, taken: Taken, printed: dict[str, str]) -> Batch | None:
    """Run the pre-check scripts; rows that need no model get their end here.  None when no row is left.

    A task that was cancelled or paused before its claim was on the disk does not begin (C115).
    """
    of_tasks = [row.id for row in taken.batch.rows if isinstance(row.content, TaskContent)]
    taken_back = await agent.mail.run(lambda mailbox: mailbox.withdrawn(of_tasks))
    await agent.end([row for row in taken.batch.rows if row.id in taken_back], AckStatus.RELEASED, taken.turn)
    left = [row for row in taken.batch.rows if row.id not in taken_back]
    verdicts = await check_scripts(left, agent.spec.paths.workspace)
    rows: list[InboundRow] = []
    for row in left:
        verdict = verdicts.get(row.id)
        if verdict is None or verdict.wake:
            rows.append(row)
            if verdict is not None and verdict.output is not None:
                printed[row.id] = verdict.output
            continue
        error = None
        if verdict.problem is not None:
            error = TurnError(kind="config", message=f"{SCRIPT_FAILED}: {verdict.problem}")
        status = AckStatus.COMPLETED if error is None else AckStatus.FAILED
        await agent.end([row], status, taken.turn, error)
    if any(row.trigger for row in rows):
        return Batch(tuple(rows), taken.batch.skipped)
    await agent.end(rows + list(taken.batch.skipped), AckStatus.RELEASED, taken.turn)
    return None
