"""The client's side of an attachment, without any screen: it sends, confirms, remembers and reconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from jackfield.api.client import LocalClient, LocalConnection
from jackfield.errors import JackfieldError, MalformedData, NoHost, NotFound, UsageError

from jackfield_channel_terminal.frames import PROTOCOL, Frame

__all__ = ["Conversation", "Refused", "Screen"]

_WAITS = (0.1, 0.3, 1.0, 2.0, 5.0)
_REMEMBERED = 2000
_WELCOME = 15.0
_MAX_FRAME = 4 * 1024 * 1024
"""Characters of a frame; the host ends a connection on which a much longer line comes."""


class Refused(JackfieldError):
    """The host did not take a message."""


class Screen(Protocol):
    """Where a conversation is shown.  `show` returns once the person can see the message."""

    async def show(self, frame: Frame) -> None: ...

    async def edited(self, message_id: str, text: str, was: str | None) -> None: ...

    async def reacted(self, emoji: str, on: bool, was: str | None) -> None: ...

    async def decided(self, text: str) -> None:
        """A question was answered, here or elsewhere."""
        ...

    async def note(self, text: str) -> None:
        """Something about the connection."""
        ...

    async def problem(self, text: str) -> None: ...

    def draft(self, key: str, text: str | None) -> None:
        """A text that is still growing; None takes it away."""
        ...

    def typing(self, on: bool) -> None: ...

    def raw(self, frame: Frame) -> None:
        """Every frame as it came, for machines."""
        ...


class Conversation:
    """One chat with one agent.  Messages that the host has not accepted when a connection breaks are sent again under
    their ids; messages that were shown are never shown again."""

    def __init__(
        self, client: LocalClient, screen: Screen, *, group: str | None, thread: str | None, instance: str = "terminal"
    ) -> None:
        self._client = client
        self._screen = screen
        self._hello: Frame = {"type": "hello", "group": group, "thread": thread}
        self._instance = instance
        self._connection: LocalConnection | None = None
        self._unaccepted: OrderedDict[str, tuple[Frame, asyncio.Future[bool]]] = OrderedDict()
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._prompts: OrderedDict[str, Frame] = OrderedDict()
        self._closed = False
        self.after_message: Callable[[], Awaitable[None]] | None = None
        """Called after each message that came; the next frame waits for it."""
        self.group = group or ""
        """The folder of the agent group, known for sure once the conversation is open."""

    @property
    def prompt(self) -> Frame | None:
        """The newest question that is still open."""
        return next(reversed(self._prompts.values())) if self._prompts else None

    async def open(self) -> None:
        """Attach.

        Raises:
            UsageError: the host wants to know which group.
            JackfieldError: there is no such channel, or no host.
        """
        try:
            connection = await self._client.attach(self._instance, {})
        except NotFound as problem:
            raise NotFound(
                f"this home has no terminal channel named {self._instance!r}",
                fix='add [channels.terminal] with type = "terminal" to jackfield.toml',
            ) from problem
        try:
            await connection.send(self._hello)
            welcome = await asyncio.wait_for(connection.receive(), _WELCOME)
        except (TimeoutError, ConnectionError):
            welcome = None
        if welcome is None or welcome.get("type") != "welcome":
            await connection.close()
            if welcome is None:
                raise NoHost("the host did not answer", fix="see `jackfield status`")
            raise UsageError(str(welcome.get("message", "the host refused the conversation")))
        if welcome.get("protocol") != PROTOCOL:
            await connection.close()
            raise UsageError(
                f"the host speaks version {welcome.get('protocol')} of the terminal's protocol, this client {PROTOCOL}",
                fix="restart the host, so that both are of one version",
            )
        self.group = str(welcome.get("group", ""))
        self._hello["group"] = self.group
        self._connection = connection
        for frame, _ in self._unaccepted.values():
            await self._send(frame)

    async def run(self) -> None:
        """Take frames until closed; connect again when the host goes away.

        Raises:
            NoHost: the host that this process itself ran is gone.
        """
        while not self._closed:
            await self._read()
            if self._closed:
                return
            if self._client.started_host:
                raise NoHost("the host stopped")
            await self._screen.note("The host went away; waiting for it.")
            await self._reconnect()
            await self._screen.note("The host is back.")

    async def say(self, text: str, files: Sequence[str] = ()) -> None:
        """Send, and wait until the host has stored it.

        Raises:
            Refused: it did not take it.
        """
        name = str(uuid.uuid4())
        frame: Frame = {"type": "message", "id": name, "text": text, "files": list(files)}
        if len(json.dumps(frame)) > _MAX_FRAME:
            raise Refused("not sent: the text is too long for a message; send it as a file")
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._unaccepted[name] = (frame, accepted)
        self._remember(f"in-{name}", text)
        await self._send(frame)
        await accepted

    async def choose(self, prompt_id: str, value: str) -> None:
        """Answer a question."""
        await self._send({"type": "choice", "id": str(uuid.uuid4()), "prompt_id": prompt_id, "value": value})

    async def close(self) -> None:
        """Leave."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(ConnectionError, OSError):
                await connection.send({"type": "bye"})
            await connection.close()

    async def _send(self, frame: Frame) -> None:
        if self._connection is not None:
            with contextlib.suppress(ConnectionError, OSError):  # the reader notices, and connects again
                await self._connection.send(frame)

    async def _reconnect(self) -> None:
        attempt = 0
        while not self._closed:
            await asyncio.sleep(_WAITS[min(attempt, len(_WAITS) - 1)])
            attempt += 1
            try:
                await self.open()
                return
            except (JackfieldError, ConnectionError, OSError) as problem:
                # A host that is starting has no channel yet; only time tells it from one that has none.
                if attempt == len(_WAITS) and not isinstance(problem, NoHost):
                    await self._screen.problem(str(problem))

    async def _read(self) -> None:
        connection = self._connection
        if connection is None:
            return
        try:
            while (frame := await self._next(connection)) is not None:
                await self._take(frame)
        finally:
            if self._connection is connection:
                self._connection = None
            self._screen.typing(False)
        await connection.close()

    async def _next(self, connection: LocalConnection) -> Frame | None:
        try:
            return await connection.receive()
        except ConnectionError:
            return None
        except MalformedData as problem:
            await self._screen.problem(f"the host sent what can't be read: {problem}")
            return None

    async def _take(self, frame: Frame) -> None:
        self._screen.raw(frame)
        match frame.get("type"):
            case "message":
                await self._show(frame)
            case "accepted" | "refused":
                self._settle(frame)
            case "typing":
                self._screen.typing(frame.get("on") is True)
            case "stream":
                self._screen.draft(str(frame.get("key")), str(frame.get("text", "")))
            case "stream_end":
                self._screen.draft(str(frame.get("key")), None)
            case "edit":
                name, text = str(frame.get("id")), str(frame.get("text", ""))
                await self._screen.edited(name, text, self._texts.get(name))
                self._close_prompts(name)
                self._remember(name, text)
            case "reaction":
                was = self._texts.get(str(frame.get("id")))
                await self._screen.reacted(str(frame.get("emoji", "")), frame.get("on") is True, was)
            case "prompt_done":
                self._prompts.pop(str(frame.get("prompt_id")), None)
                await self._screen.decided(str(frame.get("text", "")))
            case "error":
                await self._screen.problem(str(frame.get("message", "")))
            case _:
                pass  # a newer host may say more than we know

    async def _show(self, frame: Frame) -> None:
        key = str(frame.get("key"))
        if frame.get("stream") is not None:
            self._screen.draft(str(frame["stream"]), None)
        if key not in self._shown:
            await self._screen.show(frame)
            self._shown[key] = None
            while len(self._shown) > _REMEMBERED:
                self._shown.popitem(last=False)
            prompt = frame.get("prompt")
            if isinstance(prompt, dict):
                self._prompts[str(prompt.get("id"))] = prompt | {"ids": frame.get("ids")}
            for name in frame.get("ids") or ():
                self._remember(str(name), str(frame.get("text", "")))
        await self._send({"type": "shown", "delivery": key})
        if self.after_message is not None:
            await self.after_message()

    def _settle(self, frame: Frame) -> None:
        _, accepted = self._unaccepted.pop(str(frame.get("id")), (None, None))
        if accepted is None or accepted.done():
            return
        if frame["type"] == "accepted":
            accepted.set_result(True)
        else:
            accepted.set_exception(Refused(f"not sent: {frame.get('reason', 'the host gave no reason')}"))

    def _close_prompts(self, message_id: str) -> None:
        for prompt_id, prompt in list(self._prompts.items()):
            ids: Any = prompt.get("ids") or ()
            if message_id in ids:
                del self._prompts[prompt_id]

    def _remember(self, name: str, text: str) -> None:
        self._texts[name] = text[:200]
        while len(self._texts) > _REMEMBERED:
            self._texts.popitem(last=False)
