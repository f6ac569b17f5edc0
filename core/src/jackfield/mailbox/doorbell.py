"""The doorbell: a socket in the session folder by which both sides say "look now" (architecture 6; runtime.md 3.8).

A ring carries nothing but itself: what is new lies in the files, committed before.  The end of the connection is the
first sign of a runner's death.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, cast

from jackfield.errors import MailboxDamaged, MailboxError, NoHost
from jackfield.mailbox.paths import SessionFolder

__all__ = ["HostBell", "RunnerBell", "peer_uid_of", "short_address"]

_logger = logging.getLogger(__name__)

_RING: Final = b"!"
_ADDRESS_BYTES: Final = 103
"""What every system takes: 108 with the ending zero on Linux, 104 on macOS."""
_FLOOD: Final = 256
_FLOOD_WINDOW: Final = 1.0
_FLOOD_PAUSE: Final = 0.05
_changing_folder = threading.Lock()


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """A name of at most 103 bytes for a socket's path, good while the context lasts.

    Longer paths go through a descriptor of their folder; where the system has none in the file tree (macOS), through
    the working directory, for that moment.
    """
    if len(os.fsencode(path)) <= _ADDRESS_BYTES:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if Path("/proc/self/fd").is_dir():
            yield f"/proc/self/fd/{descriptor}/{path.name}"
            return
        with _changing_folder:
            before = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fchdir(descriptor)
                yield path.name
            finally:
                os.fchdir(before)
                os.close(before)
    finally:
        os.close(descriptor)


def peer_uid_of(connection: socket.socket) -> int | None:
    """The user id of the process at the other end; None where the system doesn't tell."""
    if sys.platform == "linux":
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return int(uid)
    if sys.platform == "darwin":
        # struct xucred of LOCAL_PEERCRED (level 0, name 1): version, uid, ...
        _, uid = struct.unpack("Ii", connection.getsockopt(0, 1, 76)[:8])
        return int(uid)
    return None


class _Voice:
    """Rings the other end from any thread, past the event loop: it goes out right after the commit that it is about."""

    def __init__(self) -> None:
        self._line: socket.socket | None = None
        self._lock = threading.Lock()

    def take(self, line: socket.socket) -> None:
        """Speak on that connection.  Raises OSError when there are no descriptors left."""
        with self._lock:
            self._line = line.dup()

    def ring(self) -> None:
        with self._lock:
            if self._line is not None:
                # Of a full socket the peer has not read what will wake it; of one that is gone the event loop is told.
                with suppress(OSError):
                    self._line.send(_RING)

    def close(self) -> None:
        with self._lock:
            if self._line is not None:
                self._line.close()
                self._line = None


class HostBell:
    """The host's end: it listens while a runner lives.

    `on_ring` is called when the runner rings, and once when it connects; `on_gone` once when the connection of the
    runner ends.  Both run in the event loop and must not block.  With `peer_uid`, only processes of that user and of
    our own are let in.  A new connection takes the place of an older one.
    """

    def __init__(
        self,
        folder: SessionFolder,
        *,
        on_ring: Callable[[], None],
        on_gone: Callable[[], None],
        peer_uid: int | None = None,
    ) -> None:
        self._folder = folder
        self._on_ring = on_ring
        self._on_gone = on_gone
        self._peer_uid = peer_uid
        self._server: asyncio.Server | None = None
        self._line: _HostLine | None = None

    @property
    def connected(self) -> bool:
        """Whether a runner is at the other end."""
        return self._line is not None

    async def open(self) -> None:
        """Listen, in place of whatever an earlier host left there.

        Raises:
            MailboxDamaged: something that can't be removed lies in the socket's place.
            MailboxError: the socket can't be made.
        """
        path = self._folder.bell
        try:
            path.unlink(missing_ok=True)
        except OSError as problem:
            raise MailboxDamaged(f"could not remove {path}: {problem.strerror}") from problem
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            with short_address(path) as address:
                listening.bind(address)
                os.chmod(address, 0o600)  # noqa: PTH101 - it may be no path of ours
                if self._peer_uid is not None and self._peer_uid != os.geteuid():
                    os.chown(address, self._peer_uid, -1)
            listening.listen(8)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(lambda: _HostLine(self), sock=listening)
        except OSError as problem:
            listening.close()
            raise MailboxError(f"could not listen at {path}: {problem.strerror or problem}") from problem

    def ring(self) -> None:
        """Tell the runner to look, from any thread.  Without one nothing happens: it looks when it connects."""
        line = self._line
        if line is not None:
            line.voice.ring()

    async def close(self) -> None:
        """Stop listening and hang up; `on_gone` is not called."""
        line, self._line = self._line, None
        if line is not None:
            line.hang_up()
        if self._server is not None:
            self._server.close()
            self._server = None
            with suppress(OSError):
                self._folder.bell.unlink()

    def expect(self, peer_uid: int | None) -> None:
        """From now on let in processes of that user only (and our own)."""
        self._peer_uid = peer_uid

    def lets_in(self, uid: int | None) -> bool:
        """Whether a process of that user may be the runner."""
        return self._peer_uid is None or uid in (self._peer_uid, os.geteuid())

    def came(self, line: _HostLine) -> None:
        """A runner connected."""
        before, self._line = self._line, line
        if before is not None:
            before.hang_up()
        self._on_ring()

    def rang(self, line: _HostLine) -> None:
        """The runner rang."""
        if line is self._line:
            self._on_ring()

    def went(self, line: _HostLine) -> None:
        """A connection ended."""
        if line is self._line:
            self._line = None
            self._on_gone()


class _HostLine(asyncio.Protocol):
    def __init__(self, bell: HostBell) -> None:
        self.voice = _Voice()
        self._bell = bell
        self._transport: asyncio.Transport | None = None
        self._window = 0.0
        self._rings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        line = transport.get_extra_info("socket")
        uid = peer_uid_of(line)
        if not self._bell.lets_in(uid):
            _logger.warning("doorbell: a process of user %s was refused", uid)
            self._transport.abort()
            return
        try:
            self.voice.take(line)
        except OSError as problem:
            _logger.warning("doorbell: a runner has to come again: %s", problem.strerror or problem)
            self._transport.abort()
            return
        self._bell.came(self)

    def data_received(self, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._window > _FLOOD_WINDOW:
            self._window, self._rings = loop.time(), 0
        self._rings += 1
        if self._rings > _FLOOD and self._transport is not None:
            # Whoever rings all the time is heard now and then.
            self._transport.pause_reading()
            loop.call_later(_FLOOD_PAUSE, self._listen_again)
        self._bell.rang(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.voice.close()
        self._bell.went(self)

    def hang_up(self) -> None:
        self.voice.close()
        if self._transport is not None:
            self._transport.abort()

    def _listen_again(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()


class RunnerBell:
    """The runner's end.

    `on_ring` is called when the host rings, `on_gone` when the connection ends by its doing.  Both run in the event
    loop and must not block.
    """

    def __init__(self, *, on_ring: Callable[[], None], on_gone: Callable[[], None]) -> None:
        self._on_ring = on_ring
        self._on_gone = on_gone
        self._transport: asyncio.Transport | None = None
        self._voice = _Voice()
        self.closed = True
        """Whether the host is gone, or was never there; `connect` tries again."""

    async def connect(self, folder: SessionFolder) -> None:
        """Reach the host.  Look at the mailbox afterwards: what came before did not ring.

        Raises:
            NoHost: nobody listens.
        """
        await self.close()
        loop = asyncio.get_running_loop()
        try:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as problem:  # a sandbox may forbid such sockets
            raise NoHost(f"{folder.bell} can't be reached: {problem.strerror or problem}") from problem
        try:
            line.setblocking(False)
            with short_address(folder.bell) as address:
                line.connect(address)  # a local socket connects at once, or not at all
            self._voice.take(line)
            await loop.create_unix_connection(lambda: _RunnerLine(self), sock=line)
        except OSError as problem:
            line.close()
            self._voice.close()
            raise NoHost(f"nobody listens at {folder.bell}: {problem.strerror or problem}") from problem

    def ring(self) -> None:
        """Tell the host to look; call it after the commit, from any thread."""
        self._voice.ring()

    async def close(self) -> None:
        """Hang up."""
        self.closed = True
        self._voice.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def came(self, transport: asyncio.Transport) -> None:
        """The connection stands."""
        self._transport = transport
        self.closed = False

    def rang(self) -> None:
        """The host rang."""
        self._on_ring()

    def went(self, transport: asyncio.BaseTransport | None) -> None:
        """A connection ended."""
        if transport is self._transport:
            self.closed = True
            self._transport = None
            self._voice.close()
            self._on_gone()


class _RunnerLine(asyncio.Protocol):
    def __init__(self, bell: RunnerBell) -> None:
        self._bell = bell
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._bell.came(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        self._bell.rang()

    def connection_lost(self, exc: Exception | None) -> None:
        self._bell.went(self._transport)
