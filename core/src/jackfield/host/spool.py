"""Texts too long for a row: kept as a file from before the accept until they lie in a session's inbox (C219).

A text over the limit is written to `<home>/spool/` (durably, before the event is), named by its digest, so that a
duplicate finds the same file; the event keeps a short opening and an attachment whose token names the file.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path

from jackfield.host.hub import Hub
from jackfield.models import Attachment, MessageReceived

__all__ = ["OPENING_BYTES", "SPOOL_TOKEN", "Spool", "opening_of"]

OPENING_BYTES = 2048
SPOOL_TOKEN = "spool:"
_DIGEST = re.compile(r"^[0-9a-f]{64}$")


def opening_of(text: str, size: int) -> str:
    """The first 2 KiB of a text that became a file, and how long it is."""
    start = text.encode("utf-8", "replace")[:OPENING_BYTES].decode("utf-8", "ignore")
    return f"{start}\n\n[The message is {size:,} bytes long; all of it is in the attached file.]"


class Spool:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @property
    def folder(self) -> Path:
        return self._hub.home.root / "spool"

    async def shorten(self, event: MessageReceived) -> MessageReceived:
        """The event as it is, or with its text as a file when that is over the limit."""
        limit = self._hub.settings.text_limit
        if len(event.text) * 4 <= limit:
            return event
        data = event.text.encode("utf-8", "replace")
        if len(data) <= limit:
            return event
        digest = hashlib.sha256(data).hexdigest()
        await asyncio.to_thread(self._keep, digest, data)
        whole = Attachment(id=digest, name="message.txt", mime="text/plain", size=len(data), token=SPOOL_TOKEN + digest)
        return replace(event, text=opening_of(event.text, len(data)), attachments=(whole, *event.attachments))

    def read(self, token: str) -> bytes:
        """The bytes behind a token of ours.

        Raises:
            OSError: the file is gone.
        """
        digest = token.removeprefix(SPOOL_TOKEN)
        if not _DIGEST.match(digest):
            raise FileNotFoundError(token)
        return (self.folder / digest).read_bytes()

    def forget_before(self, moment: float) -> int:
        """Remove files older than `moment` (seconds since the epoch); how many went."""
        gone = 0
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.stat().st_mtime < moment:
                    path.unlink(missing_ok=True)
                    gone += 1
        return gone

    def _keep(self, digest: str, data: bytes) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        target = self.folder / digest
        if target.exists():
            os.utime(target)
            return
        part = target.with_suffix(f".{os.getpid()}.part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
