"""The terminal channel between a host and clients in memory."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from jackfield.api import (
    Accepted,
    ActionReply,
    Answers,
    Attaches,
    Channel,
    Cursor,
    Edits,
    OpensAttachments,
    Reacts,
    Streams,
    Types,
)
from jackfield.clock import Clock, SystemClock, UnixMs
from jackfield.errors import ChatNotFound, JackfieldError, NobodyListening, Transient
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    Card,
    CardField,
    CardLink,
    ChannelState,
    ChannelStatus,
    Choice,
    Event,
    MessageReceived,
    MessageRef,
    OutFile,
    OutMessage,
    Prompt,
    Support,
    Trust,
)
from jackfield_channel_terminal import channel as channel_module
from jackfield_channel_terminal import plugin
from jackfield_channel_terminal.channel import TerminalChannel
from jackfield_channel_terminal.storage import forget_old

HOME = Address("terminal", "terminal", "home")
BOUND = 30.0
Frame = dict[str, Any]


async def soon(work: Awaitable[Any]) -> Any:
    """The result, or a failure instead of a hang."""
    return await asyncio.wait_for(work, BOUND)


class Wire:
    """Two ends of one connection."""

    def __init__(self, user: str = "eve") -> None:
        self.to_channel: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.to_client: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.user = user
        self.blocked = False

    # the channel's end

    @property
    def peer_user(self) -> str:
        return self.user

    async def receive(self) -> Frame | None:
        return await self.to_channel.get()

    async def send(self, message: Frame) -> None:
        if self.blocked:
            await asyncio.Event().wait()
        self.to_client.put_nowait(message)


class Peer:
    """A client's end, as a test uses it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.seen: list[Frame] = []

    async def until(self, kind: str) -> Frame:
        async def read() -> Frame:
            while (frame := await self.wire.to_client.get()) is not None:
                self.seen.append(frame)
                if frame["type"] == kind:
                    return frame
            raise AssertionError(f"the connection ended without {kind!r}: {self.seen}")

        found: Frame = await soon(read())
        return found

    def say(self, **frame: Any) -> None:
        self.wire.to_channel.put_nowait(frame)

    async def show(self) -> Frame:
        """Wait for a message and confirm it."""
        frame = await self.until("message")
        self.say(type="shown", delivery=frame["key"])
        return frame

    def leave(self) -> None:
        self.wire.to_channel.put_nowait(None)


class Host:
    """The channel's context, and the host's hand that attaches clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock: Clock = SystemClock()
        self.accepted: list[Event] = []
        self.statuses: list[ChannelStatus] = []
        self.woken: list[Address] = []
        self.on_wake: Callable[[], None] = lambda: None
        self.refuse: JackfieldError | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.channel: TerminalChannel

    @property
    def instance(self) -> str:
        return "terminal"

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def folder(self) -> Path:
        self._folder.mkdir(exist_ok=True)
        return self._folder

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        if self.refuse is not None:
            raise self.refuse
        known = any(event.dedupe_key == old.dedupe_key for old in self.accepted)
        self.accepted.append(event)
        return Accepted(event_id=f"ev_{event.dedupe_key}", duplicate=known)

    async def cursor(self, key: str) -> str | None:
        return None

    async def secret(self, name: str) -> str | None:
        return None

    def route_url(self, path: str = "") -> str | None:
        return None

    def report(self, status: ChannelStatus) -> None:
        self.statuses.append(status)

    def wake(self, address: Address) -> None:
        self.woken.append(address)
        self.on_wake()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def attach(self, group: str | None = "home", thread: str | None = None, user: str = "eve") -> Peer:
        """A client that has been welcomed."""
        wire = Wire(user)

        async def serve() -> None:
            await self.channel.attach(wire, {})
            wire.to_client.put_nowait(None)

        self.spawn(serve(), "client")
        peer = Peer(wire)
        peer.say(type="hello", group=group, thread=thread)
        await peer.until("welcome")
        return peer


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path / "channel")
    channel = plugin.create("terminal", {"confirm_seconds": BOUND})
    assert isinstance(channel, TerminalChannel)
    host.channel = channel
    await channel.start(host)
    yield host
    await channel.stop()
    for task in host.tasks:
        task.cancel()
    await asyncio.gather(*host.tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "ARRIVAL", 0.01)


def send(host: Host, text: str = "hi", key: str = "dl_1", address: Address = HOME, **more: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(
        host.channel.send(address, OutMessage(text=text, **more), idempotency_key=key), name="send"
    )


async def test_it_is_ready_at_once_and_claims_what_it_can(host: Host) -> None:
    assert [status.state for status in host.statuses] == [ChannelState.READY]
    for mixin in (Channel, Attaches, Edits, Reacts, Types, Streams, Answers, OpensAttachments):
        assert isinstance(host.channel, mixin), mixin
    able = host.channel.capabilities()
    assert able.text_limit is None and able.idempotent_send and able.edit is Support.NATIVE
    (kind,) = plugin.register_channels()
    assert kind.info.type == "terminal" and kind.info.local
    assert (await host.channel.check(host)).ok


async def test_a_person_s_message_is_stored_before_it_is_acknowledged(host: Host) -> None:
    peer = await host.attach(thread="t1", user="eve")
    peer.say(type="message", id="m1", text="hello")
    assert await peer.until("accepted") == {"type": "accepted", "id": "m1", "duplicate": False}
    (event,) = host.accepted
    assert isinstance(event, MessageReceived)
    assert (event.address, event.text, event.addressed) == (
        Address("terminal", "terminal", "home", "t1"),
        "hello",
        Addressed.DM,
    )
    assert (event.sender.handle, event.sender.trust) == ("eve", Trust.OPERATOR)
    peer.say(type="message", id="m1", text="hello")
    assert (await peer.until("accepted"))["duplicate"] is True
    assert {event.dedupe_key for event in host.accepted} == {"message:m1"}


async def test_a_message_that_could_not_be_stored_is_refused(host: Host) -> None:
    """C007."""
    host.refuse = JackfieldError("the disk is full")
    peer = await host.attach()
    peer.say(type="message", id="m1", text="hello")
    assert await peer.until("refused") == {"type": "refused", "id": "m1", "reason": "the disk is full"}


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ({"text": ""}, "empty"),
        ({"text": " ", "files": []}, "empty"),
        ({"text": "x", "files": ["relative"]}, "not absolute"),
        ({"text": "x", "files": ["/no/such/file"]}, "No such file"),
        ({"text": "x", "files": ["/"]}, "no regular file"),
        ({"text": "x", "files": "x"}, "list of paths"),
        ({}, "needs 'text'"),
    ],
)
async def test_a_message_that_can_not_be_says_why(host: Host, frame: Frame, reason: str) -> None:
    peer = await host.attach()
    peer.say(type="message", id="m1", **frame)
    assert reason in (await peer.until("refused"))["reason"]
    assert host.accepted == []


@pytest.mark.parametrize("frame", [{"type": "shown"}, {"type": "dance"}, {"type": "message", "id": 7}, {"type": None}])
async def test_a_wrong_frame_is_answered_and_the_client_stays(host: Host, frame: Frame) -> None:
    peer = await host.attach()
    peer.say(**frame)
    await peer.until("error")
    peer.say(type="message", id="m1", text="still here")
    await peer.until("accepted")


@pytest.mark.parametrize(
    "first", [{"type": "message"}, {"type": "hello", "group": "home", "thread": 5}, {"type": "hello"}]
)
async def test_a_client_that_begins_wrongly_is_told_and_let_go(host: Host, first: Frame) -> None:
    wire = Wire()
    wire.to_channel.put_nowait(first)
    await soon(host.channel.attach(wire, {}))
    answer = wire.to_client.get_nowait()
    assert answer is not None and answer["type"] == "error"
    assert wire.to_client.empty()


async def test_a_file_that_a_person_names_is_fetched_when_it_is_asked_for(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(b"x" * 300_000)
    peer = await host.attach()
    peer.say(type="message", id="m1", text="", files=[str(path)])
    await peer.until("accepted")
    (event,) = host.accepted
    assert isinstance(event, MessageReceived)
    (attachment,) = event.attachments
    assert (attachment.name, attachment.kind, attachment.size) == ("photo.png", "image", 300_000)
    async with host.channel.open_attachment(attachment) as chunks:
        assert b"".join([chunk async for chunk in chunks]) == path.read_bytes()
    path.unlink()
    with pytest.raises(ChatNotFound, match="can't be read any more"):
        async with host.channel.open_attachment(attachment):
            pass


async def test_without_a_client_nothing_counts_as_delivered(host: Host) -> None:
    """C084."""
    with pytest.raises(NobodyListening, match="nobody is attached") as caught:
        await send(host)
    assert caught.value.fix == "open it with `jackfield chat home`"
    await host.attach("other")
    with pytest.raises(NobodyListening):
        await send(host)


async def test_a_client_that_comes_wakes_what_waited(host: Host) -> None:
    sent: list[asyncio.Task[Any]] = []
    host.on_wake = lambda: sent.append(send(host)) if not sent else None
    with pytest.raises(NobodyListening):
        await send(host)
    peer = await host.attach()
    assert host.woken[0] == HOME
    assert (await peer.show())["text"] == "hi"
    assert (await soon(sent[0])).ids == ("term-dl_1",)


async def test_a_send_lasts_until_a_client_confirmed(host: Host) -> None:
    peer = await host.attach()
    sending = send(host, maybe_duplicate=True)
    frame = await peer.until("message")
    assert not sending.done()
    assert frame == {
        "type": "message",
        "key": "dl_1",
        "ids": ["term-dl_1"],
        "text": "hi",
        "files": [],
        "card": None,
        "prompt": None,
        "stream": None,
        "maybe_duplicate": True,
    }
    peer.say(type="shown", delivery="dl_1")
    assert (await soon(sending)).ids == ("term-dl_1",)


async def test_all_clients_of_a_chat_see_a_message_and_one_confirmation_is_enough(host: Host) -> None:
    one, two, other = await host.attach(), await host.attach(), await host.attach(thread="t")
    sending = send(host)
    await two.until("message")
    await one.show()
    await soon(sending)
    assert other.wire.to_client.empty()


async def test_the_same_key_is_shown_once(host: Host) -> None:
    peer = await host.attach()
    sending = send(host)
    await peer.show()
    first = await soon(sending)
    assert await soon(send(host)) == first
    assert peer.wire.to_client.empty()


async def test_a_client_that_left_without_confirming_has_not_shown_it(host: Host) -> None:
    peer = await host.attach()
    sending = send(host)
    await peer.until("message")
    peer.leave()
    with pytest.raises(NobodyListening):
        await soon(sending)


async def test_a_client_that_comes_in_the_middle_takes_over(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await host.attach()
    sending = send(host)
    await first.until("message")
    second = await host.attach()
    first.leave()
    await second.show()
    assert (await soon(sending)).ids == ("term-dl_1",)


async def test_one_that_comes_just_after_the_last_left_gets_it_too(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "ARRIVAL", 30.0)
    first = await host.attach()
    sending = send(host)
    await first.until("message")
    first.leave()
    while await first.wire.to_client.get() is not None:
        pass
    second = await host.attach()
    await second.show()
    await soon(sending)


async def test_a_stopped_client_holds_up_nobody_and_confirms_late(host: Host) -> None:
    host.channel._settings.confirm_seconds = 0.01
    peer = await host.attach()
    with pytest.raises(NobodyListening, match="did not confirm"):
        await send(host)
    woken = len(host.woken)
    peer.say(type="shown", delivery="dl_1")
    peer.say(type="message", id="m", text="x")
    await peer.until("accepted")
    assert len(host.woken) == woken + 1
    assert (await soon(send(host))).ids == ("term-dl_1",)


async def test_a_client_that_never_reads_is_given_up(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = await host.attach()
    peer.wire.blocked = True
    for number in range(1100):
        host.channel._rooms[HOME].tell({"type": "edit", "id": str(number), "text": ""})
    while HOME in host.channel._rooms:
        await asyncio.sleep(0)


async def test_a_cancelled_send_leaves_nothing_behind(host: Host) -> None:
    peer = await host.attach()
    sending = send(host)
    await peer.until("message")
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert host.channel._rooms[HOME].sending == {}
    peer.leave()
    while HOME in host.channel._rooms:
        await asyncio.sleep(0)


async def test_files_are_copied_because_the_outbox_is_emptied(host: Host, tmp_path: Path) -> None:
    outbox = tmp_path / "outbox"
    outbox.mkdir()
    (outbox / "a.txt").write_text("A")
    peer = await host.attach()
    file = OutFile(name="a.txt", path=str(outbox / "a.txt"), size=1)
    sending = send(host, files=(file, file))
    frame = await peer.show()
    await soon(sending)
    (outbox / "a.txt").unlink()
    assert [(item["name"], item["size"]) for item in frame["files"]] == [("a.txt", 1), ("a.txt", 1)]
    paths = [Path(item["path"]) for item in frame["files"]]
    assert len(set(paths)) == 2 and all(path.read_text() == "A" for path in paths)
    assert all(path.is_relative_to(host.folder) for path in paths)


async def test_a_link_in_the_outbox_is_not_followed(host: Host, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    await host.attach()
    with pytest.raises(Transient):
        await soon(send(host, files=(OutFile(name="x", path=str(tmp_path / "link"), size=1),)))


def test_old_copies_are_forgotten(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    os.utime(tmp_path / "old", (1, 1))
    assert forget_old(tmp_path, time.time() - 60) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["new"]
    assert forget_old(tmp_path / "none", 0) == 0


async def test_a_card_crosses_whole(host: Host) -> None:
    peer = await host.attach()
    card = Card(title="T", fields=(CardField("a", "b", True),), links=(CardLink("l", "https://x"),), fallback_text="f")
    sending = send(host, card=card)
    frame = await peer.show()
    await soon(sending)
    assert frame["card"] == {
        "title": "T",
        "text": "",
        "fields": [{"name": "a", "value": "b", "inline": True}],
        "image_url": None,
        "links": [{"label": "l", "url": "https://x"}],
        "fallback_text": "f",
    }


def prompt(**more: Any) -> Prompt:
    return Prompt(id="qst_1", title="T", question="Q?", choices=(Choice("y", "Yes", "Yes!"), Choice("n", "No")), **more)


async def asked(host: Host, peer: Peer, **more: Any) -> None:
    sending = send(host, prompt=prompt(**more))
    await peer.show()
    await soon(sending)


async def test_a_choice_becomes_an_event_and_its_answer_closes_the_question_for_all(host: Host) -> None:
    one, two = await host.attach(), await host.attach()
    await asked(host, one)
    one.say(type="choice", prompt_id="qst_1", value="y", id="c1")
    one.say(type="message", id="after", text="x")
    await one.until("accepted")
    event = host.accepted[0]
    assert isinstance(event, ActionInvoked)
    assert (event.prompt_id, event.value, event.user.handle, event.dedupe_key) == ("qst_1", "y", "eve", "choice:c1")
    assert event.source == MessageRef(HOME, ("term-dl_1",)) and event.responder is not None
    await host.channel.answer(event.responder, event.source, ActionReply(text="Q? Yes!", accepted=True))
    for peer in (one, two):
        assert await peer.until("prompt_done") == {"type": "prompt_done", "prompt_id": "qst_1", "text": "Q? Yes!"}
    later = await host.attach()
    assert later.wire.to_client.empty()


async def test_a_refused_choice_is_told_to_who_chose_only(host: Host) -> None:
    one, two = await host.attach(), await host.attach()
    await asked(host, one)
    await two.until("message")
    one.say(type="choice", prompt_id="qst_1", value="y")
    one.say(type="message", id="after", text="x")
    await one.until("accepted")
    event = host.accepted[0]
    assert isinstance(event, ActionInvoked) and event.responder is not None
    await host.channel.answer(event.responder, None, ActionReply(text="not you", accepted=False))
    assert await one.until("error") == {"type": "error", "message": "not you"}
    assert two.wire.to_client.empty()


async def test_an_open_question_is_shown_to_who_comes_later_unless_it_expired(host: Host) -> None:
    first = await host.attach()
    await asked(host, first)
    assert (await (await host.attach()).until("message"))["prompt"]["id"] == "qst_1"
    host.channel._rooms[HOME].prompts["qst_1"]["prompt"]["expires_at"] = UnixMs(1)
    assert (await host.attach()).wire.to_client.empty()


async def test_an_edit_of_a_question_closes_it(host: Host) -> None:
    peer = await host.attach()
    await asked(host, peer)
    ref = MessageRef(HOME, ("term-dl_1",))
    assert (await host.channel.edit(ref, OutMessage(text="expired"))).ids == ref.ids
    assert await peer.until("edit") == {"type": "edit", "id": "term-dl_1", "text": "expired"}
    assert host.channel._rooms[HOME].prompts == {}


async def test_a_question_that_was_settled_while_nobody_was_there_is_not_asked_again(host: Host) -> None:
    await asked(host, first := await host.attach())
    first.leave()
    while await soon(first.wire.to_client.get()) is not None:
        pass
    with pytest.raises(NobodyListening):
        await host.channel.edit(MessageRef(HOME, ("term-dl_1",)), OutMessage(text="approved"))
    assert (await host.attach()).wire.to_client.empty()


async def test_a_reaction_and_an_edit_wait_for_a_reader_too(host: Host) -> None:
    ref = MessageRef(HOME, ("term-1",))
    for attempt in (host.channel.react(ref, "👍"), host.channel.edit(ref, OutMessage(text="x"))):
        with pytest.raises(NobodyListening):
            await attempt
    peer = await host.attach()
    await host.channel.react(ref, "👍", on=False)
    assert await peer.until("reaction") == {"type": "reaction", "id": "term-1", "emoji": "👍", "on": False}


async def test_typing_is_told_also_to_who_comes_later(host: Host) -> None:
    await host.channel.typing(HOME, True)
    peer = await host.attach()
    assert await peer.until("typing") == {"type": "typing", "on": True}
    await host.channel.typing(HOME, False)
    assert await peer.until("typing") == {"type": "typing", "on": False}
    await host.channel.typing(HOME, False)
    assert peer.wire.to_client.empty()


async def test_a_stream_grows_and_is_completed_by_its_message(host: Host) -> None:
    peer = await host.attach()
    stream = host.channel.open_stream(HOME)
    await stream.update("a")
    await stream.update("a b")
    assert (await peer.until("stream"))["text"] == "a"
    key = (await peer.until("stream"))["key"]
    finishing = asyncio.create_task(stream.finish(OutMessage(text="a b c"), idempotency_key="dl_9"))
    frame = await peer.show()
    assert (frame["stream"], frame["text"]) == (key, "a b c")
    assert (await soon(finishing)).ids == ("term-dl_9",)
    gone = host.channel.open_stream(HOME)
    await gone.update("x")
    await gone.abort()
    await peer.until("stream_end")


async def test_stopping_lets_everybody_go(host: Host) -> None:
    peers = [await host.attach(), await host.attach()]
    await soon(host.channel.stop())
    for peer in peers:
        with pytest.raises(AssertionError, match="the connection ended"):
            await peer.until("never")
    assert host.channel._rooms == {}


async def test_saying_bye_ends_the_attachment(host: Host) -> None:
    peer = await host.attach()
    peer.say(type="bye")
    with pytest.raises(AssertionError, match="the connection ended"):
        await peer.until("never")
