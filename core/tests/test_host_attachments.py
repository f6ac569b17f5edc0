"""Files that come with a message: fetched after it was accepted, and named where they can't be had."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import CAPABLE, Bench, FakeChannel, SkippingClock, open_bench
from jackfield.errors import Ambiguous, ChatNotFound, RateLimited, Transient
from jackfield.host.inbox import FETCH_SECONDS, Inbox
from jackfield.host.spool import Spool
from jackfield.ids import InboundId
from jackfield.models import (
    Address,
    Attachment,
    ChatContent,
    InboundKind,
    InboundRow,
    MessageReceived,
    MessageRef,
    Person,
    StoredFile,
)

CHAT = Address("fake", "fake", "room")


class WithFiles(FakeChannel):
    """Gives each attachment's name as its bytes, after what `script` says; notes every try."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__(clock, CAPABLE)
        self.tries: list[tuple[str, float]] = []
        self.failures: list[BaseException | None] = []

    @asynccontextmanager
    async def open_attachment(self, attachment: Attachment) -> AsyncIterator[AsyncIterator[bytes]]:
        self.tries.append((attachment.name or "", self.clock.seconds))
        failure = self.failures.pop(0) if self.failures else None
        yield self._bytes(attachment, failure)

    async def _bytes(self, attachment: Attachment, failure: BaseException | None) -> AsyncIterator[bytes]:
        yield (attachment.name or "").encode()
        if failure is not None:
            raise failure


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        made.channel = WithFiles(made.clock)
        made.directory.instances["fake"].channel = made.channel
        yield made


async def fetched(bench: Bench, *names: str) -> list[StoredFile]:
    """The files of a message, as they would stand in the session's inbox."""

    async def nothing(*_: object) -> None: ...

    inbox = Inbox(
        bench.hub, cast(Any, bench.directory), Spool(bench.hub), wake=lambda session: None, unblock=nothing,
        on_damaged=nothing,
    )  # fmt: skip
    session = await bench.session(await bench.chat("room"))
    event = MessageReceived(
        address=CHAT,
        dedupe_key="m1",
        occurred_at=bench.clock.now(),
        ref=MessageRef(CHAT, ("m1",)),
        sender=Person(handle="ann"),
        text="look",
        attachments=tuple(Attachment(id=name, name=name) for name in names),
    )
    content = ChatContent(text="look", sender="Ann", sender_id="fake:ann")
    row = InboundRow(id=InboundId("in_1"), kind=InboundKind.CHAT, content=content, at=bench.clock.now(), origin=CHAT)
    made = await inbox.with_files(session, row, event)
    assert isinstance(made.content, ChatContent)
    return list(made.content.files)


@pytest.mark.parametrize("failure", [Transient("502"), Ambiguous("cut off"), RateLimited("slow", retry_after=7.0)])
async def test_a_file_that_can_t_be_had_for_a_moment_is_fetched_again(bench: Bench, failure: Exception) -> None:
    channel = cast(WithFiles, bench.channel)
    channel.failures = [failure, failure]
    (file,) = await fetched(bench, "a.txt")
    assert (file.problem, file.size) == (None, 5) and file.path is not None
    waited = [round(at) for _, at in channel.tries]
    assert waited == ([0, 7, 14] if isinstance(failure, RateLimited) else [0, 1, 3])


async def test_a_file_that_can_never_be_had_is_asked_for_once_and_named(bench: Bench) -> None:
    channel = cast(WithFiles, bench.channel)
    channel.failures = [ChatNotFound("it is gone"), ZeroDivisionError("a bug")]
    gone, broken, good = await fetched(bench, "gone.txt", "broken.txt", "good.txt")
    assert (gone.problem, gone.path) == ("it is gone", None)
    assert broken.problem == "ZeroDivisionError: a bug"
    assert good.problem is None and good.path is not None
    assert [name for name, _ in channel.tries] == ["gone.txt", "broken.txt", "good.txt"]


async def test_a_message_waits_for_its_files_a_minute_and_no_longer(bench: Bench) -> None:
    """All of a message's files share the time for trying again; each is asked for once all the same."""
    channel = cast(WithFiles, bench.channel)
    channel.failures = [Transient("down")] * 100
    files = await fetched(bench, "a", "b", "c")
    assert [file.problem for file in files] == ["down"] * 3
    assert channel.tries[-1][1] <= FETCH_SECONDS
    assert [name for name, _ in channel.tries].count("a") > 3
    assert {name for name, _ in channel.tries} == {"a", "b", "c"}


async def test_a_file_that_comes_too_late_for_the_message_is_not_waited_for(bench: Bench) -> None:
    channel = cast(WithFiles, bench.channel)
    channel.failures = [RateLimited("much later", retry_after=3600.0)]
    (late,) = await fetched(bench, "a.txt")
    assert (late.problem, len(channel.tries), bench.clock.seconds) == ("much later", 1, 0.0)
