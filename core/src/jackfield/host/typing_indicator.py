"""Showing people that the agent is at work (messaging.md 8.3).

Begun when a message engages, kept up while the turn lasts, ended by its last ack or its runner's end.  A channel that
fails at it is left alone: nothing depends on it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from jackfield.api import Types
from jackfield.errors import ChannelError
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.ids import SessionId
from jackfield.models import Address, Support

__all__ = ["TypingIndicator"]

log = logging.getLogger(__name__)

LONGEST = 30 * 60.0
"""Seconds after which a forgotten indicator ends by itself."""


@dataclass(slots=True)
class _Shown:
    address: Address
    task: asyncio.Task[None]


class TypingIndicator:
    def __init__(self, hub: Hub, channels: ChannelDirectory) -> None:
        self._hub = hub
        self._channels = channels
        self._shown: dict[SessionId, _Shown] = {}

    def begin(self, session_id: SessionId, address: Address) -> None:
        """The agent works on something that was written at `address`."""
        if session_id in self._shown:
            return
        instance = self._channels.instance(address.channel_type, address.instance)
        channel = instance.channel if instance is not None else None
        if not isinstance(channel, Types):
            return
        capabilities = channel.capabilities(address)
        if capabilities.typing is Support.NONE:
            return
        work = self._keep(channel, address, max(1.0, capabilities.typing_ttl * 0.8))
        self._shown[session_id] = _Shown(address, self._hub.spawn(work, f"typing {session_id}"))

    def end(self, session_id: SessionId) -> None:
        shown = self._shown.pop(session_id, None)
        if shown is not None:
            shown.task.cancel()

    async def _keep(self, channel: Types, address: Address, every: float) -> None:
        began = self._hub.clock.monotonic()
        try:
            while self._hub.clock.monotonic() - began < LONGEST:
                await channel.typing(address, True)
                await self._hub.clock.sleep(every)
        except ChannelError as problem:
            log.debug("no typing indicator at %s: %s", address, problem)
            return
        except asyncio.CancelledError:
            try:
                async with asyncio.timeout(2):
                    await channel.typing(address, False)
            except (ChannelError, TimeoutError) as problem:
                log.debug("the typing indicator at %s could not be ended: %s", address, problem)
            raise
