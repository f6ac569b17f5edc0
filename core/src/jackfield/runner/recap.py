"""What an agent is told when its conversation was lost."""

from __future__ import annotations

from jackfield.mailbox import RunnerMailbox
from jackfield.models import ChatContent, InboundRow, MessageContent
from jackfield.runner.batch import Batch
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.prompt import format_recap, notice

__all__ = ["recap"]

_RECAP = 20
"""Messages that it is told of."""


async def recap(mail: MailRoom, batch: Batch, agent_name: str) -> list[str]:
    """What was said before, as far as the mailbox still knows."""
    first = min(row.seq for row in batch.all_rows)

    def look(mailbox: RunnerMailbox) -> list[tuple[str, str, str]]:
        found = []
        for seq in range(first - 1, max(0, first - 1 - 3 * _RECAP), -1):
            row = mailbox.message_at(seq)
            if isinstance(row, InboundRow) and isinstance(row.content, ChatContent) and not row.content.command:
                found.append((f"{seq}", row.content.sender, row.content.text))
            elif row is not None and isinstance(row.content, MessageContent) and not row.content.command:
                found.append((f"{seq}", agent_name, row.content.text))
            if len(found) == _RECAP:
                break
        return found[::-1]

    earlier = await mail.run(look)
    told = notice("Your earlier conversation is lost; this is a new one. What was said last follows.", "history")
    return [told, format_recap(earlier)] if earlier else []
