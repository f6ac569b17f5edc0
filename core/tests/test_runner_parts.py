"""The runner's smaller parts: the system prompt, task scripts, the pulse."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.clock import SystemClock, UnixMs
from jackfield.errors import MailboxError
from jackfield.ids import AgentGroupId, InboundId, SessionId, TurnId, new_id
from jackfield.mailbox import HostMailbox, RunnerMailbox, SessionFolder
from jackfield.models import AckStatus, InboundKind, InboundRow, RunnerPaths, RunnerSpec, TaskContent
from jackfield.models.prompt_layers import joined, prompt_layers
from jackfield.runner.agent import Agent
from jackfield.runner.batch import Batch
from jackfield.runner.bell import Pulse
from jackfield.runner.intake import Scene, Taken
from jackfield.runner.mailroom import MailRoom
from jackfield.runner.scripts import Verdict, check_script, check_scripts, read_verdict
from jackfield.runner.task_checks import check_tasks
from jackfield.runner.words import group_words, memory_index
from runner_kit import FAMILY, HOME

SPEC = RunnerSpec(
    session_id=SessionId("ses"), agent_group_id=AgentGroupId("ag"), epoch=1, install_id="x", agent_name="Dot",
    provider="mock", paths=RunnerPaths(session="/session", workspace="/workspace", group="/group"),
)  # fmt: skip


def test_the_groups_words_come_from_both_files_and_each_once(tmp_path: Path) -> None:
    assert group_words(tmp_path) == ""
    (tmp_path / "AGENTS.md").write_text("Be brief.\n")
    (tmp_path / "CLAUDE.md").write_text("Be brief.")
    assert group_words(tmp_path) == "Be brief."
    (tmp_path / "CLAUDE.md").write_bytes(b"Be kind. \xff")
    assert group_words(tmp_path) == "Be brief.\n\nBe kind. \ufffd"


def test_the_system_prompt_names_who_where_and_how() -> None:
    """Messaging 6.6."""
    layers = prompt_layers(
        agent_name="Dot",
        destinations=[HOME, FAMILY],
        channels={"telegram": "no tables.", "irc": ""},
        documents="From a plugin.",
        words="Own words.",
        memory="- cats.md: the cats",
        tools=[("notes", "Notes", "Use notes."), ("nothing", "Nothing", " ")],
    )
    names = ["identity", "destinations", "channels", "documents", "group", "memory", "tools:notes"]
    assert [layer.name for layer in layers] == names
    text = joined(layers)
    for part in ("Own words.", "You are Dot", "`family`", "The Family", "<internal>", "# Notes\n\nUse notes."):
        assert part in text
    assert "# Nothing" not in text and "no other destinations" not in text and "- irc" not in text
    assert [layer.name for layer in prompt_layers(agent_name="Dot")] == ["identity", "destinations"]
    assert "no other destinations" in joined(prompt_layers(agent_name="Dot"))
    assert sum(layer.size for layer in layers) == len(text.encode()) - 2 * (len(layers) - 1) - 1


def test_the_system_prompt_is_the_same_bytes_in_whatever_order_things_are_found() -> None:
    first = prompt_layers(agent_name="Dot", destinations=[HOME, FAMILY], channels={"a": "x", "b": "y"})
    second = prompt_layers(agent_name="Dot", destinations=[FAMILY, HOME], channels={"b": "y", "a": "x"})
    assert joined(first) == joined(second)


def test_a_memorys_index_is_read_from_a_plain_file_only(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    assert memory_index(tmp_path) == ""
    (memory / "index.md").write_text("x" * 20_000)
    assert len(memory_index(tmp_path)) == 16_384
    (tmp_path / "secret").write_text("secret")
    (memory / "index.md").unlink()
    (memory / "index.md").symlink_to(tmp_path / "secret")
    assert memory_index(tmp_path) == ""
    (memory / "index.md").unlink()
    os.mkfifo(memory / "index.md")
    assert memory_index(tmp_path) == ""


@pytest.mark.parametrize(
    ("printed", "wake", "output", "problem"),
    [
        ('log\n{"wakeAgent": true, "data": [1]}\n\n', True, "[\n  1\n]", False),
        ('{"wakeAgent": true}', True, None, False),
        ('{"wakeAgent": false}', False, None, False),
        ('{"wakeAgent": 1}', False, None, True),
        ("[]", False, None, True),
        ("", False, None, True),
        ("[" * 100_000, False, None, True),
    ],
)
def test_a_scripts_last_line_decides(printed: str, wake: bool, output: str | None, problem: bool) -> None:
    """Messaging 6.5."""
    verdict = read_verdict(printed)
    assert (verdict.wake, verdict.output, verdict.problem is not None) == (wake, output, problem)


async def test_scripts_are_bounded_in_time_and_output(tmp_path: Path) -> None:
    """Messaging 6.5."""
    late = await check_script("sleep 60 & sleep 60", str(tmp_path), seconds=0.3)
    assert late.problem is not None and "longer than 0.3 s" in late.problem
    loud = await check_script("yes", str(tmp_path))
    assert loud.problem is not None and "printed more" in loud.problem
    assert await check_script("exit 0\n" + "#" * 500_000, str(tmp_path)) == Verdict(
        False, problem="the script printed nothing"
    )


async def test_the_scripts_of_one_batch_run_at_the_same_time(tmp_path: Path) -> None:
    """A conversation does not wait for ten times thirty seconds."""

    def meets(mine: str, other: str) -> str:
        return f"touch {mine}; until [ -e {other} ]; do sleep 0.01; done; echo '{{\"wakeAgent\": true}}'"

    rows = [task_row("one", meets("a", "b")), task_row("two", meets("b", "a")), task_row("none", None)]
    verdicts = await check_scripts(rows, str(tmp_path))
    assert verdicts == {rows[0].id: Verdict(True), rows[1].id: Verdict(True)}


async def test_a_task_that_was_taken_back_before_its_claim_was_on_the_disk_does_not_begin(tmp_path: Path) -> None:
    """C115: the host withdraws it between the runner's look and its claim."""
    folder = SessionFolder(tmp_path / "ag" / "ses")
    folder.create()
    host, room = HostMailbox(folder), MailRoom(folder, 1, SystemClock())
    kept, gone = task_row("kept", None), task_row("gone", f"touch {tmp_path}/ran")
    host.enqueue([kept, gone])
    await room.open()
    try:
        rows = await room.run(lambda mailbox: mailbox.pending(SystemClock().now()))
        host.withdraw([gone.id])
        assert host.taken([kept.id, gone.id]) == set(), "so the host says that it will not run"
        await room.run(lambda mailbox: mailbox.claim(rows, TurnId("trn_1")))
        agent = Agent.__new__(Agent)
        agent.mail, agent.spec, agent.clock = (
            room,
            replace(SPEC, paths=replace(SPEC.paths, workspace=str(tmp_path))),
            SystemClock(),
        )
        agent.ring = lambda: None
        batch = Batch(tuple(rows))
        taken = Taken(batch, TurnId("trn_1"), Scene((), None), "", False)
        left = await check_tasks(agent, taken, {})
        assert left is not None and [row.id for row in left.rows] == [kept.id]
        assert not (tmp_path / "ran").exists()
        acks = {ack.message_id: ack.status for ack in host.acks_of([kept.id, gone.id], until=99)}
        assert acks == {kept.id: AckStatus.PROCESSING, gone.id: AckStatus.RELEASED}
        assert host.taken([kept.id, gone.id]) == {kept.id}
        host.put_back([gone.id])
        assert [row.id for row in await room.run(lambda mailbox: mailbox.pending(SystemClock().now()))] == [gone.id]
    finally:
        await room.close()
        host.close()


def task_row(prompt: str, script: str | None) -> InboundRow:
    content = TaskContent(prompt=prompt, script=script)
    return InboundRow(id=InboundId(new_id("in")), kind=InboundKind.TASK, content=content, at=UnixMs(0))


async def test_nobody_misses_a_beat() -> None:
    pulse = Pulse()
    seen = pulse.count
    pulse.beat()
    assert await pulse.wait(seen, 0)
    waiting = [asyncio.create_task(pulse.wait(pulse.count, 30)) for _ in range(3)]
    await asyncio.sleep(0)
    pulse.beat()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert not await pulse.wait(pulse.count, 0.01)


async def test_mailbox_work_is_done_in_order_and_its_failure_is_its_callers_own(tmp_path: Path) -> None:
    folder = SessionFolder(tmp_path / "ses")
    folder.create()
    room = MailRoom(folder, 1, SystemClock())
    await room.open()
    began, go_on, done = threading.Event(), threading.Event(), list[str]()

    def first(_: RunnerMailbox) -> None:
        began.set()
        assert go_on.wait(30)
        done.append("first")

    def broken(_: RunnerMailbox) -> None:
        done.append("broken")
        raise MailboxError("no")

    begun = asyncio.ensure_future(room.run(first))
    assert await asyncio.to_thread(began.wait, 30)
    unwanted = asyncio.ensure_future(room.run(lambda _: done.append("unwanted")))
    room.post("a note", broken)
    await asyncio.sleep(0)
    begun.cancel()  # too late
    unwanted.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(MailboxError, match="no"):
        await room.run(broken)
    assert await room.run(lambda mailbox: mailbox.epoch) == 1
    assert (done, room.failures) == (["first", "broken", "broken"], 1)
    await room.close()
