"""`make bench B=idle`: a host with 1,000 idle sessions, over a host with none.

Every session was really made: by a message in its chat that nobody was meant to answer, so it has its mailbox and a row
in it, and no runner.  Ends with the share of one core in percent; the target is under 1, and at most 60 MB of memory
above a host with none.
"""

from __future__ import annotations

import asyncio
import os
import time

from jackfield.store import sessions

from benchmarks.exchange import exchange, rss_mb, wire

SESSIONS = int(os.environ.get("BENCH_SESSIONS", "1000"))
WATCH = float(os.environ.get("BENCH_SECONDS", "90"))
"""Seconds; longer than the sweep, so that one falls into it."""


async def idle_share() -> float:
    """How much of one core this process uses while nothing happens, in percent."""
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(WATCH)
    return (time.process_time() - used) / (time.monotonic() - began) * 100


async def main() -> None:
    async with exchange() as (live, bench, _):
        await asyncio.sleep(2)
        memory = rss_mb()
        for number in range(SESSIONS):
            await wire(live, f"c{number}", engage="pattern", pattern="never-said", ignored="accumulate")
            await bench.accept(f"c{number}", "hello")
        while (made := len(await live.hub.store.read(sessions.sessions))) < SESSIONS:
            await asyncio.sleep(0.2)
        await asyncio.sleep(3)
        grown = rss_mb() - memory
        share = await idle_share()
    print(f"{made} idle sessions: {grown:.1f} MB above a host with none (target at most 60)")
    print(f"share of one core over {WATCH:g} s (target under 1 %): {share:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
