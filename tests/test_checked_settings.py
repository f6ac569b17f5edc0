"""What `config check` says of an `agent.toml` is what a launch does with it (C200)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from jackfield.cli.config import all_problems
from jackfield.config import AgentSettings
from jackfield.config.home import Home
from jackfield.config.problems import Severity
from jackfield.errors import JackfieldError
from jackfield.host.application import open_hub
from jackfield.host.hub import Hub
from jackfield.host.launching import Launcher, Refused
from jackfield.mailbox import HostBell
from jackfield.models import AgentGroup, Session, SessionMode
from jackfield.store import groups, sessions

from tests.harness.exchange import Exchange

FIELDS = tuple(AgentSettings.model_fields)
SOUND = {
    "name": '"andy"',
    "provider": '"mock"',
    "model": '"m"',
    "tools": '["messaging"]',
    "packs": "[]",
    "runtime": '"process"',
    "allow_unisolated": "false",
    "timezone": '"UTC"',
    "unwrapped": '"origin"',
    "limits": "{ messages_per_prompt = 5 }",
    "providers": "{}",
    "tool_settings": "{}",
    "runtime_settings": "{}",
}
WRONG = {"a number": "7", "empty": '""', "a list": '["nobody"]', "another name": '"nobody"', "a table": "{ x = 1 }"}


def mutants() -> Iterator[tuple[str, str]]:
    """What was done, and the file after it: each field left out, emptied, of a wrong type; one too many."""

    def text(values: dict[str, str]) -> str:
        return "".join(f"{name} = {value}\n" for name, value in values.items())

    yield "nothing", text(SOUND)
    yield "an extra key", text({**SOUND, "extra": "1"})
    yield "an empty file", ""
    yield "half a file", text(SOUND) + "[limits"
    for field in FIELDS:
        yield f"{field} left out", text({name: value for name, value in SOUND.items() if name != field})
        for what, value in WRONG.items():
            yield f"{field} is {what}", text({**SOUND, field: value})


async def launched(hub: Hub, session: Session) -> str | None:
    """Launch a runner for real and end it; why there is none."""

    def bell(session: Session, peer_uid: int | None) -> HostBell:
        return HostBell(hub.folder_of(session), on_ring=lambda: None, on_gone=lambda: None, peer_uid=peer_uid)

    launcher = LAUNCHERS.setdefault(hub.home.root, Launcher(hub))
    try:
        runner = await launcher.launch(session, bell)
    except Refused as refused:
        return str(refused)
    await runner.handle.kill()
    await runner.handle.wait()
    await runner.bell.close()
    return None


LAUNCHERS: dict[Path, Launcher] = {}


def refused_by_check(home: Home, agent: Path) -> list[str]:
    problems, starts = all_problems(home)
    assert starts
    return [str(problem) for problem in problems if problem.severity is Severity.ERROR and problem.file == agent]


async def test_a_launch_refuses_exactly_what_the_check_calls_an_error(exchange: Exchange) -> None:
    """C200."""
    home = exchange.home
    agent = home.groups / "andy" / "agent.toml"
    async with open_hub(home) as hub:

        def look(db: sqlite3.Connection) -> tuple[AgentGroup, Session]:
            (group,) = groups.agent_groups(db)
            session, _ = sessions.session_for(
                db,
                group.id, "k", mode=SessionMode.SHARED, messaging_group_id=None, thread_id=None, now=hub.clock.now(),
            )  # fmt: skip
            return group, session

        group, session = await hub.store.write(look)
        differ = []
        outcomes = set()
        for what, text in mutants():
            agent.unlink()  # a new file, so that no look at its time takes it for the old one
            agent.write_text(text, encoding="utf-8")
            await hub.accept_agent_settings(group)
            checked = await asyncio.to_thread(refused_by_check, home, agent)
            try:
                refused = await launched(hub, session)
            except JackfieldError as problem:
                pytest.fail(f"{what}: the launch failed otherwise: {problem}")
            outcomes.add(refused is None)
            if bool(checked) is not bool(refused):
                differ.append(f"{what}: the check says {checked or 'nothing'}, the launch {refused or 'works'}")
        assert differ == []
        assert outcomes == {True, False}
        for runtime in LAUNCHERS.pop(home.root).runtimes.values():
            await runtime.collect_garbage()
