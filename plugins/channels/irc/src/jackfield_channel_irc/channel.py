"""One network: its channels and people, as chats."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from jackfield.api import ChannelContext, Cursor, Health, SendResult
from jackfield.clock import UnixMs
from jackfield.errors import AuthFailed, ChannelError, ChatNotFound, ConfigError, Transient, Unsupported
from jackfield.models import (
    Address,
    Capabilities,
    ChannelState,
    ChannelStatus,
    ConversationChange,
    ConversationChanged,
    MessageRef,
    OpenDm,
    OutMessage,
    Person,
    Support,
    TextUnit,
)
from jackfield_channel_kit.claims import Claim, claim
from jackfield_channel_kit.emoji import literal_emoji
from jackfield_channel_kit.reconnect import supervise
from jackfield_channel_kit.selfguard import SelfGuard

from jackfield_channel_irc.identity import is_made, made
from jackfield_channel_irc.intake import Intake
from jackfield_channel_irc.lines import Line
from jackfield_channel_irc.network import Network
from jackfield_channel_irc.reading import Ctcp, Reader
from jackfield_channel_irc.session import Secrets, Session
from jackfield_channel_irc.settings import IrcSettings
from jackfield_channel_irc.socket import Socket
from jackfield_channel_irc.visiting import visit
from jackfield_channel_irc.writing import lines_of, pieces

__all__ = ["IrcChannel"]

log = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_SECONDS = 20.0
"""How long `start` waits to see whether it works."""
CHECK_SECONDS = 25.0
TYPING_TTL = 6.0
TYPING_EVERY = 3.0
"""Seconds between two lines that say so (IRCv3 typing)."""
KNOWN = 1000
"""Nicks of accounts, and chats that saw us typing, that are remembered."""
VERSION = "Jackfield"


class IrcChannel:
    """See `jackfield.api.Channel`."""

    def __init__(self, instance: str, settings: IrcSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._own = SelfGuard()
        self._reader = Reader(instance, lambda message_id: self._own.is_own(None, message_id))
        self._context: ChannelContext | None = None
        self._intake: Intake | None = None
        self._secrets = Secrets()
        self._session: Session | None = None
        self._told: str | None = None
        self._since: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self._nicks: OrderedDict[str, str] = OrderedDict()
        self._typed: OrderedDict[str, float] = OrderedDict()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._claims: list[Claim] = []

    def __repr__(self) -> str:
        return f"<irc {self._instance}>"

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        """Connect; returns when it works, or when it is known why not.

        Raises:
            ConfigError: a secret is not there, or another instance has this nick or account.
        """
        self._secrets = await self._read_secrets(context)
        self._claim()
        self._context = context
        self._intake = Intake(context)
        for name in (*self._settings.channels, ""):
            await self._read_cursor(context, Network(self._settings.nick).fold(name))
        seen = asyncio.Event()

        def report(status: ChannelStatus) -> None:
            context.report(status)
            seen.set()

        context.report(ChannelStatus(state=ChannelState.STARTING))
        fatal = (AuthFailed, ConfigError)
        self._spawn(context, lambda: supervise(self._connect, report, clock=context.clock, fatal=fatal), "connection")
        self._spawn(context, self._intake.run, "intake")
        try:
            await asyncio.wait_for(seen.wait(), FIRST_SECONDS)
        except TimeoutError:
            log.info("irc %s: no answer yet; it goes on in the background", self._instance)

    async def stop(self) -> None:
        session, self._session = self._session, None
        tasks, self._tasks = self._tasks, set()
        if session is not None:
            session.say_goodbye()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.5)
        self._release()

    def _claim(self) -> None:
        """Two with one name at a server would take it from each other, or both answer."""
        settings, fold = self._settings, Network(self._settings.nick).fold
        server = f"{settings.host.lower()}:{settings.port}"
        names = {"nick": settings.nick}
        if settings.sasl != "none":
            names["account"] = settings.account or settings.nick
        try:
            for what, name in names.items():
                fix = f"give this channel {'an' if what == 'account' else 'a'} {what} of its own"
                who = f"{server} {what} {fold(name)}"
                self._claims.append(claim("irc", self._instance, who, fix=fix, what=what))
        except ConfigError:
            self._release()
            raise

    def _release(self) -> None:
        while self._claims:
            self._claims.pop().release()

    async def check(self, context: ChannelContext) -> Health:
        """Log in under a nick of the moment, join nothing, and leave."""
        settings = self._settings
        try:
            session_secrets = await self._read_secrets(context)
            nick = f"jf{secrets.randbelow(10**6):06}"
            visitor = settings.model_copy(
                update={"nick": nick, "alternates": (), "channels": (), "account": settings.account or settings.nick}
            )
            async with asyncio.timeout(CHECK_SECONDS):
                await visit(visitor, session_secrets, context.clock)
        except TimeoutError:
            return Health(ok=False, detail=f"{settings.host} did not let us in", fix="check `host` and `port`")
        except (ChannelError, ConfigError) as problem:
            return Health(ok=False, detail=str(problem), fix=problem.fix)
        account = f" into the account {settings.account or settings.nick}" if settings.sasl != "none" else ""
        return Health(ok=True, detail=f"logged in at {settings.host}{account}")

    def capabilities(self, address: Address | None = None) -> Capabilities:
        """Reactions, replies and typing depend on the server, the length on our name there."""
        session = self._session
        network = session.network if session is not None and session.up else None
        target = address.platform_id if address is not None else "#" + "x" * 31
        tags = Support.NATIVE if network is not None and "message-tags" in network.caps else Support.NONE
        return Capabilities(
            text_limit=(network or Network(self._settings.nick)).room(target),
            text_unit=TextUnit.UTF8,
            dialect="irc",
            react=tags,
            quote=tags,
            typing=tags,
            typing_ttl=TYPING_TTL,
            open_dm=OpenDm.PRIOR_CONTACT,
            rate_global=1 / self._settings.line_seconds if self._settings.line_seconds else None,
        )

    # ---- the connection

    async def _connect(self, ready: Callable[[], None]) -> None:
        context = _required(self._context)
        socket = await Socket.open(self._settings)
        session = self._session = Session(self._settings, self._secrets, socket, context.clock)
        self._told = None

        async def said(line: Line, replay: str) -> None:
            await self._said(session, line, replay)

        async def changed(room: str, change: ConversationChange) -> None:
            await self._changed(room, change)

        def looked() -> None:
            if session.up:
                ready()
                self._tell(session.problem)

        try:
            await session.run(self._since.get, said, changed, looked)
        finally:
            if self._session is session:
                self._session = None
            await socket.close()

    def _tell(self, problem: str) -> None:
        """Report what is not as it should be, once; and when it is again."""
        if problem == self._told:
            return
        if problem or self._told:
            state = ChannelState.DEGRADED if problem else ChannelState.READY
            _required(self._context).report(ChannelStatus(state=state, detail=problem))
        self._told = problem

    # ---- in

    async def _said(self, session: Session, line: Line, replay: str) -> None:
        context, intake = _required(self._context), _required(self._intake)
        if line.command == "TAGMSG":
            reaction = self._reader.reaction(line, session.network, context.clock.now())
            if reaction is not None and not replay:
                await intake.put(reaction)
            return
        event = self._reader.read(line, session.network, context.clock.now(), replay)
        if isinstance(event, Ctcp):
            self._ctcp(session, event)
        elif event is not None:
            place = event.address.platform_id if event.is_group else ""
            since = self._since.get(place)
            # Servers keep the second only; what is known already is told apart by its id.
            if replay and (since is None or event.occurred_at < since // 1000 * 1000):
                return
            self._remember(self._nicks, event.sender.handle, line.nick)
            cursor = None
            if "server-time" in session.network.caps:
                self._since[place] = max(since or 0, event.occurred_at)
                cursor = Cursor(_cursor_key(place), str(self._since[place]))
            await intake.put(event, cursor)

    async def _changed(self, room: str, change: ConversationChange) -> None:
        context, intake = _required(self._context), _required(self._intake)
        at = context.clock.now()
        key = f"{change}:{room}:{at}:{next(self._numbers)}"
        address = Address("irc", self._instance, room)
        await intake.put(ConversationChanged(address=address, dedupe_key=key, occurred_at=at, change=change))

    @staticmethod
    def _ctcp(session: Session, question: Ctcp) -> None:
        """Answer what clients ask each other, by NOTICE, so that nobody answers back."""
        answers = {"VERSION": VERSION, "PING": question.text[:200], "CLIENTINFO": "ACTION CLIENTINFO PING VERSION"}
        if (answer := answers.get(question.command)) is not None:
            session.outbox.notice(question.nick, f"\x01{question.command} {answer}\x01")

    # ---- out

    def split(self, address: Address, message: OutMessage) -> Sequence[OutMessage]:
        """In pieces of a few lines that fit as the server will show them."""
        texts = pieces(message.text, self._room(address))
        return [
            replace(message, text=text, reply_to=message.reply_to if not n else None) for n, text in enumerate(texts)
        ]

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Send a line for each line of the text, and wait until the server has taken them.

        Raises:
            Transient: there is no connection, or we are not in the channel at the moment.
            ChannelError: what the server answered.
        """
        session = self._ready(address)
        texts = lines_of(message.text, self._room(address), plain=message.plain)
        tags: dict[str, str] = {}
        quoted = message.reply_to.ids[0] if message.reply_to is not None and message.reply_to.ids else ""
        if quoted and not is_made(quoted) and "message-tags" in session.network.caps:
            tags["+draft/reply"] = quoted
        ids = await session.outbox.say("PRIVMSG", address.platform_id, texts, tags)
        known = tuple(one or made(idempotency_key, str(number)) for number, one in enumerate(ids))
        for one in known:
            self._own.sent(one)
        return SendResult(ids=known)

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        """Raises:
        Unsupported: the server has no tags, or gave the message no id; or it is no emoji.
        """
        emoji = literal_emoji(emoji)
        session = self._ready(ref.address)
        if "message-tags" not in session.network.caps or not ref.ids or is_made(ref.ids[0]):
            raise Unsupported(f"{self._settings.host} knows no reactions to that message")
        tags = {"+draft/reply": ref.ids[0], "+draft/react" if on else "+draft/unreact": emoji}
        await session.outbox.say("TAGMSG", ref.address.platform_id, [""], tags)

    async def typing(self, address: Address, on: bool = True) -> None:
        """Show it, unless lines wait to go out.

        Raises:
            Unsupported: the server has no tags.
        """
        session = self._ready(address)
        if "message-tags" not in session.network.caps:
            raise Unsupported(f"{self._settings.host} can't show typing")
        now = _required(self._context).clock.monotonic()
        shown = self._typed.get(address.platform_id)
        if on:
            if shown is not None and now - shown < TYPING_EVERY:
                return
            self._remember(self._typed, address.platform_id, now)
        elif self._typed.pop(address.platform_id, None) is None:
            return
        session.outbox.hint(address.platform_id, {"+typing": "active" if on else "done"})

    async def open_dm(self, person: Person) -> Address:
        """The private chat with somebody.  An account's nick is known once it has written here.

        Raises:
            ChatNotFound: it is an account that has not.
        """
        nick = self._nicks.get(person.handle)
        if nick is None and "@" in person.handle and "!" not in person.handle:
            raise ChatNotFound(f"nobody logged in as {person.handle} has written yet", fix="let them write first")
        session = self._session
        network = session.network if session is not None else Network(self._settings.nick)
        address = Address("irc", self._instance, network.fold(nick or person.handle.partition("!")[0]))
        _check_target(address.platform_id)
        return address

    # ----

    def _ready(self, address: Address) -> Session:
        _check_target(address.platform_id)
        session = self._session
        if session is None or not session.up:
            raise Transient(f"not connected to {self._settings.host}")
        if session.rooms.is_missing(address.platform_id):
            raise Transient(session.rooms.problem())
        return session

    def _room(self, address: Address) -> int:
        limit = self.capabilities(address).text_limit
        assert limit is not None
        return limit

    async def _read_secrets(self, context: ChannelContext) -> Secrets:
        async def read(name: str) -> str:
            value = await context.secret(name)
            if not value:
                raise ConfigError(f"the secret {name!r} of irc {self._instance} is not set", fix="set it, then reload")
            return value

        settings = self._settings
        return Secrets(
            await read(settings.password) if settings.password else None,
            await read(settings.account_password) if settings.sasl == "plain" and settings.account_password else None,
            {room: await read(name) for room, name in settings.keys.items()},
        )

    async def _read_cursor(self, context: ChannelContext, place: str) -> None:
        value = await context.cursor(_cursor_key(place))
        if value is not None and value.isascii() and value.isdigit():
            self._since[place] = UnixMs(int(value))

    def _spawn(self, context: ChannelContext, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            await work()

        context.spawn(run(), name)

    @staticmethod
    def _remember(memory: OrderedDict[str, Any], key: str, value: object) -> None:
        memory[key] = value
        memory.move_to_end(key)
        while len(memory) > KNOWN:
            memory.popitem(last=False)


def _required(value: T | None) -> T:
    assert value is not None, "it was not started"
    return value


def _cursor_key(place: str) -> str:
    return f"time:{place or 'direct'}"


def _check_target(target: str) -> None:
    """Raises:
    ChatNotFound: no server takes it as one chat, such as several names at once, or every user (`$*`).
    """
    if not target or target[0] in ":$" or any(char in " ,\x00\r\n\x07" for char in target):
        raise ChatNotFound(f"{target!r} is no channel and no nick")
