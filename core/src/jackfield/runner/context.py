"""What tools may do: `jackfield.api.ToolContext` over the mailbox."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jackfield.api import Sent, ToolFailed
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError
from jackfield.ids import RequestId, new_id
from jackfield.mailbox import file_name
from jackfield.models import (
    ActionRequest,
    Address,
    Card,
    Destination,
    EditContent,
    InboundRow,
    MessageContent,
    OutboundKind,
    OutboundRow,
    Prompt,
    ReactionContent,
    Response,
    ResponseStatus,
    RunnerSpec,
)
from jackfield.runner.addressing import CURRENT, Target, known_names, resolve, target_of
from jackfield.runner.bell import Pulse
from jackfield.runner.board import Board
from jackfield.runner.desk import FILE_LIMIT, Desk
from jackfield.runner.secrets import Secrets
from jackfield.runner.tools import LIMIT

__all__ = ["SessionContext"]


class SessionContext:
    """The context of one tool set of a session."""

    def __init__(
        self,
        spec: RunnerSpec,
        settings: dict[str, Any],
        desk: Desk,
        pulse: Pulse,
        board: Board,
        secrets: Secrets,
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._desk = desk
        self._pulse = pulse
        self._board = board
        self._secrets = secrets

    @property
    def agent_name(self) -> str:
        return self._spec.agent_name

    @property
    def workspace(self) -> Path:
        return Path(self._spec.paths.workspace)

    @property
    def origin(self) -> Address | None:
        return self._desk.origin

    @property
    def settings(self) -> dict[str, Any]:
        return self._settings

    async def destinations(self) -> Sequence[Destination]:
        return await self._desk.destinations()

    async def send(
        self, *, text: str = "", to: str | None = None, files: Sequence[Path] = (), card: Card | None = None
    ) -> Sent:
        """Raises:
        ToolFailed: nothing to send, an unknown destination, or a file that may not be sent.
        """
        if not text.strip() and not files and card is None:
            raise ToolFailed("text is required")
        target = await self._target(to)
        if card is not None and target.is_agent:
            raise ToolFailed(f"{target.name} is another agent; cards are for people, send it the words")
        seq = await self._deliver(target, self._secrets.masked(text), files=files, card=card)
        return Sent(seq=seq, name=target.name)

    async def edit(self, seq: int, text: str) -> None:
        """Raises:
        ToolFailed: there is no such message, it is not the agent's own, or it went to another agent.
        """
        row = await self._message(seq)
        if isinstance(row, InboundRow):
            raise ToolFailed(f"Message #{seq} is not yours; only your own messages can be edited")
        await self._change(OutboundKind.EDIT, EditContent(target_seq=seq, text=self._secrets.masked(text)), row, seq)

    async def react(self, seq: int, emoji: str, *, added: bool = True) -> None:
        """Raises:
        ToolFailed: there is no such message, or it belongs to no chat.
        """
        row = await self._message(seq)
        content = ReactionContent(target_seq=seq, emoji=emoji, added=added)
        await self._change(OutboundKind.REACTION, content, row, seq)

    async def ask(self, prompt: Prompt, *, to: str | None = None, timeout: float) -> str:
        """Raises:
        ToolFailed: nobody answered in time, or the question could not be asked.
        """
        target = await self._target(to)
        if target.is_agent:
            raise ToolFailed(f"{target.name} is another agent; questions are for people")
        expires = prompt.expires_at or UnixMs(self._desk.clock.now() + round(timeout * 1000))
        prompt = replace(prompt, id=prompt.id or new_id("qst", self._desk.clock.now()), expires_at=expires)
        await self._deliver(target, "", prompt=prompt)
        late = f"Question timed out after {timeout:g} s"
        answer = await self._response(RequestId(prompt.id), timeout, "an answer", late)
        if answer.status is ResponseStatus.EXPIRED:
            raise ToolFailed(late)
        value = _body(answer)
        if isinstance(value, dict):
            value = value.get("value", value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    async def act(self, name: str, arguments: dict[str, Any], *, timeout: float = 30.0) -> Any:
        """Raises:
        ToolFailed: the host refused, failed, or did not answer in time.
        """
        request = RequestId(new_id("req", self._desk.clock.now()))
        told = json.dumps(self._secrets.masked(arguments), ensure_ascii=False)
        content = ActionRequest(request_id=request, name=self._secrets.masked(name), arguments=told)
        await self._desk.write(self._desk.row(OutboundKind.ACTION, content, None))
        late = f"the host did not answer {name} within {timeout:g} s"
        answer = await self._response(request, timeout, name, late)
        if answer.status is ResponseStatus.EXPIRED:
            raise ToolFailed(f"nobody decided about {name} in time")
        return _body(answer)

    async def secret(self, name: str) -> str:
        """Raises:
        ToolFailed: this agent was not given it.
        """
        if name not in self._secrets:
            known = ", ".join(sorted(self._secrets)) or "none"
            raise ToolFailed(f"there is no secret {name!r} for this agent; it has: {known}")
        return self._secrets[name]

    # ---- parts

    async def _target(self, to: str | None) -> Target:
        destinations = await self._desk.destinations()
        origin = self._desk.origin
        target = resolve(to, destinations, origin)
        if target is None and to is None and len(destinations) == 1:
            target = target_of(destinations[0], origin)
        if target is None:
            known = known_names(destinations, origin)
            what = "there is no current conversation" if to is None else f"there is no destination {to!r}"
            raise ToolFailed(f"{what}; known are: {known}")
        return target

    async def _deliver(
        self,
        target: Target,
        text: str,
        *,
        files: Sequence[Path] = (),
        card: Card | None = None,
        prompt: Prompt | None = None,
    ) -> int:
        named = [(name, self._sendable(path)) for name, path in _names(files)]
        try:
            return await self._desk.send(target, text, files=named, card=card, prompt=prompt)
        except (OSError, JackfieldError) as problem:
            raise ToolFailed(f"could not send to {target.name}: {problem}") from problem

    def _sendable(self, path: Path) -> Path:
        """Only what the agent works with may leave, not any file of the machine (messaging.md 17.4, pitfall 49)."""
        paths = self._spec.paths
        whole = (Path(paths.workspace) / path).resolve()
        roots = (
            paths.workspace,
            paths.group,
            f"{paths.session}/inbox",
            f"{paths.session}/outbox",
            tempfile.gettempdir(),
        )
        if not any(whole.is_relative_to(Path(root).resolve()) for root in roots):
            raise ToolFailed(f"{path} lies outside of the workspace, so it can't be sent; copy it there first")
        if not whole.is_file():
            raise ToolFailed(f"File not found: {path}")
        if whole.stat().st_size > FILE_LIMIT:
            raise ToolFailed(f"{path} has {whole.stat().st_size} bytes; at most {FILE_LIMIT} can be sent")
        return whole

    async def _message(self, seq: int) -> InboundRow | OutboundRow:
        row = await self._desk.mail.run(lambda mailbox: mailbox.message_at(seq))
        if row is None or (isinstance(row, OutboundRow) and not isinstance(row.content, MessageContent)):
            raise ToolFailed(f"Message #{seq} not found")
        return row

    async def _change(
        self, kind: OutboundKind, content: EditContent | ReactionContent, row: InboundRow | OutboundRow, seq: int
    ) -> None:
        address = row.origin if isinstance(row, InboundRow) else row.address
        if address is None:
            raise ToolFailed(f"Cannot determine destination for message #{seq}")
        if address.is_agent:
            raise ToolFailed(f"Message #{seq} is between agents; only messages in chats can be changed or reacted to")
        await self._desk.write(self._desk.row(kind, content, Target(CURRENT, address)))

    async def _response(self, request: RequestId, timeout: float, reason: str, late: str) -> Response:
        deadline = self._desk.clock.monotonic() + timeout
        with self._waiting(request, timeout, reason):
            while True:
                seen = self._pulse.count
                found = await self._desk.mail.run(lambda mailbox: mailbox.response(request))
                if found is not None:
                    return found
                left = deadline - self._desk.clock.monotonic()
                if left <= 0:
                    raise ToolFailed(late)
                await self._pulse.wait(seen, min(left, self._spec.limits.poll or 1.0))

    @contextmanager
    def _waiting(self, request: RequestId, timeout: float, reason: str) -> Iterator[None]:
        limit = LIMIT.get()
        if limit is not None:
            limit.pause()
        self._board.waiting(request, timeout, reason)
        try:
            yield
        finally:
            self._board.waited(request)
            if limit is not None:
                limit.resume()


def _names(files: Sequence[Path]) -> list[tuple[str, Path]]:
    """A clean name for each file, each once."""
    found: dict[str, Path] = {}
    for path in files:
        name = file_name(path.name, "file")
        number = 2
        while name in found:
            name = f"{number}-{file_name(path.name, 'file')}"
            number += 1
        found[name] = path
    return list(found.items())


def _body(answer: Response) -> Any:
    try:
        value = json.loads(answer.body) if answer.body else None
    except ValueError:
        value = answer.body
    if answer.status is ResponseStatus.ERROR:
        message = value.get("message") if isinstance(value, dict) else value
        raise ToolFailed(str(message or "the host refused"))
    return value
