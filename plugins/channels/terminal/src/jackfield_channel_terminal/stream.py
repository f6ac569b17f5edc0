"""A message of the agent that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jackfield.api import SendResult
from jackfield.ids import new_id
from jackfield.models import Address, OutMessage

if TYPE_CHECKING:
    from jackfield_channel_terminal.channel import TerminalChannel

__all__ = ["Stream"]


class Stream:
    """A message that grows in front of whoever is attached."""

    def __init__(self, channel: TerminalChannel, address: Address) -> None:
        self._channel = channel
        self._address = address
        self._key = new_id("str")

    async def update(self, text: str) -> None:
        self._channel.tell(self._address, {"type": "stream", "key": self._key, "text": text})

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        return await self._channel.finish_stream(self._address, self._key, message, idempotency_key)

    async def abort(self) -> None:
        self._channel.tell(self._address, {"type": "stream_end", "key": self._key})
