"""The channel on real servers: what IRC does that others don't."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from irc_peer import TAGS, Wire
from jackfield.errors import (
    Ambiguous,
    ChatNotFound,
    ConfigError,
    JackfieldError,
    SendNotAllowed,
    Transient,
    Unsupported,
)
from jackfield.models import (
    Address,
    Addressed,
    ChannelState,
    ConversationChange,
    ConversationChanged,
    ConversationKind,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    ReactionChanged,
    Trust,
)
from jackfield.testing import ChannelMemory, ChannelRecorder, ManualClock
from jackfield.testing.waiting import until
from jackfield_channel_irc.channel import IrcChannel
from jackfield_channel_irc.plugin import create
from jackfield_channel_kit.testing.irc import Inspircd, IrcPerson, Ngircd, certificate
from jackfield_channel_kit.testing.raw import raw_server

REACTIONS = {
    "thumbs_up": "👍",
    "+1": "👍",
    ":+1:": "👍",
    "👍🏽": "👍🏽",
    "white_check_mark": "✅",
    "❤": "❤\ufe0f",
    "1️⃣": "1️⃣",
}


@contextlib.asynccontextmanager
async def bot(
    folder: Path, port: int, *, name: str = "net", secrets: dict[str, str] | None = None,
    memory: ChannelMemory | None = None, clock: ManualClock | None = None, ready: bool = True, **settings: Any,
) -> AsyncIterator[tuple[IrcChannel, ChannelRecorder]]:  # fmt: skip
    """A channel that runs, called miso and in #x."""
    wanted = {"host": "127.0.0.1", "port": port, "tls": False, "nick": "miso", "channels": ["#x"], "burst": 50}
    channel = create(name, {**wanted, **settings})
    assert isinstance(channel, IrcChannel)
    context = ChannelRecorder("irc", name, folder / name, secrets=secrets, memory=memory, clock=clock)
    await channel.start(context)
    try:
        if ready:
            await context.until(lambda: context.state is ChannelState.READY, "the bot to be there")
        yield channel, context
    finally:
        await channel.stop()
        await context.close()
    assert not context.failed


@contextlib.asynccontextmanager
async def person(
    port: int, nick: str, *, caps: str = "", room: str = "#x", password: str = ""
) -> AsyncIterator[IrcPerson]:
    one = IrcPerson(nick)
    try:
        await one.connect(port, caps=caps, password=password)
        if room:
            await one.join(room)
        yield one
    finally:
        await one.close()


def address(chat: str, name: str = "net") -> Address:
    return Address("irc", name, chat)


def texts(context: ChannelRecorder) -> list[str]:
    return [event.text for event in context.events if isinstance(event, MessageReceived)]


async def message(context: ChannelRecorder, text: str) -> MessageReceived:
    def found() -> MessageReceived | None:
        return next((e for e in context.events if isinstance(e, MessageReceived) and e.text == text), None)

    await context.until(lambda: found() is not None, f"{text!r} to be stored")
    event = found()
    assert event is not None
    return event


async def event_of(context: ChannelRecorder, kind: type[Any]) -> Any:
    def found() -> Any:
        return next((event for event in context.events if isinstance(event, kind)), None)

    await context.until(lambda: found() is not None, f"a {kind} to be stored")
    return found()


async def status(context: ChannelRecorder, pattern: str) -> str:
    """The first report whose state and detail fit, as `state: detail`."""

    def found() -> str | None:
        shown = (f"{one.state}: {one.detail}" for one in context.statuses)
        return next((one for one in shown if re.search(pattern, one)), None)

    await context.until(lambda: found() is not None, f"a status like {pattern!r} in {context.statuses}")
    result = found()
    assert result is not None
    return result


class TestOldServer:
    """ngircd: no tags, no ids, no echo."""

    @pytest.fixture
    async def server(self, tmp_path: Path) -> AsyncIterator[Ngircd]:
        async with (engine := Ngircd(tmp_path / "server")):
            yield engine

    async def test_channel_and_private_messages_are_told_apart(self, server: Ngircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (_, context), person(server.port, "Ann") as ann:
            ann.line("PRIVMSG #X :good morning")
            ann.line("PRIVMSG #x :Miso: what now?")
            ann.line("PRIVMSG miso :\x02psst\x02")
            talk, call, dm = [await message(context, text) for text in ("good morning", "what now?", "**psst**")]
            assert (talk.address, talk.addressed, talk.kind) == (
                address("#x"),
                Addressed.NONE,
                ConversationKind.CHANNEL,
            )
            assert call.addressed is Addressed.MENTION and call.is_group
            assert (dm.address, dm.addressed, dm.is_group) == (address("ann"), Addressed.DM, False)
            assert talk.sender == Person(handle="ann!~ann@127.0.0.1", display_name="Ann", trust=Trust.UNVERIFIED)

    async def test_actions_are_read_and_questions_of_clients_answered_by_notice(
        self, server: Ngircd, tmp_path: Path
    ) -> None:
        async with bot(tmp_path, server.port) as (_, context), person(server.port, "ann") as ann:
            for text in ("VERSION", "PING 12345", "TIME", "DCC SEND x 1 2 3"):
                ann.line(f"PRIVMSG miso :\x01{text}\x01")
            ann.line("PRIVMSG #x :\x01ACTION waves at miso\x01")
            assert (await message(context, "*ann waves at miso*")).addressed is Addressed.MENTION
            answers = [await ann.until(lambda line: " NOTICE " in line) for _ in range(2)]
            assert "\x01VERSION Jackfield\x01" in answers[0] and "\x01PING 12345\x01" in answers[1]
            assert texts(context) == ["*ann waves at miso*"]

    async def test_a_notice_is_never_taken_up(self, server: Ngircd, tmp_path: Path) -> None:
        """C228: nobody answers a NOTICE, so two bots can't talk for ever."""
        async with bot(tmp_path, server.port) as (_, context), person(server.port, "ann") as ann:
            ann.line("NOTICE miso :miso: answer me")
            ann.line("NOTICE #x :miso: answer me")
            ann.line("PRIVMSG #x :after")
            await message(context, "after")
            assert texts(context) == ["after"]

    async def test_a_line_is_as_long_as_the_server_lets_through(self, server: Ngircd, tmp_path: Path) -> None:
        """C027: by bytes, and not one less than others can get."""
        async with bot(tmp_path, server.port) as (channel, _), person(server.port, "ann") as ann:
            limit = channel.capabilities(address("#x")).text_limit
            assert limit is not None
            for text in ("x" * limit, "é" * (limit // 2), "😀" * (limit // 4)):
                await channel.send(address("#x"), OutMessage(text=text), idempotency_key="k")
                got = await ann.until(lambda line: " PRIVMSG #x " in line)
                assert got.partition(" :")[2] == text
            assert len(f"{got}\r\n".encode()) <= 512
            text = "ab😀" * 400
            parts = channel.split(address("#x"), OutMessage(text=text))
            for number, part in enumerate(parts):
                await channel.send(address("#x"), part, idempotency_key=f"p{number}")
            lines = [(await ann.until(lambda line: " PRIVMSG #x " in line)).partition(" :")[2] for _ in parts]
            assert "".join(lines) == text

    async def test_nothing_that_an_agent_writes_becomes_a_command(self, server: Ngircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (channel, _), person(server.port, "ann") as ann:
            for text in ("hi\r\nQUIT :gone", "a\0b\rPART #x", "\x01ACTION dances\x01"):
                await channel.send(address("#x"), OutMessage(text=text), idempotency_key="k")
                await channel.send(address("#x"), OutMessage(text=text, plain=True), idempotency_key="k")
            await ann.sync()
            said = [line for line in ann.seen if line.startswith(":miso!")]
            assert all(" PRIVMSG #x :" in line and "\x01" not in line for line in said) and len(said) >= 6
            for target in ("#x,ann", "$*", "#x :y", "a\r\nQUIT"):
                with pytest.raises(ChatNotFound):
                    await channel.send(address(target), OutMessage(text="x"), idempotency_key="k")

    async def test_what_the_server_refuses_is_told(self, server: Ngircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (channel, _), person(server.port, "ann", room="#closed") as ann:
            ann.line("MODE #closed +n")
            await ann.sync()
            with pytest.raises(ChatNotFound):
                await channel.send(address("nobody"), OutMessage(text="x"), idempotency_key="k")
            with pytest.raises(SendNotAllowed):
                await channel.send(address("#closed"), OutMessage(text="x"), idempotency_key="k")
            assert (await channel.send(address("ann"), OutMessage(text="x"), idempotency_key="k")).ids

    async def test_a_kick_is_told_and_the_bot_comes_back(self, server: Ngircd, tmp_path: Path) -> None:
        clock = ManualClock()
        async with person(server.port, "ann") as ann, bot(tmp_path, server.port, clock=clock) as (channel, context):
            ann.line("MODE #x +b miso!*@*")
            ann.line("KICK #x miso :out")
            change = await event_of(context, ConversationChanged)
            assert (change.address, change.change) == (address("#x"), ConversationChange.REMOVED)
            assert "kicked by ann: out" in await status(context, "degraded")
            with pytest.raises(Transient, match="kicked"):
                await channel.send(address("#x"), OutMessage(text="x"), idempotency_key="k")
            await clock.advance(31)
            assert "banned" in await status(context, "degraded.*Cannot join")
            ann.line("MODE #x -b miso!*@*")
            await ann.sync()
            context.statuses.clear()
            await clock.advance(31)
            await status(context, "ready")
            changes = [event.change for event in context.events if isinstance(event, ConversationChanged)]
            assert changes == [ConversationChange.REMOVED, ConversationChange.JOINED]
            assert (await channel.send(address("#x"), OutMessage(text="x"), idempotency_key="k")).ids

    async def test_a_channel_with_a_key_is_joined(self, server: Ngircd, tmp_path: Path) -> None:
        async with person(server.port, "ann", room="#locked") as ann:
            ann.line("MODE #locked +k s3same")
            await ann.sync()
            settings: dict[str, Any] = {"channels": ["#x", "#locked"], "keys": {"#locked": "the-key"}}
            async with bot(tmp_path, server.port, secrets={"the-key": "s3same"}, **settings) as (channel, context):
                assert (await channel.send(address("#locked"), OutMessage(text="in"), idempotency_key="k")).ids
                assert "s3same" not in f"{context.statuses} {channel!r}"
            async with bot(tmp_path, server.port, secrets={"the-key": "no"}, ready=False, **settings) as (_, context):
                assert "#locked" in await status(context, "degraded: not in #locked")

    async def test_a_taken_nick_is_taken_back(self, server: Ngircd, tmp_path: Path) -> None:
        async with (
            person(server.port, "miso") as holder,
            bot(tmp_path, server.port, ready=False, alternates=["soup"]) as (_, context),
        ):
            await status(context, "degraded: called soup while somebody else is miso")
            context.statuses.clear()
            holder.line("NICK other")
            await status(context, "ready")
            holder.line("PRIVMSG miso :found you")
            await message(context, "found you")

    async def test_a_wrong_server_password_ends_it_once(self, tmp_path: Path) -> None:
        """C234: no storm of logins."""
        async with Ngircd(tmp_path / "server", password="right") as server:
            async with bot(tmp_path, server.port, password="pw", secrets={"pw": "wrong"}, ready=False) as (_, context):
                assert "password" in await status(context, "auth_failed")
                assert [one.state for one in context.statuses] == [ChannelState.STARTING, ChannelState.AUTH_FAILED]
                assert "wrong" not in str(context.statuses)
            async with bot(tmp_path, server.port, password="pw", secrets={"pw": "right"}) as (channel, context):
                health = await channel.check(context)
                assert health.ok, health
            context = ChannelRecorder("irc", "net", tmp_path, secrets={"pw": "wrong"})
            health = await channel.check(context)
            assert not health.ok and health.fix
            with pytest.raises(ConfigError, match="pw"):
                await channel.start(ChannelRecorder("irc", "net", tmp_path))

    async def test_tls_is_verified(self, tmp_path: Path) -> None:
        pem = certificate(tmp_path)
        async with Ngircd(tmp_path / "server", tls=pem) as server:
            secure: dict[str, Any] = {"tls": True, "host": "localhost"}
            async with bot(tmp_path, server.tls_port, ready=False, **secure) as (channel, context):
                assert "can't be trusted" in await status(context, "auth_failed")
                assert not (await channel.check(context)).ok
            async with bot(tmp_path, server.tls_port, ca_file=str(pem), **secure) as (channel, context):
                assert (await channel.send(address("#x"), OutMessage(text="x"), idempotency_key="k")).ids
                assert (await channel.check(context)).ok
            async with bot(tmp_path, server.tls_port, tls_verify=False, **secure):
                pass

    async def test_a_server_without_tls_is_told(self, tmp_path: Path) -> None:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b":s NOTICE * :*** Looking up your hostname\r\n")
            await reader.read()

        async with raw_server(plain) as url:
            port = int(url.rpartition(":")[2])
            async with bot(tmp_path, port, ready=False, tls=True) as (_, context):
                await status(context, "reconnecting: no TLS")

    async def test_it_comes_back_when_the_server_does(self, server: Ngircd, tmp_path: Path) -> None:
        """C236."""
        clock = ManualClock()
        async with bot(tmp_path, server.port, clock=clock) as (channel, context):
            await server.stop()
            await status(context, "reconnecting")
            with pytest.raises(Transient):
                await channel.send(address("#x"), OutMessage(text="x"), idempotency_key="k")
            for _ in range(6):
                await clock.until_sleeping(1)
                await clock.advance(61)
            await server.resume()
            context.statuses.clear()
            while context.state is not ChannelState.READY:
                await clock.advance(5)
                await asyncio.sleep(0.02)
            async with person(server.port, "ann") as ann:
                await channel.send(address("#x"), OutMessage(text="back"), idempotency_key="k")
                ann.line("PRIVMSG #x :hello again")
                await message(context, "hello again")

    async def test_a_dead_connection_is_noticed(self, server: Ngircd, tmp_path: Path) -> None:
        clock = ManualClock()
        wire = Wire(server.port)
        await wire.open()
        try:
            async with bot(tmp_path, wire.port, clock=clock) as (_, context):
                wire.frozen.set()
                await clock.advance(101)
                await status(context, "reconnecting: nothing was heard")
        finally:
            await wire.close()

    async def test_a_line_that_may_have_arrived_is_doubtful(self, server: Ngircd, tmp_path: Path) -> None:
        """C081: written, and the connection broke before the PONG."""
        wire = Wire(server.port)
        await wire.open()
        try:
            async with bot(tmp_path, wire.port) as (channel, _):
                wire.cut_at_message = True
                with pytest.raises(Ambiguous):
                    await channel.send(address("#x"), OutMessage(text="x"), idempotency_key="k")
        finally:
            await wire.close()

    async def test_two_networks_at_once_know_nothing_of_each_other(self, server: Ngircd, tmp_path: Path) -> None:
        async with (
            bot(tmp_path, server.port, name="one") as (_, one),
            bot(tmp_path, server.port, name="two", nick="soup") as (_, two),
            person(server.port, "ann") as ann,
        ):
            ann.line("PRIVMSG soup :for soup")
            ann.line("PRIVMSG miso :for miso")
            await message(one, "for miso")
            await message(two, "for soup")
            assert (texts(one), texts(two)) == (["for miso"], ["for soup"])

    async def test_a_netsplit_is_no_news(self, server: Ngircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (_, context), person(server.port, "ann") as ann:
            for number in range(3):
                async with person(server.port, f"p{number}") as other:
                    other.line("QUIT :hub.example.test leaf.example.test")
                    await ann.until(lambda line: " QUIT " in line)
            ann.line("PRIVMSG #x :still here")
            await message(context, "still here")
            assert len(context.offered) == 1

    async def test_what_could_not_be_stored_is_tried_again_in_order(self, server: Ngircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (_, context), person(server.port, "ann") as ann:
            context.fail(JackfieldError("the disk is full"))
            ann.line("PRIVMSG #x :first")
            ann.line("PRIVMSG #x :second")
            await context.until(lambda: context.refused >= 2, "accept to be tried twice")
            context.mend()
            await message(context, "second")
            assert texts(context) == ["first", "second"]


class TestNewServer:
    """InspIRCd: tags, ids, echoes, labels, history."""

    @pytest.fixture
    async def server(self, tmp_path: Path) -> AsyncIterator[Inspircd]:
        async with (engine := Inspircd(tmp_path / "server")):
            yield engine

    async def test_ids_replies_reactions_and_typing(self, server: Inspircd, tmp_path: Path) -> None:
        """C060, C062, C064."""
        async with bot(tmp_path, server.port) as (channel, context), person(server.port, "ann", caps=TAGS) as ann:
            sent = await channel.send(address("#x"), OutMessage(text="one\n\ntwo"), idempotency_key="k")
            lines = [await ann.until(lambda line: ":miso!" in line and "PRIVMSG" in line) for _ in range(2)]
            assert [re.search(r"msgid=([^; ]+)", line)[1] for line in lines] == list(sent.ids)  # type: ignore[index]  # each line has one
            ann.line(f"@+draft/reply={sent.ids[1]} PRIVMSG #x :why?")
            reply = await message(context, "why?")
            assert reply.addressed is Addressed.REPLY
            assert reply.reply_to is not None and reply.reply_to.platform_id == sent.ids[1]
            ann.line(f"@+draft/reply={sent.ids[0]};+draft/react=👍 TAGMSG #x")
            reaction = await event_of(context, ReactionChanged)
            assert (reaction.ref.ids, reaction.emoji, reaction.added) == ((sent.ids[0],), "👍", True)
            ref = MessageRef(reply.address, reply.ref.ids)
            await channel.react(ref, "❤")
            await ann.until(lambda line: f"+draft/reply={ref.ids[0]}" in line and "+draft/react=❤" in line)
            for emoji, shown in REACTIONS.items():
                await channel.react(ref, emoji)
                await ann.until(lambda line: f"+draft/react={shown}" in re.split("[ @;]", line))  # noqa: B023
            with pytest.raises(Unsupported, match="not_an_emoji"):
                await channel.react(ref, "not_an_emoji")
            await channel.send(address("#x"), OutMessage(text="because", reply_to=ref), idempotency_key="k2")
            await ann.until(lambda line: f"+draft/reply={ref.ids[0]}" in line and line.endswith(":because"))
            await channel.typing(address("#x"))
            await channel.typing(address("#x"))
            await channel.typing(address("#x"), False)
            await ann.until(lambda line: "+typing=done" in line)
            assert sum("+typing=active" in line for line in ann.seen) == 1

    async def test_our_own_echo_is_no_message(self, server: Inspircd, tmp_path: Path) -> None:
        """C230."""
        async with bot(tmp_path, server.port) as (channel, context), person(server.port, "ann", caps=TAGS) as ann:
            await channel.send(address("#x"), OutMessage(text="my words"), idempotency_key="k")
            await channel.send(address("miso"), OutMessage(text="to myself"), idempotency_key="k")
            ann.line("PRIVMSG #x :after")
            await message(context, "after")
            assert texts(context) == ["after"]

    async def test_bots_are_marked(self, server: Inspircd, tmp_path: Path) -> None:
        """C228: and their answers to us are no call."""
        async with bot(tmp_path, server.port) as (channel, context), person(server.port, "robot", caps=TAGS) as robot:
            robot.line("MODE robot +B")
            robot.line("PRIVMSG #x :beep")
            assert (await message(context, "beep")).sender.is_bot
            sent = await channel.send(address("#x"), OutMessage(text="hello"), idempotency_key="k")
            robot.line(f"@+draft/reply={sent.ids[0]} PRIVMSG #x :boop")
            reply = await message(context, "boop")
            assert reply.sender.is_bot and reply.addressed is Addressed.NONE

    async def test_what_was_said_meanwhile_is_fetched_and_known_things_are_not(
        self, server: Inspircd, tmp_path: Path
    ) -> None:
        async with person(server.port, "ann", caps=TAGS) as ann:
            ann.line("MODE #x +H 50:1h")
            ann.line("PRIVMSG #x :long before")
            await ann.sync()
            async with bot(tmp_path, server.port) as (channel, context):
                ann.line("PRIVMSG #x :live")
                await message(context, "live")
                await channel.send(address("#x"), OutMessage(text="my answer"), idempotency_key="k")
                assert texts(context) == ["live"], "what was said before it first came is not for it"
            ann.line("PRIVMSG #x :meanwhile")
            await ann.sync()
            async with bot(tmp_path, server.port, memory=context.memory) as (_, context):
                late = await message(context, "meanwhile")
                assert late.backfill and late.addressed is Addressed.NONE
                ann.line("PRIVMSG #x :live again")
                assert not (await message(context, "live again")).backfill
                assert texts(context) == ["live", "meanwhile", "live again"]

    async def test_a_refusal_is_told_by_its_own_label(self, server: Inspircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (channel, _), person(server.port, "ann", room="") as ann:
            ann.line("MODE ann +g")
            await ann.sync()
            sends = [
                channel.send(address(to), OutMessage(text="x"), idempotency_key=to) for to in ("ann", "nobody", "#x")
            ]
            shy, absent, fine = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(shy, SendNotAllowed) and isinstance(absent, ChatNotFound), (shy, absent)
            assert not isinstance(fine, BaseException)

    async def test_a_new_host_changes_what_fits(self, server: Inspircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (channel, _), person(server.port, "ann", caps=TAGS) as ann:
            before = channel.capabilities(address("#x")).text_limit or 0
            ann.line("OPER oper oper")
            ann.line("CHGHOST miso a.very.long.host.name.example")
            await ann.sync()
            await until(lambda: channel.capabilities(address("#x")).text_limit != before, "the new host to be known")
            limit = channel.capabilities(address("#x")).text_limit or 0
            assert limit == before - len("a.very.long.host.name.example") + len("127.0.0.1")
            await channel.send(address("#x"), OutMessage(text="x" * limit), idempotency_key="k")
            assert (await ann.until(lambda line: " PRIVMSG #x " in line)).endswith(":" + "x" * limit)

    async def test_a_ban_by_the_server_is_told_and_not_stormed(self, server: Inspircd, tmp_path: Path) -> None:
        """C236."""
        clock = ManualClock()
        async with person(server.port, "ann", room="") as ann, bot(tmp_path, server.port, clock=clock) as (_, context):
            ann.line("OPER oper oper")
            ann.line("KLINE jackfield@127.0.0.1 1h :spamming")
            told = await status(context, "reconnecting: the server bans us")
            assert "spamming" in told and "next try in 900 s" in told

    async def test_a_kill_is_no_ban(self, server: Inspircd, tmp_path: Path) -> None:
        async with person(server.port, "ann", room="") as ann, bot(tmp_path, server.port) as (_, context):
            ann.line("OPER oper oper")
            ann.line("KILL miso :wrong password, banned word? no, just so")
            await status(context, "reconnecting")

    async def test_a_wrong_server_password_ends_it(self, tmp_path: Path) -> None:
        wrong: dict[str, Any] = {"password": "pw", "secrets": {"pw": "wrong"}}
        async with (
            Inspircd(tmp_path / "server", password="right") as server,
            bot(tmp_path, server.port, ready=False, **wrong) as (_, context),
        ):
            await status(context, "auth_failed")

    async def test_a_dm_is_opened_by_nick_or_account(self, server: Inspircd, tmp_path: Path) -> None:
        async with bot(tmp_path, server.port) as (channel, _):
            assert await channel.open_dm(Person("Ann!a@h")) == address("ann")
            with pytest.raises(ChatNotFound):
                await channel.open_dm(Person("ann@net", display_name="ann"))


class TestScriptedServer:
    """What needs services behind a real server: accounts, CHATHISTORY."""

    async def test_accounts_and_history_on_request(self, tmp_path: Path) -> None:
        heard: list[str] = []
        old = "2027-01-15T08:00:00.500Z"

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            def say(*lines: str) -> None:
                writer.write("".join(f"{line}\r\n" for line in lines).encode())

            while raw := await reader.readline():
                line = raw.decode().rstrip()
                heard.append(line)
                command = line.split()[0]
                if line.startswith("CAP LS"):
                    say(":s CAP * LS :sasl=PLAIN batch server-time account-tag message-tags draft/chathistory")
                elif line.startswith("CAP REQ"):
                    say(f":s CAP * ACK :{line.removeprefix('CAP REQ ').lstrip(':')}")
                elif line == "AUTHENTICATE PLAIN":
                    say("AUTHENTICATE +")
                elif command == "AUTHENTICATE":
                    say(":s 903 miso :in")
                elif line == "CAP END":
                    say(f"@time={old} :s 001 miso :hi", ":s 005 miso CHATHISTORY=50 :are supported", ":s 376 miso :end")
                elif command == "JOIN":
                    say(":miso!j@h JOIN #x", "@time=2027-01-15T07:00:00.000Z;msgid=m0 :a!b@c PRIVMSG #x :a bouncer's")
                elif command == "PING":
                    say(f":s PONG s :{line.split()[1]}")
                elif command == "CHATHISTORY":
                    say(
                        ":s BATCH +h chathistory #x",
                        f"@batch=h;time={old};msgid=m1;account=Ann :a!b@c PRIVMSG #x :missed",
                        ":s BATCH -h",
                    )

        async with raw_server(serve) as url:
            memory = ChannelMemory(cursors={"time:#x": "1800000000123"})
            port = int(url.rpartition(":")[2])
            wanted = {"host": "127.0.0.1", "port": port, "nick": "miso", "tls": False, "channels": ["#x"]}
            settings = {**wanted, "sasl": "plain", "account_password": "acc"}
            channel = create("net", settings)
            context = ChannelRecorder("irc", "net", tmp_path, secrets={"acc": "sesame"}, memory=memory)
            await channel.start(context)
            try:
                missed = await message(context, "missed")
                assert (missed.sender.handle, missed.sender.trust) == ("ann@net", Trust.AUTHENTICATED)
                assert missed.backfill and "CHATHISTORY AFTER #x timestamp=2027-01-15T08:00:00.123Z 50" in heard
                assert memory.cursors["time:#x"] == "1800000000500"
                assert texts(context) == ["missed"], "what a bouncer repeats from before is known"
                assert isinstance(channel, IrcChannel)
                assert await channel.open_dm(missed.sender) == address("a")
                assert "sesame" not in f"{context.statuses} {channel!r}"
            finally:
                await channel.stop()
                await context.close()


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ({}, {"nick": "MISO"}, "nick"),
        ({"nick": "soba", "sasl": "plain"}, {"nick": "udon", "sasl": "plain"}, "account"),
    ],
)
async def test_two_instances_with_one_name_at_a_server_are_refused(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], what: str
) -> None:
    """C236: they would take the nick from each other, or both answer."""
    account = {"account": "noodles", "account_password": "pw"}
    nobody = 1
    async with bot(tmp_path, nobody, name="one", secrets={"pw": "x"}, ready=False, **account, **first):
        with pytest.raises(ConfigError, match=f"channel one runs with the same {what}"):
            async with bot(tmp_path, nobody, name="two", secrets={"pw": "x"}, ready=False, **account, **second):
                raise AssertionError("the second one runs")
        async with bot(tmp_path, nobody, name="three", secrets={"pw": "x"}, ready=False, nick="ramen"):
            pass
    async with bot(tmp_path, nobody, name="two", secrets={"pw": "x"}, ready=False, **account, **second):
        pass
