"""A running channel with both its ends, for the tests of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.clock import Clock
from jackfield.models import Address, ChannelState, MessageReceived
from jackfield.testing import ChannelMemory, ChannelRecorder
from jackfield_channel_kit.testing.telegram import Seen, TelegramFake
from jackfield_channel_telegram.channel import TelegramChannel
from jackfield_channel_telegram.plugin import create

__all__ = ["HOOK_SECRET", "Running", "chat", "running"]

HOOK_SECRET = "hook-secret_0123456789"
PRIVATE, GROUP = 11, -1_001_000_000_001


def chat(number: int = PRIVATE, thread: int | None = None, instance: str = "tg") -> Address:
    return Address("telegram", instance, str(number), str(thread) if thread is not None else None)


@dataclass
class Running:
    channel: TelegramChannel
    context: ChannelRecorder
    fake: TelegramFake

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.context.events if isinstance(event, MessageReceived)]

    async def until_texts(self, *texts: str) -> None:
        await self.context.until(lambda: self.texts == list(texts), f"{texts} to be stored")

    async def until_state(self, state: ChannelState) -> None:
        await self.context.until(lambda: self.context.state is state, f"the channel to be {state}")

    async def see(self, *kinds: str) -> Seen:
        """The next thing of one of these kinds."""
        while (found := await self.fake.seen.get()).kind not in kinds:
            pass
        return found


@asynccontextmanager
async def running(
    fake: TelegramFake,
    folder: Path,
    *,
    instance: str = "tg",
    memory: ChannelMemory | None = None,
    clock: Clock | None = None,
    state: ChannelState | None = ChannelState.READY,
    server_url: str | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """A channel that has reached a state, unless that is None; stopped at the end."""
    given = {"token": "bot", "api_url": fake.url, "pacing": False, "album_seconds": 0.2} | settings
    channel = create(instance, given)
    assert isinstance(channel, TelegramChannel)
    secrets = {"bot": fake.token, "hook": HOOK_SECRET}
    context = ChannelRecorder("telegram", instance, folder, secrets=secrets, memory=memory, clock=clock)
    context.server_url = server_url
    line = Running(channel, context, fake)
    try:
        await channel.start(context)
        if state is not None:
            await line.until_state(state)
        yield line
    finally:
        await channel.stop()
        await context.close()
    assert not context.failed, context.failed
