"""What leaves the host: planned, paced, retried, ended."""

from __future__ import annotations

import itertools
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from delivery_kit import CAPABLE, Bench, FakeChannel, FakeInstance, open_bench
from jackfield.api import SendPath, SendResult
from jackfield.clock import UnixMs
from jackfield.errors import (
    Ambiguous,
    AuthFailed,
    BadContent,
    ChatNotFound,
    Migrated,
    NobodyListening,
    RateLimited,
    SendNotAllowed,
    StoreFull,
    TooLarge,
    Transient,
)
from jackfield.ids import InboundId, new_id
from jackfield.models import (
    Address,
    ChannelState,
    ChatContent,
    DeliveryReport,
    DeliveryState,
    EditContent,
    InboundKind,
    InboundRow,
    InboundState,
    MessageContent,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    ReactionContent,
    ReportState,
    SessionMode,
    Support,
    Threads,
    dumps,
)
from jackfield.store import deliveries, events, inbound


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(tmp_path / "home") as made:
        yield made


async def test_a_permanent_failure_ends_the_row_and_the_session_is_told_once(bench: Bench) -> None:
    """C001."""
    chat = await bench.chat("trip-42")
    session = await bench.session(chat)
    bench.channel.script = [ChatNotFound("chat not reachable")]
    await bench.post(session, chat, "Your train leaves at 07:42 from platform 3.")
    await bench.quiet()
    (part,) = await bench.parts(session)
    assert (part.state, part.reason, part.last_error) == (
        DeliveryState.FAILED,
        "ChatNotFound",
        "chat not reachable",
    )
    ((told, text),) = bench.failures
    assert told.out_id == part.out_id and part.out_id in text
    assert "ChatNotFound" in text and "tried once" in text
    assert bench.channel.arrived == []


async def test_a_failure_is_told_again_after_a_crash_came_between(bench: Bench) -> None:
    """C001."""
    chat = await bench.chat("trip-42")
    session = await bench.session(chat)
    bench.channel.script = [SendNotAllowed("no")]
    await bench.post(session, chat, "x")
    await bench.quiet()
    bench.failures.clear()
    await bench.delivery.stop(1.0)
    bench.renew()
    await bench.delivery.start()
    await bench.quiet()
    assert len(bench.failures) == 1


async def test_an_accepted_message_that_is_rejected_later_fails_like_any_other(bench: Bench) -> None:
    """C009."""
    chat = await bench.chat("sms-1")
    session = await bench.session(chat)
    bench.channel.script = [SendResult(ids=("r-17",), final=False)]
    await bench.post(session, chat, "Your code is on its way")
    await bench.quiet()
    assert await bench.states(session) == [(DeliveryState.ACCEPTED, None)]
    report = DeliveryReport(
        address=chat,
        dedupe_key="r-17/undelivered",
        occurred_at=bench.clock.now(),
        ref=MessageRef(chat, ("r-17",)),
        state=ReportState.FAILED,
        reason="sender not registered",
    )
    await bench.delivery.report(report)
    await bench.delivery.report(report)
    (part,) = await bench.parts(session)
    assert (part.state, part.last_error) == (DeliveryState.FAILED, "sender not registered")
    assert len(bench.failures) == 1


async def test_a_report_may_come_before_the_sends_own_answer(bench: Bench) -> None:
    """C009."""
    chat = await bench.chat("sms-1")
    session = await bench.session(chat)

    async def report_first() -> SendResult:
        await bench.delivery.report(
            DeliveryReport(
                address=chat,
                dedupe_key="d",
                occurred_at=bench.clock.now(),
                ref=MessageRef(chat, ("r-1",)),
                state=ReportState.FAILED,
            )
        )
        return SendResult(ids=("r-1",), final=False)

    bench.channel.script = [report_first]
    await bench.post(session, chat, "x")
    await bench.quiet()
    assert await bench.states(session) == [(DeliveryState.FAILED, "NotDelivered")]


async def test_one_destination_is_strictly_in_order_and_another_one_does_not_wait(bench: Bench) -> None:
    """C017."""
    chat, other = await bench.chat("c-1"), await bench.chat("c-2")
    first = await bench.session(chat, "a")
    second = await bench.session(chat, "b")
    third = await bench.session(other, "c")
    bench.channel.seconds = {"c-1": 0.8, "c-2": 0.01}
    await bench.post(first, chat, "one")
    await bench.post(second, chat, "two")
    await bench.post(third, other, "three")
    await bench.quiet()
    assert bench.channel.texts == ["three", "one", "two"]


async def test_all_parts_and_the_file_stay_in_the_thread(bench: Bench) -> None:
    """C050."""
    thread = replace(await bench.chat("c-1"), thread_id="1700.55")
    session = await bench.session(thread, mode=SessionMode.PER_THREAD)
    row = bench.row(session, thread.chat, MessageContent(text="words " * 90, files=("a.txt",)), destination=None)
    bench.hub.folder_of(session).store_outbox(row.id, "a.txt", b"hello")
    await bench.record(session, row)
    await bench.quiet()
    calls = bench.channel.arrived
    assert len(calls) == 4 and all(call.address == thread for call in calls)
    assert [len(call.message.files) for call in calls] == [0, 0, 0, 1]
    assert await bench.states(session) == [(DeliveryState.SENT, None)] * 4
    assert not (bench.hub.folder_of(session).outbox / row.id).exists()


async def test_the_agent_may_address_the_root_of_a_threaded_chat(bench: Bench) -> None:
    """C050."""
    thread = replace(await bench.chat("c-1"), thread_id="t")
    session = await bench.session(thread, mode=SessionMode.PER_THREAD)
    await bench.post(session, thread.chat, "to all", destination="c-1")
    await bench.quiet()
    assert bench.channel.arrived[0].address == thread.chat


async def answered(bench: Bench, session_id: Any, address: Address, platform_id: str) -> InboundId:
    """A message in the ledger that an agent can answer."""
    event = MessageReceived(
        address=address,
        dedupe_key=platform_id,
        occurred_at=bench.clock.now(),
        ref=MessageRef(address, (platform_id,)),
        sender=Person("ann"),
        text="hi",
    )
    id = InboundId(new_id("in"))
    accepted = await bench.hub.store.write(
        events.accept, "fake", "fake", platform_id, "MessageReceived", dumps(event), bench.clock.now()
    )
    await bench.hub.store.write(
        inbound.record,
        id=id,
        event_id=accepted.event_id,
        wiring_id=None,
        session_id=session_id,
        state=InboundState.QUEUED,
        preview="hi",
        now=bench.clock.now(),
    )
    return id


async def test_a_reply_names_only_a_message_of_that_very_place(bench: Bench) -> None:
    """C052."""
    thread = replace(await bench.chat("c-1"), thread_id="1700.55")
    session = await bench.session(thread, mode=SessionMode.PER_THREAD)
    elsewhere = await answered(bench, session.id, replace(thread, thread_id="other"), "m-8")
    here = await answered(bench, session.id, thread, "m-9")
    for target in (InboundId("int-9f3"), elsewhere, here):
        await bench.post(session, thread, "answer", in_reply_to=target)
    await bench.quiet()
    refs = [call.message.reply_to for call in bench.channel.arrived]
    assert refs == [None, None, MessageRef(thread, ("m-9",))]
    assert all(call.address == thread for call in bench.channel.arrived)


async def test_what_an_agent_asked_is_no_message_of_the_chat_to_which_the_answer_goes(bench: Bench) -> None:
    """C172: woken by another agent's request, written to a chat without any history: sent, as a reply to nothing."""
    bench.channel.can = replace(bench.channel.can, threads=Threads.REPLY_CHAIN)
    news = await bench.chat("news")
    session = await bench.session(await bench.chat("c-1"))
    asked = InboundId(new_id("in"))
    await bench.hub.store.write(
        inbound.record, id=asked, event_id=None, wiring_id=None, session_id=session.id, state=InboundState.CLAIMED,
        preview="r-9", now=bench.clock.now(), hops=1, source=session.id,
    )  # fmt: skip
    seen = await answered(bench, session.id, news, "m-1")
    for target in (asked, seen):
        await bench.post(session, news, "for all", in_reply_to=target)
    await bench.quiet()
    assert [call.message.reply_to for call in bench.channel.arrived] == [None, MessageRef(news, ("m-1",))]
    assert [state for state, _ in await bench.states(session)] == [DeliveryState.SENT] * 2


async def test_a_rate_limit_is_waited_out_and_uses_no_attempt(bench: Bench) -> None:
    """C077."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [
        RateLimited("slow", retry_after=31),
        RateLimited("slow", retry_after=12),
        RateLimited("slow", retry_after=0.35),
    ]
    await bench.post(session, chat, "hello")
    await bench.quiet()
    times = [call.at for call in bench.channel.calls]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] >= 31 and gaps[1] >= 12 and gaps[2] >= 0.35
    assert bench.channel.texts == ["hello"]
    assert (await bench.parts(session))[0].attempts == 1


async def test_every_part_arrives_in_order_after_temporary_errors(bench: Bench) -> None:
    """C079."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [None, None, RateLimited("slow", retry_after=0.4), Transient("refused"), None, None]
    text = "".join(f"{letter * 150}\n\n" for letter in "abcde")
    await bench.post(session, chat, text)
    await bench.quiet()
    assert bench.channel.texts == [letter * 150 for letter in "abcde"]


async def post_files(bench: Bench, session: Any, chat: Address, text: str, *names: str) -> None:
    row = bench.row(session, chat, MessageContent(text=text, files=names))
    for name in names:
        bench.hub.folder_of(session).store_outbox(row.id, name, name.encode())
    await bench.record(session, row)


def brought(bench: Bench) -> list[tuple[str, list[str]]]:
    return [(call.text, [file.name for file in call.message.files]) for call in bench.channel.arrived]


async def test_a_refused_file_costs_neither_the_text_nor_the_files_beside_it(bench: Bench) -> None:
    """C075: of a part that holds several, the text and each file alone are sent when the whole is refused."""
    bench.channel.can = replace(CAPABLE, file_max_count=10, caption_limit=None)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    refusal = TooLarge("over 5 bytes")
    bench.channel.script = [refusal, None, None, Transient("busy"), refusal, None]
    await post_files(bench, session, chat, "three plots", "ok1.png", "big.png", "ok2.png")
    await bench.quiet()
    assert brought(bench) == [("three plots", []), ("", ["ok1.png"]), ("", ["ok2.png"])]
    (part,) = await bench.parts(session)
    assert (part.state, part.reason, len(part.platform_ids)) == (DeliveryState.SENT, "FilesRefused", 3)
    assert part.last_error == "'big.png': TooLarge: over 5 bytes"
    ((_, text),) = bench.failures
    assert text.endswith("was not delivered completely. Missing:\n- 'big.png': TooLarge: over 5 bytes")
    keys = [call.key for call in bench.channel.calls]
    assert keys == [part.id, *(f"{part.id}.{number}" for number in (1, 2, 3, 3, 4))]


async def test_a_refused_part_of_files_does_not_end_the_row(bench: Bench) -> None:
    """C075: also when each file is a part of its own; the session is told of all of them at once."""
    bench.channel.can = replace(CAPABLE, caption_limit=None)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [None, TooLarge("big"), Ambiguous("no answer"), Ambiguous("no answer"), None]
    await post_files(bench, session, chat, "look", "a", "b", "c", "d")
    await bench.quiet()
    assert brought(bench) == [("look", ["a"]), ("", ["d"])]
    states = [state for state, _ in await bench.states(session)]
    assert states == [DeliveryState.SENT, DeliveryState.FAILED, DeliveryState.FAILED, DeliveryState.SENT]
    ((_, text),) = bench.failures
    assert text.splitlines()[1:] == ["- 'b': TooLarge: big", "- 'c': Ambiguous: no answer"]
    assert "; 2 of 4 parts arrived" in text
    one = (await bench.parts(session))[1]
    await bench.hub.store.write(deliveries.revive, one.id, bench.clock.now())
    bench.delivery.kick([str(chat)])
    await bench.quiet()
    assert brought(bench)[-1] == ("", ["b"]), "its copy waited for the operator"


async def test_files_that_are_all_refused_fail_and_a_refused_text_is_no_success(bench: Bench) -> None:
    bench.channel.can = replace(CAPABLE, file_max_count=10, caption_limit=None)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [TooLarge("all"), TooLarge("a"), TooLarge("b")]
    await post_files(bench, session, chat, "", "a", "b")
    await bench.quiet()
    no = SendNotAllowed("may not write here")
    bench.channel.script = [no, no]
    await post_files(bench, session, chat, "look", "c", "d")
    await bench.quiet()
    assert bench.channel.arrived == []
    assert [state for state, _ in await bench.states(session)] == [DeliveryState.FAILED] * 2
    assert [reason for _, reason in await bench.states(session)] == ["TooLarge", "SendNotAllowed"]
    assert len(bench.failures) == 2


async def test_a_failing_part_ends_the_row_and_the_notice_says_how_much_arrived(bench: Bench) -> None:
    """C079."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [None, None, SendNotAllowed("blocked by the user")]
    await bench.post(session, chat, "".join(f"{letter * 150}\n\n" for letter in "abcde"), "next")
    await bench.quiet()
    assert bench.channel.texts == ["a" * 150, "b" * 150, "next"]
    ((_, text),) = bench.failures
    assert "2 of 5 parts arrived" in text
    states = [state for state, _ in await bench.states(session)]
    assert states == [DeliveryState.SENT] * 2 + [DeliveryState.FAILED] * 3 + [DeliveryState.SENT]


async def test_an_unknown_outcome_is_sent_again_under_the_same_key_where_that_is_safe(bench: Bench) -> None:
    """C081."""
    bench.channel.can = replace(CAPABLE, idempotent_send=True)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [Transient("connect time-out"), Ambiguous("read time-out")]
    await bench.post(session, chat, "hello")
    await bench.quiet()
    assert len({call.key for call in bench.channel.calls}) == 1 and len(bench.channel.calls) == 3
    assert not bench.channel.arrived[-1].message.maybe_duplicate


async def test_an_unknown_outcome_is_sent_once_more_and_marked_without_a_key(bench: Bench) -> None:
    """C081."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [Ambiguous("read time-out"), None, Ambiguous("again"), TimeoutError(), None]
    await bench.post(session, chat, "one", "two")
    await bench.quiet()
    assert [call.message.maybe_duplicate for call in bench.channel.calls] == [False, True, False, True]
    assert await bench.states(session) == [(DeliveryState.SENT, None), (DeliveryState.FAILED, "Ambiguous")]
    assert len(bench.failures) == 1


async def test_an_unknown_outcome_is_looked_up_where_there_is_a_history(bench: Bench) -> None:
    """C081."""
    bench.channel.can = replace(CAPABLE, history=Support.NATIVE)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.past = [
        MessageReceived(
            address=chat,
            dedupe_key="h",
            occurred_at=UnixMs(bench.clock.now() + 1),
            ref=MessageRef(chat, ("h-1",)),
            sender=Person("bot", is_self=True),
            text="<b>hello</b>".replace("<b>", "").replace("</b>", ""),
        )
    ]
    bench.channel.script = [Ambiguous("read time-out"), Ambiguous("read time-out")]
    await bench.post(session, chat, "**hello**")
    await bench.quiet()
    assert len(bench.channel.calls) == 1
    (part,) = await bench.parts(session)
    assert (part.state, part.platform_ids) == (DeliveryState.SENT, ("h-1",))
    await bench.post(session, chat, "**hello**")
    await bench.quiet()
    assert len(bench.channel.calls) == 3, "the one in the history is known to be another message"


async def test_twelve_sessions_leave_at_the_rate_of_the_chat_and_nothing_is_lost(bench: Bench) -> None:
    """C083."""
    bench.channel.can = replace(CAPABLE, rate_per_chat=20 / 60, rate_global=1.0)
    chat = await bench.chat("c-1")
    for number in range(12):
        await bench.post(await bench.session(chat, f"s{number}"), chat, f"m{number}")
    await bench.quiet()
    times = [call.at for call in bench.channel.arrived]
    assert bench.channel.texts == [f"m{number}" for number in range(12)]
    assert all(later - earlier >= 2.999 for earlier, later in itertools.pairwise(times))


async def test_rows_for_a_channel_that_is_not_connected_wait_for_it(bench: Bench) -> None:
    """C084."""
    chat = await bench.chat("c-1", instance="slow")
    session = await bench.session(chat)
    await bench.post(session, chat, "w " * 200)
    await bench.hub.settle(5)
    slow = FakeInstance("slow", bench.channel)
    slow.ready.clear()
    bench.directory.instances["slow"] = slow
    await bench.delivery.due()
    await bench.hub.settle(5)
    assert await bench.states(session) == [(DeliveryState.WAITING, "ChannelMissing")]
    await bench.clock.sleep(40)
    slow.ready.set()
    bench.delivery.channel_ready("fake", "slow")
    await bench.quiet()
    assert len(bench.channel.arrived) == 2, "cut by what the channel can, which nobody knew before"
    assert all(call.at >= 40 and len(call.text) <= 200 for call in bench.channel.arrived)


async def test_a_channel_that_never_gets_ready_ends_in_a_failure(bench: Bench) -> None:
    """C084."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.directory.instances["fake"].ready.clear()
    await bench.post(session, chat, "hello")
    await bench.hub.settle(5)
    bench.clock.seconds += 24 * 3600 + 1
    await bench.delivery.due()
    await bench.quiet()
    assert await bench.states(session) == [(DeliveryState.FAILED, "ChannelNotReady")]
    assert len(bench.failures) == 1


async def test_a_chat_without_a_reader_waits_until_somebody_listens(bench: Bench) -> None:
    """C084."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [NobodyListening("nobody")]
    await bench.post(session, chat, "one")
    await bench.hub.settle(5)
    await bench.post(session, chat, "two")
    await bench.delivery.due()
    await bench.hub.settle(5)
    assert len(bench.channel.calls) == 1
    bench.delivery.wake(chat)
    await bench.quiet()
    assert bench.channel.texts == ["one", "two"]


async def test_refused_credentials_stop_the_channel_and_the_message_waits(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [AuthFailed("token expired")]
    await bench.post(session, chat, "hello")
    await bench.hub.settle(5)
    instance = bench.directory.instances["fake"]
    assert instance.status.state is ChannelState.AUTH_FAILED
    assert await bench.states(session) == [(DeliveryState.WAITING, "AuthFailed")]
    instance.ready.set()
    bench.delivery.channel_ready("fake", "fake")
    await bench.quiet()
    assert bench.channel.texts == ["hello"]


async def test_what_the_platform_took_is_recorded_later_when_the_store_fails_and_never_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    write, failing = bench.hub.store.write, [True]

    async def full(work: Any, *args: Any, **more: Any) -> Any:
        if work is deliveries.sent and failing.pop():
            failing.append(False)
            raise StoreFull("no space left on the device")
        return await write(work, *args, **more)

    monkeypatch.setattr(bench.hub.store, "write", full)
    await bench.post(session, chat, "hello", "again")
    await bench.hub.settle(5)
    assert await bench.states(session) == [(DeliveryState.SENDING, None), (DeliveryState.PENDING, None)]
    failing[:] = [False, False, False]
    await bench.delivery.due()
    await bench.quiet()
    assert bench.channel.texts == ["hello", "again"]
    assert [part.platform_ids for part in await bench.parts(session)] == [("p-1",), ("p-2",)]


class Splitting(FakeChannel):
    broken = False

    def split(self, address: Address, message: OutMessage) -> list[OutMessage]:
        if self.broken:
            raise ValueError("broken")
        return [replace(message, text=word) for word in message.text.split()]


async def test_a_channel_that_cuts_itself_is_asked_and_its_fault_costs_nothing(bench: Bench) -> None:
    """C025."""
    channel = Splitting(bench.clock, CAPABLE)
    bench.directory.instances["fake"].channel = channel
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, "one two three")
    await bench.quiet()
    channel.broken = True
    await bench.post(session, chat, "four five")
    await bench.quiet()
    assert channel.texts == ["one", "two", "three", "four five"]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_a_send_that_a_crash_left_open_is_repeated_and_marked_unless_its_key_protects_it(
    bench: Bench, idempotent: bool
) -> None:
    bench.channel.can = replace(CAPABLE, idempotent_send=idempotent)
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    parts = await bench.delivery.plan(session, bench.group, bench.row(session, chat, "hello"), bench.clock.now())
    await bench.hub.store.write(deliveries.add, parts, start=True, now=bench.clock.now())
    bench.renew()
    bench.directory.instances["fake"].ready.clear()
    await bench.delivery.start()
    await bench.hub.settle(5)
    assert await bench.states(session) == [(DeliveryState.SENDING, None)], "still in doubt, whatever happens next"
    bench.directory.instances["fake"].ready.set()
    bench.delivery.channel_ready("fake", "fake")
    await bench.quiet()
    (call,) = bench.channel.arrived
    assert call.key == parts[0].id and call.message.maybe_duplicate is not idempotent


async def test_a_stop_gives_back_what_was_not_begun(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.seconds = {"c-1": 5.0}
    await bench.post(session, chat, "one", "two")
    await bench.until(lambda: len(bench.channel.calls) == 1)
    await bench.delivery.stop(20.0)
    assert await bench.states(session) == [(DeliveryState.SENT, None), (DeliveryState.PENDING, None)]
    bench.renew()
    await bench.delivery.start()
    await bench.quiet()
    assert bench.channel.texts == ["one", "two"]
    assert not any(call.message.maybe_duplicate for call in bench.channel.arrived)


async def test_refused_markup_is_sent_plain_once(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [BadContent("can't parse")]
    await bench.post(session, chat, "**hello**")
    await bench.quiet()
    assert [call.message.plain for call in bench.channel.calls] == [False, True]


async def test_a_moved_chat_is_followed_with_its_wirings(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [Migrated("moved", new_platform_id="-100")]
    await bench.post(session, chat, "one", "two")
    await bench.quiet()
    assert [call.address.platform_id for call in bench.channel.arrived] == ["-100", "-100"]
    await bench.post(session, replace(chat, platform_id="-100"), "three")
    await bench.quiet()
    assert bench.channel.texts == ["one", "two", "three"]


async def test_an_edit_waits_for_its_message_and_names_all_its_platform_ids(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [SendResult(ids=("a", "b")), SendResult(ids=("a", "b", "c")), SendResult(ids=("a",))]
    await bench.post(
        session, chat, "first", EditContent(target_seq=1, text="second"), EditContent(target_seq=1, text="3")
    )
    await bench.quiet()
    named = [call.ref.ids for call in bench.channel.arrived if call.ref is not None]
    assert named == [("a", "b"), ("a", "b", "c")]


async def test_an_edit_that_the_platform_refuses_becomes_one_new_message(bench: Bench) -> None:
    """C058."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    bench.channel.script = [None, ChatNotFound("message to edit not found")]
    await bench.post(session, chat, "Done.", EditContent(target_seq=1, text="Done, all of it."))
    await bench.quiet()
    assert bench.channel.texts == ["Done.", "*(edited)* Done, all of it."]


async def test_what_cannot_be_changed_fails_with_its_reason(bench: Bench) -> None:
    chat, other = await bench.chat("c-1"), await bench.chat("c-2")
    session = await bench.session(chat)
    await bench.post(session, chat, "mine", EditContent(target_seq=2, text="x"), EditContent(target_seq=99, text="x"))
    await bench.post(session, other, EditContent(target_seq=1, text="x"), EditContent(target_seq=1, text=" "))
    await bench.quiet()
    reasons = [reason for _, reason in await bench.states(session)]
    assert reasons == [None, "NotOwnMessage", "ChatNotFound", "ChatNotFound", "EmptyMessage"]


async def test_a_reaction_finds_the_platforms_message_behind_the_number(bench: Bench) -> None:
    """C052."""
    chat, other = await bench.chat("c-1"), await bench.chat("c-2")
    session = await bench.session(chat)
    rows = [
        InboundRow(
            id=InboundId(new_id("in")),
            kind=InboundKind.CHAT,
            content=ChatContent(text="hi"),
            at=bench.clock.now(),
            origin=origin,
            platform_message_id=platform_id,
        )
        for origin, platform_id in ((chat, "m-1"), (other, "m-2"), (chat, None))
    ]
    folder = bench.hub.folder_of(session)
    await bench.hub.mailboxes.run(folder, lambda box: box.enqueue(rows))
    await bench.post(session, chat, *(ReactionContent(target_seq=seq, emoji="👍") for seq in (2, 4, 6, 8)))
    await bench.quiet()
    assert [call.ref for call in bench.channel.arrived] == [MessageRef(chat, ("m-1",))]
    assert [reason for _, reason in await bench.states(session)] == [None] + ["ChatNotFound"] * 3


async def test_the_runner_is_told_what_became_of_its_rows(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, "hello")
    await bench.quiet()
    folder = bench.hub.folder_of(session)

    def told(box: Any) -> list[tuple[Any, ...]]:
        with box._read("look at") as db:
            return list(db.execute("SELECT out_seq, state, platform_ids FROM delivered"))

    assert await bench.hub.mailboxes.run(folder, told) == [(1, "sent", '["p-1"]')]


async def test_our_own_messages_are_known_by_their_platform_ids(bench: Bench) -> None:
    """C092."""
    chat = await bench.chat("c-1")
    session = await bench.session(chat)
    await bench.post(session, chat, "one", "two")
    await bench.quiet()
    for platform_id, own in (("p-1", True), ("p-2", True), ("u-1", False)):
        assert await bench.hub.store.read(deliveries.is_own_message, "fake", "fake", platform_id) is own


async def test_the_hosts_own_words_are_tried_twice_and_never_raise(bench: Bench) -> None:
    chat = await bench.chat("c-1")
    bench.channel.script = [Transient("refused"), None, SendNotAllowed("no")]
    await bench.delivery.send_direct(chat, OutMessage(text="Not allowed."), path=SendPath.COMMAND)
    await bench.delivery.send_direct(chat, OutMessage(text="Again."), path=SendPath.NOTICE)
    await bench.delivery.send_direct(Address("none", "none", "x"), OutMessage(text="?"), path=SendPath.NOTICE)
    assert bench.channel.texts == ["Not allowed."] and bench.hub.troubles["unsaid"] == 2
