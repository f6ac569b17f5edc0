"""A program for tests: `chat` on a host that is a stand-in, with the real channel and an agent that obeys single words.

Run as `python standin.py HOME [chat's arguments]`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
from jackfield.api import Accepted, ActionReply, Cursor
from jackfield.api.client import COMMAND_HOST, LocalClient, LocalConnection
from jackfield.clock import Clock, SystemClock
from jackfield.errors import JackfieldError, NoHost
from jackfield.models import (
    ActionInvoked,
    Address,
    Card,
    CardField,
    ChannelStatus,
    Choice,
    Event,
    MessageReceived,
    OutFile,
    OutMessage,
    Prompt,
)
from jackfield_channel_terminal import plugin
from jackfield_channel_terminal.channel import TerminalChannel

Frame = dict[str, Any]
EVIL = "safe\x1b[2J\x1b]0;owned\x07\x9b31m text \u202egnp.exe\x07"


class End:
    """One end of a connection in memory."""

    def __init__(self, inbox: asyncio.Queue[Frame | None], outbox: asyncio.Queue[Frame | None]) -> None:
        self.inbox, self.outbox = inbox, outbox

    @property
    def peer_user(self) -> str:
        return "eve"

    async def receive(self) -> Frame | None:
        return await self.inbox.get()

    async def send(self, message: Frame) -> None:
        self.outbox.put_nowait(message)

    async def close(self) -> None:
        self.inbox.put_nowait(None)
        self.outbox.put_nowait(None)


class StandIn:
    """Channel context, local client, and agent."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._clock: Clock = SystemClock()
        self.channel: TerminalChannel
        self.tasks: set[asyncio.Task[None]] = set()
        self.turns: set[asyncio.Task[None]] = set()
        self.seen: set[str] = set()
        self.failed: list[Frame] = []
        self.ends: list[End] = []
        self.away = False
        self.sent = 0

    # the local client

    @property
    def home(self) -> Path:
        return self._home

    @property
    def started_host(self) -> bool:
        return False

    async def call(self, op: str, args: dict[str, Any]) -> Any:
        match op:
            case "group.list":
                return [{"id": "ag_1", "name": "Ada", "folder": "home"}, {"id": "ag_2", "name": "Bob", "folder": "bob"}]
            case "channel.settled":
                _, late = await asyncio.wait(self.turns, timeout=args["timeout"]) if self.turns else (None, None)
                return {"settled": not late, "failed": self.failed, "parked": []}
        raise AssertionError(op)

    async def attach(self, instance: str, options: dict[str, Any]) -> LocalConnection:
        if self.away:
            raise NoHost("nobody there")
        one: asyncio.Queue[Frame | None] = asyncio.Queue()
        two: asyncio.Queue[Frame | None] = asyncio.Queue()
        end = End(one, two)
        self.ends.append(end)
        self.spawn(self._serve(end), "serve")
        return End(two, one)

    async def _serve(self, end: End) -> None:
        await self.channel.attach(end, {})
        end.outbox.put_nowait(None)

    # the channel's context

    @property
    def instance(self) -> str:
        return "terminal"

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def folder(self) -> Path:
        folder = self._home / "channel"
        folder.mkdir(exist_ok=True)
        return folder

    async def cursor(self, key: str) -> str | None:
        return None

    async def secret(self, name: str) -> str | None:
        return None

    def report(self, status: ChannelStatus) -> None:
        pass

    def wake(self, address: Address) -> None:
        pass

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def accept(self, event: Event, cursor: Cursor | None = None) -> Accepted:
        if isinstance(event, MessageReceived) and event.text == "refuse":
            raise JackfieldError("the disk is full")
        if event.dedupe_key in self.seen:
            return Accepted(event_id=f"ev_{event.dedupe_key}", duplicate=True)
        self.seen.add(event.dedupe_key)
        task = asyncio.create_task(self.turn(event))
        self.turns.add(task)
        task.add_done_callback(self.turns.discard)
        return Accepted(event_id=f"ev_{event.dedupe_key}")

    # the agent

    async def turn(self, event: Event) -> None:
        if isinstance(event, ActionInvoked):
            assert event.responder is not None
            await self.channel.answer(
                event.responder, event.source, ActionReply(text="That is settled.", accepted=True)
            )
            await self.say(event.address, OutMessage(text=f"You chose {event.value}"))
            return
        assert isinstance(event, MessageReceived)
        address, text = event.address, event.text
        match text.split(" ")[0]:
            case "ask":
                choices = (Choice("t", "Tea"), Choice("c", "Coffee"))
                prompt = Prompt(id="qst_1", title="Drink", question="What?", choices=choices)
                await self.say(address, OutMessage(prompt=prompt))
            case "card":
                await self.say(address, OutMessage(card=Card(title="Build", fields=(CardField("State", "green"),))))
            case "file":
                path = self._home / "out.txt"
                path.write_text("from the agent")
                await self.say(
                    address, OutMessage(text="here", files=(OutFile(name="out.txt", path=str(path), size=14),))
                )
            case "stream":
                await self.channel.typing(address, True)
                stream = self.channel.open_stream(address)
                for count in range(1, 6):
                    await stream.update("word " * count)
                    await asyncio.sleep(0.2)
                await stream.finish(OutMessage(text="the **whole** text"), idempotency_key="dl_stream")
                await self.channel.typing(address, False)
            case "evil":
                await self.say(address, OutMessage(text=EVIL))
            case "fail":
                self.failed.append(
                    {"id": "in_1", "session": "ses_1", "state": "failed", "reason": "auth: no such key", "text": text}
                )
                await self.say(address, OutMessage(text="The agent could not answer this message (auth)."))
            case "silent":
                await asyncio.Event().wait()
            case "vanish":
                self.away = True
                for end in self.ends:
                    await end.close()
                await asyncio.sleep(0.3)
                self.away = False
                while not self.channel._rooms.get(address):
                    await asyncio.sleep(0.02)
                await self.say(address, OutMessage(text="I am back"))
            case "twice":
                await self.say(address, OutMessage(text="once only"))
                self.channel._shown.clear()
                await self.channel.send(address, OutMessage(text="once only"), idempotency_key=f"dl_{self.sent}")
            case _:
                names = "".join(f" [{attachment.name}]" for attachment in event.attachments)
                await self.say(address, OutMessage(text=f"You said: {text}{names}"))

    async def say(self, address: Address, message: OutMessage) -> None:
        self.sent += 1
        await self.channel.send(address, message, idempotency_key=f"dl_{self.sent}")


class Host:
    """What the command line would set."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @asynccontextmanager
    async def connect(self, home: str | None) -> AsyncIterator[LocalClient]:
        host = StandIn(self._home)
        channel = plugin.create("terminal", {})
        assert isinstance(channel, TerminalChannel)
        host.channel = channel
        await channel.start(host)
        try:
            yield host
        finally:
            await channel.stop()
            for task in [*host.tasks, *host.turns]:
                task.cancel()


def main() -> None:
    from jackfield_channel_terminal.chat import command

    COMMAND_HOST.set(Host(Path(sys.argv[1])))
    try:
        code = command.main(sys.argv[2:], prog_name="jackfield chat", standalone_mode=False)
    except JackfieldError as problem:
        print(f"Error: {problem.message}\n{problem.fix}", file=sys.stderr)
        code = problem.exit_code
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    sys.exit(code)


if __name__ == "__main__":
    main()
