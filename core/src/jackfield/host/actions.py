"""What runners ask the host to do: found by name, run with the identity of the mailbox, answered once.

Who asks follows from whose mailbox the request lay in (architecture 5, rule 8); nothing in the request is believed.  An
action that a tool set brought is done only for groups whose `agent.toml` names that tool set, since a hostile runner
can ask for anything.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
from collections import OrderedDict
from typing import Any

from jackfield.api import ActionContext, ActionHandler, HostContext
from jackfield.errors import Conflict, JackfieldError, MalformedData, NotAllowed, NotFound, TooLarge
from jackfield.host.authority import authority
from jackfield.host.channels import ChannelDirectory
from jackfield.host.hub import Hub
from jackfield.ids import RequestId, SessionId, TurnId
from jackfield.models import ActionRequest, AgentGroup, OutboundRow, Response, ResponseStatus, Session

__all__ = ["ACTION_SECONDS", "Actions"]

log = logging.getLogger(__name__)

ACTION_SECONDS = 30.0
MAX_BODY = 512 * 1024
"""Bytes of an answer."""
REMEMBERED = 1000

_Key = tuple[SessionId, RequestId]


class Actions:
    """Handlers of the host itself and of all loaded plugins, the host's own first."""

    def __init__(
        self, hub: Hub, channels: ChannelDirectory, services: HostContext, *, seconds: float = ACTION_SECONDS
    ) -> None:
        self._hub = hub
        self._channels = channels
        self._services = services
        self._seconds = seconds
        self._own: dict[str, ActionHandler] = {}
        self._answers: OrderedDict[_Key, asyncio.Future[Response]] = OrderedDict()

    def register(self, handler: ActionHandler) -> None:
        """Add one of the host's own.

        Raises:
            Conflict: there is one of that name.
        """
        if handler.name in self._own:
            raise Conflict(f"there is an action {handler.name!r} already")
        self._own[handler.name] = handler

    async def handle(self, session: Session, group: AgentGroup, row: OutboundRow) -> Response:
        """The answer to a request; the same request gets the same answer, also while it is being worked on.

        Never raises for what a handler or a runner does wrong: that is the answer.
        """
        request = row.content
        if not isinstance(request, ActionRequest):
            raise MalformedData(f"row {row.seq} of session {session.id} is no action")
        key = (session.id, request.request_id)
        known = self._answers.get(key)
        if known is not None:
            return await asyncio.shield(known)
        answer = self._answers[key] = asyncio.get_running_loop().create_future()
        try:
            response = await self._answer(session, group, request, row.turn)
        except BaseException:
            # Cancelled: the next one who asks begins anew.
            del self._answers[key]
            answer.cancel()
            raise
        answer.set_result(response)
        self._forget()
        return response

    def _forget(self) -> None:
        for key in list(self._answers)[: max(0, len(self._answers) - REMEMBERED)]:
            if self._answers[key].done():
                del self._answers[key]

    async def _answer(
        self, session: Session, group: AgentGroup, request: ActionRequest, turn: TurnId | None
    ) -> Response:
        try:
            body = await self._run(session, group, request, turn)
            status = ResponseStatus.OK
        except JackfieldError as problem:
            body, status = _error(problem.message, problem.code, problem.fix), ResponseStatus.ERROR
        except TimeoutError:
            self._hub.trouble(f"action {request.name}")
            body = _error(f"{request.name} did not end within {self._seconds:g} s", "Timeout")
            status = ResponseStatus.ERROR
        except Exception:
            self._hub.trouble(f"action {request.name}")
            log.exception("action %r of session %s failed", request.name, session.id)
            # What went wrong inside is the operator's to know, not the agent's.
            body, status = _error(f"{request.name} failed; the host's log says why", "Internal"), ResponseStatus.ERROR
        return Response(request_id=request.request_id, status=status, body=body, at=self._hub.clock.now())

    async def _run(self, session: Session, group: AgentGroup, request: ActionRequest, turn: TurnId | None) -> str:
        handler = self._handler(request.name)
        self._refuse_foreign(group, request.name)
        try:
            arguments = json.loads(request.arguments)
        except (ValueError, RecursionError) as problem:
            raise MalformedData(f"the arguments of {request.name} are no JSON: {problem}") from None
        if not isinstance(arguments, dict):
            raise MalformedData(f"the arguments of {request.name} must be a JSON object")
        behind = await authority(self._hub, self._channels, session, turn)
        context = ActionContext(
            session=session,
            agent_group=group,
            host=self._services,
            turn=turn,
            role=behind.role,
            users=behind.users,
            origin=behind.origin,
        )
        async with asyncio.timeout(self._seconds):
            result = await handler.handle(context, request.request_id, arguments)
        body = json.dumps(result, ensure_ascii=False)
        if len(body.encode("utf-8", "replace")) > MAX_BODY:
            raise TooLarge(f"the answer of {request.name} has more than {MAX_BODY:,} bytes", limit=MAX_BODY)
        return body

    def _refuse_foreign(self, group: AgentGroup, name: str) -> None:
        """An action of a tool set that the group doesn't have is none of its agent's."""
        owners = self._hub.plugins.tool_sets_of_action(name) if name not in self._own else frozenset()
        if owners and owners.isdisjoint(self._hub.agent_settings(group).tools):
            needed = " or ".join(sorted(owners))
            raise NotAllowed(f"this agent may not use {name}: it does not have the tool set {needed}")

    def _handler(self, name: str) -> ActionHandler:
        offered: dict[str, ActionHandler] = {**self._hub.plugins.actions(), **self._own}
        found = offered.get(name)
        if found is not None:
            return found
        known = ", ".join(sorted(offered)) or "none"
        near = difflib.get_close_matches(name, offered, n=1)
        hint = f"did you mean {near[0]!r}?" if near else None
        raise NotFound(f"there is no action {name[:80]!r}; known are: {known}", fix=hint)


def _error(message: str, code: str, fix: str | None = None) -> str:
    body: dict[str, Any] = {"message": message, "code": code}
    if fix:
        body["fix"] = fix
    return json.dumps(body, ensure_ascii=False)
