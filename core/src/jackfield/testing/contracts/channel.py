"""The contract of channels (channels.md 5 and the minimum list of 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from jackfield.api import Channel, ChannelType, SendResult
from jackfield.ids import new_id
from jackfield.models import Address, Capabilities, MessageReceived, MessageRef, OutMessage
from jackfield.plugins.kinds import Kind
from jackfield.testing.contracts.checks import skip
from jackfield.testing.contracts.peer import Arrived, Peer, Said
from jackfield.testing.contracts.plugin import PluginContract
from jackfield.testing.recorders import ChannelMemory, ChannelRecorder
from jackfield.testing.waiting import soon

__all__ = ["ChannelBench", "Line"]

E = TypeVar("E")


@dataclass
class Line:
    """A channel that runs, with its two ends."""

    channel: Channel
    context: ChannelRecorder
    peer: Peer

    @property
    def able(self) -> Capabilities:
        return self.channel.capabilities(self.peer.address())

    @property
    def messages(self) -> list[MessageReceived]:
        """What is stored of what people wrote."""
        return [event for event in self.context.events if isinstance(event, MessageReceived)]

    async def send(
        self, message: OutMessage | str = "hi", *, to: Address | None = None, key: str | None = None
    ) -> SendResult:
        """Send one part, under a key of its own unless one is given."""
        message = OutMessage(text=message) if isinstance(message, str) else message
        work = self.channel.send(to or self.peer.address(), message, idempotency_key=key or new_id("dl"))
        return await soon(work, f"send({message.text[:60]!r}) to come back")

    async def see(self, kind: str) -> Arrived:
        """The next thing of that kind that people see; others before it are passed over."""

        async def look() -> Arrived:
            while (found := await self.peer.arrived()).kind != kind:
                pass
            return found

        return await soon(look(), f"a {kind} to arrive at the platform")

    async def stored(self, said: Said) -> MessageReceived:
        """The event of that message, once it is stored."""
        return await self.event(
            MessageReceived, lambda event: event.text == said.text, f"the message {said.text[:60]!r}"
        )

    async def event(self, kind: type[E], fits: Callable[[E], bool], what: str) -> E:
        """The first stored event of a kind that fits, once there is one."""

        def find() -> E | None:
            return next((one for one in self.context.events if isinstance(one, kind) and fits(one)), None)

        await self.context.until(lambda: find() is not None, f"{what} to be stored")
        found = find()
        assert found is not None
        return found

    def ref(self, result: SendResult) -> MessageRef:
        return MessageRef(self.peer.address(), result.ids)


class ChannelBench(PluginContract):
    """What the checks of a channel stand on."""

    kind: ClassVar[Kind] = Kind.CHANNEL
    stop_bound: ClassVar[float] = 2.0
    """Seconds in which `stop` must come back, whatever hangs (`Channel.stop`)."""
    window: ClassVar[float] = 0.2
    """Seconds in which something that must not happen would."""

    def make_peer(self, instance: str) -> Peer:
        """The other end for one instance."""
        skip("needs the other end: override make_peer, see docs/plugins/testing.md")

    def make(self, instance: str, extra: Mapping[str, Any] | None = None) -> Channel:
        item = self.item()
        assert isinstance(item, ChannelType), f"register_channels gave {item!r}"
        made = item.create(instance, self.validated({**self.settings, **(extra or {})}))
        assert isinstance(made, Channel), f"create gave {made!r}, which is no Channel"
        return made

    @asynccontextmanager
    async def platform(self, instance: str = "contract") -> AsyncIterator[Peer]:
        peer = self.make_peer(instance)
        await peer.open()
        try:
            yield peer
        finally:
            await peer.close()

    @asynccontextmanager
    async def connected(self, peer: Peer, folder: Path, memory: ChannelMemory | None = None) -> AsyncIterator[Line]:
        """A channel that is started, ready and joined by its peer; stopped at the end."""
        channel = self.make(peer.instance, peer.settings)
        context = ChannelRecorder(
            self.plugin, peer.instance, folder / peer.instance, secrets=peer.secrets, memory=memory
        )
        await soon(channel.start(context), "start to come back")
        try:
            await context.until_ready()
            await peer.join(channel, context)
            yield Line(channel, context, peer)
            await peer.leave()
        finally:
            await soon(channel.stop(), "stop to come back")
            await context.close()
        broken = [f"{name}: {problem!r}" for name, problem in context.failed]
        assert not broken, f"background tasks of the channel broke: {broken}"

    @asynccontextmanager
    async def line(self, folder: Path, instance: str = "contract") -> AsyncIterator[Line]:
        async with self.platform(instance) as peer, self.connected(peer, folder) as line:
            yield line

    async def never(self, work: asyncio.Task[Any], what: str) -> None:
        """Give something the chance to happen that must not."""
        await asyncio.wait({work}, timeout=self.window)
        if work.done():
            work.result()  # a peer that can't see such a thing has refused
        assert not work.done(), what
