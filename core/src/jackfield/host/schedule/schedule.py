"""The running schedule: what is due is claimed and put into inboxes, what ended is taken over, people are told.

Everything durable is done by the units of work in `claiming`; this is the thin layer that calls them when the timer,
an acknowledgement, a runner's end or the host's start says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from weakref import WeakValueDictionary

from jackfield.api import SendPath
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, MailboxError
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.schedule.claiming import SET_BACK, Claimed, Settled, claim, restore_clock, settle
from jackfield.host.schedule.plan import subject, when
from jackfield.host.schedule.series import Series
from jackfield.host.schedule.withdrawal import take_out
from jackfield.ids import AgentGroupId, SessionId, TaskRunId, derive_id
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    InboundKind,
    InboundRow,
    OutMessage,
    Session,
    Task,
    TaskContent,
    TaskRun,
)
from jackfield.points import reach
from jackfield.store import sessions, tasks

__all__ = ["Schedule"]

log = logging.getLogger(__name__)

BATCH = 100
"""Series in one transaction: other writers wait for it."""
AT_ONCE = 4
"""Inboxes that are being filled at the same time."""
REST = 10.0
"""Seconds between two tries when the store or a mailbox failed in an unforeseen way."""
KEEP = 30 * 86_400.0
"""Seconds for which the end of a run is remembered."""

Say = Callable[[Address, OutMessage, SendPath], Awaitable[object]]


class Schedule:
    """`say` writes to a chat, `wake` starts a runner when it has time for one, `nudge` has the timer ask again."""

    def __init__(
        self,
        hub: Hub,
        inbox: Inbox,
        *,
        say: Say,
        wake: Callable[[Session], None],
        nudge: Callable[[], None],
    ) -> None:
        self._hub = hub
        self._inbox = inbox
        self._say = say
        self._wake = wake
        self._nudge = nudge
        self._open: set[SessionId] = set()
        """Sessions in which a run is open."""
        self._ended: set[SessionId] = set()
        """Of these, the ones in which something happened that is not taken over yet."""
        self._taken_out: set[TaskRunId] = set()
        """Runs that must not be put into an inbox any more, if they are on their way there."""
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._locks: WeakValueDictionary[SessionId, asyncio.Lock] = WeakValueDictionary()
        self._claiming: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None

    def series(self) -> Series:
        """What changes series while the schedule runs."""
        return Series(self._hub, take_out=self.take_out, run_now=self.run_now, changed=self._nudge)

    async def start(self) -> None:
        """Take up what the host's last life left."""
        self._open.update(await self._hub.store.read(tasks.sessions_with_open_runs))
        await self._restore_clock()
        self._ended.update(self._open)
        await self._settle()
        await self._feed_claimed()
        await self._tell()

    # ---- what is due

    async def due(self) -> None:
        """For the timer.  The work goes on beside it: ten thousand inboxes must not hold up other due work."""
        if self._claiming is None or self._claiming.done():
            self._claiming = self._hub.spawn(self._claim(), "schedule claim")

    async def _claim(self) -> None:
        try:
            await self._claim_all()
        except Exception:
            # A full disk, say: the timer would ask for the same at once, again and again.
            self._hub.trouble("schedule")
            log.exception("what is due could not be claimed, again in %g s", REST)
            await self._hub.clock.sleep(REST)

    async def _claim_all(self) -> None:
        """Batch after batch; while one is put into the inboxes, the next is claimed."""
        spoken = False
        async with asyncio.TaskGroup() as feeding:
            while True:
                claimed = await self._hub.store.write(claim, self._hub.clock.now(), BATCH)
                reach("host.schedule.after_claim")
                feeding.create_task(self._feed(claimed), name="schedule feed")
                spoken = spoken or claimed.spoken
                for task, why in claimed.refused:
                    await self._tell_creator(task, why)
                if claimed.looked_at < BATCH:
                    break
        if spoken:
            await self._tell()

    async def _feed(self, claimed: Claimed) -> None:
        """Put the runs into their sessions' inboxes, a few sessions at a time."""
        self._open.update(claimed.runs)

        async def feed(session: Session, runs: Sequence[tuple[TaskRun, Task]]) -> list[TaskRunId]:
            async with self._gate:
                return await self._put(session, runs)

        fed = await asyncio.gather(
            *(feed(claimed.sessions[session_id], runs) for session_id, runs in claimed.runs.items())
        )
        ids = [run_id for of_session in fed for run_id in of_session]
        if ids:
            # Losing this in a crash only means that they are put there once more, which changes nothing.
            self._hub.store.write_soon(tasks.queued, ids)

    async def _put(self, session: Session, runs: Sequence[tuple[TaskRun, Task]]) -> list[TaskRunId]:
        async with self._lock(session.id):
            wanted = [(run, task) for run, task in runs if run.id not in self._taken_out]
            if not wanted:
                return []
            try:
                await self._inbox.deliver(session, [_row(run, task) for run, task in wanted])
            except MailboxError as problem:
                self._hub.trouble("schedule")
                log.warning("%d tasks of session %s wait for its mailbox: %s", len(wanted), session.id, problem)
                return []
        reach("host.schedule.after_feed")
        self._wake(session)
        return [run.id for run, _ in wanted]

    def _lock(self, session_id: SessionId) -> asyncio.Lock:
        """Putting runs into a session's inbox and taking them out of it exclude each other."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    async def _feed_claimed(self) -> None:
        """Runs that were claimed and never put into an inbox: after a crash, or when a mailbox could not be written."""
        after = ""
        while found := await self._hub.store.read(tasks.claimed, after, BATCH):
            after = found[-1][0].id
            left = Claimed()
            for run, task in found:
                session = await self._hub.store.read(sessions.session, run.session_id) if run.session_id else None
                if session is not None:
                    left.sessions[session.id] = session
                    left.runs.setdefault(session.id, []).append((run, task))
            await self._feed(left)

    # ---- what ended

    def acked(self, session_id: SessionId, acks: Sequence[Ack]) -> None:
        """The ledger has these acknowledgements."""
        if session_id in self._open and any(ack.status is not AckStatus.PROCESSING for ack in acks):
            self.look_at(session_id)

    def look_at(self, session_id: SessionId) -> None:
        """Something may have ended in that session."""
        if session_id in self._open:
            self._ended.add(session_id)
            if self._settling is None or self._settling.done():
                self._settling = self._hub.spawn(self._settle(), "schedule settle")

    async def settle(self) -> None:
        """Take over every end that the ledger knows, and return when that is done."""
        self._ended.update(self._open)
        await self._settle()

    async def _settle(self) -> None:
        while self._ended:
            some = [self._ended.pop() for _ in range(min(BATCH, len(self._ended)))]
            settled = await self._hub.store.write(settle, some, self._hub.clock.now())
            self._open.difference_update(settled.closed)
            await self._follow_up(settled)

    async def _follow_up(self, settled: Settled) -> None:
        if settled.due:
            self._nudge()
        for run in settled.stale:
            await self.take_out(run)
        for task, run, reason in settled.failed:
            await self._tell_agent(task, run, reason)
        if settled.spoken:
            await self._tell()

    # ---- words

    async def _tell(self) -> None:
        """Tell people what they have not been told; where nobody can be, only `task show` tells it."""
        for task in await self._hub.store.read(tasks.unsaid):
            text = task.unsaid or ""
            log.info("task %s: %s", task.id, text)
            if task.origin is not None and not task.origin.is_agent:
                try:
                    await self._say(task.origin, OutMessage(text=text), SendPath.NOTICE)
                except JackfieldError as problem:
                    self._hub.trouble("schedule")
                    log.warning("nobody could be told about task %s: %s", task.id, problem)
            await self._hub.store.write(tasks.said, task.id, text)

    async def _tell_agent(self, task: Task, run: TaskRun, reason: str) -> None:
        """The agent reads it with the next message, so that it can mend what failed."""
        session = await self._hub.store.read(sessions.session, run.session_id) if run.session_id else None
        if session is None:
            return
        text = f"The run of task {task.id} ({subject(task)}) {when(run.due_at, task.timezone)} failed: {reason}"
        await self._notify(session, task, text, "task failed", derive_id("in", run.id, "failed"))

    async def _tell_creator(self, task: Task, why: str) -> None:
        """The conversation that scheduled a task elsewhere reads that it was refused there."""
        group, _, key = (task.creator or "").partition(" ")
        session = await self._hub.store.read(sessions.active_session, AgentGroupId(group), key)
        if session is not None:
            text = f"Task {task.id} ({subject(task)}) was stopped: {why}."
            await self._notify(session, task, text, "task refused", None)

    async def _notify(self, session: Session, task: Task, text: str, about: str, row_id: str | None) -> None:
        try:
            await self._inbox.notify(session, text, subject=about, row_id=row_id)
        except JackfieldError as problem:
            self._hub.trouble("schedule")
            log.warning("session %s could not be told about task %s: %s", session.id, task.id, problem)

    # ---- now and then

    async def sweep(self) -> None:
        """The safety net: ends that nobody told of, inboxes that could not be written, a clock that was set back."""
        await self._restore_clock()
        await self.settle()
        if self._claiming is None or self._claiming.done():
            self._taken_out.clear()
            await self._feed_claimed()
        before = UnixMs(self._hub.clock.now() - round(1000 * KEEP))
        if await self._hub.store.read(tasks.forgettable, before):
            await self._hub.store.write(tasks.forget, before)

    async def _restore_clock(self) -> None:
        now = self._hub.clock.now()
        if await self._hub.store.read(tasks.run_after, UnixMs(now + SET_BACK)):
            moved = await self._hub.store.write(restore_clock, now)
            if moved:
                log.warning("the clock was set back: %d tasks go on from now", moved)
                self._nudge()

    # ---- changes

    async def take_out(self, run: TaskRun, *, go_on: bool = False) -> bool:
        """See `jackfield.host.schedule.withdrawal`."""
        async with self._lock(run.session_id or SessionId("")):
            self._taken_out.add(run.id)
            out = await take_out(self._hub, self._inbox.use, run, go_on=go_on)
        if out:
            self._nudge()
        return out

    async def run_now(self, run: TaskRun, task: Task, session: Session) -> None:
        """Feed a run that was entered besides the schedule."""
        await self._feed(Claimed(runs={session.id: [(run, task)]}, sessions={session.id: session}))


def _row(run: TaskRun, task: Task) -> InboundRow:
    content = TaskContent(prompt=task.prompt, script=task.script, series_id=task.id, missed_from=run.missed_from)
    return InboundRow(id=run.inbound_id, kind=InboundKind.TASK, content=content, at=run.due_at, origin=task.origin)
