"""For testing a runtime: what a host hands to it, and folders as a host makes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jackfield.api import GroupPlace, Image, LaunchSpec, Limits, SessionPlace
from jackfield.ids import AgentGroupId, SessionId, new_id
from jackfield.models import RunnerPaths, RunnerSpec

__all__ = ["BOUND", "BenchContext", "make_launch", "make_place"]

BOUND = 30.0
"""Seconds after which something that must happen counts as hung."""


@dataclass
class BenchContext:
    """A `RuntimeContext` that keeps the lines which it is given."""

    home: Path
    install_id: str = "install-one"
    lines: list[tuple[SessionId, str]] = field(default_factory=list)
    seen: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def folder(self) -> Path:
        return self.home / "runtimes" / "process"

    def log_line(self, session_id: SessionId, line: str) -> None:
        self.lines.append((session_id, line))
        self.seen.set()

    async def until_lines(self, text: str, count: int = 1) -> None:
        """Wait until so many lines that contain the text have come.

        Raises:
            TimeoutError: they did not come in time.
        """
        async with asyncio.timeout(BOUND):
            while sum(text in line for _, line in self.lines) < count:
                self.seen.clear()
                await self.seen.wait()


def make_place(home: Path, *, group: GroupPlace | None = None) -> SessionPlace:
    """A new session's folder, in a new group's unless one is given; files are empty but for a few bytes."""
    if group is None:
        group_id = AgentGroupId(new_id("ag"))
        group = GroupPlace(agent_group_id=group_id, folder=home / "groups" / group_id[-6:])
        for folder in (group.workspace, group.memory):
            folder.mkdir(parents=True, mode=0o700)
        for name in ("agent.toml", "AGENTS.md"):
            (group.folder / name).write_text("# for tests\n", encoding="utf-8")
    session_id = SessionId(new_id("ses"))
    folder = home / "sessions" / group.agent_group_id / session_id
    for made in (folder / "inbox", folder / "outbox"):
        made.mkdir(parents=True, mode=0o700)
    for name in ("inbound.db", "outbound.db", "outbound.db-journal", "heartbeat", "session.json"):
        (folder / name).touch(mode=0o600)
    (folder / "inbound.db").write_bytes(b"somebody's words")
    return SessionPlace(session_id=session_id, folder=folder, group=group)


def make_launch(
    place: SessionPlace,
    context: BenchContext,
    *,
    epoch: int = 1,
    limits: Limits | None = None,
    secrets: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> LaunchSpec:
    """What a host would launch for that session."""
    paths = RunnerPaths(session=str(place.folder), workspace=str(place.group.workspace), group=str(place.group.folder))
    runner = RunnerSpec(
        session_id=place.session_id,
        agent_group_id=place.group.agent_group_id,
        epoch=epoch,
        install_id=context.install_id,
        agent_name="bench",
        provider="mock",
        paths=paths,
    )
    return LaunchSpec(
        place=place,
        runner=runner,
        image=Image(reference="bench"),
        limits=limits or Limits(),
        secrets=dict(secrets or {}),
        environment=dict(environment or {}),
    )
