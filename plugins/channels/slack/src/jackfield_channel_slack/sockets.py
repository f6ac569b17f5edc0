"""Socket Mode: a WebSocket over which Slack sends envelopes, each to be acknowledged by its id.

Slack replaces a socket every few hours: it says so, waits, and closes.  The next one is open before the last one is
let go, and what comes over either is handled the same.  An envelope that is not acknowledged comes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from jackfield.clock import Clock
from jackfield.errors import AuthFailed, JackfieldError, Transient

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

__all__ = ["Handle", "Socket"]

log = logging.getLogger(__name__)
_wire = logging.getLogger(f"{__name__}.wire")  # what the WebSocket library logs holds tickets and what people wrote

Handle = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes an envelope; returns when it may be acknowledged, raises when it may not."""

OPEN_SECONDS = 15.0
RETIRE_SECONDS = 20.0
"""How long a socket that Slack gave up is still read; Slack closes it after about 10."""
SHORT_SECONDS = 30.0
SHORT_LIVES = 3
"""So many sockets in a row that lived shorter than that are no refresh but a fault."""
LARGEST = 16 * 1024 * 1024


class Socket:
    """One place for a WebSocket, and who sits there.  `url()` gives a fresh address for each; `expected` is how many
    this app should have open in all."""

    def __init__(self, url: Callable[[], Awaitable[str]], handle: Handle, *, clock: Clock, expected: int) -> None:
        self._url = url
        self._handle = handle
        self._clock = clock
        self._expected = expected
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, ready: Callable[[], None]) -> None:
        """Be connected, over one socket after the other, until one is lost; for `reconnect.supervise`.

        Raises:
            AuthFailed: Slack does not accept the app token, or Socket Mode is switched off.
            Transient: the connection was lost, or could not be made.
        """
        short = 0
        while True:
            async with self._opened() as socket:
                ready()
                since = self._clock.monotonic()
                reason = await self._read(socket, wanted=True)
                if reason == "link_disabled":
                    raise AuthFailed(
                        "Socket Mode was switched off in the app's settings",
                        fix='switch it on again, or set mode = "events"',
                    )
                short = short + 1 if self._clock.monotonic() - since < SHORT_SECONDS else 0
                if short >= SHORT_LIVES or reason == "too_many_websockets":
                    raise Transient(f"Slack lets go of the connection at once ({reason})")
                log.debug("Slack replaces a socket: %s", reason)

    async def close(self) -> None:
        """End what goes on in the background; for when `connect` was cancelled."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncGenerator[ClientConnection, None]:
        """A socket that said hello.  One that Slack gave up goes on in the background: nothing of it is lost."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidURI

        _wire.setLevel(logging.WARNING)
        address = await self._url()
        try:
            socket = await connect(
                address,
                logger=_wire,
                max_size=LARGEST,
                open_timeout=OPEN_SECONDS,
                close_timeout=0.5,
                ping_interval=15,
                ping_timeout=15,
                user_agent_header="jackfield",
            )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI) as problem:
            raise Transient(f"no WebSocket to Slack: {type(problem).__name__}") from None
        retired = False
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._hello(socket)
            yield socket
            retired = True
        except TimeoutError:
            raise Transient("the WebSocket to Slack is open, but Slack does not say hello") from None
        finally:
            if retired:
                self._spawn(self._retire(socket), "slack retired socket")
            else:
                await socket.close()

    async def _hello(self, socket: ClientConnection) -> None:
        frame = await self._frame(socket)
        if frame.get("type") == "disconnect":
            raise Transient(f"Slack lets go of the connection at once ({frame.get('reason')})")
        others = frame.get("num_connections")
        if isinstance(others, int) and others > self._expected + 1:
            log.warning("%d programs or sockets share this app token: each gets only a part of what is written", others)

    async def _read(self, socket: ClientConnection, *, wanted: bool) -> str:
        """Handle envelopes until Slack gives the socket up; why it does.  With `wanted` a lost socket is an error."""
        while True:
            try:
                frame = await self._frame(socket)
            except Transient:
                if wanted:
                    raise
                return "closed"
            if frame.get("type") == "disconnect":
                if wanted:
                    return str(frame.get("reason"))
            elif isinstance(frame.get("envelope_id"), str):
                self._spawn(self._serve(socket, frame), "slack envelope")

    async def _retire(self, socket: ClientConnection) -> None:
        try:
            async with asyncio.timeout(RETIRE_SECONDS):
                await self._read(socket, wanted=False)
        except TimeoutError:
            pass
        finally:
            await socket.close()

    async def _serve(self, socket: ClientConnection, envelope: Mapping[str, Any]) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._handle(envelope)
        except JackfieldError as problem:
            log.warning("an envelope was not taken, so Slack sends it again: %s", problem)
            return
        except Exception:
            log.exception("an envelope could not be read")
            return
        # A socket that is gone by now: Slack sends it again, and it is known.
        with contextlib.suppress(ConnectionClosed):
            await socket.send(json.dumps({"envelope_id": envelope["envelope_id"]}))

    async def _frame(self, socket: ClientConnection) -> dict[str, Any]:
        """The next JSON object.

        Raises:
            Transient: the socket was closed or lost.
        """
        from websockets.exceptions import ConnectionClosed

        while True:
            try:
                data = await socket.recv()
            except ConnectionClosed as problem:
                code = problem.rcvd.code if problem.rcvd is not None else None
                raise Transient(f"the WebSocket to Slack was closed ({code or 'lost'})") from None
            with contextlib.suppress(ValueError, RecursionError):
                frame = json.loads(data)
                if isinstance(frame, dict):
                    return frame

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
