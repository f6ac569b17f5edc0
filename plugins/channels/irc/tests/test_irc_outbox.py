"""What became of each line, as the server's answers tell."""

from __future__ import annotations

import asyncio
import re

import pytest
from jackfield.errors import Ambiguous, ChannelError, ChatNotFound, RateLimited, SendNotAllowed, TooLarge, Transient
from jackfield.testing import ManualClock
from jackfield.testing.waiting import let_run
from jackfield_channel_irc.lines import parse
from jackfield_channel_irc.network import Network
from jackfield_channel_irc.outbox import Outbox
from jackfield_channel_irc.pace import Pace

LABELS = {"labeled-response", "echo-message", "batch"}


class Stand:
    """An outbox, what it wrote, and a server that answers by hand."""

    def __init__(self, *caps: str, burst: int = 50, seconds: float = 0.0) -> None:
        self.clock = ManualClock()
        self.network = Network("miso")
        self.network.caps |= set(caps)
        self.written: list[str] = []
        pace = Pace(burst, seconds, self.clock)
        self.outbox = Outbox(self.network, lambda data: self.written.append(data.decode().rstrip()), pace, self.clock)
        self.tasks: list[asyncio.Task[list[str | None]]] = []

    async def say(self, target: str, *texts: str) -> asyncio.Task[list[str | None]]:
        task = asyncio.create_task(self.outbox.say("PRIVMSG", target, texts))
        self.tasks.append(task)
        await let_run()
        return task

    def hear(self, text: str) -> None:
        line = parse(text.encode())
        assert line is not None
        self.outbox.heard(line, line.tags.get("label"))

    def token(self) -> str:
        return self.written[-1].removeprefix("PING ")

    def label(self, index: int = -1) -> str:
        found = re.match(r"@label=(\w+)", self.written[index])
        assert found is not None
        return found[1]


async def test_a_pong_confirms_what_was_written_before_it() -> None:
    stand = Stand()
    first = await stand.say("#x", "one", "two")
    token = stand.token()
    second = await stand.say("#y", "three")
    assert stand.written[:2] == ["PRIVMSG #x :one", "PRIVMSG #x :two"]
    stand.hear(f":s PONG s :{token}")
    assert await first == [None, None] and not second.done()
    stand.hear(f":s PONG s :{stand.token()}")
    assert await second == [None]


async def test_echoes_bring_the_ids() -> None:
    stand = Stand("echo-message")
    task = await stand.say("#X", "one", "two")
    for message_id in ("m1", "m2"):
        stand.hear(f"@msgid={message_id} :miso!j@h PRIVMSG #x :...")
    stand.hear("@msgid=t :miso!j@h TAGMSG #x")
    stand.hear(f":s PONG s :{stand.token()}")
    assert await task == ["m1", "m2"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (":s 401 miso nobody :No such nick", ChatNotFound),
        (":s 404 miso NOBODY :Cannot send", SendNotAllowed),
        (":s 417 miso nobody :too long", TooLarge),
        ("FAIL PRIVMSG CODE nobody :no", SendNotAllowed),
    ],
)
async def test_a_refusal_concerns_its_target_only(answer: str, kind: type[ChannelError]) -> None:
    stand = Stand()
    refused, other = await stand.say("nobody", "x"), await stand.say("#x", "y")
    stand.hear(answer)
    stand.hear(f":s PONG s :{stand.token()}")
    with pytest.raises(kind):
        await refused
    assert await other == [None]


async def test_with_labels_each_line_has_its_own_answer() -> None:
    stand = Stand(*LABELS)
    one, two = await stand.say("ann", "x"), await stand.say("ann", "y")
    assert not any(line.startswith("PING") for line in stand.written)
    stand.hear(f"@label={stand.label(1)};msgid=m2 :miso!j@h PRIVMSG ann :y")
    assert await two == ["m2"] and not one.done()
    stand.hear(f"@label={stand.label(0)} :s 439 miso ann :Target change too fast. Please wait 7 seconds.")
    with pytest.raises(RateLimited) as caught:
        await one
    assert caught.value.retry_after == 7


async def test_what_waits_when_the_connection_breaks_is_doubtful_and_the_rest_is_not() -> None:
    """C081."""
    stand = Stand(burst=1, seconds=10.0)
    written, waiting = await stand.say("#x", "x"), await stand.say("#x", "y")
    stand.outbox.lost("the connection was lost")
    await stand.clock.advance(10)
    with pytest.raises(Ambiguous):
        await written
    with pytest.raises(Transient):
        await waiting
    await stand.clock.advance(60)
    with pytest.raises(Transient):
        await (await stand.say("#x", "z"))


async def test_a_part_that_was_begun_is_doubtful() -> None:
    stand = Stand(burst=1, seconds=10.0)
    task = await stand.say("#x", "one", "two")
    stand.outbox.lost("the connection was lost")
    await stand.clock.advance(10)
    with pytest.raises(Ambiguous):
        await task


async def test_the_core_waits_when_too_many_lines_do() -> None:
    """C077, C083."""
    stand = Stand(burst=1, seconds=10.0)
    await stand.say("#x", "one", "two", "three")
    await stand.clock.advance(10)
    await stand.say("#x", "four")
    with pytest.raises(RateLimited) as caught:
        await (await stand.say("#x", "five"))
    assert 15 < caught.value.retry_after <= 40 and caught.value.scope == "account"
    for task in stand.tasks:
        task.cancel()
    await asyncio.gather(*stand.tasks, return_exceptions=True)


async def test_no_stranger_can_use_up_our_lines() -> None:
    stand = Stand(burst=5, seconds=2.0)
    for number in range(10):
        stand.outbox.notice("ann", f"\x01PING {number}\x01")
    assert len(stand.written) == 2, "half the places are left for what matters"


async def test_a_cancelled_send_leaves_nothing_behind() -> None:
    stand = Stand()
    task = await stand.say("#x", "x")
    token = stand.token()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    other = await stand.say("#x", "y")
    stand.hear(f":s PONG s :{token}")
    assert not other.done()
    stand.hear(f":s PONG s :{stand.token()}")
    assert await other == [None]
