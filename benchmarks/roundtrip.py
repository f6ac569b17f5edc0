"""`make bench B=roundtrip`: from the call of accept to the channel's send, over the bare commits of the same path.

A warm runner, the mock provider, the process runtime; each round trip is followed by one bare sequence on the same file
system.  Ends with the ratio of the medians; the target is at most 3.
"""

from __future__ import annotations

import asyncio
import os

from jackfield.mailbox import SessionFolder

from benchmarks.bare import BareSequence, bare_state, percentile
from benchmarks.exchange import change_counter, exchange, wire

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "400"))
WARM_UP = 30


def commits_of(store: int, mailbox: SessionFolder) -> tuple[int, int, int]:
    """How many commits the three files have seen; for the mailbox's, what SQLite itself counts in their headers."""
    return store, change_counter(mailbox.inbound_db), change_counter(mailbox.outbound_db)


async def main() -> None:
    async with exchange(max_runners=4) as (live, bench, root):
        await wire(live, "c1")
        state = bare_state(root / "bare-state.db")
        bare = BareSequence(root / "bare", state)
        for number in range(WARM_UP):
            await bench.round_trip("c1", f"warm {number}")
            bare.once(f"warm {number}")
        mailbox = next(iter(live.supervisor.runners.values())).folder
        before = commits_of(live.hub.store.commits, mailbox)
        ours, theirs = [], []
        for number in range(ROUNDS):
            ours.append(await bench.round_trip("c1", f"hello {number}"))
            theirs.append(await asyncio.to_thread(bare.once, str(number)))
        after = commits_of(live.hub.store.commits, mailbox)
        bare.close()
        state.close()
    median, bare_median = percentile(ours, 0.5), percentile(theirs, 0.5)
    p99, bare_p99 = percentile(ours, 0.99), percentile(theirs, 0.99)
    print(f"round trips: {ROUNDS}; exchange median {median * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms")
    print(f"bare sequence (4 commits): median {bare_median * 1000:.2f} ms, p99 {bare_p99 * 1000:.2f} ms")
    each = [(new - old) / ROUNDS for old, new in zip(before, after, strict=True)]
    print(
        "commits a message: {:.2f} state.db + {:.2f} inbound.db + {:.2f} outbound.db".format(*each),
        f"= {sum(each):.2f}",
    )
    print(f"p99 ratio: {p99 / bare_p99:.2f}")
    print(f"median ratio (target at most 3): {median / bare_median:.2f}")


if __name__ == "__main__":
    asyncio.run(main())
