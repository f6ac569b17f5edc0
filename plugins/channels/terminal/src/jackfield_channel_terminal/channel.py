"""The channel: it serves local clients that the host hands over (spec/channels.md 3.13).

A message counts as delivered when a client has confirmed that it showed it, not before.  With nobody attached it waits
(`NobodyListening`) and is tried again when somebody comes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

from jackfield.api import ActionReply, ChannelContext, Connection, Health, MessageStream, SendResult
from jackfield.errors import JackfieldError, MalformedData, NobodyListening
from jackfield.ids import new_id
from jackfield.models import (
    ActionInvoked,
    Address,
    Addressed,
    Attachment,
    Capabilities,
    ChannelState,
    ChannelStatus,
    ConversationKind,
    MessageReceived,
    MessageRef,
    OutMessage,
    Person,
    StreamKind,
    Support,
    Threads,
    Trust,
)

from jackfield_channel_terminal import storage
from jackfield_channel_terminal.clients import Client, Room
from jackfield_channel_terminal.frames import PROTOCOL, Frame, message_frame, text_of
from jackfield_channel_terminal.greeting import greeted
from jackfield_channel_terminal.settings import TerminalSettings
from jackfield_channel_terminal.stream import Stream

__all__ = ["TerminalChannel", "message_id"]

log = logging.getLogger(__name__)

ARRIVAL = 1.0
"""Seconds that a send waits for somebody to attach."""
_REMEMBERED = 1000
_CAPABILITIES = Capabilities(
    tables=Support.NATIVE,
    edit=Support.NATIVE,
    react=Support.NATIVE,
    threads=Threads.NATIVE,
    typing=Support.NATIVE,
    stream=StreamKind.NATIVE,
    stream_interval=0.1,
    files=Support.NATIVE,
    file_max_count=100,
    prompt=Support.NATIVE,
    prompt_max_choices=99,
    cards=Support.NATIVE,
    idempotent_send=True,
)


def message_id(key: str) -> str:
    """The platform id of the message with that idempotency key: the same always, so that a repeated send is the same
    message also after the host was started again."""
    return f"term-{key}"


class TerminalChannel:
    """One instance.  Its chats are agent groups, its people are the users of this machine.

    It is idempotent: a key that was shown is never sent to a client again while this process lives, and a client that
    stays over a restart of the host remembers the keys it showed.  Only a person who closes one client and opens
    another around a crash of the host may see a message again.
    """

    def __init__(self, instance: str, settings: TerminalSettings) -> None:
        self._instance = instance
        self._settings = settings
        self._context: ChannelContext | None = None
        self._rooms: dict[Address, Room] = {}
        self._shown: OrderedDict[str, None] = OrderedDict()
        self._stopping = asyncio.Event()
        self._serving: set[asyncio.Task[Any]] = set()

    # ---- life

    async def start(self, context: ChannelContext) -> None:
        self._context = context
        self._stopping.clear()
        days = self._settings.keep_files_days
        if days:
            before = context.clock.now() / 1000 - days * 86_400
            await asyncio.to_thread(storage.forget_old, context.folder / "files", before)
        context.report(ChannelStatus(state=ChannelState.READY))

    async def stop(self) -> None:
        """Let every client go."""
        self._stopping.set()
        if self._serving:
            await asyncio.wait(set(self._serving), timeout=1.5)

    async def check(self, context: ChannelContext) -> Health:
        return Health(ok=True, detail="served on the host's own socket")

    def capabilities(self, address: Address | None = None) -> Capabilities:
        return _CAPABILITIES

    # ---- out

    async def send(self, address: Address, message: OutMessage, *, idempotency_key: str) -> SendResult:
        """Show it to everybody attached; returns when one of them has confirmed.

        Raises:
            NobodyListening: nobody is attached, or nobody confirmed.
        """
        return await self._show(address, message, idempotency_key)

    async def _show(self, address: Address, message: OutMessage, key: str, stream: str | None = None) -> SendResult:
        ids = (message_id(key),)
        if key in self._shown:
            return SendResult(ids=ids)
        files = await self._copies(message, key)
        frame = message_frame(key, ids, message, files, stream)
        while not await self._confirmed(address, key, frame):
            # Whoever was there left before confirming.  Somebody else may have come meanwhile: then they get it; else
            # this raises once nobody comes.
            await self._room_with_somebody(address)
        return SendResult(ids=ids)

    async def _confirmed(self, address: Address, key: str, frame: Frame) -> bool:
        """Send to everybody here and to who comes meanwhile; whether one confirmed before the last one left."""
        room = await self._room_with_somebody(address)
        confirmed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        room.sending[key] = (frame, confirmed)
        prompt = frame["prompt"]
        if prompt is not None:
            room.prompts[prompt["id"]] = frame
        try:
            room.tell(frame)
            return await asyncio.wait_for(asyncio.shield(confirmed), self._settings.confirm_seconds)
        except TimeoutError:
            raise NobodyListening(
                f"a client is attached to {address} but did not confirm that it showed the message",
                fix="bring the stopped `jackfield chat` to the foreground, or close it",
            ) from None
        finally:
            confirmed.cancel()
            del room.sending[key]
            if prompt is not None and key not in self._shown:
                room.prompts.pop(prompt["id"], None)
            self._sweep(address)

    async def _room_with_somebody(self, address: Address) -> Room:
        room = self._room(address)
        if room.clients:
            return room
        room.awaited += 1
        try:
            await asyncio.wait_for(room.arrived.wait(), ARRIVAL)
            return room
        except TimeoutError:
            raise NobodyListening(
                f"nobody is attached to {address}", fix=f"open it with `jackfield chat {address.platform_id}`"
            ) from None
        finally:
            room.awaited -= 1
            self._sweep(address)

    async def _copies(self, message: OutMessage, key: str) -> list[Frame]:
        if not message.files:
            return []
        folder = self._here.folder / "files" / Path(key).name
        return await asyncio.to_thread(storage.keep_copies, message.files, folder)

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        room = self._room(ref.address)
        for prompt_id, frame in list(room.prompts.items()):
            if tuple(frame["ids"]) == ref.ids:
                del room.prompts[prompt_id]  # also when nobody is there: who comes next must not see it as open
        room = await self._room_with_somebody(ref.address)
        room.tell({"type": "edit", "id": ref.ids[0], "text": message.text})
        return SendResult(ids=ref.ids)

    async def react(self, ref: MessageRef, emoji: str, on: bool = True) -> None:
        room = await self._room_with_somebody(ref.address)
        room.tell({"type": "reaction", "id": ref.ids[0], "emoji": emoji, "on": on})

    async def typing(self, address: Address, on: bool = True) -> None:
        """Show or hide that the agent works.  Nobody has to be there."""
        room = self._room(address)
        if on or room.typing:
            room.typing = on
            room.tell({"type": "typing", "on": on}, droppable=on)
        self._sweep(address)

    async def answer(self, responder: str, source: MessageRef | None, reply: ActionReply) -> None:
        """Close the question for everybody; a refusal is told to who chose."""
        try:
            token = json.loads(responder)
            address, prompt_id, client_key = Address.parse(token["address"]), token["prompt"], token["client"]
        except (ValueError, KeyError, TypeError, MalformedData) as problem:
            raise MalformedData(f"{responder!r} is not one of this channel's responders") from problem
        room = self._room(address)
        if reply.accepted:
            room.prompts.pop(prompt_id, None)
            room.tell({"type": "prompt_done", "prompt_id": prompt_id, "text": reply.text})
        else:
            for client in room.clients:
                if client.key == client_key:
                    client.put({"type": "error", "message": reply.text})
        self._sweep(address)

    def open_stream(self, address: Address, *, reply_to: MessageRef | None = None) -> MessageStream:
        return Stream(self, address)

    def tell(self, address: Address, frame: Frame) -> None:
        """A frame that may be left out, to whoever is there."""
        room = self._rooms.get(address)
        if room is not None:
            room.tell(frame, droppable=True)

    async def finish_stream(self, address: Address, stream: str, message: OutMessage, key: str) -> SendResult:
        """The final message of a stream."""
        return await self._show(address, message, key, stream)

    # ---- in

    async def attach(self, connection: Connection, options: dict[str, Any]) -> None:
        """Serve one client until it leaves or the channel stops."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            await self._serve(connection, options)
        except MalformedData as problem:
            with suppress(ConnectionError, OSError):
                await connection.send({"type": "error", "message": str(problem)})
        except (ConnectionError, OSError) as problem:
            log.debug("a client of %s left: %s", self._instance, problem)
        finally:
            self._serving.discard(task)

    async def _serve(self, connection: Connection, options: dict[str, Any]) -> None:
        wanted = await greeted(connection, options, self._settings.group)
        if wanted is None:
            return
        group, thread = wanted
        address = Address("terminal", self._instance, group, thread)
        client = Client(connection, address, new_id("cl"))
        client.put(
            {"type": "welcome", "protocol": PROTOCOL, "group": group, "thread": thread, "user": connection.peer_user}
        )
        room = self._room(address)
        room.drop_expired(self._here.clock.now())
        room.join(client)
        pump = asyncio.create_task(client.pump(), name="terminal client: write")
        try:
            self._here.wake(address)
            self._here.spawn(self._wake_again(address), f"wake {address}")
            await self._listen(client)
        finally:
            room.leave(client)
            if not client.lost.is_set():
                await client.flush(1.0)
            pump.cancel()
            await asyncio.wait({pump})
            self._sweep(address)

    async def _wake_again(self, address: Address) -> None:
        """A send that gave up in the moment in which somebody came was not waiting yet when they were announced."""
        await self._here.clock.sleep(2 * ARRIVAL)
        if address in self._rooms and self._rooms[address].clients:
            self._here.wake(address)

    async def _listen(self, client: Client) -> None:
        """Read frames until the client says bye, goes away, never reads, or the channel stops."""
        stops = [asyncio.create_task(event.wait()) for event in (self._stopping, client.lost)]
        reading: asyncio.Task[Frame | None] | None = None
        try:
            while True:
                reading = asyncio.create_task(client.connection.receive())
                await asyncio.wait({reading, *stops}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    return
                frame = reading.result()
                if frame is None or frame.get("type") == "bye":
                    return
                try:
                    await self._take(client, frame)
                except MalformedData as problem:
                    client.put({"type": "error", "message": str(problem)})
        finally:
            tasks = [*stops, *([reading] if reading is not None else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, client: Client, frame: Frame) -> None:
        match frame.get("type"):
            case "message":
                await self._take_message(client, frame)
            case "choice":
                await self._take_choice(client, frame)
            case "shown":
                self._confirm(client.address, text_of(frame, "delivery"))
            case other:
                client.put({"type": "error", "message": f"this host knows no frame of type {other!r}"})

    async def _take_message(self, client: Client, frame: Frame) -> None:
        name = text_of(frame, "id")
        try:
            text = text_of(frame, "text", limit=8_000_000, empty=True)
            files = await asyncio.to_thread(storage.offered, frame.get("files") or [], name, self._settings.file_limit)
            if not text.strip() and not files:
                raise MalformedData("the message is empty")
            accepted = await self._here.accept(
                MessageReceived(
                    address=client.address,
                    dedupe_key=f"message:{name}",
                    occurred_at=self._here.clock.now(),
                    ref=MessageRef(client.address, (f"in-{name}",)),
                    sender=self._person(client),
                    text=text,
                    kind=ConversationKind.CONSOLE,
                    addressed=Addressed.DM,
                    attachments=files,
                    conversation_name="Terminal",
                )
            )
        except JackfieldError as problem:
            client.put({"type": "refused", "id": name, "reason": str(problem)})
            return
        client.put({"type": "accepted", "id": name, "duplicate": accepted.duplicate})

    async def _take_choice(self, client: Client, frame: Frame) -> None:
        prompt_id, value = text_of(frame, "prompt_id"), text_of(frame, "value", limit=4000)
        name = text_of(frame, "id") if "id" in frame else new_id("clk")
        token = {"address": str(client.address), "prompt": prompt_id, "client": client.key}
        shown = self._room(client.address).prompts.get(prompt_id)
        try:
            await self._here.accept(
                ActionInvoked(
                    address=client.address,
                    dedupe_key=f"choice:{name}",
                    occurred_at=self._here.clock.now(),
                    prompt_id=prompt_id,
                    value=value,
                    user=self._person(client),
                    source=MessageRef(client.address, tuple(shown["ids"])) if shown is not None else None,
                    responder=json.dumps(token),
                )
            )
        except JackfieldError as problem:
            client.put({"type": "error", "message": str(problem)})

    def _confirm(self, address: Address, key: str) -> None:
        """A client showed it.  One that comes late is remembered, and the waiting delivery tried again."""
        self._shown[key] = None
        while len(self._shown) > _REMEMBERED:
            self._shown.popitem(last=False)
        _, confirmed = self._room(address).sending.get(key, (None, None))
        if confirmed is None:
            self._here.wake(address)
        elif not confirmed.done():
            confirmed.set_result(True)

    def open_attachment(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The bytes of a file that a person named."""
        return storage.opened(attachment)

    # ---- small things

    @property
    def _here(self) -> ChannelContext:
        if self._context is None:
            raise JackfieldError(f"channel {self._instance} was not started")
        return self._context

    @staticmethod
    def _person(client: Client) -> Person:
        user = client.connection.peer_user
        return Person(handle=user, display_name=user, trust=Trust.OPERATOR)

    def _room(self, address: Address) -> Room:
        return self._rooms.setdefault(address, Room())

    def _sweep(self, address: Address) -> None:
        """Forget a room in which nothing is left."""
        room = self._rooms.get(address)
        if room is not None and room.empty:
            del self._rooms[address]
