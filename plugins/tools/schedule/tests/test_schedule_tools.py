"""What the model reads, and what the host's half makes of what runners send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jackfield.api import ActionContext, ApprovalState, ApprovalTicket, TaskChange, ToolFailed
from jackfield.clock import UnixMs
from jackfield.errors import JackfieldError, MalformedData
from jackfield.ids import AgentGroupId, ApprovalId, SessionId, new_id
from jackfield.models import AgentGroup, Session, SessionMode, SessionStatus, TaskState
from jackfield.testing import HostRecorder, ToolRecorder, bind_tools
from jackfield_tools_schedule import words
from jackfield_tools_schedule.actions import actions
from jackfield_tools_schedule.tools import TOOLS

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
    """A runner's tools, joined to the host's half of them over a schedule that takes notes."""

    def __init__(self, folder: Path) -> None:
        self.host = HostRecorder(groups=[GROUP])
        self.handlers = {one.name: one for one in actions()}
        self.recorder = ToolRecorder(folder)
        self.recorder.act = self.act  # type: ignore[method-assign]  # the test's own in its place
        self.tools = bind_tools(TOOLS, self.recorder)
        self.requests = 0

    async def act(self, name: str, arguments: dict[str, Any], *, timeout: float = 30.0) -> Any:
        self.requests += 1
        context = ActionContext(session=SESSION, agent_group=GROUP, host=self.host)
        try:
            return await self.handlers[name].handle(context, new_id("req"), arguments)
        except JackfieldError as problem:
            raise ToolFailed(f"{problem.message}. {problem.fix}") from None

    async def call(self, name: str, **arguments: Any) -> str:
        return (await self.tools[name].call(arguments)).text


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


async def test_a_task_is_scheduled_listed_changed_and_cancelled(pair: Pair) -> None:
    said = await pair.call("schedule_task", prompt="Water the plants", cron="0 8 * * *", timezone="UTC")
    id = next(iter(pair.host.schedule.known))
    assert said == f"Task scheduled (id: {id}, runs at: Jan 15, 2027, 8:00 AM (UTC), repeats: 0 8 * * *)"
    assert await pair.call("list_tasks") == (
        f"- {id} [active] next: Jan 15, 2027, 8:00 AM (UTC), repeats: 0 8 * * * → Water the plants"
    )
    assert "Next run: Jan 15" in await pair.call("update_task", task_id=id, prompt="Water them well")
    assert await pair.call("pause_task", task_id=id) == f"Task paused: {id}. It is paused."
    assert "Next run" in await pair.call("resume_task", task_id=id)
    assert await pair.call("cancel_task", task_id=id) == f"Task cancelled: {id}. No run of it waits any more."
    assert await pair.call("list_tasks") == "No tasks found."
    assert f"{id} [cancelled]" in await pair.call("list_tasks", state="cancelled")
    assert [what for _, what in pair.host.schedule.changed] == [
        TaskChange(prompt="Water them well"), TaskState.PAUSED, TaskState.ACTIVE, TaskState.CANCELLED
    ]  # fmt: skip


async def test_only_what_was_given_reaches_the_host(pair: Pair) -> None:
    await pair.call("schedule_task", prompt="Once", at="20m")
    (wish,) = pair.host.schedule.wished
    assert (wish.prompt, wish.at, wish.cron, wish.to, wish.often) == ("Once", "20m", None, None, False)


async def test_a_run_that_had_begun_is_told_of(pair: Pair) -> None:
    """C115: the confirmation says that no occurrence waits, and what goes on."""
    await pair.call("schedule_task", prompt="Long", at="20m")
    pair.host.schedule.begun = True
    said = await pair.call("cancel_task", task_id=next(iter(pair.host.schedule.known)))
    assert said.endswith("No run of it waits any more. A run that had begun goes on to its end as it was.")


async def test_another_conversation_is_asked_about(pair: Pair) -> None:
    """C143"""
    ticket = ApprovalTicket(id=ApprovalId(new_id("ap")), state=ApprovalState.PENDING)
    pair.host.schedule.ticket = ticket
    said = await pair.call("schedule_task", prompt="Say hello", at="1h", to="family")
    assert ticket.id in said
    assert "nothing is scheduled before" in said
    assert "is allowed" in words.asked({"id": "ap_1", "state": "approved"})


async def test_an_update_of_nothing_is_refused_before_the_host_is_asked(pair: Pair) -> None:
    assert "at least one field" in await pair.call("update_task", task_id="tsk_1", often=True)
    assert pair.requests == 0


async def test_a_refusal_is_one_sentence_with_what_to_do(pair: Pair) -> None:
    pair.host.schedule.error = MalformedData("there is no time zone 'Mars/Base'", fix="use an IANA name")
    said = await pair.call("schedule_task", prompt="x", at="20m", timezone="Mars/Base")
    assert said == "Error: there is no time zone 'Mars/Base'. use an IANA name"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("schedule_task", {}),
        ("schedule_task", {"prompt": 7}),
        ("schedule_task", {"prompt": "x", "stop_after": "many"}),
        ("list_tasks", {"state": "asleep"}),
        ("list_tasks", {"state": ["active"]}),
        ("update_task", {"prompt": "x"}),
        ("update_task", {"id": "tsk_1", "prompt": ["x"]}),
        ("cancel_task", {"id": 7}),
        ("pause_task", {}),
    ],
)
async def test_what_a_hostile_runner_sends_is_refused(pair: Pair, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ToolFailed):
        await pair.act(name, arguments)
    assert not pair.host.schedule.wished
    assert not pair.host.schedule.changed


def test_a_line_tells_what_is_odd_about_a_task() -> None:
    told = words.line(
        {"id": "tsk_1", "state": "stopped", "prompt": "a\n" * 99, "next_local": None, "script": "true", "failures": 3,
         "reason": "it failed 3 times in a row", "elsewhere": True, "place": "irc:net:#x", "running": True}
    )  # fmt: skip
    assert "with a script" in told and "failed 3 times in a row" in told and "in irc:net:#x" in told
    assert "\n" not in told
    assert len(told) < 300
