"""Which sessions have a runner.

One task (`_fill`) starts runners, so that a session is never started twice (C016, C086); it is fair over agent groups
and keeps to the cap, sending the longest idle runner home when others wait.  A runner's end is noticed at once by its
process or its doorbell; then its last rows are collected, its claims released, and the session is started again if
there is work left.  Starts that fail are spaced, and the people in the chat are told once (C207).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from jackfield.api import LeavesRunners, Runtime, RuntimeHandle
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, MailboxDamaged, MailboxError, MalformedData, RecoveryNeeded
from jackfield.host import stuck
from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher, Refused
from jackfield.host.wall_clock import WallClock
from jackfield.ids import AgentGroupId, SessionId
from jackfield.mailbox import HostBell, SessionFolder
from jackfield.models import MAILBOX_FORMAT, RUNNER_PROTOCOL, Session
from jackfield.store import sessions

__all__ = ["Runner", "Supervisor"]

log = logging.getLogger(__name__)

WATCH_EVERY = 10.0
"""Seconds between two looks at the live runners (heartbeat, claims)."""
EARLY_END = 10.0
"""A runner that ends sooner than this, and not with 0, counts as a failed start."""
BACKOFF = (5.0, 10.0, 20.0, 40.0, 80.0, 300.0)
WOKEN = 5.0
"""Seconds for which a runner that was rung counts as busy although it has not said yet what it took."""
REST = 0.5
"""Seconds for which a runner must have been idle to be sent home for another: starting one costs as much."""
TENURE = 15.0
"""Seconds after which a runner goes at its first idle moment, so that a chatty session can't keep a place for ever."""
OTHERS_WAIT = "others wait"
LEAVING_AT_ONCE = 4
TELL_AFTER = 3
"""Failed starts in a row after which the chat is told."""


@dataclass(slots=True, eq=False)
class Runner:
    """A live runner of this host."""

    session: Session
    group_id: AgentGroupId
    epoch: int
    handle: RuntimeHandle
    runtime: Runtime
    bell: HostBell
    folder: SessionFolder
    started: float
    """Monotonic seconds; and `started_at` on the wall clock."""
    started_at: UnixMs
    last_busy: float
    claims: set[str] = field(default_factory=set)
    """Inbound ids that it is working on, as far as its acks told."""
    watched: asyncio.Task[None] | None = None
    worked: bool = False
    """Whether it had something in its hands when it ended."""
    woken_at: float | None = None
    """When it was last rung for something that it has not answered since."""
    stopping: str | None = None
    """Why it was asked to end."""
    outdated: str | None = None
    """Why it goes after its turn: started by a host of another mailbox format or protocol (architecture 6), or with
    settings that have changed."""

    def idle(self, now: float) -> bool:
        """Whether nothing is lost when it is sent home; `now` is monotonic."""
        expected = self.woken_at is not None and now - self.woken_at < WOKEN
        return not self.claims and not expected and self.stopping is None


@dataclass(slots=True)
class _Failing:
    count: int
    again_at: float
    told: bool = False


class Supervisor:
    """Starts, rings, watches and stops runners."""

    def __init__(
        self,
        hub: Hub,
        launcher: Launcher,
        *,
        on_ring: Callable[[SessionId], None],
        parked: Callable[[Session], Awaitable[bool]],
        before_launch: Callable[[Session], Awaitable[None]],
        on_ended: Callable[[Runner, int], Awaitable[bool]],
        on_cannot_start: Callable[[Session, str], Awaitable[None]],
        on_damaged: Callable[[Session, MailboxDamaged], None],
        nudge: Callable[[], None],
    ) -> None:
        """`parked` tells that the session must rest until the timer wakes it; `before_launch` settles what an earlier
        runner left; `on_ended` collects what a
        runner left and tells whether there is work for another one; `on_cannot_start` tells the people;
        `on_damaged` begins to replace a mailbox and wakes the session when that is done."""
        self._hub = hub
        self._launcher = launcher
        self._on_ring = on_ring
        self._parked = parked
        self._before_launch = before_launch
        self._on_ended = on_ended
        self._on_cannot_start = on_cannot_start
        self._on_damaged = on_damaged
        self._nudge = nudge
        self._runners: dict[SessionId, Runner] = {}
        self._waiting: OrderedDict[tuple[AgentGroupId, bool], deque[SessionId]] = OrderedDict()
        """By agent group, those that people wait for and those that have time each in a queue of their own."""
        self._wanted: set[SessionId] = set()
        self._starting: set[SessionId] = set()
        self._ending: set[SessionId] = set()
        self._moved = asyncio.Event()
        """Set, and replaced, whenever a start or an end is over."""
        self._failing: dict[SessionId, _Failing] = {}
        self._held: set[SessionId] = set()
        self._look_again: float | None = None
        """When an idle runner may be sent home for one that waits (monotonic)."""
        self._closed = True
        self._watch: asyncio.Task[None] | None = None
        self.peak = 0
        """The most runners that were alive at once."""

    # ---- the outside

    @property
    def cap(self) -> int:
        return self._hub.settings.runner_cap

    @property
    def runners(self) -> dict[SessionId, Runner]:
        return self._runners

    @property
    def waiting(self) -> int:
        return len(self._wanted)

    def open(self) -> None:
        """Begin to start runners; before it, wakes only queue up."""
        self._closed = False
        self._watch = self._hub.spawn(self._watching(), "supervisor")
        self._fill()

    def wake(self, session_id: SessionId, group_id: AgentGroupId, *, rung: bool = False, patient: bool = False) -> None:
        """There is something to do for this session: ring its runner, unless that was done, or have one started.

        `patient`: nobody waits for it, as for a task.  However many of these there are, what people wrote takes turns
        with them.
        """
        runner = self._runners.get(session_id)
        if runner is not None and runner.stopping is None:
            runner.last_busy = runner.woken_at = self._hub.clock.monotonic()
            if not rung:
                runner.bell.ring()
            return
        if session_id in self._held:
            return
        if session_id in self._wanted:
            patiently = self._waiting.get((group_id, True))
            if patient or not patiently or session_id not in patiently:
                return
            patiently.remove(session_id)
        self._wanted.add(session_id)
        self._waiting.setdefault((group_id, patient), deque()).append(session_id)
        self._fill()

    def ring(self, session_id: SessionId) -> bool:
        """Ring a runner that lives, from any thread; start none.  Whether there is one."""
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.bell.ring()
        return runner is not None

    async def stop(self, session_id: SessionId, reason: str) -> bool:
        """End a session's runner; False when it has none.  It is started again when there is work."""
        runner = self._runners.get(session_id)
        if runner is None:
            return False
        runner.stopping = runner.stopping or reason
        log.info("stopping the runner of session %s: %s", session_id, reason)
        await runner.handle.stop(self._hub.settings.stop_grace)
        return True

    async def kill(self, session_id: SessionId, reason: str) -> None:
        """End a session's runner at once."""
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.stopping = runner.stopping or reason
            log.warning("killing the runner of session %s: %s", session_id, reason)
            await runner.handle.kill()

    def rest(self, session_ids: Iterable[SessionId]) -> None:
        """Send home the runners of sessions that are parked, but those that are in a turn: it may well end."""
        for session_id in session_ids:
            runner = self._runners.get(session_id)
            if runner is not None and not runner.claims and runner.stopping is None:
                self._hub.spawn(self._resting(session_id), f"park {session_id}")

    async def _resting(self, session_id: SessionId) -> None:
        await self.stop(session_id, "parked")

    def outdate(self, session_id: SessionId, why: str) -> None:
        """End the session's runner at once if it is idle, else after its turn."""
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.outdated = runner.outdated or why
            self._replace_outdated(runner)

    async def hold(self, session_id: SessionId) -> None:
        """Keep the session without a runner until `release`: its mailbox is being mended."""
        self._held.add(session_id)
        await self.stop(session_id, "held")
        while self._busy_elsewhere(session_id):
            await self._moved.wait()

    def release(self, session_id: SessionId) -> None:
        self._held.discard(session_id)

    def idle(self, session_id: SessionId) -> None:
        """The session's runner has nothing in its hands; others may be waiting for its place."""
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.woken_at = None
            self._replace_outdated(runner)
        if self._wanted:
            self._fill()

    def forgive(self) -> None:
        """Forget failed starts: something was changed."""
        self._failing.clear()
        self._fill()

    def soonest(self) -> float | None:
        """The monotonic moment at which a backed-off start may be tried again."""
        if self._look_again is not None and self._wanted:
            return min(self._look_again, self._backed_off() or self._look_again)
        return self._backed_off()

    def _backed_off(self) -> float | None:
        waiting = [failing.again_at for session_id, failing in self._failing.items() if session_id in self._wanted]
        return min(waiting, default=None)

    async def due(self) -> None:
        self._look_again = None
        self._fill()

    async def adopt(self, runtimes: dict[str, Runtime]) -> list[Session]:
        """Take over live runners that an earlier host left; those that don't fit are ended."""
        adopted = []
        for name, runtime in runtimes.items():
            for handle in await runtime.adopt():
                session = await self._hub.store.read(sessions.session, handle.session_id)
                if session is None or session.epoch != handle.epoch or self._hub.settings.on_stop != "leave":
                    log.info("ending a left-over runner of session %s (runtime %s)", handle.session_id, name)
                    await handle.kill()
                    continue
                runner = await self._register(session, handle, runtime)
                if await asyncio.to_thread(_outdated, runner.folder):
                    runner.outdated = "it was started by another version"
                adopted.append(session)
                log.info("took over the runner of session %s", session.id)
                self._on_ring(runner.session.id)
            await runtime.collect_garbage()
        return adopted

    async def close(self, *, leave: bool) -> None:
        """Start no more; end every runner, or leave them for the next host."""
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        while self._starting:
            await self._moved.wait()
        if leave:
            for runner in self._runners.values():
                if runner.watched is not None:
                    runner.watched.cancel()
                await runner.bell.close()
            for runtime in self._launcher.runtimes.values():
                if isinstance(runtime, LeavesRunners):
                    runtime.let_go()
            return
        await asyncio.gather(*(self.stop(session_id, "the host stops") for session_id in list(self._runners)))
        while self._runners or self._ending:
            await self._moved.wait()

    # ---- starting

    def _fill(self) -> None:
        """Start as many waiting sessions as the cap allows, one agent group after the other."""
        if self._closed:
            return
        now = self._hub.clock.monotonic()
        looked_at = 0
        while self._wanted and looked_at < len(self._wanted) + len(self._waiting):
            place, queue = next(iter(self._waiting.items()))
            self._waiting.move_to_end(place)
            looked_at += 1
            if not queue:
                del self._waiting[place]
                continue
            session_id = queue[0]
            failing = self._failing.get(session_id)
            if self._busy_elsewhere(session_id) or (failing is not None and failing.again_at > now):
                queue.rotate(-1)
                continue
            if len(self._runners) + len(self._starting) >= self.cap:
                self._waiting.move_to_end(place, last=False)  # not served: still the next one
                self._send_one_home()
                return
            queue.popleft()
            self._wanted.discard(session_id)
            self._starting.add(session_id)
            self._hub.spawn(self._start(session_id, place[0]), f"launch {session_id}")
        if self._wanted:
            self._nudge()

    def _tell_moved(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _busy_elsewhere(self, session_id: SessionId) -> bool:
        return session_id in self._runners or session_id in self._starting or session_id in self._ending

    def _send_one_home(self) -> None:
        leaving = sum(runner.stopping == OTHERS_WAIT for runner in self._runners.values())
        if leaving >= min(len(self._wanted), LEAVING_AT_ONCE):
            return
        now = self._hub.clock.monotonic()
        idle = [runner for runner in self._runners.values() if runner.idle(now)]
        if not idle:
            return  # the next one that becomes idle asks again
        runner = min(idle, key=_leaves_at)
        if _leaves_at(runner) <= now:
            runner.stopping = OTHERS_WAIT
            self._hub.spawn(self._stopped(runner), f"evict {runner.session.id}")
        else:
            self._look_again = _leaves_at(runner)
            self._nudge()

    def _replace_outdated(self, runner: Runner) -> None:
        if runner.outdated and runner.idle(self._hub.clock.monotonic()):
            runner.stopping = runner.outdated
            self._hub.spawn(self._stopped(runner), f"replace {runner.session.id}")

    async def _stopped(self, runner: Runner) -> None:
        await self.stop(runner.session.id, runner.stopping or OTHERS_WAIT)

    async def _start(self, session_id: SessionId, group_id: AgentGroupId) -> None:
        again = False
        try:
            session = await self._hub.store.read(sessions.session, session_id)
            if session is None or session_id in self._held:
                return
            if await self._parked(session):
                return
            try:
                await self._before_launch(session)
                launched = await self._launcher.launch(session, self._make_bell)
            except Refused as problem:
                # Nothing that trying again would change: tell, and wait for the next message or a reload.
                self._failing.pop(session_id, None)
                log.warning("session %s gets no runner: %s", session_id, problem)
                await self._on_cannot_start(session, str(problem))
                return
            except MailboxDamaged as problem:
                self._on_damaged(session, problem)
                return
            except (JackfieldError, OSError) as problem:
                again = True
                await self._could_not_start(session, str(problem))
                return
            launched.bell.expect(launched.handle.peer_uid)
            runner = self._runner_of(launched.session, launched.handle, launched.runtime, launched.bell)
            self.peak = max(self.peak, len(self._runners))
            runner.bell.ring()
        finally:
            self._starting.discard(session_id)
            self._tell_moved()
            if again:
                self.wake(session_id, group_id)
            self._fill()

    async def _could_not_start(self, session: Session, reason: str, *, told: str | None = None) -> None:
        """`told` is what people hear instead of the reason: not what a program wrote into its log."""
        self._hub.trouble("launch")
        failing = self._failing.setdefault(session.id, _Failing(0, 0.0))
        failing.count += 1
        wait = BACKOFF[min(failing.count, len(BACKOFF)) - 1]
        failing.again_at = self._hub.clock.monotonic() + wait
        log.warning(
            "the runner of session %s could not be started (%d in a row), again in %g s: %s",
            session.id, failing.count, wait, reason,
        )  # fmt: skip
        if failing.count >= TELL_AFTER and not failing.told:
            failing.told = True
            await self._on_cannot_start(session, told or reason)

    def _make_bell(self, session: Session, peer_uid: int | None) -> HostBell:
        session_id = session.id
        return HostBell(
            self._hub.folder_of(session),
            on_ring=lambda: self._rung(session_id),
            on_gone=lambda: self._rung(session_id),
            peer_uid=peer_uid,
        )

    def _rung(self, session_id: SessionId) -> None:
        runner = self._runners.get(session_id)
        if runner is not None:
            runner.last_busy = self._hub.clock.monotonic()
        self._on_ring(session_id)

    async def _register(self, session: Session, handle: RuntimeHandle, runtime: Runtime) -> Runner:
        bell = self._make_bell(session, handle.peer_uid)
        await bell.open()
        runner = self._runner_of(session, handle, runtime, bell)
        runner.started -= EARLY_END  # an adopted one has lived before
        return runner

    def _runner_of(self, session: Session, handle: RuntimeHandle, runtime: Runtime, bell: HostBell) -> Runner:
        now = self._hub.clock.monotonic()
        runner = Runner(
            session=session,
            group_id=session.agent_group_id,
            epoch=handle.epoch,
            handle=handle,
            runtime=runtime,
            bell=bell,
            folder=self._hub.folder_of(session),
            started=now,
            started_at=self._hub.clock.now(),
            last_busy=now,
            woken_at=now,
        )
        self._runners[session.id] = runner
        runner.watched = self._hub.spawn(self._await_end(runner), f"runner {session.id}")
        return runner

    # ---- ending

    async def _await_end(self, runner: Runner) -> None:
        code = await runner.handle.wait()
        session_id = runner.session.id
        lived = self._hub.clock.monotonic() - runner.started
        self._ending.add(session_id)
        self._runners.pop(session_id, None)
        await runner.bell.close()
        try:
            failed = code != 0 and runner.stopping is None
            if failed:
                tail = "\n".join(runner.handle.logs()[-5:])
                log.warning("the runner of session %s ended with %d after %.1f s\n%s", session_id, code, lived, tail)
            more = await self._collect_rest(runner, code)
            if failed and lived < EARLY_END and not runner.worked:
                last = runner.handle.logs()[-1:] or [f"it ended with {code}"]
                await self._could_not_start(runner.session, last[0], told="it breaks off when it begins")
            elif not failed:
                self._failing.pop(session_id, None)
        finally:
            self._ending.discard(session_id)
            self._tell_moved()
        if more:
            self.wake(session_id, runner.group_id)
        self._fill()

    async def _collect_rest(self, runner: Runner, code: int) -> bool:
        """Collect the dead runner's last rows, after rolling back what it left half-written (C209)."""
        for attempt in (1, 2):
            try:
                return await self._on_ended(runner, code)
            except RecoveryNeeded:
                if attempt == 2:
                    raise
                log.info("rolling back the last transaction of session %s", runner.session.id)
                await runner.runtime.recover(self._launcher.place_of(runner.session))
            except MailboxDamaged as problem:
                self._on_damaged(runner.session, problem)
                return False
            except MailboxError:
                self._hub.trouble("mailbox")
                log.exception("the mailbox of session %s could not be read after its runner's end", runner.session.id)
                return True
        return True

    # ---- watching

    async def _watching(self) -> None:
        wall = WallClock(self._hub.clock)
        while True:
            await self._hub.clock.sleep(WATCH_EVERY)
            self._fill()
            if moved := wall.jumped():
                log.info("the clock was moved by %.0f s; signs of life count from now", moved)
                for runner in self._runners.values():
                    runner.started_at = self._hub.clock.now()
            for runner in list(self._runners.values()):
                try:
                    await self._look_at(runner)
                except MailboxError as problem:
                    log.warning("session %s could not be looked at: %s", runner.session.id, problem)
                except Exception:
                    self._hub.trouble("supervisor")
                    log.exception("session %s could not be looked at", runner.session.id)

    async def _look_at(self, runner: Runner) -> None:
        settings = self._hub.settings
        state, claims = await self._hub.mailboxes.run(runner.folder, lambda box: (box.read_state(), box.claims()))
        verdict = stuck.judge(
            stuck.Observed(
                epoch=runner.epoch,
                started_at=runner.started_at,
                heartbeat_at=runner.folder.heartbeat_at(),
                state=state,
                claims=claims,
                silent_ceiling=settings.silent_ceiling,
                stuck_claim=settings.stuck_claim,
            ),
            self._hub.clock.now(),
        )
        if not claims:
            self._replace_outdated(runner)
        if verdict is not None:
            self._hub.trouble(f"runner {type(verdict).__name__}")
            await self.kill(runner.session.id, f"no sign of life for {verdict.seconds:.0f} s")


def _leaves_at(runner: Runner) -> float:
    """The monotonic moment from which an idle runner may be sent home for another session."""
    return min(runner.last_busy + REST, runner.started + TENURE)


def _outdated(folder: SessionFolder) -> bool:
    """Whether a runner was told, at its launch, another format or protocol than this host's."""
    try:
        spec = folder.read_spec()
    except MalformedData:
        return True
    return (spec.format, spec.protocol) != (MAILBOX_FORMAT, RUNNER_PROTOCOL)
