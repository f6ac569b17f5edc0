"""The contract of channels: what goes out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import get_args

import pytest

from jackfield.api import (
    ActionReply,
    Answers,
    Deletes,
    Edits,
    KeepsHistory,
    OpensDms,
    Reacts,
    Splits,
    Streams,
    Types,
)
from jackfield.errors import ChannelError, RateLimited
from jackfield.models import (
    ActionInvoked,
    Choice,
    MessageRef,
    OpenDm,
    OutFile,
    OutMessage,
    Person,
    Prompt,
    StreamKind,
    Support,
    TextUnit,
)
from jackfield.testing.contracts.channel import ChannelBench, Line
from jackfield.testing.contracts.checks import check, skip
from jackfield.testing.contracts.peer import FAILURES, FailureKind, Said
from jackfield.testing.waiting import soon

__all__ = ["ChannelSending"]

_UNLIMITED = 100_000
_HOSTILE = "a\x00b\x1b[2J\x07\u202egpj.exe\ufeff </b>`*_[ <@everyone>"


class ChannelSending(ChannelBench):
    """As declared, no more and no less."""

    @check("CHAN-30")
    async def test_chan_30_a_text_arrives(self, tmp_path: Path) -> None:
        """`send` returns the platform's ids once the message is there, and people see the text once."""
        async with self.line(tmp_path) as line:
            result = await line.send("hello people")
            found = await line.see("message")
            assert found.text == "hello people", f"people see {found.text!r}"
            assert result.ids and all(isinstance(one, str) and one for one in result.ids), f"ids are {result.ids!r}"
            assert not found.ids or found.ids == result.ids, f"send gave {result.ids}, the platform has {found.ids}"

    @check("CHAN-31")
    async def test_chan_31_order_is_kept(self, tmp_path: Path) -> None:
        """Messages sent one after the other arrive in that order, under ids of their own."""
        async with self.line(tmp_path) as line:
            results = [await line.send(f"part {number}") for number in range(5)]
            assert [(await line.see("message")).text for _ in results] == [f"part {number}" for number in range(5)]
            ids = [one for result in results for one in result.ids]
            assert len(set(ids)) == len(ids), f"an id came twice: {ids}"

    @check("CHAN-32")
    async def test_chan_32_idempotent_send_is_declared_truly(self, tmp_path: Path) -> None:
        """A channel that declares it shows a message that is sent again under its key once only, with the same ids."""
        async with self.line(tmp_path) as line:
            if not line.able.idempotent_send:
                skip("it does not declare idempotent_send")
            once = await line.send("once only", key="dl_same")
            again = await line.send("once only", key="dl_same")
            await line.send("last")
            assert (await line.see("message")).text == "once only"
            assert (await line.see("message")).text == "last", "the second send under the same key arrived too"
            assert once.ids == again.ids, f"the ids differ: {once.ids}, {again.ids}"

    @check("CHAN-33")
    async def test_chan_33_an_edit_changes_the_message(self, tmp_path: Path) -> None:
        """`edit` replaces the text of the message with those ids."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.edit is Support.NONE:
                skip("it declares no edit")
            assert isinstance(channel, Edits), "it declares edit, and has no such method"
            sent = await line.send("befor")
            await line.see("message")
            result = await soon(channel.edit(line.ref(sent), OutMessage(text="before")), "edit")
            found = await line.see("edit")
            assert found.text == "before" and result.ids, f"people see {found.text!r}, the ids are {result.ids}"
            assert not found.ids or set(found.ids) & set(sent.ids), f"{found.ids} was edited instead of {sent.ids}"

    @check("CHAN-34")
    async def test_chan_34_a_reaction_comes_and_goes(self, tmp_path: Path) -> None:
        """`react` adds a reaction to a message, and takes it away."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.react is Support.NONE:
                skip("it declares no reactions")
            assert isinstance(channel, Reacts), "it declares reactions, and has no such method"
            sent = await line.send()
            emoji = (line.able.emoji or ("\U0001f44d",))[0]
            for on in (True, False):
                await soon(channel.react(line.ref(sent), emoji, on), "react")
                found = await line.see("reaction")
                assert (found.emoji, found.on) == (emoji, on), f"people see {found}"

    @check("CHAN-35")
    async def test_chan_35_a_message_can_be_deleted(self, tmp_path: Path) -> None:
        """`delete` takes all parts of a message away."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.delete is Support.NONE:
                skip("it declares no delete")
            assert isinstance(channel, Deletes), "it declares delete, and has no such method"
            sent = await line.send()
            await soon(channel.delete(line.ref(sent)), "delete")
            found = await line.see("delete")
            assert not found.ids or set(found.ids) <= set(sent.ids)

    @check("CHAN-36")
    async def test_chan_36_typing_is_shown(self, tmp_path: Path) -> None:
        """`typing` is seen, and never raises for a chat that it may write to."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.typing is Support.NONE:
                skip("it declares no typing")
            assert isinstance(channel, Types), "it declares typing, and has no such method"
            await soon(channel.typing(line.peer.address(), True), "typing")
            assert (await line.see("typing")).on
            await soon(channel.typing(line.peer.address(), False), "typing off")

    @check("CHAN-37")
    async def test_chan_37_files_arrive_whole(self, tmp_path: Path) -> None:
        """A file arrives with its name and every byte, also after its source was removed."""
        async with self.line(tmp_path) as line:
            if line.able.files is Support.NONE:
                skip("it declares no files")
            path = tmp_path / "report.bin"
            data = bytes(range(256)) * 400
            path.write_bytes(data)
            await line.send(
                OutMessage(text="here", files=(OutFile(name="report.bin", path=str(path), size=len(data)),))
            )
            path.unlink()
            found = await line.see("message")
            assert found.files == (("report.bin", data),), f"files are {[name for name, _ in found.files]}"

    @check("CHAN-38")
    async def test_chan_38_a_question_is_answered(self, tmp_path: Path) -> None:
        """A prompt's choices arrive, a click becomes `ActionInvoked` with value and user, and `answer` closes it."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.prompt is Support.NONE:
                skip("it declares no prompts")
            choices = (Choice("yes", "Yes"), Choice("no", "No"))
            prompt = Prompt(id="qst_00000000000000000001", title="Go", question="Shall I?", choices=choices)
            await line.send(OutMessage(prompt=prompt))
            shown = await line.see("message")
            assert shown.choices in ((), ("yes", "no")), f"the choices are {shown.choices}"
            await line.peer.click(shown, "no", by="ann")
            event = await line.event(ActionInvoked, lambda one: one.prompt_id == prompt.id, "the click")
            assert (event.value, bool(event.user.handle)) == ("no", True), f"the click became {event}"
            if event.responder is None:
                return
            assert isinstance(channel, Answers), "it gives a responder, and has no answer method"
            await soon(
                channel.answer(event.responder, event.source, ActionReply(text="No, then.", accepted=True)), "answer"
            )
            found = await line.see("prompt_done")
            assert "No, then." in found.text

    @check("CHAN-39")
    async def test_chan_39_a_stream_ends_as_one_message(self, tmp_path: Path) -> None:
        """A stream may be updated or not; its final message arrives whole, with ids. An aborted one leaves none."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.stream is StreamKind.NONE:
                skip("it declares no streams")
            assert isinstance(channel, Streams), "it declares streams, and has no such method"
            stream = channel.open_stream(line.peer.address())
            for count in range(1, 4):
                await soon(stream.update("word " * count), "an update")
            result = await soon(stream.finish(OutMessage(text="all of it"), idempotency_key="dl_stream"), "finish")
            found = [await line.see("message")]
            while found[-1].text != "all of it":  # platforms that stream by edits show what grew before
                found.append(await soon(line.peer.arrived(), "the final text"))
            assert result.ids
            aborted = channel.open_stream(line.peer.address())
            await soon(aborted.update("never m"), "an update")
            await soon(aborted.abort(), "abort")
            await line.send("after the stream")

    @check("CHAN-40")
    async def test_chan_40_history_holds_what_was_said(self, tmp_path: Path) -> None:
        """`history` gives what people wrote, oldest first, at most as many as asked for."""
        async with self.line(tmp_path) as line:
            channel = line.channel
            if line.able.history is Support.NONE:
                skip("it declares no history")
            assert isinstance(channel, KeepsHistory), "it declares history, and has no such method"
            for text in ("one", "two", "three"):
                await line.peer.write(said := Said(text=text))
                await line.stored(said)
            found = await soon(channel.history(line.peer.address(), limit=2), "history")
            assert [event.text for event in found] in (["two", "three"], ["one", "two"])
            assert {event.dedupe_key for event in found} <= {event.dedupe_key for event in line.context.events}

    @check("CHAN-41")
    async def test_chan_41_what_is_not_declared_is_absent_or_refused(self, tmp_path: Path) -> None:
        """An ability that is declared as NONE has no method, or one that raises a `ChannelError`."""
        async with self.line(tmp_path) as line:
            ref = MessageRef(line.peer.address(), ("no-such-message",))
            for name, call in self._undeclared(line, ref):
                try:
                    await soon(call(), name)
                except ChannelError:
                    continue
                raise AssertionError(f"it declares no {name}, and yet has it: declare it, or raise Unsupported")

    @check("CHAN-42")
    async def test_chan_42_a_text_of_the_limit_s_length_arrives_whole(self, tmp_path: Path) -> None:
        """A text of exactly `text_limit` in `text_unit` arrives whole; without a limit, 100,000 characters do."""
        async with self.line(tmp_path) as line:
            text = _text_of(line.able.text_limit or _UNLIMITED, line.able.text_unit)
            result = await line.send(text)
            got = ""
            while len(_plain(got)) < len(_plain(text)):
                got += (await line.see("message")).text
            assert _plain(got) == _plain(text), f"{len(got)} characters came of {len(text)}"
            assert result.ids

    @check("CHAN-43")
    async def test_chan_43_its_own_splitting_loses_nothing(self, tmp_path: Path) -> None:
        """A channel that splits by itself makes parts within its limit that hold the whole text."""
        async with self.line(tmp_path) as line:
            limit = line.able.text_limit
            if not isinstance(line.channel, Splits) or limit is None:
                skip("it leaves splitting to the core")
            text = " ".join(f"word{number}" for number in range(limit))
            parts = line.channel.split(line.peer.address(), OutMessage(text=text))
            sizes = [_length(part.text, line.able.text_unit) for part in parts]
            assert max(sizes) <= limit, f"a part has {max(sizes)} of {limit}"
            assert _plain("".join(part.text for part in parts)) == _plain(text), "something got lost between the parts"

    @check("CHAN-44")
    async def test_chan_44_hostile_text_is_sent_or_refused(self, tmp_path: Path) -> None:
        """Control and bidi characters, broken markup and 5 MB are sent or raise a `ChannelError`; it goes on."""
        async with self.line(tmp_path) as line:
            arriving = asyncio.create_task(self._drain(line))
            try:
                for text in (_HOSTILE, "x" * 5_000_000, "```\nopen fence"):
                    try:
                        await line.send(text)
                    except ChannelError:
                        continue
                assert (await line.send("still there")).ids
            finally:
                arriving.cancel()
                await asyncio.wait({arriving})

    @check("CHAN-45")
    @pytest.mark.parametrize("failure", get_args(FailureKind))
    async def test_chan_45_failures_are_told_by_their_class(self, tmp_path: Path, failure: FailureKind) -> None:
        """What the platform says becomes the `ChannelError` that tells the core what to do."""
        async with self.line(tmp_path) as line:
            if failure not in line.peer.failures:
                skip(f"this peer can't play {failure}")
            await line.peer.fail_next(failure)
            with pytest.raises(ChannelError) as caught:
                await line.send("this fails")
            assert type(caught.value) is FAILURES[failure], f"{failure} became {caught.value!r}"
            if isinstance(caught.value, RateLimited):
                assert caught.value.retry_after > 0, "retry_after is what the platform asked for"
            await line.peer.recover()
            if failure != "auth":
                assert (await line.send("works again")).ids

    @check("CHAN-46")
    async def test_chan_46_a_message_that_is_not_there_is_not_found(self, tmp_path: Path) -> None:
        """Editing, deleting or reacting to an unknown message raises a `ChannelError` or does nothing; no accident."""
        async with self.line(tmp_path) as line:
            ref = MessageRef(line.peer.address(), ("no-such-message",))
            calls = [call for _, call in _calls(line, ref)]
            for call in calls[:3]:
                try:
                    await soon(call(), "a call for an unknown message")
                except (ChannelError, NotImplementedError):
                    continue

    async def _drain(self, line: Line) -> None:
        """People who look at everything, so that a channel which waits for them goes on."""
        while True:
            await line.peer.arrived()

    def _undeclared(self, line: Line, ref: MessageRef) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
        able = line.able
        declared = {
            "edit": able.edit is not Support.NONE,
            "delete": able.delete is not Support.NONE,
            "react": able.react is not Support.NONE,
            "typing": able.typing is not Support.NONE,
            "open_dm": able.open_dm is not OpenDm.NO,
            "history": able.history is not Support.NONE,
        }
        return [(name, call) for name, call in _calls(line, ref) if not declared[name]]


def _calls(line: Line, ref: MessageRef) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    """The optional methods that this channel has, each ready to be called."""
    channel = line.channel
    found: list[tuple[str, Callable[[], Awaitable[object]]]] = []
    if isinstance(channel, Edits):
        found.append(("edit", lambda: channel.edit(ref, OutMessage(text="x"))))
    if isinstance(channel, Deletes):
        found.append(("delete", lambda: channel.delete(ref)))
    if isinstance(channel, Reacts):
        found.append(("react", lambda: channel.react(ref, "\U0001f44d")))
    if isinstance(channel, Types):
        found.append(("typing", lambda: channel.typing(ref.address)))
    if isinstance(channel, OpensDms):
        found.append(("open_dm", lambda: channel.open_dm(Person("ann"))))
    if isinstance(channel, KeepsHistory):
        found.append(("history", lambda: channel.history(ref.address)))
    return found


def _length(text: str, unit: TextUnit) -> int:
    match unit:
        case TextUnit.UTF16:
            return len(text.encode("utf-16-le", "surrogatepass")) // 2
        case TextUnit.UTF8:
            return len(text.encode(errors="surrogatepass"))
        case _:
            return len(text)


def _text_of(length: int, unit: TextUnit) -> str:
    """A text of exactly that length in that unit, of words and one character outside the basic plane."""
    last = "\U0001f680"
    room = length - _length(last, unit)
    return ("word " * (room // 5 + 1))[:room] + last if room > 0 else "x" * length


def _plain(text: str) -> str:
    return "".join(text.split())
