"""The benchmarks' own channel: it writes messages itself and takes the time at which their answers are sent."""

from __future__ import annotations

import asyncio
import os
import time

from jackfield.api import ChannelContext, ChannelInfo, ChannelType, Health, SendResult
from jackfield.clock import SystemClock
from jackfield.models import Address, Addressed, Capabilities, MessageReceived, MessageRef, OutMessage, Person, Trust

__all__ = ["BENCH", "Bench"]

CLOCK = SystemClock()


class Bench:
    """The channel: `write` accepts a message and returns when its answer was handed to `send`."""

    def __init__(self) -> None:
        self.context: ChannelContext | None = None
        self.answers: dict[str, asyncio.Queue[float]] = {}
        self.sent = 0

    def kind(self) -> ChannelType:
        info = ChannelInfo(type="bench", title="Benchmark", local=True)
        return ChannelType(info=info, create=lambda instance, settings: _Channel(self))

    async def accept(self, chat: str, text: str) -> None:
        assert self.context is not None
        address = Address("bench", "bench", chat)
        key = os.urandom(8).hex()
        await self.context.accept(
            MessageReceived(
                address=address,
                dedupe_key=key,
                occurred_at=CLOCK.now(),
                ref=MessageRef(address, (key,)),
                sender=Person("bench", trust=Trust.OPERATOR),
                text=text,
                addressed=Addressed.DM,
            )
        )

    async def round_trip(self, chat: str, text: str) -> float:
        """Seconds from the call of accept to the call of send."""
        queue = self.answers.setdefault(chat, asyncio.Queue())
        began = time.perf_counter()
        await self.accept(chat, text)
        async with asyncio.timeout(60):
            return await queue.get() - began


class _Channel:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    async def start(self, context: ChannelContext) -> None:
        self._bench.context = context

    async def stop(self) -> None:
        self._bench.context = None

    async def check(self, context: ChannelContext) -> Health:
        return Health(ok=True)

    def capabilities(self, address: Address | None = None) -> Capabilities:
        return Capabilities(idempotent_send=True)

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        now = time.perf_counter()
        self._bench.sent += 1
        queue = self._bench.answers.get(address.platform_id)
        if queue is not None:
            queue.put_nowait(now)
        return SendResult(ids=(idempotency_key,))


BENCH = Bench()
