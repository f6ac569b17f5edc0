"""What the model reads, and what the host's half makes of what runners send."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from jackfield.api import ActionContext, ApprovalState, ToolFailed
from jackfield.clock import UnixMs
from jackfield.errors import Conflict, JackfieldError, MalformedData
from jackfield.ids import AgentGroupId, SessionId, new_id
from jackfield.models import AgentGroup, Destination, DestinationKind, Session, SessionMode, SessionStatus
from jackfield.testing import HostRecorder, ToolRecorder, bind_tools
from jackfield_tools_agents.actions import actions
from jackfield_tools_agents.tools import TOOLS

GROUP = AgentGroup(id=AgentGroupId(new_id("ag")), name="Andy", folder="andy", created_at=UnixMs(0))
SESSION = Session(
    id=SessionId(new_id("ses")),
    agent_group_id=GROUP.id,
    key="shared:mg_1",
    mode=SessionMode.SHARED,
    messaging_group_id=None,
    thread_id=None,
    status=SessionStatus.ACTIVE,
    epoch=1,
    parked_until=None,
    parked_reason=None,
    created_at=UnixMs(0),
    last_active_at=UnixMs(0),
)


class Pair:
    """A runner's tools, joined to the host's half of them over services that take notes."""

    def __init__(self, folder: Path) -> None:
        self.host = HostRecorder(groups=[GROUP])
        self.handlers = {one.name: one for one in actions()}
        self.recorder = ToolRecorder(folder)
        self.recorder.act = self.act  # type: ignore[method-assign]  # the test's own in its place
        self.tools = bind_tools(TOOLS, self.recorder)

    async def act(self, name: str, arguments: dict[str, Any], *, timeout: float = 30.0) -> Any:
        context = ActionContext(session=SESSION, agent_group=GROUP, host=self.host)
        try:
            return await self.handlers[name].handle(context, new_id("req"), arguments)
        except JackfieldError as problem:
            raise ToolFailed(problem.message) from None

    async def call(self, name: str, /, **arguments: Any) -> str:
        return (await self.tools[name].call(arguments)).text


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


async def test_an_agent_is_asked_for_with_all_that_it_is_to_be(pair: Pair) -> None:
    told = await pair.call("create_agent", name="Research Bot", instructions="Look things up.")
    (asked,) = pair.host.approvals.asked
    assert (asked.kind, asked.payload) == ("create_agent", {"name": "Research Bot", "instructions": "Look things up."})
    assert asked.context.agent_group == GROUP
    assert "Asked a person" in told and "ap_" in told


async def test_what_is_allowed_already_is_said_to_be_on_its_way(pair: Pair) -> None:
    pair.host.approvals.state = ApprovalState.APPROVED
    assert (await pair.call("create_agent", name="Research Bot")).startswith('Creating agent "Research Bot".')


async def test_a_refusal_reaches_the_model_as_a_sentence(pair: Pair) -> None:
    pair.host.approvals.error = Conflict("you already have a destination named 'research-bot'")
    assert "you already have a destination" in await pair.call("create_agent", name="Research Bot")


async def test_a_hostile_runner_gets_no_further_with_other_shapes(pair: Pair) -> None:
    context = ActionContext(session=SESSION, agent_group=GROUP, host=pair.host)
    for arguments in ({}, {"name": 7}, {"name": "x", "instructions": ["y"]}, {"name": None}):
        with pytest.raises(MalformedData):
            await pair.handlers["create_agent"].handle(context, new_id("req"), arguments)
    assert pair.host.approvals.asked == []


async def test_only_agents_are_listed_and_by_the_names_that_reach_them(pair: Pair) -> None:
    assert await pair.call("list_agents") == "There is no other agent that you can write to."

    async def destinations() -> Sequence[Destination]:
        agent = DestinationKind.AGENT
        return [
            Destination(name="parent", kind=agent, display_name="Andy", agent_group_id=GROUP.id),
            Destination(name="bot", kind=agent, display_name="bot", agent_group_id=GROUP.id),
            *(await ToolRecorder.destinations(pair.recorder)),
        ]

    pair.recorder.destinations = destinations  # type: ignore[method-assign]  # the test's own in its place
    assert await pair.call("list_agents") == "- parent (Andy)\n- bot"
