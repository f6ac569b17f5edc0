"""What the host hands to extensions and the host halves of tool sets, as a double that takes notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jackfield.api import ActionContext, ApprovalField, ApprovalState, ApprovalTicket
from jackfield.clock import Clock, SystemClock
from jackfield.errors import NotFound
from jackfield.ids import AgentGroupId, ApprovalId, RequestId, SessionId, derive_id
from jackfield.models import AgentGroup
from jackfield.testing.model_recorder import ModelRecorder
from jackfield.testing.schedule_recorder import ScheduleRecorder
from jackfield.testing.waiting import Changes
from jackfield.testing.workshop_recorder import WorkshopRecorder

__all__ = ["AgentRecorder", "ApprovalRecorder", "AskedApproval", "HostRecorder", "Notice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What an extension told a session."""

    session_id: SessionId
    text: str
    subject: str = ""
    wake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedApproval:
    """What somebody was to be asked."""

    context: ActionContext
    request_id: RequestId
    kind: str
    payload: dict[str, Any]
    fields: tuple[ApprovalField, ...]
    reason: str
    files: tuple[Path, ...]


class ApprovalRecorder:
    """An `ApprovalService`.  Every request gets `state`; nothing is applied."""

    def __init__(self) -> None:
        self.asked: list[AskedApproval] = []
        self.state = ApprovalState.PENDING
        self.error: Exception | None = None
        """Raised by every request from now on."""

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
        if self.error is not None:
            raise self.error
        self.asked.append(
            AskedApproval(
                context=context,
                request_id=request_id,
                kind=kind,
                payload=payload,
                fields=tuple(fields),
                reason=reason,
                files=tuple(files),
            )
        )
        return ApprovalTicket(id=ApprovalId(derive_id("ap", request_id)), state=self.state)


class AgentRecorder:
    """An `AgentService`: what was to be created is among `approvals.asked`, as kind `create_agent`."""

    def __init__(self, approvals: ApprovalRecorder) -> None:
        self._approvals = approvals

    async def create(
        self, context: ActionContext, request_id: RequestId, name: str, instructions: str = ""
    ) -> ApprovalTicket:
        payload = {"name": name, "instructions": instructions}
        fields = [ApprovalField(label=key, value=value) for key, value in payload.items()]
        return await self._approvals.request(context, request_id, "create_agent", payload, fields=fields)


class HostRecorder:
    """A `HostContext`.  `sessions` maps each active session to its group; notices to any other are `NotFound`."""

    def __init__(
        self,
        *,
        groups: Sequence[AgentGroup] = (),
        sessions: Mapping[SessionId, AgentGroupId] | None = None,
        clock: Clock | None = None,
        install_id: str = "install-one",
    ) -> None:
        self.notices: list[Notice] = []
        self.error: Exception | None = None
        """Raised by every service from now on."""
        self._groups = list(groups)
        self._sessions = dict(sessions or {})
        self._clock = clock if clock is not None else SystemClock()
        self._install_id = install_id
        self._changes = Changes()
        self.approvals = ApprovalRecorder()
        self.schedule = ScheduleRecorder()
        self.workshop = WorkshopRecorder()
        self.agents = AgentRecorder(self.approvals)
        self.models = ModelRecorder()

    @property
    def install_id(self) -> str:
        return self._install_id

    @property
    def clock(self) -> Clock:
        return self._clock

    async def agent_groups(self) -> Sequence[AgentGroup]:
        self._check()
        return list(self._groups)

    async def notify(self, session_id: SessionId, text: str, *, subject: str = "", wake: bool = False) -> None:
        self._check()
        if session_id not in self._sessions:
            raise NotFound(f"there is no session {session_id}")
        self.notices.append(Notice(session_id=session_id, text=text, subject=subject, wake=wake))
        self._changes.tell()

    async def broadcast(self, agent_group_id: AgentGroupId, text: str, *, subject: str = "") -> int:
        self._check()
        reached = [session for session, group in self._sessions.items() if group == agent_group_id]
        for session in reached:
            self.notices.append(Notice(session_id=session, text=text, subject=subject))
        self._changes.tell()
        return len(reached)

    async def until(self, condition: Callable[[], bool], what: str, bound: float | None = None) -> None:
        """Wait until the extension has done something.

        Raises:
            AssertionError: it did not within `bound` seconds.
        """
        await self._changes.until(condition, what, bound)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
