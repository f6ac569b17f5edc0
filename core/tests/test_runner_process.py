"""A runner as a real child process against a real session folder."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from runner_kit import FAMILY, HERE, chat, place  # noqa: E402

from jackfield.models import AckStatus  # noqa: E402


async def test_a_message_is_answered_where_it_came_from_and_completed(tmp_path: Path) -> None:
    """Messaging D11."""
    async with place(tmp_path) as here:
        await here.start()
        row = chat("say hello")
        here.put(row)
        await here.until(here.rows)
        (answer,) = here.rows()
        assert answer.content.text == "hello" and answer.address == HERE and answer.in_reply_to == row.id
        assert answer.seq % 2 == 1 and answer.destination is None
        ack = here.acks()[row.id]
        assert ack.status is AckStatus.COMPLETED and ack.turn == answer.turn and ack.epoch == 1
