"""Many sessions with something to say to one chat at once (C083)."""

from __future__ import annotations

import itertools

from tests.conftest import MakeExchange

SESSIONS = 12
RATE = 4.0
"""Messages a second that the platform takes in a chat."""


def test_what_piled_up_while_a_platform_was_away_leaves_at_the_rate_of_the_chat(make_exchange: MakeExchange) -> None:
    """C083: twelve sessions release a message each to the same chat at the same moment; none is lost."""
    exchange = make_exchange(
        host_settings="max_runners = 12",
        postbox_settings=f"gate = true\nthreads = true\nrate_per_chat = {RATE}\n",
    )
    exchange.start()
    exchange.join("c1", session="per-thread", is_group=True)
    for number in range(SESSIONS):
        exchange.say("c1", f"mock: say m{number}", thread=f"t{number}", is_group=True)
    exchange.wait_for(lambda: exchange.query("SELECT count(*) FROM deliveries") == [(SESSIONS,)], "all answers")
    assert exchange.sent("c1") == []
    (exchange.box / "open").touch()
    sent = exchange.wait_sent("c1", SESSIONS)
    assert len(exchange.query("SELECT id FROM sessions")) == SESSIONS
    exchange.wait_for(lambda: exchange.query("SELECT 1 FROM deliveries WHERE state <> 'sent'") == [], "an end for all")
    assert sorted(item["text"] for item in sent) == sorted(f"m{number}" for number in range(SESSIONS))
    times = [item["at"] for item in exchange.sent("c1")]
    # What the platform sees is a little blurred by the way there.
    assert times[-1] - times[0] >= (SESSIONS - 1) / RATE - 0.2
    assert all(later - earlier >= (5 - 0.8) / RATE for earlier, later in zip(times, times[5:], strict=False))
    assert all(later >= earlier for earlier, later in itertools.pairwise(times))
