"""The summary that a new conversation begins with: what was said last, from the mailbox's own rows."""

from __future__ import annotations

from jackfield.mailbox import RunnerMailbox
from jackfield.models import ChatContent, InboundRow, MessageContent, TaskContent
from jackfield.runner.batch import Batch
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.prompt import RECAP_LIMIT, format_recap, notice
from jackfield.runner.recovery import WHY, Reason

__all__ = ["recap"]

_MESSAGES = 40
"""How many it tells of at the most; and rows that are looked at."""
_ROWS = 4 * _MESSAGES
_CHARACTERS = 16_000
"""Of all of them; the newest come first, and none is told longer than `RECAP_LIMIT`."""


async def recap(mail: MailRoom, batch: Batch, agent_name: str, why: Reason) -> list[str]:
    """Why the conversation is a new one, and what was said before, as far as the mailbox still knows; in order."""
    first = min(row.seq for row in batch.all_rows)
    earlier = await mail.run(lambda mailbox: _earlier(mailbox, first, agent_name))
    told = notice(f"{WHY[why]} What was said last follows." if earlier else WHY[why], "history")
    return [told, format_recap(earlier)] if earlier else [told]


def _earlier(mailbox: RunnerMailbox, first: int, agent_name: str) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    left = _CHARACTERS
    for seq in range(first - 1, max(0, first - 1 - _ROWS), -1):
        row = mailbox.message_at(seq)
        if row is None:
            continue
        content = row.content
        if isinstance(row, InboundRow) and isinstance(content, ChatContent) and not content.command:
            said = (f"{seq}", content.sender, content.text)
        elif isinstance(row, InboundRow) and isinstance(content, TaskContent):
            said = (f"{seq}", "task", content.prompt)
        elif isinstance(content, MessageContent) and not content.command:
            said = (f"{seq}", agent_name, content.text)
        else:
            continue
        left -= min(len(said[2]), RECAP_LIMIT)
        if left < 0 or len(found) == _MESSAGES:
            break
        found.append(said)
    return found[::-1]
