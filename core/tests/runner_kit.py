"""What the runner's tests share: a session on disk, a host's side without a host, and a scripted provider.

The provider is a real plugin in a folder of its own, found by its entry point in the child process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from jackfield.clock import SystemClock, UnixMs
from jackfield.ids import AgentGroupId, InboundId, SessionId, new_id
from jackfield.mailbox import HostBell, HostMailbox, SessionFolder
from jackfield.models import (
    Ack,
    AckStatus,
    Address,
    ChatContent,
    Destination,
    DestinationKind,
    InboundKind,
    InboundRow,
    MessageContent,
    OutboundRow,
    RunnerLimits,
    RunnerPaths,
    RunnerSpec,
)

HERE = Address("terminal", "terminal", "home")
FAMILY = Destination(
    name="family", kind=DestinationKind.CHANNEL, display_name="The Family", address=Address("telegram", "bot", "-100")
)
HOME = Destination(name="home", kind=DestinationKind.CHANNEL, display_name="Home", address=HERE)
PLUGIN = Path(__file__).parent / "runner_plugin"
BOUND = 30.0


def chat(text: str, *, origin: Address | None = HERE, sender: str = "ann", **more: Any) -> InboundRow:
    """A row as the host would enqueue it."""
    content = ChatContent(
        text=text,
        sender=sender,
        sender_id=f"terminal:{sender}",
        sender_role=more.pop("role", ""),
        command=more.pop("command", None),
        quote=more.pop("quote", None),
        files=more.pop("files", ()),
    )
    return InboundRow(
        id=InboundId(new_id("in")),
        kind=InboundKind.CHAT,
        content=content,
        at=SystemClock().now(),
        origin=origin,
        **more,
    )


class Place:
    """A session folder, the host's hand in it, and its runners."""

    def __init__(self, root: Path, **spec: Any) -> None:
        self.root = root
        self.folder = SessionFolder(root / "sessions" / "ses")
        self.folder.create()
        self.group = root / "group"
        self.workspace = self.group / "workspace"
        self.workspace.mkdir(parents=True)
        self.log = root / "provider.jsonl"
        limits = RunnerLimits(**{"poll": 5.0, "heartbeat": 0.2, **spec.pop("limits", {})})
        settings = {key: json.dumps(value) for key, value in spec.pop("settings", {}).items()}
        self.spec = RunnerSpec(
            session_id=SessionId(new_id("ses")),
            agent_group_id=AgentGroupId(new_id("ag")),
            epoch=1,
            install_id="test",
            agent_name="Dot",
            provider=spec.pop("provider", "scripted"),
            paths=RunnerPaths(session=str(self.folder.root), workspace=str(self.workspace), group=str(self.group)),
            provider_settings={"log": json.dumps(str(self.log)), **settings},
            limits=limits,
            **spec,
        )
        self.folder.write_spec(self.spec)
        self.host = HostMailbox(self.folder)
        self.host.project([HOME, FAMILY], HERE)
        self.rung = asyncio.Event()
        self.bell: HostBell | None = None
        self.processes: list[asyncio.subprocess.Process] = []
        self.stderr: bytes = b""

    def again(self, **changes: Any) -> None:
        """The next epoch's spec."""
        self.spec = replace(self.spec, epoch=self.spec.epoch + 1, **changes)
        self.folder.write_spec(self.spec)

    async def listen(self) -> None:
        self.bell = HostBell(self.folder, on_ring=self.rung.set, on_gone=self.rung.set)
        await self.bell.open()

    async def start(self, **env: str) -> asyncio.subprocess.Process:
        whole = {**os.environ, "PYTHONPATH": str(PLUGIN), **env}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "jackfield.runner", str(self.folder.root),
            env=whole, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def put(self, *rows: InboundRow) -> list[int]:
        done = self.host.enqueue(list(rows))
        if self.bell is not None:
            self.bell.ring()
        return [item.seq for item in done]

    async def until(self, what: Callable[[], Any], bound: float = BOUND) -> Any:
        """Wait until it is true; looks whenever the runner rings, and now and then."""
        async with asyncio.timeout(bound):
            while True:
                self.rung.clear()
                found = what()
                if found:
                    return found
                try:
                    await asyncio.wait_for(self.rung.wait(), 0.2)
                except TimeoutError:
                    continue

    def rows(self) -> list[OutboundRow]:
        return self.host.read_outbound().rows

    def texts(self) -> list[str]:
        return [row.content.text for row in self.rows() if isinstance(row.content, MessageContent)]

    def acks(self) -> dict[str, Ack]:
        return {ack.message_id: ack for ack in self.host.read_outbound().acks}

    def key(self, name: str) -> str | None:
        """A value that the session's runners keep for themselves."""
        with closing(sqlite3.connect(self.folder.outbound_db)) as database:
            found = database.execute("SELECT value FROM session_state WHERE key = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    def heard(self) -> list[dict[str, Any]]:
        """What the provider wrote down: opened sessions, prompts, and so on."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def prompts(self) -> list[str]:
        return [entry["prompt"] for entry in self.heard() if "prompt" in entry]

    async def ended(self, process: asyncio.subprocess.Process, bound: float = BOUND) -> int:
        """The exit code."""
        assert process.stderr is not None
        async with asyncio.timeout(bound):
            self.stderr = await process.stderr.read()
            return await process.wait()

    async def stop(self, process: asyncio.subprocess.Process) -> int:
        process.send_signal(signal.SIGTERM)
        return await self.ended(process)

    async def close(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
            await self.ended(process)
        if self.bell is not None:
            await self.bell.close()
        self.host.close()


@asynccontextmanager
async def place(root: Path, *, listen: bool = True, **spec: Any) -> AsyncIterator[Place]:
    made = Place(root, **spec)
    try:
        if listen:
            await made.listen()
        yield made
    finally:
        await made.close()


def later(milliseconds: int) -> UnixMs:
    return UnixMs(SystemClock().now() + milliseconds)


def done(here: Place, *rows: InboundRow) -> bool:
    """Whether all of these have an end."""
    acks = here.acks()
    ends = (AckStatus.COMPLETED, AckStatus.FAILED)
    return all(row.id in acks and acks[row.id].status in ends for row in rows)
