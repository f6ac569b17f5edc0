"""The engine: a request is put on record, decided by exactly one person, done at most once, and told (C151, C153).

What follows from a decision is one resumable sequence: the deed, then the agent's notice, then `finished_at`; the
cards follow on their own.  A host that ends in between goes on at its next start.  Only the deed itself is not
repeated: one that was under way is `interrupted`, unless its kind may be done again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jackfield.api import (
    ActionContext,
    ApprovalChoice,
    ApprovalField,
    ApprovalKind,
    ApprovalState,
    ApprovalTicket,
    HostContext,
)
from jackfield.errors import Conflict, JackfieldError, NotAllowed, NotFound
from jackfield.host.approvals import policy
from jackfield.host.approvals.digest import copies, forget_copies, verify
from jackfield.host.approvals.kinds import YES_NO, Decision, HostKind, Kinds, Mode
from jackfield.host.approvals.requests import Wish, draft, folder_of
from jackfield.host.approvals.showing import Showing
from jackfield.host.approvals.words import outcome_words, unreachable_words
from jackfield.host.hub import Hub
from jackfield.host.inbox import Inbox
from jackfield.ids import ApprovalId, RequestId, derive_id
from jackfield.models import Address, AgentGroup, Session, SessionStatus
from jackfield.points import reach
from jackfield.store import approval_cards, approvals, groups, sessions
from jackfield.store.approvals import Approval, DeedOutcome, Via

__all__ = ["Approvals"]

log = logging.getLogger(__name__)

DEED_SECONDS = 3600.0
"""After this the doing counts as failed."""
PENDING_LIMIT = 30
"""Decisions that may wait because of one agent, and about one agent, or none: nobody is flooded with cards."""


class Approvals:
    """`ApprovalService` for plugins; `ask` is for the host's own kinds."""

    def __init__(
        self,
        hub: Hub,
        inbox: Inbox,
        services: HostContext,
        showing: Showing,
        *,
        nudge: Callable[[], None],
    ) -> None:
        """`nudge` wakes the timer."""
        self._hub = hub
        self._inbox = inbox
        self._services = services
        self._nudge = nudge
        self._showing = showing
        self._busy: set[ApprovalId] = set()
        self._ended: dict[ApprovalId, tuple[DeedOutcome, str | None]] = {}  # what the store has yet to be told
        self.kinds = Kinds(hub.plugins)

    # ---- asking

    async def request(
        self,
        context: ActionContext,
        request_id: RequestId,
        kind: str,
        payload: dict[str, Any],
        *,
        fields: Sequence[ApprovalField],
        reason: str = "",
        files: Sequence[Path] = (),
    ) -> ApprovalTicket:
        known = await self._hub.store.read(approvals.by_request, context.session.id, request_id)
        if known is not None:
            return ApprovalTicket(id=known.id, state=known.state)
        found, group = self.kinds.find(kind), context.agent_group
        passes = policy.passage(await self._mode(group, kind, found.mode), context.role)
        if passes is policy.Passage.REFUSE:
            raise NotAllowed(f"the permissions of this agent say that it may never {found.title.lower()} ({kind})")
        wish = Wish(
            kind=kind,
            title=found.title,
            payload=payload,
            fields=fields,
            reason=reason,
            agent_group_id=group.id,
            session_id=context.session.id,
            request_id=request_id,
            origin=context.origin,
            files=files,
            roots=(self._hub.home.groups / group.folder / "workspace", self._hub.folder_of(context.session).outbox),
        )
        if passes is policy.Passage.ASK:
            return await self._record(wish)
        return await self._record(wish, passed_by=", ".join(context.users) or None)

    async def ask(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        key: str,
        fields: Sequence[ApprovalField],
        title: str = "",
        reason: str = "",
        choices: Sequence[ApprovalChoice] = YES_NO,
        group: AgentGroup | None = None,
        session: Session | None = None,
        origin: Address | None = None,
    ) -> ApprovalTicket:
        """Ask about something of the host's own: `key` makes a second question the same while the first is pending.

        Without a group, global admins and owners decide.

        Raises:
            NotFound: no such kind.
            MalformedData, TooLarge: it can't be asked about.
            Conflict: too many decisions wait for that group, or about none.
        """
        found = self.kinds.find(kind)
        wish = Wish(
            kind=kind,
            title=title or found.title,
            payload=payload,
            fields=fields,
            reason=reason,
            choices=choices,
            key=key,
            agent_group_id=None if group is None else group.id,
            session_id=None if session is None else session.id,
            origin=origin,
        )
        return await self._record(wish)

    async def _mode(self, group: AgentGroup, kind: str, default: Mode) -> Mode:
        mode = self._hub.agent_settings(group).permissions.get(kind, default)
        # An agent without a sandbox could write the file itself: what nobody accepted makes nothing easier.
        return "always" if mode != "never" and await self._hub.changed_by_others(group) else mode

    async def _record(self, wish: Wish, *, passed_by: str | None = "") -> ApprovalTicket:
        """Put it on record.  `passed_by` is "" when a person must be asked; else who made it pass, None for nobody."""
        now = self._hub.clock.now()
        item = await draft(self._hub, wish, now)
        if passed_by != "":
            item = replace(
                item, state=ApprovalState.APPROVED, via=Via.POLICY, decided_by=passed_by, decided_at=now, remind_at=None
            )

        def put(db: sqlite3.Connection) -> tuple[Approval, bool]:
            waiting = approvals.pending_alike(db, wish.agent_group_id, by_agent=wish.session_id is not None)
            kept, fresh = approvals.add(db, item)
            if fresh and kept.state is ApprovalState.PENDING and waiting >= PENDING_LIMIT:
                whose = "about this agent" if wish.agent_group_id else "of this kind"
                raise Conflict(f"{waiting} decisions {whose} wait already", fix="let people decide some of them first")
            return kept, fresh

        try:
            kept, fresh = await self._hub.store.write(put)
        except BaseException:
            await asyncio.to_thread(forget_copies, folder_of(self._hub, item.id))
            raise
        if not fresh:
            await asyncio.to_thread(forget_copies, folder_of(self._hub, item.id))
        elif kept.state is ApprovalState.PENDING:
            self._nudge()
            self._hub.spawn(self._show(kept), f"approval {kept.id}")
        else:
            self._hub.spawn(self._settle(kept.id), f"approval {kept.id}")
        return ApprovalTicket(id=kept.id, state=kept.state)

    async def _show(self, item: Approval, also: Address | None = None) -> None:
        """Show it to a person; when none can be reached, tell the agent once how it can be decided."""
        if not await self._showing.show(item, also):
            await self._notify(item, unreachable_words(item), "unreachable", wake=False)

    # ---- deciding

    async def decide(
        self, id: ApprovalId, value: str, by: str, via: Via, *, note: str | None = None
    ) -> tuple[Approval, bool]:
        """Choose.  What it is now, and whether this choice is the one that counts; what follows goes on by itself.

        The caller has judged who chooses.

        Raises:
            NotFound: no such approval, or it has no such choice.
        """
        item = await self.get(id)
        choice = next((one for one in item.choices if one.value == value), None)
        if choice is None:
            raise NotFound(f"{value!r} is no choice of {id}; it has {', '.join(one.value for one in item.choices)}")
        state = ApprovalState.APPROVED if choice.approves else ApprovalState.REJECTED
        now = self._hub.clock.now()
        decided = await self._hub.store.write(approvals.decide, id, state, now, value=value, by=by, via=via, note=note)
        reach("host.approval.after_decide")
        return await self._follow(id, decided)

    async def cancel(self, id: ApprovalId, by: str, via: Via, *, note: str | None = None) -> tuple[Approval, bool]:
        """Take the question back: neither yes nor no.  As `decide`."""
        now = self._hub.clock.now()
        decided = await self._hub.store.write(
            approvals.decide, id, ApprovalState.CANCELLED, now, by=by, via=via, note=note
        )
        return await self._follow(id, decided)

    async def _follow(self, id: ApprovalId, decided: Approval | None) -> tuple[Approval, bool]:
        if decided is None:
            return await self.get(id), False
        log.info("%s (%s) is %s by %s", id, decided.kind, decided.state, decided.decided_by)
        self._hub.spawn(self._settle(id), f"approval {id}")
        return decided, True

    async def get(self, id: ApprovalId) -> Approval:
        """Raises NotFound: no such approval."""
        item = await self._hub.store.read(approvals.approval, id)
        if item is None:
            raise NotFound(f"there is no approval {id!r}", fix="see `jackfield approval list`")
        return item

    # ---- time

    async def start(self) -> None:
        """Go on with what the last life left: what follows from decisions, and what nobody was shown yet."""
        for item in await self._hub.store.read(approvals.unfinished):
            if item.outcome is DeedOutcome.RUNNING and not self._may_repeat(item):
                text = "the host ended while it was being done; it may be done in part, and is not done again"
                await self._hub.store.write(approvals.end_deed, item.id, DeedOutcome.INTERRUPTED, text)
            self._hub.spawn(self._settle(item.id), f"approval {item.id}")
        await self.look_again()

    async def due(self) -> None:
        """End what nobody decided in time, and remind people of what waits."""
        now = self._hub.clock.now()
        if not await self._hub.store.read(approvals.any_due, now):
            return
        for item in await self._hub.store.write(approvals.expire_due, now):
            log.info("%s (%s) expired", item.id, item.kind)
            self._hub.spawn(self._settle(item.id), f"approval {item.id}")
        for item in await self._hub.store.write(approvals.remind_due, now):
            self._hub.spawn(self._showing.remind(item), f"approval {item.id}")

    async def sweep(self) -> None:
        """The safety net: decisions that were made without telling us, such as those of a conversation that was closed;
        what nobody was shown; cards that still ask."""
        for item in await self._hub.store.read(approvals.unfinished):
            if item.outcome is not DeedOutcome.RUNNING or item.id in self._ended:
                self._hub.spawn(self._settle(item.id), f"approval {item.id}")
        await self.look_again()
        await self._showing.mend()

    async def look_again(self, also: Address | None = None) -> None:
        """Show what nobody was shown: a channel has become ready, or somebody listens in the local chat `also`."""
        for id in await self._hub.store.read(approval_cards.unshown):
            self._hub.spawn(self._show(await self.get(id), also), f"approval {id}")

    def listening(self, chat: Address) -> None:
        """Somebody attached to a local chat."""
        self._hub.spawn(self._catch_up(chat), f"approvals {chat}")

    def channel_ready(self) -> None:
        """A channel can send again."""
        self._hub.spawn(self._catch_up(), "approvals")

    async def _catch_up(self, also: Address | None = None) -> None:
        await self.look_again(also)
        await self._showing.mend()

    def _kind_of(self, item: Approval) -> tuple[HostKind | ApprovalKind | None, NotFound | None]:
        try:
            return self.kinds.find(item.kind), None
        except NotFound as problem:
            return None, problem

    def _may_repeat(self, item: Approval) -> bool:
        kind, _ = self._kind_of(item)
        return kind is not None and kind.idempotent

    # ---- what follows

    async def _settle(self, id: ApprovalId) -> None:
        """The deed, the notice, the end of it; then its cards.  Once at a time, and resumable at each step."""
        if id in self._busy:
            return
        self._busy.add(id)
        try:
            item = await self.get(id)
            if item.finished_at is None:
                await self._showing.refresh(item)  # what follows may take long; the buttons must not stay so long
                item = await self._do(item)
                await self._notify(item, outcome_words(item), item.state.value, wake=True)
                await self._hub.store.write(approvals.finish, id, self._hub.clock.now())
                if item.files and item.state is not ApprovalState.APPROVED:  # what is only asked for fills no disk
                    await asyncio.to_thread(forget_copies, folder_of(self._hub, id))
            await self._showing.refresh(item)
        finally:
            self._busy.discard(id)

    async def _do(self, item: Approval) -> Approval:
        """Carry out what was chosen, if anything is to be done; what it is afterwards."""
        if item.id in self._ended:
            return await self._end(item.id)
        kind, missing = self._kind_of(item)
        chosen = item.chosen is not None and isinstance(kind, HostKind)
        if item.state is not ApprovalState.APPROVED and not chosen:
            return item
        again = item.outcome is DeedOutcome.RUNNING and kind is not None and kind.idempotent
        if not (again or item.outcome is None):
            return item
        if not await self._hub.store.write(approvals.begin_deed, item.id, again=again):
            return await self.get(item.id)
        reach("host.approval.before_deed")
        try:
            if kind is None:
                raise missing or NotFound(f"there is no kind of approval {item.kind!r}")
            await asyncio.to_thread(verify, item, folder_of(self._hub, item.id))
            async with asyncio.timeout(DEED_SECONDS):
                said = await self._apply(kind, item)
            outcome, text = DeedOutcome.DONE, said if isinstance(said, str) else None
        except JackfieldError as problem:
            outcome, text = DeedOutcome.FAILED, problem.message + (f" ({problem.fix})" if problem.fix else "")
        except TimeoutError:
            outcome, text = DeedOutcome.FAILED, f"it did not end within {DEED_SECONDS:g} s"
        except Exception:
            log.exception("what %s (%s) approved failed", item.id, item.kind)
            outcome, text = DeedOutcome.FAILED, "the host's log says why"
        if outcome is DeedOutcome.FAILED:
            self._hub.trouble(f"approval {item.kind}")
            log.warning("what %s (%s) approved was not done: %s", item.id, item.kind, text)
        reach("host.approval.after_deed")
        self._ended[item.id] = outcome, text
        return await self._end(item.id)

    async def _end(self, id: ApprovalId) -> Approval:
        """Record how the deed ended; while the store takes nothing it is kept, and the sweep tries again."""
        await self._hub.store.write(approvals.end_deed, id, *self._ended[id])
        del self._ended[id]
        return await self.get(id)

    async def _apply(self, kind: HostKind | ApprovalKind, item: Approval) -> object:
        payload = json.loads(item.payload)
        if isinstance(kind, HostKind):
            decision = Decision(
                id=item.id,
                value=item.value or "",
                approved=item.state is ApprovalState.APPROVED,
                by=item.decided_by or "",
                payload=payload,
                agent_group_id=item.agent_group_id,
                session_id=item.session_id,
                origin=item.origin,
            )
            return await kind.apply(decision)

        def who(db: sqlite3.Connection) -> tuple[Session | None, AgentGroup | None]:
            session = sessions.session(db, item.session_id) if item.session_id is not None else None
            group = groups.agent_group(db, item.agent_group_id) if item.agent_group_id is not None else None
            return session, group

        session, group = await self._hub.store.read(who)
        if session is None or group is None:
            raise NotFound("the conversation that asked for it is gone")
        context = ActionContext(
            session=session,
            agent_group=group,
            host=self._services,
            origin=item.origin,
            files=copies(item, folder_of(self._hub, item.id)),
        )
        return await kind.apply(context, payload)

    async def _notify(self, item: Approval, text: str, what: str, *, wake: bool) -> None:
        """Tell the session that asked, once for each `what`."""
        if item.session_id is None:
            return
        session = await self._hub.store.read(sessions.session, item.session_id)
        if session is None or session.status is SessionStatus.CLOSED:
            log.info("the session that asked for %s is closed and was not told: %s", item.id, text)
            return
        row_id = derive_id("in", item.id, what)
        await self._inbox.notify(session, text, subject="approval", wake=wake, origin=item.origin, row_id=row_id)
