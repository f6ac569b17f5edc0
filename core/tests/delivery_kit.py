"""A bench for what leaves the host: a real store, real mailboxes, a scripted channel, a clock that skips waiting."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pluggy
from jackfield.api import ActionReply, ChannelInfo, HookSpecs, MessageStream, SendResult
from jackfield.api.hookspecs import PROJECT
from jackfield.clock import UnixMs
from jackfield.config import ChannelSection, Configuration
from jackfield.config.home import Home
from jackfield.host.delivery import Delivery
from jackfield.host.hub import Hub
from jackfield.host.streams import Streams
from jackfield.ids import AgentGroupId, OutboundId, SessionId, TurnId, new_id
from jackfield.mailbox import MailboxPool
from jackfield.models import (
    Address,
    AgentGroup,
    Capabilities,
    ChannelState,
    ChannelStatus,
    DeliveryState,
    EditContent,
    EngageMode,
    IgnoredPolicy,
    MessageContent,
    MessageReceived,
    MessageRef,
    OutboundContent,
    OutboundKind,
    OutboundRow,
    OutMessage,
    ReactionContent,
    SenderScope,
    Session,
    SessionMode,
    Support,
    UnknownSenderPolicy,
    Wiring,
    WiringOrigin,
)
from jackfield.models import Delivery as Part
from jackfield.plugins import HookDispatcher
from jackfield.store import Store, chats, deliveries, due, groups, sessions, wirings

BOUND = 30.0
START = 1_760_000_000_000


class SkippingClock:
    """Time that stands still while there is work, and jumps to the next sleeper when there is none for a moment."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self.writing: Callable[[], bool] = lambda: False
        """Whether something is on its way to the disk, however slow that is: then there is work."""

    def now(self) -> UnixMs:
        return UnixMs(START + round(self.seconds * 1000))

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.seconds + seconds, next(self._count), future))
        self._arm()
        await future

    @property
    def idle(self) -> bool:
        return not self._sleepers

    def _arm(self) -> None:
        if self._timer is None and self._sleepers:
            self._timer = asyncio.get_running_loop().call_later(0.05, self._jump)

    def _jump(self) -> None:
        self._timer = None
        while self._sleepers and not self.writing():
            at, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self.seconds = max(self.seconds, at)
                future.set_result(None)
                break
        self._arm()


@dataclass(frozen=True)
class Sent:
    """One call of the channel."""

    kind: str
    at: float
    address: Address
    text: str
    message: OutMessage
    key: str = ""
    ref: MessageRef | None = None


Step = BaseException | SendResult | Callable[[], Awaitable[SendResult]] | None


class FakeChannel:
    """Records every call; `script` says how the next ones end, `steps` by chat."""

    def __init__(self, clock: SkippingClock, can: Capabilities) -> None:
        self.clock = clock
        self.can = can
        self.calls: list[Sent] = []
        self.arrived: list[Sent] = []
        self.script: list[Step] = []
        self.past: list[MessageReceived] = []
        self.replies: list[tuple[str, ActionReply]] = []
        self.streams: list[FakeStream] = []
        self.seconds: dict[str, float] = {}
        self._ids = itertools.count(1)

    async def start(self, context: object) -> None: ...

    async def stop(self) -> None: ...

    async def check(self, context: Any) -> Any: ...

    def capabilities(self, address: Address | None = None) -> Capabilities:
        return self.can

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        return await self._do(Sent("send", self.clock.seconds, address, message.text, message, idempotency_key))

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        return await self._do(Sent("edit", self.clock.seconds, ref.address, message.text, message, ref=ref))

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        await self._do(Sent("react", self.clock.seconds, ref.address, emoji, OutMessage(), ref=ref))

    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        self.replies.append((responder, reply))

    async def history(
        self, address: Address, *, after: str | None = None, limit: int = 50
    ) -> Sequence[MessageReceived]:
        return self.past

    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        stream = FakeStream(self, address, reply_to)
        self.streams.append(stream)
        return stream

    async def _do(self, call: Sent) -> SendResult:
        self.calls.append(call)
        await self.clock.sleep(self.seconds.get(call.address.platform_id, 0.0))
        step = self.script.pop(0) if self.script else None
        if isinstance(step, BaseException):
            raise step
        self.arrived.append(call)
        if isinstance(step, SendResult):
            return step
        if step is not None:
            return await step()
        return SendResult(ids=(f"p-{next(self._ids)}",))

    @property
    def texts(self) -> list[str]:
        return [call.text for call in self.arrived]


class FakeStream:
    def __init__(self, channel: FakeChannel, address: Address, reply_to: MessageRef | None) -> None:
        self.channel = channel
        self.address = address
        self.reply_to = reply_to
        self.shown: list[tuple[float, str]] = []
        self.finished: OutMessage | None = None
        self.aborted = False
        self.changed = asyncio.Event()

    async def update(self, text: str) -> None:
        self.shown.append((self.channel.clock.seconds, text))
        self.changed.set()

    async def finish(self, message: OutMessage, *, idempotency_key: str) -> SendResult:
        self.finished = message
        return await self.channel._do(
            Sent("finish", self.channel.clock.seconds, self.address, message.text, message, idempotency_key)
        )

    async def abort(self) -> None:
        self.aborted = True
        self.changed.set()


class FakeInstance:
    def __init__(self, name: str, channel: FakeChannel) -> None:
        self.name = name
        self.type = "fake"
        self.section = ChannelSection(name, "fake")
        self.info = ChannelInfo(type="fake", title="Fake")
        self.channel: FakeChannel | None = channel
        self.status = ChannelStatus(state=ChannelState.READY)
        self.ready = asyncio.Event()
        self.ready.set()

    def report(self, status: ChannelStatus) -> None:
        self.status = status
        if status.state is ChannelState.READY:
            self.ready.set()
        else:
            self.ready.clear()


class FakeDirectory:
    def __init__(self) -> None:
        self.instances: dict[str, FakeInstance] = {}

    def instance(self, channel_type: str, name: str) -> FakeInstance | None:
        return self.instances.get(name) if channel_type == "fake" else None

    def all(self) -> tuple[FakeInstance, ...]:
        return tuple(self.instances.values())


class FakePlugins:
    """The hooks of objects that a test hands in, called by the real dispatcher."""

    def __init__(self) -> None:
        self.dispatcher = HookDispatcher(seconds=1.0)
        self.handlers: dict[str, Any] = {}
        self.kinds: list[Any] = []
        self.owners: dict[str, frozenset[str]] = {}

    def use(self, *plugins: tuple[str, object]) -> None:
        manager = pluggy.PluginManager(PROJECT)
        manager.add_hookspecs(HookSpecs)
        for name, plugin in reversed(plugins):
            manager.register(plugin, name)
        self.dispatcher.use(manager)

    def actions(self) -> dict[str, Any]:
        return dict(self.handlers)

    def chat_commands(self) -> dict[str, Any]:
        return {}

    def tool_sets_of_action(self, name: str) -> frozenset[str]:
        return self.owners.get(name, frozenset())

    def approval_kinds(self) -> list[Any]:
        return list(self.kinds)


@dataclass
class Bench:
    hub: Hub
    clock: SkippingClock
    directory: FakeDirectory
    channel: FakeChannel
    plugins: FakePlugins
    group: AgentGroup
    failures: list[tuple[Part, str]] = field(default_factory=list)
    degraded: list[tuple[str, ...]] = field(default_factory=list)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    delivery: Delivery = field(init=False)
    streams: Streams = field(init=False)
    seqs: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Another life of the host over the same store."""

        async def on_failed(part: Part, text: str) -> None:
            if all(known.out_id != part.out_id for known, _ in self.failures):
                self.failures.append((part, text))

        async def on_degraded(session: Session, row: OutboundRow, notes: tuple[str, ...]) -> None:
            self.degraded.append(notes)

        self.streams = Streams(self.hub, cast(Any, self.directory))
        self.delivery = Delivery(
            self.hub,
            cast(Any, self.directory),
            on_failed=on_failed,
            streams=self.streams,
            on_settled=self.settled.set,
            on_degraded=on_degraded,
        )

    async def crash(self) -> None:
        """The host dies where it stands, and the next one begins; what the store was given it keeps."""
        tasks = [task for task in self.hub._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=BOUND)
        self.renew()
        await self.delivery.start()

    async def chat(
        self, platform_id: str, *, group: bool = True, wired: bool = True, instance: str = "fake"
    ) -> Address:
        address = Address("fake", instance, platform_id)
        now = self.clock.now()
        chat = await self.hub.store.write(
            chats.ensure_messaging_group,
            address,
            name=platform_id,
            is_group=group,
            policy=UnknownSenderPolicy.STRICT,
            now=now,
        )
        if wired:
            wiring = Wiring(
                id=cast(Any, new_id("wr")),
                messaging_group_id=chat.id,
                agent_group_id=self.group.id,
                engage_mode=EngageMode.ALWAYS,
                engage_pattern=None,
                sender_scope=SenderScope.ALL,
                ignored_policy=IgnoredPolicy.DROP,
                session_mode=SessionMode.SHARED,
                priority=0,
                origin=WiringOrigin.TRUSTED,
                created_at=now,
            )
            await self.hub.store.write(wirings.add_wiring, wiring)
        return address

    async def session(self, address: Address, key: str = "", *, mode: SessionMode = SessionMode.SHARED) -> Session:
        chat = await self.hub.store.read(chats.messaging_group_at, address.chat)
        assert chat is not None
        made, _ = await self.hub.store.write(
            sessions.session_for,
            self.group.id,
            key or str(address),
            mode=mode,
            messaging_group_id=chat.id,
            thread_id=address.thread_id,
            now=self.clock.now(),
        )
        await asyncio.to_thread(self.hub.folder_of(made).create)
        return made

    def row(
        self, session: Session, address: Address | None, content: OutboundContent | str, **more: Any
    ) -> OutboundRow:
        seq = self.seqs[session.id] = self.seqs.get(session.id, -1) + 2
        if isinstance(content, str):
            content = MessageContent(text=content)
        kind = OutboundKind.MESSAGE
        if isinstance(content, EditContent):
            kind = OutboundKind.EDIT
        elif isinstance(content, ReactionContent):
            kind = OutboundKind.REACTION
        usual: dict[str, Any] = {
            "id": OutboundId(new_id("out")),
            "kind": kind,
            "content": content,
            "at": self.clock.now(),
            "epoch": 1,
            "turn": TurnId("trn_1"),
            "address": address,
            "seq": seq,
        }
        return OutboundRow(**{**usual, **more})

    async def record(self, session: Session, *rows: OutboundRow) -> list[Part]:
        """What the collector does: plan, then enter with the intent of the first."""
        parts: list[Part] = []
        for row in rows:
            parts += await self.delivery.plan(session, self.group, row, self.clock.now())
        added = await self.hub.store.write(deliveries.add, parts, start=True, now=self.clock.now())
        self.delivery.kick(added.destinations)
        return parts

    async def post(
        self, session: Session, address: Address | None, *contents: OutboundContent | str, **more: Any
    ) -> None:
        await self.record(session, *(self.row(session, address, content, **more) for content in contents))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND):
            while not condition():
                await asyncio.sleep(0.005)

    async def quiet(self) -> None:
        """Wait until every part has an end."""
        async with asyncio.timeout(BOUND):
            while True:
                self.settled.clear()
                if not await self.hub.store.read(_open_parts):
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await self.settled.wait()
                        continue
                await self.tick()
        await self.hub.settle(BOUND)

    async def tick(self) -> None:
        """What the host's timer does: go on with what is due, once it is."""
        at = await self.hub.store.read(due.next_due)
        if at is not None and self.clock.idle:
            self.clock.seconds = max(self.clock.seconds, (at - START) / 1000)
        await self.delivery.due()

    async def states(self, session: Session) -> list[tuple[DeliveryState, str | None]]:
        found = await self.hub.store.read(deliveries.deliveries, session_id=session.id, limit=500)
        return [(part.state, part.reason) for part in reversed(found)]

    async def parts(self, session: Session) -> list[Part]:
        return list(reversed(await self.hub.store.read(deliveries.deliveries, session_id=session.id, limit=500)))


def _open_parts(db: Any) -> int:
    row = db.execute("SELECT count(*) FROM deliveries WHERE state IN ('pending','sending','retrying','waiting')")
    return int(row.fetchone()[0])


CAPABLE = Capabilities(
    edit=Support.NATIVE,
    react=Support.NATIVE,
    files=Support.NATIVE,
    file_max_count=1,
    caption_limit=0,
    text_limit=200,
    quote=Support.NATIVE,
    tables=Support.NATIVE,
    prompt=Support.NATIVE,
    cards=Support.NATIVE,
)


@contextlib.asynccontextmanager
async def open_bench(root: Path, can: Capabilities = CAPABLE) -> AsyncIterator[Bench]:
    home = Home(root.absolute())
    home.sessions.mkdir(parents=True)
    clock = SkippingClock()
    store = Store(home.state_db, clock)
    await store.open()
    clock.writing = lambda: not store.quiet
    pool = MailboxPool(clock)
    plugins = FakePlugins()
    section = ChannelSection(instance="fake", type="fake")
    hub = Hub(
        home=home,
        clock=clock,
        store=store,
        mailboxes=pool,
        plugins=cast(Any, plugins),
        configuration=Configuration(home=home, channels={"fake": section, "slow": replace(section, instance="slow")}),
        install_id="ins_test",
    )
    directory = FakeDirectory()
    channel = FakeChannel(clock, can)
    directory.instances["fake"] = FakeInstance("fake", channel)
    group = AgentGroup(id=AgentGroupId(new_id("ag")), name="Helper", folder="helper", created_at=clock.now())
    await store.write(groups.add_agent_group, group)
    bench = Bench(hub, clock, directory, channel, plugins, group)
    try:
        yield bench
    finally:
        await bench.delivery.stop(1.0)
        await hub.settle(1.0)
        await plugins.dispatcher.close()
        await pool.close()
        await store.close()


__all__ = ["BOUND", "CAPABLE", "Bench", "FakeInstance", "SessionId", "open_bench"]
