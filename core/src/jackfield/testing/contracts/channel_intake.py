"""The contract of channels: what comes in."""

from __future__ import annotations

import asyncio
from pathlib import Path

from jackfield.api import OpensAttachments, ServesRoutes
from jackfield.errors import ChannelError, JackfieldError
from jackfield.models import Addressed, MessageEdited, Threads, Trust
from jackfield.testing.contracts.channel import ChannelBench, Line
from jackfield.testing.contracts.checks import check, skip
from jackfield.testing.contracts.extension import stranger
from jackfield.testing.contracts.peer import Said
from jackfield.testing.waiting import soon

__all__ = ["ChannelIntake"]

_HOSTILE = "</message><message to='family'>\x00\x1b[2J\x07\u202egpj.exe\ufeff \U0001f469\u200d\U0001f680"
_FIVE_MEGABYTES = 5_000_000


class ChannelIntake(ChannelBench):
    """Durable before acknowledged, once, and told truly."""

    @check("CHAN-10")
    async def test_chan_10_events_tell_where_and_who(self, tmp_path: Path) -> None:
        """An event has this instance's address, a stable sender, a dedupe key, and the message's own id."""
        async with self.line(tmp_path) as line:
            said = Said(text="where and who")
            await line.peer.write(said)
            event = await line.stored(said)
            assert event.address == line.peer.address(), f"{event.address} is not where it was written"
            assert event.sender.handle and event.dedupe_key and event.ref.ids, f"something is missing in {event}"
            assert 1e12 < event.occurred_at < 1e13, f"occurred_at = {event.occurred_at} are no milliseconds"
            local = self.item().info.local
            assert local or event.sender.trust is not Trust.OPERATOR, "only a local channel may claim Trust.OPERATOR"
            assert not event.sender.is_self and not event.sender.is_bot

    @check("CHAN-11")
    async def test_chan_11_it_acknowledges_after_accept_has_returned(self, tmp_path: Path) -> None:
        """The platform sees the acknowledgement only when the event is stored, however slow that is."""
        async with self.line(tmp_path) as line:
            said = Said(text="slowly")
            with line.context.held():
                await line.peer.write(said)
                await line.context.until(lambda: line.context.waiting > 0, "accept to be called")
                seen = asyncio.create_task(line.peer.acknowledged(said))
                await self.never(seen, "it acknowledged a message that is not stored yet")
            assert await soon(seen, "the acknowledgement") is True, "it refused a message that was stored"
            await line.stored(said)

    @check("CHAN-12")
    async def test_chan_12_what_can_not_be_stored_is_not_acknowledged(self, tmp_path: Path) -> None:
        """When `accept` raises, the platform sees no acknowledgement, and the channel lives on."""
        async with self.line(tmp_path) as line:
            said = Said(text="refused")
            line.context.fail(JackfieldError("the disk is full"))
            await line.peer.write(said)
            seen = asyncio.create_task(line.peer.acknowledged(said))
            await line.context.until(lambda: line.context.refused > 0, "accept to be called")
            await asyncio.wait({seen}, timeout=self.window)
            assert not seen.done() or seen.result() is False, "it acknowledged a message that could not be stored"
            seen.cancel()
            line.context.mend()
            again = Said(text="after that")
            await line.peer.write(again)
            await line.stored(again)

    @check("CHAN-13")
    async def test_chan_13_what_could_not_be_stored_comes_again(self, tmp_path: Path) -> None:
        """A message that `accept` refused is taken when it is delivered again, or when the channel restarts."""
        async with self.platform() as peer:
            async with self.connected(peer, tmp_path) as line:
                said = Said(text="not lost")
                line.context.fail(JackfieldError("the disk is full"))
                await peer.write(said)
                await line.context.until(lambda: line.context.refused > 0, "accept to be called")
            memory = line.context.memory
            assert not memory.texts
            async with self.connected(peer, tmp_path, memory) as line:
                await peer.redeliver(said)
                await line.stored(said)

    @check("CHAN-14")
    async def test_chan_14_a_second_delivery_is_the_same_event(self, tmp_path: Path) -> None:
        """The dedupe key comes from the message, not from the delivery: a message delivered twice is stored once."""
        async with self.line(tmp_path) as line:
            said, after = Said(text="once"), Said(text="after")
            await line.peer.write(said)
            await line.stored(said)
            await line.peer.redeliver(said)
            await line.peer.write(after)
            await line.stored(after)
            same = [event for event in line.messages if event.text == "once"]
            assert len(same) == 1, f"it became {len(same)} events: {[event.dedupe_key for event in same]}"

    @check("CHAN-15")
    async def test_chan_15_equal_texts_are_two_messages(self, tmp_path: Path) -> None:
        """Two messages with the same text, sender and chat are two events."""
        async with self.line(tmp_path) as line:
            await line.peer.write(Said(text="ok"))
            await line.peer.write(Said(text="ok"))
            await line.peer.write(last := Said(text="last"))
            await line.stored(last)
            same = [event for event in line.messages if event.text == "ok"]
            assert len(same) == 2, f"it became {len(same)} events"

    @check("CHAN-16")
    async def test_chan_16_its_own_messages_are_marked(self, tmp_path: Path) -> None:
        """What the bot's own account wrote is left out, or marked as its own."""
        async with self.line(tmp_path) as line:
            await line.peer.write(Said(text="I myself", own=True))
            await line.peer.write(last := Said(text="last"))
            await line.stored(last)
            own = [event for event in line.messages if event.text == "I myself"]
            assert all(event.sender.is_self for event in own), "its own message is not marked: it would answer itself"

    @check("CHAN-17")
    async def test_chan_17_bots_are_marked(self, tmp_path: Path) -> None:
        """What another bot wrote is left out, or marked as a bot's."""
        async with self.line(tmp_path) as line:
            await line.peer.write(Said(text="beep", bot=True))
            await line.peer.write(last := Said(text="last"))
            await line.stored(last)
            found = [event for event in line.messages if event.text == "beep"]
            assert all(event.sender.is_bot for event in found), "a bot's message is not marked as one"

    @check("CHAN-18")
    async def test_chan_18_a_direct_message_addresses_the_bot(self, tmp_path: Path) -> None:
        """A message in a chat of two is no group's, and its `addressed` is not NONE."""
        async with self.line(tmp_path) as line:
            await line.peer.write(said := Said(text="you"))
            event = await line.stored(said)
            assert not event.is_group, "a direct message is no group's"
            assert event.addressed is not Addressed.NONE, "a direct message addresses the bot"

    @check("CHAN-19")
    async def test_chan_19_in_a_group_only_a_mention_addresses_the_bot(self, tmp_path: Path) -> None:
        """In a group `addressed` tells whether the platform says that the bot was meant; the text alone never does."""
        async with self.line(tmp_path) as line:
            plain = Said(text="just talking", chat="group", group=True)
            meant = Said(text="you there", chat="group", group=True, mention=True)
            await line.peer.write(plain)
            event = await line.stored(plain)
            assert event.is_group and event.address == line.peer.address("group")
            assert event.addressed is Addressed.NONE, "nobody addressed the bot"
            await line.peer.write(meant)
            event = await line.stored(meant)
            assert event.addressed is not Addressed.NONE, "the bot was mentioned"

    @check("CHAN-20")
    async def test_chan_20_a_thread_is_answered_in_the_thread(self, tmp_path: Path) -> None:
        """A message in a thread carries the thread, and what is sent to its address arrives there."""
        async with self.line(tmp_path) as line:
            if line.able.threads is Threads.NONE:
                skip("it declares no threads")
            said = Said(text="in the thread", thread="t1")
            address = line.peer.address(thread="t1")
            await line.peer.write(said)
            event = await line.stored(said)
            assert event.address == address, f"{event.address} is not the thread {address}"
            await line.send("answer", to=event.address)
            found = await line.see("message")
            assert found.address in (None, address), f"the answer went to {found.address}"

    @check("CHAN-21")
    async def test_chan_21_files_are_fetched_when_asked_for(self, tmp_path: Path) -> None:
        """A received file is named in the event, and its bytes come from `open_attachment`."""
        async with self.line(tmp_path) as line:
            data = bytes(range(256)) * 1200
            said = Said(text="with a file", files=(("photo.png", data),))
            await line.peer.write(said)
            event = await line.stored(said)
            assert [one.name for one in event.attachments] == ["photo.png"], f"attachments are {event.attachments}"
            assert isinstance(line.channel, OpensAttachments), "it has attachments that nobody can open"
            read = b""
            async with line.channel.open_attachment(event.attachments[0]) as chunks:
                async for chunk in chunks:
                    read += chunk
            assert read == data, f"{len(read)} bytes came, {len(data)} were sent"

    @check("CHAN-22")
    async def test_chan_22_an_edit_is_another_event_of_the_same_message(self, tmp_path: Path) -> None:
        """When somebody edits a message, a `MessageEdited` with the new text and the message's id is stored."""
        async with self.line(tmp_path) as line:
            await line.peer.write(said := Said(text="frist"))
            first = await line.stored(said)
            await line.peer.edit(said, "first")
            event = await line.event(MessageEdited, lambda one: one.text == "first", "the edit")
            assert event.ref.ids == first.ref.ids, "the edit names another message"
            assert event.dedupe_key != first.dedupe_key, "message and edit have the same dedupe key"

    @check("CHAN-23")
    async def test_chan_23_hostile_text_harms_nobody(self, tmp_path: Path) -> None:
        """Control and bidi characters and 5 MB of text are stored as they are or refused; the channel lives on."""
        async with self.line(tmp_path) as line:
            await line.peer.write(Said(text=_HOSTILE))
            await line.peer.write(Said(text="x" * _FIVE_MEGABYTES))
            await self._still_well(line)
            assert all(len(event.text) <= _FIVE_MEGABYTES for event in line.messages)

    @check("CHAN-24")
    async def test_chan_24_cursors_go_on_where_they_stopped(self, tmp_path: Path) -> None:
        """After a restart nothing that was stored comes again as something new, and what came meanwhile is fetched."""
        async with self.platform() as peer:
            async with self.connected(peer, tmp_path) as line:
                await peer.write(before := Said(text="before"))
                await line.stored(before)
                memory = line.context.memory
            if not memory.cursors:
                skip("it keeps no cursor")
            await peer.write(meanwhile := Said(text="meanwhile"))
            async with self.connected(peer, tmp_path, memory) as line:
                await line.stored(meanwhile)
                again = [event for event in line.context.offered if getattr(event, "text", "") == "before"]
                assert not again, "it reads from the beginning although its cursor had moved on"
                assert len(line.context.events) == 2

    @check("CHAN-25")
    async def test_chan_25_routes_refuse_strangers(self, tmp_path: Path) -> None:
        """A request without the platform's signature gets a 4xx from each route, and nothing is stored."""
        async with self.line(tmp_path) as line:
            if not isinstance(line.channel, ServesRoutes):
                skip("it has no routes")
            for route in line.channel.http_routes():
                for method in route.methods:
                    await stranger(route.handle, method, route.path)
            assert not line.context.offered, "it accepted something from a stranger"

    async def _still_well(self, line: Line) -> None:
        await line.peer.write(said := Said(text="still there?"))
        await line.stored(said)
        try:
            await line.send("I am")
        except ChannelError as problem:
            raise AssertionError(f"afterwards a send fails: {problem!r}") from problem
