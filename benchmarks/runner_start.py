"""`make bench B=runner_start`: a process runner from launch to its first poll, and its memory before a provider loads.

Through the process runtime as the host uses it, with whatever isolation it proves here.  Ends with the resident memory
in MB at the first heartbeat; the target is under 40.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.bare import percentile
from benchmarks.exchange import exchange, rss_mb, wire

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "10"))


def family(pid: int) -> list[int]:
    """The process and its children: with namespaces, a small init stands in front of the runner."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return [pid, *(member for child in children for member in family(int(child)))]


async def main() -> None:
    starts, memory, bare = [], [], []
    async with exchange(max_runners=4) as (live, bench, _):
        runtime = await asyncio.to_thread(live.launcher.runtime, "process")
        health = await runtime.check()
        for number in range(ROUNDS):
            chat = f"c{number}"
            await wire(live, chat)
            began = time.perf_counter()
            answered = asyncio.create_task(bench.round_trip(chat, "hello"))
            while not (fresh := [r for r in live.supervisor.runners.values() if r.folder.heartbeat_at()]):
                await asyncio.sleep(0.001)
            starts.append((time.perf_counter() - began) * 1000)
            runner = fresh[0]
            memory.append(max(rss_mb(pid) for pid in family(runner.handle.pid)))  # type: ignore[attr-defined]  # the process runtime's
            await answered
            while live.supervisor.runners:
                await live.supervisor.stop(runner.session.id, "measured")
                await asyncio.sleep(0.01)
            began = time.perf_counter()
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", "pass"], check=True)
            bare.append((time.perf_counter() - began) * 1000)
    print(f"isolation: {health.isolation}")
    print(f"accept to first heartbeat of a cold runner: median {percentile(starts, 0.5):.0f} ms")
    print(f"bare `python -c pass`: median {percentile(bare, 0.5):.0f} ms")
    print(f"resident memory at the first heartbeat in MB (target under 40): {percentile(memory, 0.5):.1f}")


if __name__ == "__main__":
    asyncio.run(main())
