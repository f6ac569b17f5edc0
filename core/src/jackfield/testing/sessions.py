"""A session's folder as a host leaves it for a runner: real files, real databases."""

from __future__ import annotations

from pathlib import Path

from jackfield.api import GroupPlace, SessionPlace
from jackfield.ids import AgentGroupId, SessionId, new_id
from jackfield.mailbox import HostMailbox, SessionFolder
from jackfield.models import RunnerLimits, RunnerPaths, RunnerSpec

__all__ = ["make_session", "place_of"]


def place_of(home: Path) -> SessionPlace:
    """Where a new session of a new group lies; the group's folders are made."""
    group_id, session_id = AgentGroupId(new_id("ag")), SessionId(new_id("ses"))
    group = GroupPlace(agent_group_id=group_id, folder=home / "groups" / group_id[-6:])
    for folder in (group.workspace, group.memory):
        folder.mkdir(parents=True, mode=0o700)
    (group.folder / "agent.toml").write_text('name = "Ada"\n', encoding="utf-8")
    return SessionPlace(session_id=session_id, folder=home / "sessions" / group_id / session_id, group=group)


def make_session(
    place: SessionPlace,
    *,
    paths: RunnerPaths | None = None,
    install_id: str = "install-one",
    epoch: int = 1,
    provider: str = "mock",
    limits: RunnerLimits | None = None,
) -> RunnerSpec:
    """Make the mailbox of that session, and what `session.json` says to its runner."""
    folder = SessionFolder(place.folder)
    folder.create()
    HostMailbox(folder).close()
    spec = RunnerSpec(
        session_id=place.session_id,
        agent_group_id=place.group.agent_group_id,
        epoch=epoch,
        install_id=install_id,
        agent_name="Ada",
        provider=provider,
        paths=paths
        or RunnerPaths(session=str(place.folder), workspace=str(place.group.workspace), group=str(place.group.folder)),
        limits=limits or RunnerLimits(heartbeat=0.2),
    )
    folder.write_spec(spec)
    return spec
