"""The running host: its parts made, joined to each other, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from jackfield.api import Attaches, SendPath
from jackfield.config.load import load, remember_good
from jackfield.errors import ConfigError, JackfieldError, MailboxDamaged, NotFound, RecoveryNeeded, Unsupported
from jackfield.host.actions import Actions
from jackfield.host.channels import ChannelDirectory, ChannelInstance
from jackfield.host.collect import Collector
from jackfield.host.control import ServerConnection
from jackfield.host.delivery import Delivery
from jackfield.host.extensions import Extensions, HostServices
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.host.intake import Intake
from jackfield.host.launching import Launcher
from jackfield.host.parking import Parking
from jackfield.host.questions import Questions
from jackfield.host.retention import Retention
from jackfield.host.router import Router
from jackfield.host.spool import Spool
from jackfield.host.streams import Streams
from jackfield.host.supervisor import Runner, Supervisor
from jackfield.host.timer import DueTimer
from jackfield.host.typing_indicator import TypingIndicator
from jackfield.host.unfinished import Unfinished
from jackfield.ids import AgentGroupId, SessionId, derive_id
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    AgentGroup,
    InboundRow,
    InboundState,
    MessageReceived,
    MessagingGroup,
    OutboundRow,
    OutMessage,
    Session,
    SessionStatus,
    loads,
)
from jackfield.models import Delivery as DeliveryRow
from jackfield.plugins import Kind
from jackfield.store import chats, events, groups, inbound, sessions, wirings

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
        self._settled: set[SessionId] = set()
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
        self.streams = Streams(hub, self.channels)
        self.delivery = Delivery(
            hub,
            self.channels,
            streams=self.streams,
            on_failed=self._delivery_failed,
            on_degraded=self._delivery_changed,
        )
        self.questions = Questions(hub, self.channels, respond=self._respond)
        self.services = HostServices(hub, self.inbox)
        self.actions = Actions(hub, self.services)
        self.parking = Parking(hub, tell=self.tell)
        self.supervisor = Supervisor(
            hub,
            self.launcher,
            on_ring=self._ring,
            parked=self._rests,
            before_launch=self._before_launch,
            on_ended=self._runner_ended,
            on_cannot_start=self._cannot_start,
            on_damaged=self._replace_soon,
            nudge=self.nudge,
        )
        self.collector = Collector(
            hub,
            self.delivery,
            on_action=self._act,
            on_acks=self._acked,
            on_tell=self.tell,
            on_damaged=self._outbound_damaged,
            on_parked=self._parked,
            on_drafts=self.streams.show,
            nudge=self.nudge,
        )
        self.unfinished = Unfinished(hub, self.inbox, wake=self._wake_session, tell=self.tell, retake=self.retake)
        self.router = Router(
            hub,
            self.channels,
            self.inbox,
            on_action=self.questions.invoked,
            on_report=self.delivery.report,
            on_text_answer=self.questions.text_answer,
            say=self.delivery.send_direct,
            wake=self._wake_routed,
        )
        self.intake = Intake(hub, self.router, spool)
        self.extensions = Extensions(hub, self.services)
        self.retention = Retention(hub, spool)
        self.timer = DueTimer(
            hub,
            due=(self.unfinished.due, self.delivery.due, self.questions.expire, self.supervisor.due),
            sweep=(self.intake.retake, self._sweep, self.retention.sweep),
            soonest=self.supervisor.soonest,
        )

    # ---- life

    async def start(self) -> None:
        """Take up what the last life left, connect the channels, and begin."""
        await self._load_plugins()
        await self._prepare_runtimes()
        adopted = await self.supervisor.adopt(self.launcher.runtimes)
        self._settled.update(session.id for session in adopted)
        for session in adopted:
            await self.launcher.adopted(session)
            self._renew(session)
        waiting = await self.unfinished.sessions_with_work()
        for session in waiting:
            try:
                await self._before_launch(session)
            except JackfieldError as problem:
                self.hub.trouble("start")
                log.warning("what session %s left can't be read yet: %s", session.id, problem)
        self.collector.hurry = False
        await self.delivery.start()
        await self.intake.retake()
        await self.channels.start(self.intake)
        await self.extensions.start()
        for session in await self.unfinished.sessions_with_work():
            self._wake_session(session)
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

    async def _load_plugins(self) -> None:
        """The host halves of what groups use: actions and hooks must be there before the first message."""
        wanted: dict[tuple[Kind, str], None] = {}
        for group in await self.hub.store.read(groups.agent_groups):
            try:
                agent = self.hub.agent_settings(group)
            except ConfigError:
                continue  # told by _prepare_runtimes
            wanted.update({(Kind.TOOLS, name): None for name in agent.tools})
            wanted.update({(Kind.PACK, name): None for name in agent.packs})
        wanted.update({(Kind.EXTENSION, name): None for name in self.hub.configuration.extensions})
        await self.hub.plugins.load_enabled(list(wanted))

    async def _prepare_runtimes(self) -> None:
        """Create the runtimes that groups name, so that what they left behind is found."""
        names = set()
        for group in await self.hub.store.read(groups.agent_groups):
            try:
                names.add(self.hub.agent_settings(group).runtime)
            except ConfigError as problem:
                log.error("agent group %s can't run until its agent.toml is mended: %s", group.folder, problem)
        for name in sorted(names):
            try:
                await asyncio.to_thread(self.launcher.runtime, name)
            except JackfieldError as problem:
                log.error("runtime %s can't be used: %s", name, problem)

    async def reload(self) -> dict[str, Any]:
        """Read `jackfield.toml` again; an invalid one keeps the old.

        Raises:
            ConfigError: it has errors; nothing was changed.
        """
        fresh = await asyncio.to_thread(load, self.hub.home, strict=True, fall_back=False)
        self.hub.configuration = fresh
        await asyncio.to_thread(self.hub.plugins.refresh)
        await self._load_plugins()
        await asyncio.to_thread(remember_good, fresh)
        await self.channels.reload(self.intake)
        self.renew()
        self.supervisor.forgive()
        await self.parking.forgive()
        await self.intake.retake()
        for session in await self.unfinished.sessions_with_work():
            self._wake_session(session)
        self.nudge()
        log.info("the configuration was read again")
        return {"channels": [instance.name for instance in self.channels.all()], "problems": list(self.problems())}

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

    def _wake_session(self, session: Session) -> None:
        if self.launcher.changed(session):
            self.hub.spawn(self._wake_renewed(session), f"renew {session.id}")
        else:
            self.supervisor.wake(session.id, session.agent_group_id)

    # ---- settings that change while runners live

    def renew(self, group_id: AgentGroupId | None = None) -> None:
        """Replace the runners (of one group, or all) that were told other settings than hold now; each after its turn.

        Noticed by itself as well, when a message comes and when a turn ends (messaging.md 11.3: all sessions of the
        group, not only the one that asked).
        """
        for runner in list(self.supervisor.runners.values()):
            if group_id in (None, runner.group_id):
                self._renew(runner.session)

    def _renew(self, session: Session) -> None:
        if self.launcher.changed(session):
            self.hub.spawn(self._outdate(session), f"renew {session.id}")

    async def _outdate(self, session: Session) -> None:
        if await self.launcher.renewable(session):
            self.supervisor.outdate(session.id, "its agent's settings changed")

    async def _wake_renewed(self, session: Session) -> None:
        try:
            await self._outdate(session)
        finally:
            self.supervisor.wake(session.id, session.agent_group_id)

    def _wake_routed(self, session: Session, origin: Address | None) -> None:
        if origin is not None:
            self.typing.begin(session.id, origin)
        self._wake_session(session)

    def _wake_chat(self, address: Address) -> None:
        self.delivery.wake(address)

    def _channel_ready(self, instance: ChannelInstance) -> None:
        self.delivery.channel_ready(instance.type, instance.name)

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

    async def _before_launch(self, session: Session) -> None:
        """The first time in this life: take over what an earlier runner committed, and release what it held."""
        if session.id in self._settled:
            return
        folder = self.hub.folder_of(session)
        if folder.outbound_db.exists():
            try:
                everything = await self.collector.collect(session.id)
            except RecoveryNeeded:
                await self._recover(session)
                everything = await self.collector.collect(session.id)
            if not everything:
                return  # among the rest may be what ends a claim; so that comes before its launch, but beside the start
        await self.unfinished.release_claims(session)
        self.nudge()
        self.collector.forget(session.id)
        self._settled.add(session.id)

    async def _recover(self, session: Session) -> None:
        group = await self.hub.store.read(groups.agent_group, session.agent_group_id)
        if group is None:
            raise NotFound(f"agent group {session.agent_group_id} does not exist any more")
        runtime = await asyncio.to_thread(self.launcher.runtime, self.hub.agent_settings(group).runtime)
        log.info("rolling back the last transaction of session %s", session.id)
        await runtime.recover(self.launcher.place_of(session, group))

    async def _runner_ended(self, runner: Runner, code: int) -> bool:
        self.launcher.ended(runner.session.id)
        self.typing.end(runner.session.id)
        everything = await self.collector.collect(runner.session.id)
        await self.streams.abort(runner.session.id)
        if not everything:
            return True  # the next host takes the rest, and then releases what is still claimed
        released = await self.unfinished.release_claims(runner.session)
        runner.worked = released.held or bool(runner.claims)
        self.nudge()
        self.collector.forget(runner.session.id)
        return released.ready

    def _acked(self, session_id: SessionId, acks: Sequence[Ack]) -> None:
        """Follow what the runner has in its hands."""
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
                self._renew(runner.session)

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

    async def _delivery_failed(self, row: DeliveryRow, text: str) -> None:
        """Tell the agent's session once that something it sent did not arrive (C001)."""
        session = await self.hub.store.read(sessions.session, row.session_id)
        if session is None or session.status is SessionStatus.CLOSED:
            log.warning("message %s of a closed session was not delivered: %s", row.out_id, row.reason)
            return
        row_id = derive_id("in", row.out_id, "failed")
        await self.inbox.notify(session, text, subject="delivery failed", origin=row.address, row_id=row_id)
        self.supervisor.ring(session.id)

    async def _delivery_changed(self, session: Session, row: OutboundRow, notes: tuple[str, ...]) -> None:
        """Tell the agent once what of its message could not be sent as it was (C075)."""
        text = f"Your message #{row.seq} was sent with changes: {'; '.join(notes)}."
        row_id = derive_id("in", row.id, "changed")
        await self.inbox.notify(session, text, subject="delivery changed", origin=row.address, row_id=row_id)

    async def _cannot_start(self, session: Session, reason: str) -> None:
        await self.tell(session, f"The agent can't be started at the moment: {reason}. Your message is kept.")

    async def tell(self, session: Session, text: str) -> None:
        """The host's own words to the people of a session: where its newest message came from."""
        address = await self._newest_origin(session)
        if address is not None:
            await self.delivery.send_direct(address, OutMessage(text=text), path=SendPath.NOTICE)

    async def _newest_origin(self, session: Session) -> Address | None:
        newest = await self.hub.store.read(inbound.entries, session_id=session.id, limit=1)
        if newest and newest[0].event_id is not None:
            stored = await self.hub.store.read(events.event, newest[0].event_id)
            if stored is not None:
                event = loads(MessageReceived, stored.body)
                return event.answer_to or event.address
        if session.messaging_group_id is None:
            return None
        chat = await self.hub.store.read(chats.messaging_group, session.messaging_group_id)
        return self.answer_address(session, chat)

    def answer_address(self, session: Session, chat: MessagingGroup | None) -> Address | None:
        if chat is None:
            return None
        return replace(chat.address, thread_id=session.thread_id)

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

    async def project(self, group_id: AgentGroupId) -> None:
        """Show the group's present destinations to its live runners."""
        known = await self.hub.store.read(wirings.destinations, group_id)
        for runner in list(self.supervisor.runners.values()):
            if runner.group_id == group_id:
                await self.launcher.show_destinations(runner.session, known)
                runner.bell.ring()

    async def _sweep(self) -> None:
        """The safety net of the doorbells: look at every live session once a minute."""
        for session_id in list(self.supervisor.runners):
            self._ring(session_id)
            self.supervisor.ring(session_id)

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
