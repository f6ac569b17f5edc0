"""`make bench B=matrix`: from a message in a room to the agent's answer there, over a bare matrix-nio echo bot.

Both bots live on one real Synapse, in a room of their own each, with one person who waits for each answer; a round trip
through the host (warm runner, mock provider) is followed by one of the echo bot.  Ends with the ratio of the medians;
the target is at most 1.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import nio
from jackfield.config.home import Home
from jackfield.host.application import running_host
from jackfield.host.services import OPERATIONS, Args, ServiceContext
from jackfield_channel_kit.testing.synapse import Account, Synapse

from benchmarks.bare import percentile, refuse_tmpfs
from benchmarks.exchange import make_home

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "60"))
WARM_UP = 8
BOUND = 60.0


class Person:
    """Somebody whose client waits for the next message of the other one in a room."""

    def __init__(self, server: Synapse, account: Account) -> None:
        self.client = client_of(server, account)
        self._since = ""

    async def room_with(self, bot: nio.AsyncClient) -> str:
        made = await self.client.room_create(
            is_direct=True, invite=[bot.user_id], preset=nio.RoomPreset.trusted_private_chat
        )
        await bot.join(made.room_id)
        return str(made.room_id)

    async def ready(self) -> None:
        self._since = (await self.client.sync(timeout=0)).next_batch

    async def round_trip(self, room: str, text: str) -> float:
        """Seconds from sending to having the answer."""
        began = time.perf_counter()
        await self.client.room_send(room, "m.room.message", {"msgtype": "m.text", "body": text})
        async with asyncio.timeout(BOUND):
            while True:
                answer = await self.client.sync(timeout=30_000, since=self._since)
                self._since = answer.next_batch
                joined = answer.rooms.join.get(room)
                for event in joined.timeline.events if joined is not None else ():
                    if event.sender != self.client.user_id and isinstance(event, nio.RoomMessageText):
                        return time.perf_counter() - began


def client_of(server: Synapse, account: Account) -> nio.AsyncClient:
    client = nio.AsyncClient(server.url, account.user_id, config=nio.AsyncClientConfig(encryption_enabled=False))
    client.access_token, client.user_id, client.device_id = account.token, account.user_id, account.device_id
    return client


@contextlib.asynccontextmanager
async def echo_bot(client: nio.AsyncClient) -> AsyncIterator[None]:
    """What the documentation of matrix-nio shows: a callback, and `sync_forever`."""

    async def echo(room: nio.MatrixRoom, event: nio.RoomMessageText) -> None:
        if event.sender != client.user_id:
            await client.room_send(room.room_id, "m.room.message", {"msgtype": "m.text", "body": event.body})

    await client.sync(timeout=0)
    client.add_event_callback(echo, nio.RoomMessageText)
    task = asyncio.create_task(client.sync_forever(timeout=30_000))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@contextlib.asynccontextmanager
async def folder() -> AsyncIterator[Path]:
    base = Path(os.environ.get("BENCH_FOLDER", Path(__file__).parent / "out"))
    base.mkdir(parents=True, exist_ok=True)
    refuse_tmpfs(base)
    root = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


def home_for(root: Path, server: Synapse, bot: Account) -> Home:
    os.environ["JACKFIELD_SECRET_BENCH_MATRIX"] = bot.token
    extra = f'\n[channels.matrix]\ntype = "matrix"\nhomeserver = "{server.url}"\ntoken = "bench-matrix"\n'
    home = make_home(root, max_runners=2, extra=extra)
    toml = home.jackfield_toml.read_text(encoding="utf-8")
    home.jackfield_toml.write_text(toml.replace('\n[channels.bench]\ntype = "bench"\n', "\n"), encoding="utf-8")
    return home


async def measured(person: Person, ours: str, theirs: str) -> tuple[list[float], list[float]]:
    """Round trips through the host and through the echo bot, by turns."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(-WARM_UP, ROUNDS):
        for room, times in zip((ours, theirs), found, strict=True):
            took = await person.round_trip(room, f"hello {number}")
            if number >= 0:
                times.append(took)
    return found


async def main() -> None:
    subprocess.run([sys.executable, str(ROOT / "scripts/engines.py"), "--strict", "synapse"], check=True)
    os.environ.setdefault("JACKFIELD_ENGINES", str(ROOT / ".engines"))
    logging.getLogger("nio").setLevel(logging.ERROR)
    async with folder() as root, Synapse(root / "synapse") as server, contextlib.AsyncExitStack() as stack:
        assert isinstance(server, Synapse)
        people = [await server.register(name) for name in ("ann", "agent", "echo")]
        clients = [client_of(server, account) for account in people]
        for client in clients:
            stack.push_async_callback(client.close)
        person = Person(server, people[0])
        stack.push_async_callback(person.client.close)
        ours, theirs = [await person.room_with(client) for client in clients[1:]]
        home = home_for(root, server, people[1])
        async with running_host(home) as live, echo_bot(clients[2]):
            args = {"chat": f"matrix:matrix:{ours}", "group": "bench", "engage": "always", "policy": "public"}
            wire: Callable[..., Awaitable[object]] = OPERATIONS["wire.add"]
            await wire(ServiceContext(live.hub, live), Args(args))
            await person.ready()
            through, bare = await measured(person, ours, theirs)
    median, bare_median = percentile(through, 0.5), percentile(bare, 0.5)
    print(f"round trips: {ROUNDS}; through the host: median {median * 1000:.1f} ms, p90 {_p90(through):.1f} ms")
    print(f"bare matrix-nio echo bot: median {bare_median * 1000:.1f} ms, p90 {_p90(bare):.1f} ms")
    print(f"median ratio (target at most 1.5): {median / bare_median:.2f}")


def _p90(times: list[float]) -> float:
    return percentile(times, 0.9) * 1000


if __name__ == "__main__":
    asyncio.run(main())
