"""A bench for the schedule: a real store, real mailboxes, the real collector; the test is the clock and the runners."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from delivery_kit import BOUND, START, Bench, open_bench
from jackfield.api import ActionContext, ApprovalState, ApprovalTicket
from jackfield.clock import UnixMs, from_datetime
from jackfield.host.approvals import HostKind
from jackfield.host.collect import Collector
from jackfield.host.inbox import Inbox
from jackfield.host.schedule import Schedule, Series, TaskDesk
from jackfield.host.unfinished import Unfinished
from jackfield.ids import ApprovalId, TaskId, UserId, new_id
from jackfield.mailbox import RunnerMailbox
from jackfield.models import (
    SCRIPT_FAILED,
    Ack,
    AckStatus,
    Address,
    CatchUp,
    InboundRow,
    InboundState,
    OutMessage,
    RunState,
    Session,
    SessionMode,
    Task,
    TaskContent,
    TurnError,
)
from jackfield.store import inbound, sessions, tasks
from jackfield.store.tasks import RunEntry

__all__ = ["BROKEN", "SCRIPT_BROKEN", "Hand", "Office", "ms", "open_office"]

BROKEN = TurnError(kind="protocol", message="it broke")
SCRIPT_BROKEN = TurnError(kind="config", message=f"{SCRIPT_FAILED}: it ended with code 3")


def ms(text: str) -> UnixMs:
    return from_datetime(datetime.fromisoformat(text))


@dataclass
class Hand:
    """A session's runner: takes what lies in the inbox, and says what became of it when the test wants it to."""

    office: Office
    session: Session
    mailbox: RunnerMailbox
    held: list[InboundRow] = field(default_factory=list)

    def pending(self) -> list[InboundRow]:
        return self.mailbox.pending(self.office.bench.clock.now())

    def take(self) -> list[str]:
        """Claim all that is pending, as a runner does; the prompts."""
        rows = self.pending()
        self.mailbox.claim(rows, cast(Any, new_id("trn")))
        self.held += rows
        return [row.content.prompt for row in rows if isinstance(row.content, TaskContent)]

    async def end(self, status: AckStatus = AckStatus.COMPLETED, error: TurnError | None = None) -> None:
        """Acknowledge all that is held; the host has heard it when this returns."""
        now = self.office.bench.clock.now()
        acks = [
            Ack(message_id=row.id, status=status, attempt=row.attempt, epoch=self.mailbox.epoch, at=now, error=error)
            for row in self.held
        ]
        self.held = []
        self.mailbox.write(acks=acks)
        await self.office.heard(self.session)

    async def work(self, error: TurnError | None = None) -> list[str]:
        """Take all and end it."""
        prompts = self.take()
        await self.end(AckStatus.COMPLETED if error is None else AckStatus.FAILED, error)
        return prompts


class AskedPeople:
    """The approvals as the desk sees them."""

    def __init__(self) -> None:
        self.kinds = self
        self.kind: HostKind | None = None
        self.asked: list[tuple[dict[str, Any], dict[str, str]]] = []

    def register(self, kind: HostKind) -> None:
        self.kind = kind

    async def request(self, context: Any, request_id: str, kind: str, payload: Any, *, fields: Any) -> ApprovalTicket:
        self.asked.append((payload, {one.label: one.value for one in fields}))
        return ApprovalTicket(id=ApprovalId(new_id("ap")), state=ApprovalState.PENDING)


@dataclass
class Office:
    """`told` is what people read, `noticed` what agents do; `woken` the sessions for which a runner was wanted."""

    bench: Bench
    chat: Address
    session: Session
    told: list[tuple[Address, str]] = field(default_factory=list)
    replied: list[str] = field(default_factory=list)
    """What the host said of a message that somebody wrote."""
    woken: list[Session] = field(default_factory=list)
    people: AskedPeople = field(default_factory=AskedPeople)
    inbox: Inbox = field(init=False)
    schedule: Schedule = field(init=False)
    series: Series = field(init=False)
    desk: TaskDesk = field(init=False)
    collector: Collector = field(init=False)
    unfinished: Unfinished = field(init=False)
    hands: dict[str, Hand] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Another life of the host."""
        hub = self.bench.hub

        async def nothing(*args: Any) -> None: ...

        async def no_drafts(session: Session) -> bool:
            return False

        async def say(address: Address, message: OutMessage, path: object) -> None:
            self.told.append((address, message.text))

        async def reply(session: Session, text: str) -> None:
            self.replied.append(text)

        def nobody(*args: Any) -> Any:
            raise AssertionError("nothing here is for another agent")

        self.inbox = Inbox(
            hub, cast(Any, self.bench.directory), cast(Any, None), wake=self.woken.append, unblock=nothing,
            on_damaged=nothing,
        )  # fmt: skip
        self.schedule = Schedule(hub, self.inbox, say=say, wake=self.woken.append, nudge=lambda: None)
        self.series = self.schedule.series()
        self.desk = TaskDesk(hub, self.series, cast(Any, self.people))
        self.collector = Collector(
            hub, self.bench.delivery, on_action=nothing, on_acks=self.schedule.acked, on_tell=reply, on_damaged=nothing,
            on_parked=lambda *args: None, on_model=lambda *args: None, on_drafts=no_drafts, nudge=lambda: None,
            enter=nobody, on_refused=nothing,
        )  # fmt: skip
        self.collector.hurry = False
        self.unfinished = Unfinished(hub, self.inbox, wake=self.woken.append, tell=reply, retake=nothing)

    # ---- time

    def set_clock(self, at: UnixMs | str) -> None:
        at = ms(at) if isinstance(at, str) else at
        self.bench.clock.seconds = (at - START) / 1000

    @property
    def now(self) -> UnixMs:
        return self.bench.clock.now()

    async def tick(self, at: UnixMs | str | None = None) -> None:
        """The timer looks; what it began is done when this returns."""
        if at is not None:
            self.set_clock(at)
        await self.schedule.due()
        await self.calm()
        await self.unfinished.due()

    async def calm(self) -> None:
        """Wait for the schedule's own work, and for what was handed to the store."""
        async with asyncio.timeout(BOUND):
            while working := [task for task in self.bench.hub._tasks if task.get_name().startswith("schedule")]:
                await asyncio.wait(working)
        await self.bench.hub.store.write(lambda db: None)

    async def heard(self, session: Session) -> None:
        await self.collector.collect(session.id)
        await self.calm()

    # ---- tasks

    async def add(self, prompt: str = "Report", **more: Any) -> Task:
        """A series of the office's own chat; daily at eight unless it is told otherwise."""
        fields: dict[str, Any] = {
            "id": TaskId(new_id("tsk")), "agent_group_id": self.bench.group.id, "session_key": self.session.key,
            "session_mode": self.session.mode, "messaging_group_id": self.session.messaging_group_id,
            "thread_id": None, "origin": self.chat, "prompt": prompt, "timezone": "UTC", "cron": "0 8 * * *",
            "catch_up": CatchUp.LATEST, "created_at": self.now, "updated_at": self.now,
            "creator": f"{self.bench.group.id} {self.session.key}", **more,
        }  # fmt: skip
        if "next_at" not in fields:
            from jackfield.host.schedule.plan import recurrence_of

            recurrence = recurrence_of(Task(next_at=None, **fields))
            assert recurrence is not None
            fields["next_at"] = recurrence.next_after(self.now)
        fields.setdefault("look_at", fields["next_at"])
        return await self.series.add(Task(**fields))

    async def task(self, task: Task) -> Task:
        found = await self.bench.hub.store.read(tasks.task, task.id)
        assert found is not None
        return found

    async def runs(self, task: Task) -> list[RunEntry]:
        """The oldest first."""
        return (await self.bench.hub.store.read(tasks.runs, task.id, 500))[::-1]

    async def run_states(self, task: Task) -> list[RunState]:
        return [one.run.state for one in await self.runs(task)]

    async def due_times(self, task: Task) -> list[UnixMs]:
        return [one.run.due_at for one in await self.runs(task)]

    # ---- runners

    async def hand(self, session: Session | None = None) -> Hand:
        """The session's runner; a new one after `crash`."""
        session = session or self.session
        if session.id not in self.hands:
            epoch = await self.bench.hub.store.write(sessions.begin_epoch, session.id, self.now)
            await self.inbox.use(session, lambda box: None)
            mailbox = RunnerMailbox(self.bench.hub.folder_of(session), epoch, self.bench.clock)
            fresh = replace(session, epoch=epoch)
            self.hands[session.id] = Hand(self, fresh, mailbox)
        return self.hands[session.id]

    async def crash(self, session: Session | None = None) -> None:
        """The session's runner dies with what it holds, and the host takes that in."""
        session = session or self.session
        hand = self.hands.pop(session.id)
        hand.mailbox.close()
        await self.collector.collect(session.id)
        await self.unfinished.release_claims(session)
        self.schedule.look_at(session.id)
        await self.calm()

    async def entry(self, run: RunEntry) -> InboundState | None:
        found = await self.bench.hub.store.read(inbound.entry, run.run.inbound_id)
        return None if found is None else found.state

    # ---- agents

    def context(self, session: Session | None = None, users: Sequence[str] = (), **more: Any) -> ActionContext:
        return ActionContext(
            session=session or self.session,
            agent_group=self.bench.group,
            host=cast(Any, None),
            users=tuple(UserId(user) for user in users),
            **more,
        )

    def close(self) -> None:
        for hand in self.hands.values():
            hand.mailbox.close()


@contextlib.asynccontextmanager
async def open_office(root: Path) -> AsyncIterator[Office]:
    async with open_bench(root) as bench:
        bench.clock._arm = lambda: None  # type: ignore[method-assign]  # only the test moves it
        chat = await bench.chat("home")
        session = await bench.session(chat, await _key(bench, chat), mode=SessionMode.SHARED)
        office = Office(bench, chat, session)
        office.set_clock("2027-01-01T00:00Z")
        try:
            yield office
        finally:
            await office.calm()
            office.close()


async def _key(bench: Bench, chat: Address) -> str:
    from jackfield.store import chats

    found = await bench.hub.store.read(chats.messaging_group_at, chat)
    assert found is not None
    return f"shared:{found.id}"
