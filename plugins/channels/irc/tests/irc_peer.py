"""People on a real server, for the contract of channels, and a wire between the bot and the server that fails as told.

`IrcPeer` may be given either server; with `Inspircd` there are echoes, ids and tags.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.api import Channel
from jackfield.models import Address, ChannelState
from jackfield.testing import Arrived, ChannelRecorder, Peer, Said
from jackfield.testing.contracts import FailureKind
from jackfield_channel_irc.lines import Line, parse
from jackfield_channel_kit.testing.irc import Inspircd, IrcPerson, Ngircd

CODES = re.compile("[\x02\x1d\x1e\x11\x0f]")
BREAKS = re.compile("[\x00\r\n]")
TAGS = "message-tags server-time echo-message batch account-tag"
_SAYS: Mapping[FailureKind, str] = {
    "rate_limited": "439 {nick} {target} :Message target change too fast. Please wait 7 seconds",
    "too_large": "417 {nick} {target} :Input line was too long",
    "not_allowed": "404 {nick} {target} :Cannot send to channel",
    "not_found": "401 {nick} {target} :No such nick",
}


class Wire:
    """A TCP connection that goes through us to a server's port."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.open_connections = 0
        self.refusing = False
        """New connections are closed at once."""
        self.instead: str | None = None
        """What the next message of the bot is answered with, instead of going through."""
        self.cut_at_message = False
        """The next message is swallowed and the connection cut."""
        self.frozen = asyncio.Event()
        """Nothing goes through any more, in either direction."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        up_reader, up = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers |= {writer, up}
        self.open_connections += 1
        down = asyncio.create_task(self._pump(up_reader, writer))
        try:
            while raw := await reader.readline():
                if not self.frozen.is_set():
                    self._upstream(raw, writer, up)
        except (OSError, ValueError):
            pass
        finally:
            down.cancel()
            await asyncio.gather(down, return_exceptions=True)
            self.open_connections -= 1
            self._writers -= {writer, up}
            for one in (writer, up):
                one.close()
            self._tasks.discard(task)

    def _upstream(self, raw: bytes, writer: asyncio.StreamWriter, up: asyncio.StreamWriter) -> None:
        line = parse(raw)
        if line is not None and line.command == "PRIVMSG" and (self.instead or self.cut_at_message):
            if self.cut_at_message:
                self.cut_at_message = False
                writer.transport.abort()
                return
            answer, self.instead = self.instead or "", None
            label = f"@label={line.tags['label']} " if "label" in line.tags else ""
            writer.write(f"{label}:irc.example.test {answer.format(nick='x', target=line.param(0))}\r\n".encode())
            return
        up.write(raw)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if not self.frozen.is_set():
                    writer.write(data)
            writer.close()


class IrcPeer(Peer):
    """Ann and a bot; the suite's chats are `ann` and `#<chat>`."""

    failures = frozenset({"ambiguous", "transient", *_SAYS})

    def __init__(self, instance: str, engine: Ngircd | Inspircd) -> None:
        super().__init__(instance)
        self.engine = engine
        self.tags = isinstance(engine, Inspircd)
        self.people = {nick: IrcPerson(nick) for nick in ("ann", "robot")}
        self.nick = "miso"
        self.wire = Wire(0)
        self.channel: Channel | None = None
        self.context: ChannelRecorder | None = None
        self.ids: dict[str, str] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        return {
            "host": "127.0.0.1", "port": self.wire.port or 1, "tls": False, "nick": self.nick, "channels": ("#group",),
            "burst": 50, "line_seconds": 0.1,
        }  # fmt: skip

    async def open(self) -> None:
        await self.engine.start()
        self.wire.target = self.engine.port
        await self.wire.open()
        caps = TAGS if self.tags else ""
        await asyncio.gather(*(one.connect(self.engine.port, caps=caps) for one in self.people.values()))
        if self.tags:
            self.people["robot"].line("MODE robot +B")
        for one in self.people.values():
            await one.join("#group")

    async def close(self) -> None:
        for one in self.people.values():
            await one.close()
        await self.wire.close()
        await self.engine.stop()

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        self.channel, self.context = channel, context
        await context.until(lambda: context.state is ChannelState.READY, "the bot to be on the server")

    async def leave(self) -> None:
        self.channel = None

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        return Address("irc", self.instance, "ann" if chat == "one" else f"#{chat}", thread)

    async def write(self, said: Said) -> None:
        if said.files:
            self.refuse("send files")
        if self.channel is None:
            self.refuse("write to somebody who is not there: nothing keeps it")
        if said.own:
            from jackfield.models import OutMessage

            await self.channel.send(self.address(), OutMessage(text=said.text), idempotency_key="dl_own")
            return
        if said.bot and not self.tags:
            self.refuse("mark bots: the old protocol has no way")
        person = self.people["robot" if said.bot else "ann"]
        target = f"#{said.chat}" if said.group else self.nick
        text = f"{self.nick}: {said.text}" if said.mention else said.text
        person.line(f"PRIVMSG {target} :{BREAKS.sub(' ', text)[:400]}")

    async def redeliver(self, said: Said) -> None:
        self.refuse("deliver a private message twice: the protocol never does")

    async def arrived(self) -> Arrived:
        ann = self.people["ann"]
        while True:
            line = parse((await ann.until(lambda text: True)).encode())
            if line is None or line.nick != self.nick:
                continue
            if (found := self._seen(line)) is not None:
                return found

    def _seen(self, line: Line) -> Arrived | None:
        room = line.param(0)
        address = self.address(room[1:]) if room.startswith("#") else self.address()
        ids = (line.tags["msgid"],) if "msgid" in line.tags else ()
        if line.command == "PRIVMSG":
            return Arrived(kind="message", ids=ids, text=CODES.sub("", line.param(1)), address=address)
        if line.command == "TAGMSG" and "+typing" in line.tags:
            return Arrived(kind="typing", address=address, on=line.tags["+typing"] == "active")
        for tag, on in (("+draft/react", True), ("+draft/unreact", False)):
            if line.command == "TAGMSG" and tag in line.tags:
                return Arrived(
                    kind="reaction", ids=(line.tags["+draft/reply"],), emoji=line.tags[tag], on=on, address=address
                )
        return None

    async def fail_next(self, failure: FailureKind) -> None:
        if failure in _SAYS:
            self.wire.instead = _SAYS[failure]
        elif failure == "ambiguous":
            self.wire.cut_at_message = True
        else:
            assert self.context is not None
            context = self.context
            self.wire.refusing = True
            self.wire.cut()
            await context.until(lambda: context.state is ChannelState.RECONNECTING, "the bot to notice")

    async def recover(self) -> None:
        assert self.context is not None
        context = self.context
        self.wire.refusing = False
        await context.until(lambda: context.state is ChannelState.READY, "the bot to be back")

    async def hang(self) -> None:
        self.wire.frozen.set()


def engine(kind: str, folder: Path) -> Ngircd | Inspircd:
    return Inspircd(folder) if kind == "inspircd" else Ngircd(folder)
