"""A channel's life: what it spawned and lost is noticed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import Bench, open_bench
from jackfield.api import ChannelContext, ChannelInfo, ChannelType
from jackfield.config import ChannelSection
from jackfield.errors import StoreFull
from jackfield.host.channels import ChannelInstance
from jackfield.host.ingress import Ingress
from jackfield.models import ChannelState


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


class Listens:
    """Its only task ends with an error the first `losses` times; `late` tells that it does so after the start."""

    losses = 2
    late = True
    starts = 0
    stops = 0

    async def start(self, context: ChannelContext) -> None:
        type(self).starts += 1
        context.spawn(self.listen(), "listen")
        if not self.late:
            await asyncio.sleep(0.05)

    async def listen(self) -> None:
        if type(self).losses:
            type(self).losses -= 1
            if self.late:
                await asyncio.sleep(0.05)
            raise StoreFull("no space left")
        await asyncio.Event().wait()

    async def stop(self) -> None:
        type(self).stops += 1


@pytest.mark.parametrize("late", [True, False])
async def test_a_channel_whose_listening_task_fails_starts_anew(bench: Bench, late: bool) -> None:
    """A full disk refuses an event; a channel that let that end its task would be `ready`, and deaf for ever."""
    kind = type("Kind", (Listens,), {"late": late})
    offered = ChannelType(info=ChannelInfo(type="fake", title="Fake"), create=lambda name, settings: cast(Any, kind()))
    cast(Any, bench.plugins).channel_type = lambda name: offered
    section = ChannelSection(instance="fake", type="fake")
    instance = ChannelInstance(bench.hub, "fake", section, lambda ready: None, Ingress(bench.hub))
    await instance.run(cast(Any, None), lambda address: None)
    async with asyncio.timeout(10):
        while kind.starts < 3 or instance.status.state is not ChannelState.READY:
            await asyncio.sleep(0.01)
    assert kind.stops == 2 and instance.failures == 0
    assert bench.hub.troubles["channel fake"] == 2
    await instance.stop()
    await asyncio.sleep(0.1)
    assert (kind.starts, kind.stops) == (3, 3)
    assert instance.status.state is ChannelState.STOPPED
