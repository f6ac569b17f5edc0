"""The parts of a running host: made, and joined to each other.

Every part knows the others only by the functions that it is given here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from jackfield.api import SendPath
from jackfield.errors import Ambiguous, ChannelError, JackfieldError, MailboxDamaged
from jackfield.host.actions import Actions
from jackfield.host.agents import Agents
from jackfield.host.agents.creation import Creation
from jackfield.host.approvals import Answers, Approvals, Showing
from jackfield.host.channels import ChannelDirectory, ChannelInstance
from jackfield.host.collect import Collector
from jackfield.host.delivery import Delivery
from jackfield.host.extensions import Extensions, HostServices
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.intake import Intake
from jackfield.host.launching import Launcher
from jackfield.host.models.alerts import Alerts
from jackfield.host.models.service import Models
from jackfield.host.notices import Notices
from jackfield.host.parking import Keys, Parking
from jackfield.host.prompts import channel_notes
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
from jackfield.ids import AgentGroupId, SessionId, new_id
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    AgentGroup,
    OutboundRow,
    OutMessage,
    Session,
    SessionStatus,
)
from jackfield.store import due, sessions, wirings

__all__ = ["Assembly"]

log = logging.getLogger(__name__)


class Assembly:
    """What `LiveHost` starts and stops."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.channels = ChannelDirectory(hub, on_ready=self._channel_ready, wake=self._wake_chat)
        spool = Spool(hub)
        self.typing = TypingIndicator(hub, self.channels)
        self.launcher = Launcher(hub)
        self.launcher.notes = partial(channel_notes, self.channels)
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
        self.parking = Parking(hub, tell=self.notices.tell)
        self.alerts = Alerts(hub, self.channels, send=self._send_alert)
        self.models = Models(hub, self.alerts, self.parking, rest=self._rest_sharing, go_on=self._go_on)
        self.services.join(
            approvals=self.approvals,
            schedule=TaskDesk(hub, self.series, self.approvals),
            workshop=self.workshop,
            agents=self.creation,
            models=self.models,
        )
        self.actions = Actions(hub, self.channels, self.services)
        self.collector = Collector(
            hub,
            self.delivery,
            on_action=self._act,
            on_acks=self._acked,
            on_tell=self.notices.tell,
            on_damaged=self._outbound_damaged,
            on_parked=self._parked,
            on_model=self._heard_of_model,
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
                self.alerts.retry,
                self.retention.sweep,
            ),
            soonest=self.supervisor.soonest,
            set_back=self._clock_set_back,
        )

    # ---- between the parts

    def nudge(self) -> None:
        self.timer.nudge()

    async def retake(self) -> None:
        await self.intake.retake()

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

    def _parked(self, session: Session, shared: sessions.Scope | None, keys: Keys) -> None:
        """No more turns for it, or for all that share what is parked."""
        if shared is None:
            self.supervisor.rest([session.id])
        else:
            self.hub.spawn(self._rest_sharing(shared, keys[shared]), f"park {session.id}")

    async def _rest_sharing(self, scope: sessions.Scope, key: str) -> None:
        live = [(runner.session.id, runner.group_id) for runner in self.supervisor.runners.values()]
        self.supervisor.rest(await self.parking.sharing(scope, key, live))

    async def _go_on(self) -> None:
        """What was parked may work again."""
        for session in await self.unfinished.sessions_with_work():
            self._wake_session(session)
        self.nudge()

    def _heard_of_model(self, keys: Keys, owner: tuple[str, str] | None) -> None:
        if owner is not None or self.alerts.any_open:
            self.hub.spawn(self.models.heard(keys, owner), "model")

    async def _send_alert(self, address: Address, text: str) -> bool:
        """Whether it lies before an owner, or may."""
        try:
            await self.delivery.send_now(
                address, OutMessage(text=text), path=SendPath.NOTICE, key=new_id("dl", self.hub.clock.now())
            )
        except Ambiguous:
            return True
        except ChannelError as problem:
            log.info("an owner can't be told in %s: %s", address, problem)
            return False
        return True

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

    async def _clock_set_back(self, seconds: float) -> None:
        log.warning("the clock was set back by %.0f s; what waits for a moment waits no longer for that", seconds)
        await self.hub.store.write(due.move, round(-seconds * 1000), self.hub.clock.now())
