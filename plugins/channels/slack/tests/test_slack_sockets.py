"""Socket Mode: nothing is lost when sockets are replaced, cut or silent, and nobody knocks without end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import pytest_asyncio
from jackfield.clock import SystemClock
from jackfield.errors import AuthFailed, ConfigError, JackfieldError, Transient
from jackfield.models import ChannelState, OutMessage
from jackfield.testing import ChannelRecorder, Said
from jackfield.testing.waiting import soon, until
from jackfield_channel_kit.claims import Claim
from jackfield_channel_kit.testing.raw import raw_server
from jackfield_channel_kit.testing.slack import Envelope
from jackfield_channel_slack import channel as channel_module
from jackfield_channel_slack.sockets import Socket
from slack_peer import Workspace

DIRECT = "D00000ONE"


@pytest_asyncio.fixture
async def peer() -> AsyncGenerator[Workspace, None]:
    one = Workspace("work")
    await one.open()
    yield one
    await one.close()


def states(context: ChannelRecorder) -> list[ChannelState]:
    return [status.state for status in context.statuses]


async def test_a_refresh_loses_nothing_and_is_no_outage(peer: Workspace, tmp_path: Path) -> None:
    """The next socket is open before the last is let go; what the last one brought is acknowledged over it."""
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        with context.held():
            envelope = fake.tell(fake.say("in flight", channel=DIRECT))
            await context.until(lambda: context.waiting == 1, "accept")
            await fake.disconnect("warning")
            await fake.until_connected(2)
        await soon(envelope.acknowledged.wait(), "the acknowledgement over the old socket")
        assert envelope.attempt == 0
        await soon(fake.tell(fake.say("after", channel=DIRECT)).acknowledged.wait(), "the new socket")
        assert [getattr(event, "text", "") for event in context.events] == ["in flight", "after"]
        assert ChannelState.RECONNECTING not in states(context)


async def test_what_a_cut_socket_took_along_comes_again(peer: Workspace, tmp_path: Path) -> None:
    """C234: the connection comes back, and an envelope that was not acknowledged with it."""
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        with context.held():
            envelope = fake.tell(fake.say("cut", channel=DIRECT))
            await context.until(lambda: context.waiting == 1, "accept")
            fake.cut_sockets()
            await context.until(lambda: context.state is ChannelState.RECONNECTING, "the loss to be seen")
        await soon(envelope.acknowledged.wait(), "the second delivery")
        assert envelope.attempt == 1 and len(context.events) == 1
        await context.until(lambda: context.state is ChannelState.READY, "ready again")


async def test_with_two_sockets_the_loss_of_one_is_no_outage(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path, sockets=2) as (_, context):
        fake = peer.fake
        await fake.until_connected(2)
        transport = fake._socket_transports[fake.sockets[0]]
        transport.abort()
        await fake.until(lambda: len(fake.sockets) == 1, "the loss")
        await soon(fake.tell(fake.say("still here", channel=DIRECT)).acknowledged.wait(), "the other socket")
        await fake.until_connected(2)
        assert states(context) == [ChannelState.STARTING, ChannelState.READY]


async def test_slack_is_away_and_comes_back(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (channel, context):
        fake = peer.fake
        fake.fail_next(500, {}, method="apps.connections.open", times=2)
        fake.cut_sockets()
        await context.until(lambda: states(context).count(ChannelState.RECONNECTING) >= 3, "three failures")
        await context.until(lambda: context.state is ChannelState.READY, "ready again")
        await peer.write(said := Said(text="back"))
        await context.until(lambda: bool(context.events), f"{said.text}")
        assert (await channel.send(peer.address(), OutMessage(text="yes"), idempotency_key="dl_1")).ids


@pytest.mark.parametrize("how", ["at the start", "while it runs", "in a send", "by an event"])
async def test_a_revoked_token_is_told_once_and_nobody_knocks_again(peer: Workspace, tmp_path: Path, how: str) -> None:
    """C234, C236."""
    fake = peer.fake
    fake.revoked = how == "at the start"
    async with peer.running(tmp_path, connected=False) as (channel, context):
        if how == "while it runs":
            await fake.until_connected()
            fake.revoked = True
            fake.cut_sockets()
        elif how == "in a send":
            await fake.until_connected()
            fake.revoked = True
            for key in ("dl_1", "dl_2"):
                with pytest.raises(AuthFailed) as caught:
                    await channel.send(peer.address(), OutMessage(text="x"), idempotency_key=key)
                assert caught.value.fix
        elif how == "by an event":
            await fake.until_connected()
            fake.tell({"type": "tokens_revoked", "tokens": {"bot": [fake.bot_user]}})
        await context.until(lambda: context.state is ChannelState.AUTH_FAILED, "the report")
        asked = len(fake.requests)
        if how != "in a send":
            await until(lambda: not fake.sockets, "the sockets to be gone")
        await asyncio.sleep(1.2)  # the first wait of a reconnect would be over
        assert states(context).count(ChannelState.AUTH_FAILED) == 1 and len(fake.requests) == asked


async def test_socket_mode_that_is_switched_off_is_no_outage(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        await peer.fake.disconnect("link_disabled")
        await context.until(lambda: context.state is ChannelState.AUTH_FAILED, "the report")
        assert "Socket Mode" in context.statuses[-1].detail


async def test_a_socket_that_is_given_up_at_once_waits_before_the_next(peer: Workspace, tmp_path: Path) -> None:
    """No tight loop of refreshes."""
    async with peer.running(tmp_path) as (_, context):
        fake = peer.fake
        for _ in range(3):
            count = len(fake.sent("apps.connections.open"))
            await fake.until_sent("apps.connections.open", count)
            await fake.until(lambda: any(one not in fake._retiring for one in fake.sockets), "a fresh socket")
            await fake.disconnect()
            if context.state is ChannelState.READY:
                await asyncio.sleep(0.1)
        await context.until(lambda: context.state is ChannelState.RECONNECTING, "a pause")


async def test_two_instances_with_one_app_are_refused(peer: Workspace, tmp_path: Path) -> None:
    """C236: each would lose what the other's socket gets."""
    async with peer.running(tmp_path / "a"):
        with pytest.raises(ConfigError, match="runs with the same token"):
            async with peer.running(tmp_path / "b"):
                pass
    async with peer.running(tmp_path / "b"):
        pass


async def test_another_program_with_the_same_token_is_noticed(
    peer: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C236: Slack divides what is written among all sockets of an app."""
    monkeypatch.setattr(channel_module, "claim", lambda *_, **__: Claim("work", "none"))
    one, two, three = (tmp_path / name for name in "abc")
    async with peer.running(one), peer.running(two), peer.running(three):
        await peer.fake.until_connected(3)
        await until(lambda: "share this app token" in caplog.text, "a word in the log")


async def test_frames_that_nobody_knows_are_passed_over(peer: Workspace, tmp_path: Path) -> None:
    async with peer.running(tmp_path) as (_, context):
        socket = peer.fake.sockets[0]
        for text in ("", "nonsense", "[1]", "{}", '{"type":"news"}', '{"type":"disconnect_soon"}'):
            await socket.send_str(text)
        for payload in ({}, {"event": {}}, {"event": {"type": "message", "channel": "C1"}}):
            await soon(peer.fake.put(Envelope("events_api", payload)).acknowledged.wait(), "it")
        await soon(peer.fake.put(Envelope("slash_commands", {"command": "/x"})).acknowledged.wait(), "it")
        assert not context.offered and context.state is ChannelState.READY


async def test_the_ticket_of_a_socket_is_shown_nowhere(
    peer: Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C133."""
    caplog.set_level(logging.DEBUG)
    async with peer.running(tmp_path) as (_, context):
        peer.fake.cut_sockets()
        await context.until(lambda: context.state is ChannelState.RECONNECTING, "the loss")
        await context.until(lambda: context.state is ChannelState.READY, "ready again")
        shown = [record.getMessage() for record in caplog.records if not record.name.startswith(("aiohttp", "asyncio"))]
        shown += [repr(status) for status in context.statuses]
        assert not [text for text in shown if "ticket=" in text]


async def test_the_socket_goes_through_the_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """C238."""
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())

    async def address() -> str:
        return "wss://wss.slack.example/link?ticket=secret"

    async def take(envelope: object) -> None:
        raise JackfieldError("nothing comes")

    async with raw_server(proxy) as url:
        monkeypatch.setenv("https_proxy", url)
        socket = Socket(address, take, clock=SystemClock(), expected=1)
        with pytest.raises(Transient) as caught:
            await soon(socket.connect(lambda: None), "the failure")
    assert asked == [b"CONNECT wss.slack.example:443 HTTP/1.1\r\n"] and "secret" not in str(caught.value)
