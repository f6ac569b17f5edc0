"""The terminal keeps the contract of channels, with a client in memory at the other end."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jackfield.api import Attaches, Channel
from jackfield.models import Address
from jackfield.testing import Arrived, ChannelContract, ChannelRecorder, Peer, Said
from jackfield.testing.contracts import FailureKind

Frame = dict[str, Any]
_KINDS = {"edit": "edit", "reaction": "reaction", "typing": "typing", "prompt_done": "prompt_done"}


class Wire:
    """A connection in memory; `say` and `inbox` are the client's end."""

    def __init__(self, user: str) -> None:
        self.inbox: asyncio.Queue[Frame | None] = asyncio.Queue()
        self.user = user
        self._outbox: asyncio.Queue[Frame | None] = asyncio.Queue()

    @property
    def peer_user(self) -> str:
        return self.user

    async def receive(self) -> Frame | None:
        return await self._outbox.get()

    async def send(self, message: Frame) -> None:
        self.inbox.put_nowait(message)

    def say(self, **frame: Any) -> None:
        self._outbox.put_nowait(frame)

    def leave(self) -> None:
        self._outbox.put_nowait(None)


class Client:
    """One `jackfield chat`: it confirms what it shows at once, unless it is told not to."""

    def __init__(self, peer: TerminalPeer, group: str, thread: str | None, user: str) -> None:
        self.wire = Wire(user)
        self.mute = False
        self._peer = peer
        self._address = peer.address(group, thread)
        self.wire.say(type="hello", group=group, thread=thread)
        self.tasks = [asyncio.create_task(self._serve()), asyncio.create_task(self._read())]
        self.welcomed = asyncio.Event()

    async def _serve(self) -> None:
        assert isinstance(self._peer.channel, Attaches)
        await self._peer.channel.attach(self.wire, {})
        self.wire.inbox.put_nowait(None)

    async def _read(self) -> None:
        while (frame := await self.wire.inbox.get()) is not None:
            self._take(frame)

    def _take(self, frame: Frame) -> None:
        peer, kind = self._peer, frame["type"]
        if kind == "welcome":
            self.welcomed.set()
        elif kind in ("accepted", "refused"):
            peer.outcome_of(frame["id"]).put_nowait(kind == "accepted")
        elif kind == "message":
            if self.mute:
                self.wire.leave()
                return
            files = tuple((file["name"], Path(file["path"]).read_bytes()) for file in frame["files"])
            prompt = frame["prompt"]
            peer.seen.put_nowait(
                Arrived(
                    kind="message",
                    ids=tuple(frame["ids"]),
                    text=frame["text"],
                    address=self._address,
                    files=files,
                    choices=tuple(choice["value"] for choice in prompt["choices"]) if prompt else (),
                    prompt_id=prompt["id"] if prompt else "",
                )
            )
            self.wire.say(type="shown", delivery=frame["key"])
        elif kind in _KINDS:
            peer.seen.put_nowait(
                Arrived(
                    kind=kind,
                    ids=(frame["id"],) if "id" in frame else (),
                    text=frame.get("text", ""),
                    address=self._address,
                    prompt_id=frame.get("prompt_id", ""),
                    emoji=frame.get("emoji", ""),
                    on=frame.get("on", True),
                )
            )

    async def close(self) -> None:
        self.wire.leave()
        await asyncio.wait(self.tasks, timeout=30)


class TerminalPeer(Peer):
    """People at terminals.  A platform id is a group's folder, which the suite's names already are."""

    failures: frozenset[FailureKind] = frozenset({"nobody"})

    def __init__(self, instance: str) -> None:
        super().__init__(instance)
        self.seen: asyncio.Queue[Arrived] = asyncio.Queue()
        self.channel: Channel
        self._clients: dict[tuple[str, str | None, str], Client] = {}
        self._outcomes: dict[str, asyncio.Queue[bool]] = {}
        self._files = tempfile.TemporaryDirectory()

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"confirm_seconds": 30.0}

    def address(self, chat: str = "one", thread: str | None = None) -> Address:
        return Address("terminal", self.instance, chat, thread)

    def outcome_of(self, message: str) -> asyncio.Queue[bool]:
        return self._outcomes.setdefault(message, asyncio.Queue())

    async def join(self, channel: Channel, context: ChannelRecorder) -> None:
        self.channel = channel
        await self._client("one", None, "ann")

    async def leave(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    async def close(self) -> None:
        await self.leave()
        self._files.cleanup()

    async def _client(self, chat: str, thread: str | None, user: str) -> Client:
        key = (chat, thread, user)
        if key not in self._clients:
            self._clients[key] = Client(self, *key)
            await self._clients[key].welcomed.wait()
        return self._clients[key]

    async def write(self, said: Said) -> None:
        if said.group or said.own or said.bot:
            self.refuse("write as a group, as the bot itself or as another bot: people at a terminal can't")
        paths = []
        for name, data in said.files:
            path = Path(self._files.name) / name
            path.write_bytes(data)
            paths.append(str(path))
        client = await self._client(said.chat, said.thread, said.sender)
        client.wire.say(type="message", id=said.id, text=said.text, files=paths)

    async def arrived(self) -> Arrived:
        return await self.seen.get()

    async def acknowledged(self, said: Said) -> bool:
        return await self.outcome_of(said.id).get()

    async def fail_next(self, failure: FailureKind) -> None:
        """Whoever is there goes away before confirming."""
        for client in self._clients.values():
            client.mute = True

    async def recover(self) -> None:
        await self.leave()
        await self._client("one", None, "ann")

    async def click(self, question: Arrived, value: str, *, by: str = "ann") -> None:
        client = await self._client("one", None, by)
        client.wire.say(type="choice", id=f"click-{value}", prompt_id=question.prompt_id, value=value)


class TestTerminal(ChannelContract):
    plugin = "terminal"

    def make_peer(self, instance: str) -> Peer:
        return TerminalPeer(instance)
