"""One connection to the server, from the first line to the last."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from jackfield.clock import Clock, UnixMs, to_datetime
from jackfield.errors import Transient
from jackfield.models import ConversationChange
from jackfield_channel_kit.reconnect import Watchdog

from jackfield_channel_irc.batches import Batches
from jackfield_channel_irc.lines import Line, written
from jackfield_channel_irc.login import Login, capability_change, ended_by
from jackfield_channel_irc.network import Network
from jackfield_channel_irc.outbox import Outbox
from jackfield_channel_irc.pace import Pace
from jackfield_channel_irc.reading import server_time
from jackfield_channel_irc.rooms import Rooms
from jackfield_channel_irc.settings import IrcSettings
from jackfield_channel_irc.socket import Socket

__all__ = ["Secrets", "Session"]

TEND_SECONDS = 30.0
"""How often it looks whether the server lives, channels are missing, or the nick is free."""
SILENCE_SECONDS = 100.0
"""Without a line for so long, while it asks every `TEND_SECONDS`, the connection is dead."""
OLD_SECONDS = 60.0
"""What was said so long before we came is a replay, marked as one or not (bouncers)."""
HISTORY_LINES = 100
_JOINED = "jf-joined"


@dataclass(frozen=True, slots=True)
class Secrets:
    """Never shown."""

    password: str | None = field(default=None, repr=False)
    account_password: str | None = field(default=None, repr=False)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)


class Session:
    """`up` once we are logged in and every channel has answered."""

    def __init__(self, settings: IrcSettings, secrets: Secrets, socket: Socket, clock: Clock) -> None:
        self.network = Network(settings.nick)
        self.rooms = Rooms(settings.channels, secrets.keys, self.network)
        self.outbox = Outbox(self.network, socket.write, Pace(settings.burst, settings.line_seconds, clock), clock)
        self.up = False
        self._settings = settings
        self._socket = socket
        self._clock = clock
        self._login = Login(
            settings, self.network, password=secrets.password, account_password=secrets.account_password
        )
        self._batches = Batches()
        self._watchdog = Watchdog(SILENCE_SECONDS, clock=clock)
        self._began: UnixMs | None = None
        """When we came, by the server's clock."""

    @property
    def problem(self) -> str:
        """What is not as the settings want it; empty when all is."""
        nick = self._settings.nick
        other = "" if self.network.is_me(nick) else f"called {self.network.nick} while somebody else is {nick}"
        return "; ".join(part for part in (self.rooms.problem(), other) if part)

    async def run(
        self,
        since: Callable[[str], int | None],
        said: Callable[[Line, str], Awaitable[None]],
        changed: Callable[[str, ConversationChange], Awaitable[None]],
        looked: Callable[[], None],
    ) -> None:
        """Serve the connection.

        `since(room)` is when the last stored message there was said; `said(line, replay)` is given every message,
        `changed` what happens to us in a channel, and `looked` is called whenever `up` or `problem` may be new.

        Raises:
            AuthFailed: the server does not accept us.
            ChannelError: the connection ended; why.
        """
        try:
            await self._watchdog.guard(self._serve(since, said, changed, looked))
        finally:
            self.up = False
            self.outbox.lost("the connection was lost")

    async def _serve(
        self,
        since: Callable[[str], int | None],
        said: Callable[[Line, str], Awaitable[None]],
        changed: Callable[[str, ConversationChange], Awaitable[None]],
        looked: Callable[[], None],
    ) -> None:
        for out in self._login.begin():
            self._socket.write(out)
        tending = asyncio.create_task(self._tend())
        try:
            async for line in self._socket.lines():
                self._watchdog.heard()
                self._answer(line)
                change = self.rooms.heard(line)
                self.outbox.heard(line, self._batches.label(line))
                if self._login.done and line.command in ("PRIVMSG", "TAGMSG"):
                    await said(line, self._replay(line))
                if change is not None:
                    await changed(*change)
                if line.command == "JOIN" and self.network.is_me(line.nick):
                    self._ask_history(line.param(0), since(self.network.fold(line.param(0))))
                looked()
                await self._socket.drain()
        finally:
            tending.cancel()
            await asyncio.gather(tending, return_exceptions=True)
        raise Transient("the server closed the connection")

    def _answer(self, line: Line) -> None:
        """What the protocol itself wants."""
        if line.command == "PING":
            self._socket.write(written("PONG", *line.params))
        elif line.command == "ERROR":
            raise ended_by(line.param(-1), "on" if self._login.done else "login")
        elif line.command == "001":
            self._began = server_time(line)
        self.network.heard(line)
        self._batches.heard(line)
        if not self._login.done:
            for out in self._login.feed(line):
                self._socket.write(out)
        elif line.command in ("376", "422") and not self.up:
            for out in self.rooms.joins():
                self._socket.write(out)
            self._socket.write(written("PING", _JOINED))
        elif line.command == "PONG" and line.param(-1) == _JOINED:
            self.up = True
        elif line.command == "CAP":
            for out in capability_change(self.network, line):
                self._socket.write(out)
        elif line.command in ("QUIT", "NICK") and self._holds_our_nick(line.nick):
            self._socket.write(written("NICK", self._settings.nick))

    def _holds_our_nick(self, nick: str) -> bool:
        wanted = self._settings.nick
        return self.network.fold(nick) == self.network.fold(wanted) and not self.network.is_me(wanted)

    def _replay(self, line: Line) -> str:
        """Names the replay that a message is part of; empty for what is said now."""
        if replay := self._batches.replay(line):
            return replay
        at = server_time(line)
        old = at is not None and self._began is not None and at < self._began - OLD_SECONDS * 1000
        return "old" if old else ""

    def _ask_history(self, room: str, since: int | None) -> None:
        offers = self.network.caps & {"chathistory", "draft/chathistory"} and self.network.supports("CHATHISTORY")
        if since is None or not offers:
            return
        limit = min(HISTORY_LINES, self.network.number("CHATHISTORY", HISTORY_LINES) or HISTORY_LINES)
        moment = _moment(since)
        self._socket.write(written("CHATHISTORY", "AFTER", room, f"timestamp={moment}", str(limit)))

    async def _tend(self) -> None:
        while True:
            await self._clock.sleep(TEND_SECONDS)
            if not self.up:
                continue
            self._socket.write(written("PING", "jf-alive"))
            if not self.network.is_me(self._settings.nick):
                self._socket.write(written("NICK", self._settings.nick))
            for out in self.rooms.joins():
                self._socket.write(out)

    def say_goodbye(self) -> None:
        """The last word, before the connection is closed."""
        with contextlib.suppress(OSError, RuntimeError):
            self._socket.write(written("QUIT", "bye"))


def _moment(at: int) -> str:
    """A moment as IRCv3 writes it."""
    return to_datetime(UnixMs(at)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
