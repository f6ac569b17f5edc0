"""Agents that agents ask for: by consent, within limits, whole or not at all (messaging.md 11.2; C143)."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from approval_kit import Desk, open_desk
from jackfield.api import ApprovalState
from jackfield.config import load_agent
from jackfield.config.settings import AgentsSettings
from jackfield.errors import Conflict, MalformedData, NotAllowed, StoreError, TooLarge
from jackfield.host.agents import folders
from jackfield.host.agents.creation import Creation
from jackfield.host.approvals import Decision
from jackfield.ids import AgentGroupId, ApprovalId, RequestId, derive_id, new_id
from jackfield.models import DestinationKind
from jackfield.store import groups, wirings
from jackfield.store.approvals import Via


class Nursery:
    """The approvals' bench, with agents to be created on it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.projected: list[AgentGroupId] = []
        self.begin()

    def begin(self) -> None:
        """A life of the host."""

        async def project(group_id: AgentGroupId) -> None:
            self.projected.append(group_id)

        self.creation = Creation(self.desk.bench.hub, self.desk.engine, project=project)

    @property
    def home(self) -> Path:
        return self.desk.bench.hub.home.groups

    async def ask(self, name: str = "Research Bot", words: str = "Look things up.") -> ApprovalId:
        context = self.desk.context()
        return (await self.creation.create(context, RequestId(new_id("req")), name, words)).id

    async def create(self, name: str = "Research Bot", words: str = "Look things up.") -> str:
        """Ask, and have somebody say yes; what the agent is told."""
        id = await self.ask(name, words)
        await self.desk.engine.decide(id, "approve", "operator", Via.CLI)
        await self.desk.quiet()
        return self.desk.told[-1][1]

    async def folders(self) -> list[str]:
        """Those of agents that agents made, as the store knows them."""
        known = await self.desk.bench.hub.store.read(groups.agent_groups)
        return sorted(group.folder for group in known if group.id != self.desk.bench.group.id)

    async def places(self, group_id: AgentGroupId) -> dict[str, str]:
        found = await self.desk.bench.hub.store.read(wirings.destinations, group_id)
        return {one.name: str(one.agent_group_id) for one in found if one.kind is DestinationKind.AGENT}


@pytest.fixture
async def nursery(tmp_path: Path) -> AsyncIterator[Nursery]:
    async with open_desk(tmp_path / "home") as desk:
        (desk.bench.hub.home.groups / desk.bench.group.folder).mkdir(parents=True, exist_ok=True)
        yield Nursery(desk)


async def test_a_yes_makes_the_folder_and_rows_both_ways(nursery: Nursery) -> None:
    parent = nursery.home / nursery.desk.bench.group.folder / "agent.toml"
    parent.write_text(
        'name = "Helper"\nmodel = "m-1"\nallow_unisolated = true\ntools = ["messaging", "agents", "selfmod"]\n'
        '[limits]\nturn_seconds = 90\n[providers.mock]\nreply = "x"\n[permissions]\nadd_mcp_server = "allow"\n',
        encoding="utf-8",
    )
    told = await nursery.create()
    assert "was created" in told and '"research-bot"' in told
    (group,) = [
        one
        for one in await nursery.desk.bench.hub.store.read(groups.agent_groups)
        if one.id != nursery.desk.bench.group.id
    ]
    assert (group.name, group.folder) == ("Research Bot", "research-bot")
    assert await nursery.places(group.id) == {"parent": nursery.desk.bench.group.id}
    assert await nursery.places(nursery.desk.bench.group.id) == {"research-bot": group.id}
    assert nursery.projected == [nursery.desk.bench.group.id]
    made = load_agent(nursery.home / "research-bot", strict=True)
    assert (made.model, made.allow_unisolated, made.limits.turn_seconds) == ("m-1", True, 90)
    assert (made.tools, made.permissions) == (("messaging",), {}), "nothing else comes along"
    assert not await nursery.desk.bench.hub.changed_by_others(group)
    assert {"memory", "skills", "packages", "workspace"} <= {
        one.name for one in (nursery.home / "research-bot").iterdir()
    }


async def test_nothing_is_there_before_somebody_said_yes_nor_after_a_no(nursery: Nursery) -> None:
    id = await nursery.ask()
    assert (await nursery.desk.item(id)).state is ApprovalState.PENDING
    await nursery.desk.engine.decide(id, "reject", "operator", Via.CLI)
    await nursery.desk.quiet()
    assert await nursery.folders() == []
    assert [one.name for one in nursery.home.iterdir()] == [nursery.desk.bench.group.folder]


async def test_settings_that_nobody_accepted_are_not_passed_on(nursery: Nursery) -> None:
    """An agent without a sandbox could write its own file after it asked."""
    await nursery.desk.bench.hub.accept_agent_settings(nursery.desk.bench.group)
    id = await nursery.ask()
    (nursery.home / "helper" / "agent.toml").write_text('name = "Helper"\nallow_unisolated = true\n')
    await nursery.desk.engine.decide(id, "approve", "operator", Via.CLI)
    await nursery.desk.quiet()
    assert "is not accepted" in nursery.desk.told[-1][1]
    assert (await nursery.folders(), [path.name for path in nursery.home.iterdir()]) == ([], ["helper"])


async def test_a_name_that_is_taken_gets_a_number_and_a_destination_that_is_taken_is_refused(nursery: Nursery) -> None:
    (nursery.home / "Research-Bot").mkdir()
    (nursery.home / "research-bot").symlink_to("/nowhere")
    await nursery.create()
    assert await nursery.folders() == ["research-bot-2"]
    with pytest.raises(Conflict, match="already have a destination"):
        await nursery.ask("research  BOT")
    await nursery.create("Global")
    assert await nursery.folders() == ["global-2", "research-bot-2"]


@pytest.mark.parametrize("name", ["", "   ", "\u2026", "a\x1b[31mb", "x" * 61, "日本"])
async def test_a_name_that_names_nothing_is_refused(nursery: Nursery, name: str) -> None:
    with pytest.raises(MalformedData):
        await nursery.ask(name)


async def test_what_nobody_would_read_is_not_asked(nursery: Nursery) -> None:
    with pytest.raises(TooLarge):
        await nursery.ask(words="x" * 20_001)


async def test_no_agent_makes_more_than_it_may_however_many_requests_wait(nursery: Nursery) -> None:
    hub = nursery.desk.bench.hub
    object.__setattr__(hub.configuration, "agents", AgentsSettings(max_created=2))
    waiting = [await nursery.ask(f"Bot {number}") for number in range(3)]
    for id in waiting:
        await nursery.desk.engine.decide(id, "approve", "operator", Via.CLI)
        await nursery.desk.quiet()
    assert await nursery.folders() == ["bot-0", "bot-1"]
    assert "may have created 2 agents" in nursery.desk.told[-1][1]
    assert not list(nursery.home.glob(".new-*"))
    with pytest.raises(NotAllowed):
        await nursery.ask("Bot 4")


async def test_a_store_that_takes_nothing_leaves_nothing(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **more: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("jackfield.host.agents.creation.wirings.add_destination", full)
    assert "the disk is full" in await nursery.create()
    assert await nursery.folders() == []
    assert [one.name for one in nursery.home.iterdir()] == [nursery.desk.bench.group.folder]


async def test_what_a_host_left_half_made_is_finished_or_cleared_away(nursery: Nursery) -> None:
    await nursery.create()
    hub = nursery.desk.bench.hub
    (group,) = [one for one in await hub.store.read(groups.agent_groups) if one.folder == "research-bot"]
    aside = nursery.home / f".new-{group.id}"
    (nursery.home / "research-bot").rename(aside)
    orphan = nursery.home / f".new-{new_id('ag')}"
    orphan.mkdir()
    (nursery.home / ".new-somebody-elses").mkdir()
    await nursery.creation.recover()
    assert (nursery.home / "research-bot" / "agent.toml").is_file()
    assert not aside.exists() and not orphan.exists()
    assert (nursery.home / ".new-somebody-elses").exists(), "what is no agent's is left alone"


async def test_applying_again_changes_nothing(nursery: Nursery) -> None:
    id = await nursery.ask()
    await nursery.desk.engine.decide(id, "approve", "operator", Via.CLI)
    await nursery.desk.quiet()
    item = await nursery.desk.item(id)
    decision = Decision(
        id=id, value="approve", approved=True, by="x", payload=json.loads(item.payload),
        agent_group_id=item.agent_group_id, session_id=item.session_id, origin=None,
    )  # fmt: skip
    assert "was created" in (await nursery.creation.apply(decision) or "")
    assert await nursery.folders() == ["research-bot"]
    assert folders.unfinished(nursery.home) == []
    known = await nursery.desk.bench.hub.store.read(groups.agent_group, AgentGroupId(derive_id("ag", id)))
    assert known is not None
