"""`make bench B=throughput`: 100 sessions, 10,000 messages, 16 runners at once, over the bare commits of the same work.

The bare sequence runs over the same folders with the same concurrency: 16 threads, half of it before and half after.
Both work through the sessions 16 at a time.  Ends with the ratio of messages a second; the target is at least 0.5.  The
exchange answers up to ten waiting messages of one chat in one turn, as it always does; the bare sequence commits each
alone.  Each makes its folders and databases before its time is taken: the exchange by a first message to each session,
so that also the memory compared is that of a host which has met them all.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from pathlib import Path

from jackfield.host.live import LiveHost
from jackfield.store import inbound

from benchmarks.bare import BareSequence, bare_state
from benchmarks.channel import Bench
from benchmarks.exchange import exchange, rss_mb, wire

SESSIONS = 100
MESSAGES = int(os.environ.get("BENCH_MESSAGES", "10000"))
RUNNERS = 16
LIMIT = 1200.0
"""Seconds after which it gives up."""


class Locked:
    """One connection for 16 threads: they wait for each other, as fairly as a lock is."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.lock = threading.Lock()
        self.owner: int | None = None

    def execute(self, sql: str, values: tuple[str, ...] = ()) -> None:
        if sql.startswith("BEGIN"):
            self.lock.acquire()
        self.db.execute(sql, values)
        if sql == "COMMIT":
            self.lock.release()


def bare(folders: list[Path], state: Locked, messages: int, label: str) -> float:
    """Messages a second of the bare sequence."""
    work: queue.SimpleQueue[tuple[BareSequence, list[str]]] = queue.SimpleQueue()
    sequences = [BareSequence(folder, state) for folder in folders]  # type: ignore[arg-type]  # it needs only what is there of the state
    each = messages // len(folders)
    for number, sequence in enumerate(sequences):
        work.put((sequence, [f"{label} {number} {index}" for index in range(each)]))

    def loop() -> None:
        while True:
            try:
                sequence, keys = work.get_nowait()
            except queue.Empty:
                return
            for key in keys:
                sequence.once(key)

    threads = [threading.Thread(target=loop) for _ in range(RUNNERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    for sequence in sequences:
        sequence.close()
    return each * len(folders) / took


async def ours(live: LiveHost, bench: Bench) -> tuple[float, float, float]:
    """Messages a second of the exchange, and the host's memory (MB) after a fifth of them and at the end."""
    chats = [f"c{number}" for number in range(SESSIONS)]
    for chat in chats:
        await wire(live, chat)
        await bench.accept(chat, "the first message")

    async def feed() -> None:
        # A chat at a time, as each thread of the bare sequence works through a folder at a time.
        for chat in left:
            for number in range(MESSAGES // SESSIONS):
                await bench.accept(chat, f"message {number}")

    async def completed() -> int:
        return (await live.hub.store.read(inbound.counts)).get("completed", 0)

    while await completed() < SESSIONS:
        await asyncio.sleep(0.1)
    left = iter(chats)
    began = time.perf_counter()
    feeding = asyncio.gather(*(feed() for _ in range(RUNNERS)))
    early = 0.0
    while (done := await completed() - SESSIONS) < MESSAGES:
        if not early and done >= MESSAGES // 5:
            early = rss_mb()
        if time.perf_counter() - began > LIMIT:
            raise SystemExit(f"only {done} of {MESSAGES} messages after {LIMIT:g} s")
        await asyncio.sleep(0.1)
    await feeding
    return MESSAGES / (time.perf_counter() - began), early, rss_mb()


async def main() -> None:
    async with exchange(max_runners=RUNNERS) as (live, bench, root):
        folders = [root / "bare" / str(number) for number in range(SESSIONS)]
        state = Locked(bare_state(root / "bare-state.db"))
        before = await asyncio.to_thread(bare, folders, state, MESSAGES // 2, "before")
        rate, early, late = await ours(live, bench)
        after = await asyncio.to_thread(bare, folders, state, MESSAGES // 2, "after")
        peak = live.supervisor.peak
        state.db.close()
    theirs = (before + after) / 2
    print(f"exchange: {rate:.0f} messages/s over {SESSIONS} sessions, at most {peak} runners at once")
    print(f"bare sequence: {before:.0f} messages/s before, {after:.0f} after")
    print(
        f"host memory: {early:.1f} MB after a fifth, {late:.1f} MB at the end "
        f"({(late / early - 1) * 100:+.1f} %, target +5)"
    )
    print(f"ratio (target at least 0.5): {rate / theirs:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
