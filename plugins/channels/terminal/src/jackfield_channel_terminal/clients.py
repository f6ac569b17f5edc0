"""The attached clients of all chats, and what each still has to be sent."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from jackfield.api import Connection
from jackfield.clock import UnixMs
from jackfield.models import Address

from jackfield_channel_terminal.frames import Frame

__all__ = ["Client", "Room"]

_QUEUE = 1000
_BUSY = 20


@dataclass(eq=False)
class Client:
    """One attached client.  It is written to by a task of its own, so that a stopped one holds up nobody."""

    connection: Connection
    address: Address
    key: str
    queue: asyncio.Queue[Frame] = field(default_factory=lambda: asyncio.Queue(_QUEUE))
    lost: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, frame: Frame, *, droppable: bool = False) -> None:
        """Send in a moment.  A droppable frame is left out while others wait; a client that never reads is given up."""
        if droppable and self.queue.qsize() > _BUSY:
            return
        try:
            self.queue.put_nowait(frame)
        except asyncio.QueueFull:
            self.lost.set()

    async def pump(self) -> None:
        """Write until the client is gone."""
        try:
            while True:
                await self.connection.send(await self.queue.get())
                self.queue.task_done()
        except (ConnectionError, OSError):
            self.lost.set()

    async def flush(self, seconds: float) -> None:
        """Wait until everything is written, but not longer than that."""
        try:
            await asyncio.wait_for(self.queue.join(), seconds)
        except TimeoutError:
            self.lost.set()


@dataclass(eq=False)
class Room:
    """One chat and thread, as far as somebody is attached to it or something waits in it."""

    clients: set[Client] = field(default_factory=set)
    sending: dict[str, tuple[Frame, asyncio.Future[bool]]] = field(default_factory=dict)
    """By key: a message that no client has confirmed yet; its future tells whether one did."""
    prompts: dict[str, Frame] = field(default_factory=dict)
    """Open questions by id, for clients that come later."""
    typing: bool = False
    awaited: int = 0
    """How many sends wait for somebody to come."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while somebody is attached."""

    def join(self, client: Client) -> None:
        """A client comes; it gets what is being sent and what is still to be answered."""
        self.clients.add(client)
        self.arrived.set()
        for frame in self.prompts.values():
            client.put(frame)
        for key, (frame, _) in self.sending.items():
            if not any(prompt["key"] == key for prompt in self.prompts.values()):
                client.put(frame)
        if self.typing:
            client.put({"type": "typing", "on": True})

    def leave(self, client: Client) -> None:
        """A client goes; with the last one, what it has not confirmed counts as not shown."""
        self.clients.discard(client)
        if not self.clients:
            self.arrived.clear()
            for _, confirmed in self.sending.values():
                if not confirmed.done():
                    confirmed.set_result(False)

    @property
    def empty(self) -> bool:
        """Whether it may be forgotten."""
        return not (self.clients or self.sending or self.prompts or self.typing or self.awaited)

    def tell(self, frame: Frame, *, droppable: bool = False) -> bool:
        """Send to everybody here; whether there was anybody."""
        for client in self.clients:
            client.put(frame, droppable=droppable)
        return bool(self.clients)

    def drop_expired(self, now: UnixMs) -> None:
        """Forget questions whose time is over."""
        for prompt_id, frame in list(self.prompts.items()):
            expires = frame["prompt"]["expires_at"]
            if expires is not None and expires <= now:
                del self.prompts[prompt_id]
