"""The contract of channels: starting, stopping, being one of several; and the whole of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jackfield.api import (
    Answers,
    ChannelType,
    Deletes,
    Edits,
    Health,
    KeepsHistory,
    OpensDms,
    Reacts,
    Streams,
    Types,
)
from jackfield.models import Capabilities, OpenDm, StreamKind, Support
from jackfield.testing.contracts.channel import ChannelBench
from jackfield.testing.contracts.channel_intake import ChannelIntake
from jackfield.testing.contracts.channel_sending import ChannelSending
from jackfield.testing.contracts.checks import check, nothing_left, open_descriptors, skip
from jackfield.testing.contracts.peer import Said
from jackfield.testing.recorders import ChannelRecorder
from jackfield.testing.waiting import soon

__all__ = ["ChannelContract"]


class ChannelLife(ChannelBench):
    """From `create` to `stop`."""

    @check("CHAN-01")
    def test_chan_01_it_is_named_and_can_be_made(self) -> None:
        """Its type has the entry point's name, a title, and settings whose names of secrets exist."""
        item = self.item()
        assert isinstance(item, ChannelType), f"register_channels gave {item!r}"
        assert item.info.type == self.plugin
        assert item.info.title.strip(), "title is empty"
        fields = item.settings.model_fields if item.settings is not None else {}
        unknown = [name for name in item.secrets if name not in fields]
        assert not unknown, f"secrets = {item.secrets}, but the settings have no {unknown}"

    @check("CHAN-02")
    async def test_chan_02_what_it_declares_it_has(self, tmp_path: Path) -> None:
        """For each ability that the capabilities declare there is the method."""
        async with self.platform() as peer:
            channel = self.make(peer.instance, peer.settings)
            able = channel.capabilities()
            assert isinstance(able, Capabilities), f"capabilities gave {able!r}"
            assert channel.capabilities(peer.address()) == channel.capabilities(peer.address())
            needed: list[tuple[bool, str, type[object]]] = [
                (able.edit is not Support.NONE, "edit", Edits),
                (able.delete is not Support.NONE, "delete", Deletes),
                (able.react is not Support.NONE, "react", Reacts),
                (able.typing is not Support.NONE, "typing", Types),
                (able.open_dm is not OpenDm.NO, "open_dm", OpensDms),
                (able.stream is not StreamKind.NONE, "open_stream", Streams),
                (able.history is not Support.NONE, "history", KeepsHistory),
                (able.prompt is Support.NATIVE, "answer", Answers),
            ]
            missing = [name for declared, name, mixin in needed if declared and not isinstance(channel, mixin)]
            assert not missing, f"it declares what it has no method for: {missing}"
            assert able.text_limit is None or able.text_limit > 0
            assert able.prompt is Support.NONE or able.prompt_max_choices > 0, "prompts without choices"

    @check("CHAN-03")
    async def test_chan_03_a_check_starts_nothing(self, tmp_path: Path) -> None:
        """`check` works on a channel that was not started, says ok or how to mend it, and leaves nothing running."""
        async with self.platform() as peer, nothing_left("check"):
            context = ChannelRecorder(self.plugin, peer.instance, tmp_path / "folder", secrets=peer.secrets)
            health = await soon(self.make(peer.instance, peer.settings).check(context), "check")
            assert isinstance(health, Health), f"check gave {health!r}"
            assert health.ok or health.detail or health.fix, "it is not ok, and does not say why"
            assert not context.events and not context.statuses, "a check takes nothing in and reports nothing"

    @check("CHAN-04")
    async def test_chan_04_making_one_starts_nothing(self) -> None:
        """`create` opens nothing and starts nothing: that is what `start` is for."""
        async with self.platform() as peer, nothing_left("create"):
            before = open_descriptors()
            self.make(peer.instance, peer.settings)
            opened = [target for number, target in open_descriptors().items() if number not in before]
            assert not opened, f"create opens {opened}"

    @check("CHAN-05")
    async def test_chan_05_it_stops_in_time_while_it_waits_for_the_platform(self, tmp_path: Path) -> None:
        """`stop` comes back within 2 s while the platform gives no answer, and leaves no task behind."""
        async with self.platform() as peer, nothing_left("stop"):
            channel = self.make(peer.instance, peer.settings)
            context = ChannelRecorder(self.plugin, peer.instance, tmp_path / "folder", secrets=peer.secrets)
            await soon(channel.start(context), "start")
            await context.until_ready()
            await peer.join(channel, context)
            await peer.hang()
            try:
                await soon(channel.stop(), "stop", self.stop_bound)
            finally:
                await context.close()
            await peer.leave()

    @check("CHAN-06")
    def test_chan_06_it_starts_again_in_another_event_loop(self, tmp_path: Path) -> None:
        """A new object of the same type works in a new event loop: nothing is kept at module level."""

        async def once() -> None:
            async with self.line(tmp_path) as line:
                said = Said(text="there and back")
                await line.peer.write(said)
                await line.stored(said)
                await line.send("back")
                assert (await line.see("message")).text == "back"

        asyncio.run(once())
        asyncio.run(once())

    @check("CHAN-07")
    async def test_chan_07_two_instances_know_nothing_of_each_other(self, tmp_path: Path) -> None:
        """Two instances run at once; what comes in and goes out stays with its own."""
        async with self.line(tmp_path, "first") as one, self.line(tmp_path, "second") as two:
            said = {line.context.instance: Said(text=f"for {line.context.instance}") for line in (one, two)}
            for line in (one, two):
                await line.peer.write(said[line.context.instance])
                await line.stored(said[line.context.instance])
                await line.send(f"from {line.context.instance}")
                assert (await line.see("message")).text == f"from {line.context.instance}"
            for line in (one, two):
                assert [getattr(event, "text", "") for event in line.context.events] == [
                    f"for {line.context.instance}"
                ], "an event reached the other instance"

    @check("CHAN-08")
    async def test_chan_08_stopping_is_always_fine(self, tmp_path: Path) -> None:
        """`stop` may be called twice, and without `start`."""
        async with self.platform() as peer:
            channel = self.make(peer.instance, peer.settings)
            await soon(channel.stop(), "stop without start", self.stop_bound)
        async with self.line(tmp_path) as line:
            await line.peer.leave()
            await soon(line.channel.stop(), "stop", self.stop_bound)

    @check("CHAN-09")
    async def test_chan_09_secrets_stay_secret(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """No event, status, log record or `repr` holds a secret that the channel was given."""
        caplog.set_level(0)
        async with self.line(tmp_path) as line:
            if not line.peer.secrets:
                skip("this peer gives it no secrets")
            await line.peer.write(said := Said(text="any secrets?"))
            await line.stored(said)
            await line.send("none")
            shown = [
                *line.context.memory.texts.values(),
                *map(repr, line.context.statuses),
                *(record.getMessage() for record in caplog.records),
                repr(line.channel),
            ]
            leaked = [name for name, value in line.peer.secrets.items() if any(value in text for text in shown)]
            assert not leaked, f"the secrets {leaked} can be read in events, statuses, the log or repr(channel)"


class ChannelContract(ChannelLife, ChannelIntake, ChannelSending):
    """For a channel.  The author brings the other end.

    class TestCarrier(ChannelContract):
        plugin = "carrier"

        def make_peer(self, instance: str) -> Peer:
            return Pigeons(instance)     # a Peer of yours
    """
