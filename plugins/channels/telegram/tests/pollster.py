"""A process that polls a bot and notes each event durably with its cursor, to be killed at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from jackfield.api import Accepted, Cursor
from jackfield.models import Event, MessageReceived
from jackfield.testing import ChannelRecorder
from jackfield_channel_telegram.plugin import create


class Notes(ChannelRecorder):
    """One line is one transaction: an event that was offered, and the cursor behind it."""

    def __init__(self, path: Path, token: str) -> None:
        super().__init__("telegram", "tg", path.parent, secrets={"bot": token})
        text = path.read_text() if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        path.write_text(whole)  # a line that the kill cut is no transaction
        for line in whole.splitlines():
            self.memory.cursors.update(json.loads(line)["cursor"])
        self.file = path.open("a")

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        assert isinstance(event, MessageReceived) and cursor is not None
        self.file.write(json.dumps({"text": event.text, "cursor": {cursor.key: cursor.value}}) + "\n")
        self.file.flush()
        await asyncio.to_thread(os.fsync, self.file.fileno())
        return await super().accept(event, cursor)


async def main(url: str, token: str, path: str) -> None:
    channel = create("tg", {"token": "bot", "api_url": url, "pacing": False})
    await channel.start(Notes(Path(path), token))
    await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
