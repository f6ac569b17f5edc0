"""Why a turn failed, for who sits at the terminal.

The notice in the chat names only the kind of a failure, as others may read a chat.  The terminal belongs to whoever
runs the host, so there the reason is shown too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from jackfield.errors import JackfieldError

from jackfield_channel_terminal.conversation import Conversation, Screen

if TYPE_CHECKING:
    from jackfield.api.client import LocalClient

__all__ = ["Reasons"]

_BOUND = 5.0
"""Seconds for the host's answer; the conversation waits for it."""


class Reasons:
    """Tells each failure since it was made, once."""

    def __init__(self, client: LocalClient, conversation: Conversation, screen: Screen, instance: str) -> None:
        self._client = client
        self._conversation = conversation
        self._screen = screen
        self._instance = instance
        self._since = time.time_ns() // 1_000_000
        self._told: set[str] = set()

    async def look(self) -> None:
        """Show what failed meanwhile.  A host that is away is asked the next time."""
        wanted = {"instance": self._instance, "platform_id": self._conversation.group, "since": self._since}
        with contextlib.suppress(JackfieldError, OSError, TimeoutError):
            async with asyncio.timeout(_BOUND):
                outcome = await self._client.call("channel.settled", wanted | {"timeout": 0})
            for item in outcome.get("failed", ()):
                if item["state"] == "failed" and item["id"] not in self._told:
                    self._told.add(item["id"])
                    await self._screen.problem(f"the turn failed: {item.get('reason') or 'no reason is known'}")
