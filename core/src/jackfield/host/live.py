"""The running host: its parts made, joined to each other, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from jackfield.api import Attaches
from jackfield.config.load import load, remember_good
from jackfield.errors import ConfigError, JackfieldError, MailboxDamaged, NotFound, Unsupported
from jackfield.host.actions import Actions
from jackfield.host.agents import Agents
from jackfield.host.agents.creation import Creation
from jackfield.host.approvals import Answers, Approvals, Showing
from jackfield.host.channels import ChannelDirectory, ChannelInstance
from jackfield.host.collect import Collector
from jackfield.host.control import ServerConnection
from jackfield.host.delivery import Delivery
from jackfield.host.enabled import load_plugins, prepare_runtimes
from jackfield.host.extensions import Extensions, HostServices
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.intake import Intake
from jackfield.host.launching import Launcher
from jackfield.host.notices import Notices, answer_address
from jackfield.host.parking import Parking
from jackfield.host.questions import Questions
from jackfield.host.registration import Registration
from jackfield.host.renewal import Renewal
from jackfield.host.retention import Retention
from jackfield.host.router import Router
from jackfield.host.schedule import Schedule, TaskDesk
from jackfield.host.spool import Spool
from jackfield.host.streams import Streams
from jackfield.host.supervisor import Runner, Supervisor
from jackfield.host.takeover import Takeover
from jackfield.host.timer import DueTimer
from jackfield.host.typing_indicator import TypingIndicator
from jackfield.host.unfinished import Unfinished
from jackfield.host.workshop.workshop import Workshop
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    AgentGroup,
    InboundRow,
    InboundState,
    MessagingGroup,
    OutboundRow,
    Session,
    SessionStatus,
)
from jackfield.store import due, inbound, wirings

__all__ = ["LiveHost"]

log = logging.getLogger(__name__)

INTAKE_GRACE = 5.0
SEND_GRACE = 5.0


class LiveHost:
    """See `jackfield.host.application`, which owns its life."""

    def __init__(self, hub: Hub, *, request_stop: Callable[[], None], stop_requested: asyncio.Event) -> None:
        self.hub = hub
        self.request_stop = request_stop
        self.stop_requested = stop_requested
        self.channels = ChannelDirectory(hub, on_ready=self._channel_ready, wake=self._wake_chat)
        spool = Spool(hub)
        self.typing = TypingIndicator(hub, self.channels)
        self.launcher = Launcher(hub)
        self.inbox = Inbox(
            hub,
            self.channels,
            spool,
            wake=self._wake_session,
            unblock=self._unblock,
            on_damaged=self._mailbox_replaced,
            notes=lambda session_id: self.delivery.take_notes(session_id),
        )
        self.notices = Notices(
            hub,
            self.inbox,
            say=lambda address, message, path: self.delivery.send_direct(address, message, path=path),
            ring=lambda session_id: self.supervisor.ring(session_id),
            tell_agent=lambda session, text: self.agents.outcomes.tell(session, text),
            undelivered=lambda part: self.agents.outcomes.undelivered(part),
        )
        self.agents = Agents(
            hub,
            self.channels,
            self.inbox,
            before=lambda session: self.renewal.before_message(session),
            wake=self._wake_session,
        )
        self.streams = Streams(hub, self.channels)
        self.delivery = Delivery(
            hub,
            self.channels,
            streams=self.streams,
            on_failed=self.notices.delivery_failed,
            on_degraded=self.notices.delivery_changed,
        )
        self.questions = Questions(hub, self.channels, self.inbox, respond=self._respond)
        self.services = HostServices(hub, self.inbox)
        showing = Showing(hub, self.channels, self.delivery)
        self.approvals = Approvals(hub, self.inbox, self.services, showing, nudge=self.nudge)
        self.schedule = Schedule(
            hub,
            self.inbox,
            say=lambda address, message, path: self.delivery.send_direct(address, message, path=path),
            wake=lambda session: self.renewal.wake(session, patient=True),
            nudge=self.nudge,
        )
        self.series = self.schedule.series()
        self.creation = Creation(hub, self.approvals, project=self.project)
        self.workshop = Workshop(
            hub,
            self.launcher,
            replace=lambda group_id, why: self.renewal.replace(group_id, why),
            replaced=lambda session_id: self.renewal.replaced(session_id),
            notify=self.inbox.notify,
        )
        self.services.join(
            approvals=self.approvals,
            schedule=TaskDesk(hub, self.series, self.approvals),
            workshop=self.workshop,
            agents=self.creation,
        )
        self.actions = Actions(hub, self.channels, self.services)
        self.parking = Parking(hub, tell=self.notices.tell)
        self.collector = Collector(
            hub,
            self.delivery,
            on_action=self._act,
            on_acks=self._acked,
            on_tell=self.notices.tell,
            on_damaged=self._outbound_damaged,
            on_parked=self._parked,
            on_drafts=self.streams.show,
            nudge=self.nudge,
            enter=self.agents.enter,
            on_refused=self.agents.refused,
        )
        self.unfinished = Unfinished(
            hub, self.inbox, wake=self._wake_session, tell=self.notices.tell, retake=self.retake
        )
        self.takeover = Takeover(hub, self.launcher, self.collector, self.unfinished, self.streams, nudge=self.nudge)
        self.supervisor = Supervisor(
            hub,
            self.launcher,
            on_ring=self._ring,
            parked=self._rests,
            before_launch=self.takeover.before_launch,
            on_ended=self._runner_ended,
            on_cannot_start=self.notices.cannot_start,
            on_damaged=self._replace_soon,
            nudge=self.nudge,
        )
        self.renewal = Renewal(hub, self.launcher, self.supervisor)
        self.registration = Registration(
            hub,
            self.channels,
            self.approvals,
            say=self.delivery.send_direct,
            retake=self.retake,
            project=self.project,
        )
        answers = Answers(hub, self.channels, self.approvals, showing, self.delivery, self.questions)
        self.router = Router(
            hub,
            self.channels,
            self.inbox,
            on_action=answers.invoked,
            on_report=self.delivery.report,
            on_text_answer=answers.text_answer,
            say=self.delivery.send_direct,
            ask=self.registration.ask,
            claim=self.registration.claimed,
            before=self.renewal.before_message,
            ring=self.supervisor.ring,
            wake=self._wake_routed,
            entered=self.collector.entered,
        )
        self.intake = Intake(hub, self.router, spool)
        self.extensions = Extensions(hub, self.services)
        self.retention = Retention(hub, spool)
        self.timer = DueTimer(
            hub,
            due=(
                self.unfinished.due,
                self.delivery.due,
                self.questions.expire,
                self.approvals.due,
                self.schedule.due,
                self.supervisor.due,
            ),
            sweep=(
                self.intake.retake,
                self._sweep,
                self.approvals.sweep,
                self.registration.sweep,
                self.schedule.sweep,
                self.agents.outcomes.look,
                self.retention.sweep,
            ),
            soonest=self.supervisor.soonest,
            set_back=self._clock_set_back,
        )

    # ---- life

    async def start(self) -> None:
        """Take up what the last life left, connect the channels, and begin."""
        await load_plugins(self.hub)
        await prepare_runtimes(self.hub, self.launcher)
        await self.workshop.collect_garbage()
        await self.creation.recover()
        adopted = await self.supervisor.adopt(self.launcher.runtimes)
        self.takeover.adopted(adopted)
        for session in adopted:
            await self.launcher.adopted(session)
            self.renewal.look_at(session)
        waiting = await self.unfinished.sessions_with_work()
        for session in waiting:
            try:
                await self.takeover.before_launch(session)
            except JackfieldError as problem:
                self.hub.trouble("start")
                log.warning("what session %s left can't be read yet: %s", session.id, problem)
        self.collector.hurry = False
        await self.delivery.start()
        await self.intake.retake()
        await self.channels.start(self.intake)
        await self.extensions.start()
        await self.approvals.start()
        await self.schedule.start()
        awaited = await self.hub.store.read(inbound.sessions_awaited)
        for session in await self.unfinished.sessions_with_work():
            self.renewal.wake(session, patient=session.id not in awaited)
        self.supervisor.open()
        self.intake.open()
        self.timer.start()

    async def stop(self) -> None:
        self.collector.hurry = True
        await self.intake.close(INTAKE_GRACE)
        await self.timer.stop()
        await self.retention.stop()
        await self.supervisor.close(leave=self.hub.settings.on_stop == "leave")
        await self.delivery.stop(SEND_GRACE)
        await self.extensions.stop()
        await self.channels.stop()
        await self.hub.settle(SEND_GRACE)

    async def reload(self) -> dict[str, Any]:
        """Read `jackfield.toml` again; an invalid one keeps the old.

        Raises:
            ConfigError: it has errors; nothing was changed.
        """
        fresh = await asyncio.to_thread(load, self.hub.home, strict=True, fall_back=False)
        self.hub.configuration = fresh
        await asyncio.to_thread(self.hub.plugins.refresh)
        await load_plugins(self.hub)
        await asyncio.to_thread(remember_good, fresh)
        await self.channels.reload(self.intake)
        self.renewal.renew()
        self.supervisor.forgive()
        await self.parking.forgive()
        await self.intake.retake()
        for session in await self.unfinished.sessions_with_work():
            self._wake_session(session)
        self.nudge()
        log.info("the configuration was read again")
        return {"channels": [instance.name for instance in self.channels.all()], "problems": list(self.problems())}

    async def _clock_set_back(self, seconds: float) -> None:
        log.warning("the clock was set back by %.0f s; what waits for a moment waits no longer for that", seconds)
        await self.hub.store.write(due.move, round(-seconds * 1000), self.hub.clock.now())

    def reload_soon(self) -> None:
        """For SIGHUP."""

        async def work() -> None:
            try:
                await self.reload()
            except ConfigError as problem:
                log.error("the configuration stays as it was: %s", problem)

        self.hub.spawn(work(), "reload")

    def problems(self) -> tuple[str, ...]:
        configured = [str(problem) for problem in self.hub.configuration.problems]
        broken = [
            f"plugin {info.name} ({info.kind}) is {info.state}: {info.broken.reason}"
            for info in self.hub.plugins.listing()
            if info.broken is not None
        ]
        return (*configured, *broken)

    # ---- between the parts

    def nudge(self) -> None:
        self.timer.nudge()

    def kick(self, destinations: list[str]) -> None:
        self.delivery.kick(destinations)

    async def retake(self) -> None:
        await self.intake.retake()

    def wake(self, session_id: SessionId, group_id: AgentGroupId) -> None:
        self.supervisor.wake(session_id, group_id)

    def renew(self, group_id: AgentGroupId | None = None) -> None:
        self.renewal.renew(group_id)

    def _wake_session(self, session: Session) -> None:
        self.renewal.wake(session)

    def _wake_routed(self, session: Session, origin: Address | None, rung: bool) -> None:
        self.renewal.wake(session, rung=rung)
        if origin is not None:
            self.typing.begin(session.id, origin)

    def _wake_chat(self, address: Address) -> None:
        self.delivery.wake(address)
        self.approvals.listening(address)

    def _channel_ready(self, instance: ChannelInstance) -> None:
        self.delivery.channel_ready(instance.type, instance.name)
        self.approvals.channel_ready()

    def _ring(self, session_id: SessionId) -> None:
        self.collector.ring(session_id)

    async def stop_runner(self, session_id: SessionId, reason: str) -> bool:
        return await self.supervisor.stop(session_id, reason)

    async def retire_runner(self, session_id: SessionId) -> None:
        await self.supervisor.hold(session_id)
        self.supervisor.release(session_id)

    async def _unblock(self, session: Session) -> None:
        await self.retire_runner(session.id)

    async def _rests(self, session: Session) -> bool:
        """Whether the session must not get a runner: it is parked, or closed."""
        if session.status is not SessionStatus.CLOSED:
            return await self.parking.holds(session)
        if await self.unfinished.send_on(session):
            log.info("what came for closed session %s is routed again", session.id)
        return True

    async def _outbound_damaged(self, session: Session, problem: MailboxDamaged) -> None:
        await self.inbox.replace(session, problem)

    def _replace_soon(self, session: Session, problem: MailboxDamaged) -> None:
        """Beside whatever found it: replacing waits until the session has no runner and none starts."""
        self.hub.spawn(self._outbound_damaged(session, problem), f"replace {session.id}")

    async def _mailbox_replaced(self, session: Session, reason: str) -> None:
        self.collector.forget(session.id)
        await self.unfinished.refill(session, reason)

    async def _runner_ended(self, runner: Runner, code: int) -> bool:
        self.launcher.ended(runner.session.id)
        self.typing.end(runner.session.id)
        more = await self.takeover.after_end(runner)
        self.schedule.look_at(runner.session.id)
        return more

    def _acked(self, session_id: SessionId, acks: Sequence[Ack]) -> None:
        """Follow what the runner has in its hands."""
        self.schedule.acked(session_id, acks)
        runner = self.supervisor.runners.get(session_id)
        for ack in acks:
            if runner is not None:
                if ack.status is AckStatus.PROCESSING:
                    runner.claims.add(ack.message_id)
                else:
                    runner.claims.discard(ack.message_id)
        if runner is None or not runner.claims:
            self.typing.end(session_id)
            self.supervisor.idle(session_id)
            if runner is not None:
                self.renewal.look_at(runner.session)

    async def _act(self, session: Session, group: AgentGroup, row: OutboundRow) -> None:
        response = await self.actions.handle(session, group, row)
        await self._respond(session.id, response)
        await self.collector.action_done(session.id, row.seq)

    async def _respond(self, session_id: SessionId, response: Any) -> None:
        await self.inbox.respond(session_id, response)
        self.supervisor.ring(session_id)

    def _parked(self, session: Session, group: AgentGroup, shared: bool) -> None:
        """No more turns for it, or for all that share its provider."""

        async def rest() -> None:
            live = [(runner.session.id, runner.group_id) for runner in self.supervisor.runners.values()]
            self.supervisor.rest(await self.parking.sharing(group, live) if shared else [session.id])

        self.hub.spawn(rest(), f"park {session.id}")

    def answer_address(self, session: Session, chat: MessagingGroup | None) -> Address | None:
        return answer_address(session, chat)

    async def enqueue(self, session: Session, row: InboundRow) -> None:
        await self.inbox.use(session, lambda box: box.enqueue([row]))
        await self.hub.store.write(
            inbound.record,
            id=row.id,
            event_id=None,
            wiring_id=None,
            session_id=session.id,
            state=InboundState.QUEUED,
            preview=getattr(row.content, "text", "")[:200],
            now=self.hub.clock.now(),
        )
        self._wake_session(session)

    async def tell_askers(self) -> None:
        await self.agents.outcomes.look()

    async def settle_tasks(self) -> None:
        await self.schedule.settle()

    async def project(self, group_id: AgentGroupId) -> None:
        """Show the group's present destinations to its live runners; what can't be shown now, the sweep shows."""
        known = await self.hub.store.read(wirings.destinations, group_id)
        for runner in list(self.supervisor.runners.values()):
            if runner.group_id != group_id:
                continue
            try:
                await self.launcher.show_destinations(runner.session, known)
                runner.bell.ring()
            except JackfieldError as problem:
                self.hub.trouble("project")
                log.warning("session %s can't be shown its destinations: %s", runner.session.id, problem)

    async def _sweep(self) -> None:
        """The safety net of the doorbells and of projections: look at every live session once a minute."""
        for group_id in {runner.group_id for runner in self.supervisor.runners.values()}:
            await self.project(group_id)
        for session_id in list(self.supervisor.runners):
            self._ring(session_id)
            self.supervisor.ring(session_id)

    async def reconsider(self) -> None:
        await self.registration.reconsider()

    # ---- the control socket

    async def attach(self, connection: ServerConnection, args: dict[str, Any]) -> Callable[[], Awaitable[None]]:
        """Hand a connection over to the channel that it asks for."""
        name, options = args.get("instance"), args.get("options", {})
        if not isinstance(name, str) or not isinstance(options, dict):
            raise NotFound("channel.attach needs the name of a channel and options")
        found = next((instance for instance in self.channels.all() if instance.name == name), None)
        if found is None:
            raise NotFound(
                f"this host has no channel {name!r}",
                fix=f"add it: `jackfield channel add {name}`, then `jackfield reload`",
            )
        channel = found.channel
        if channel is None:
            raise Unsupported(f"channel {name} is {found.status.state}: {found.status.detail}")
        if not isinstance(channel, Attaches):
            raise Unsupported(f"channel {name} of type {found.type} takes no local clients")
        return lambda: channel.attach(connection, options)

    def report(self) -> dict[str, Any]:
        return {
            "channels": [
                {
                    "name": instance.name,
                    "type": instance.type,
                    "state": str(instance.status.state),
                    "detail": instance.status.detail,
                }
                for instance in self.channels.all()
            ],
            "ingress": self.channels.ingress.report(),
            "runners": {
                session_id: "stopping" if runner.stopping else "working" if runner.claims else "idle"
                for session_id, runner in self.supervisor.runners.items()
            },
            "runner_cap": self.supervisor.cap,
            "runners_waiting": self.supervisor.waiting,
            "runtimes": dict.fromkeys(self.launcher.runtimes),
        }
