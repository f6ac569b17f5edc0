"""Tasks through the whole path: an agent schedules, and what is due is answered in the chat."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.exchange import Exchange, prepared


def tool(name: str, **arguments: Any) -> str:
    return f"mock: tool {name} {json.dumps(arguments)}"


def equipped(exchange: Exchange) -> Exchange:
    """Give the agent the tools."""
    agent = exchange.home.groups / "andy" / "agent.toml"
    text = agent.read_text(encoding="utf-8")
    assert 'tools = ["messaging"]' in text
    agent.write_text(text.replace('tools = ["messaging"]', 'tools = ["messaging", "schedule"]'), encoding="utf-8")
    exchange.op("group.accept", name="andy")
    return exchange


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exchange]:
    with prepared(tmp_path_factory.mktemp("tasks"), host_settings="max_runners = 8") as exchange:
        yield equipped(exchange).start()


def tasks_of(exchange: Exchange, chat: str) -> list[dict[str, Any]]:
    """Those whose answers go to that chat."""
    return [one for one in exchange.op("task.list", all=True) if one["chat"] == f"postbox:box:{chat}"]


def only_task(exchange: Exchange, chat: str) -> dict[str, Any]:
    (found,) = tasks_of(exchange, chat)
    return found


def add(exchange: Exchange, chat: str, prompt: str, **more: Any) -> str:
    made = exchange.op("task.add", group="andy", chat=f"postbox:box:{chat}", prompt=prompt, **more)
    return str(made["id"])


def last_run(exchange: Exchange, task_id: str) -> dict[str, Any]:
    return dict((exchange.op("task.runs", id=task_id) or [{"state": "none"}])[0])


def until_run(exchange: Exchange, task_id: str, state: str) -> dict[str, Any]:
    exchange.wait_for(lambda: last_run(exchange, task_id)["state"] == state, f"a run of {task_id} that is {state}")
    return last_run(exchange, task_id)


def test_an_agent_wakes_itself_and_answers_where_it_was_asked(shared: Exchange) -> None:
    """D.18; C109: the tool tells the local time and the zone."""
    shared.join("tea")
    shared.say("tea", tool("schedule_task", prompt="mock: say the tea is ready", at="2s", timezone="Asia/Tokyo"))
    said = shared.wait_text("tea", "Task scheduled")
    assert "(Asia/Tokyo)" in said
    shared.wait_text("tea", "the tea is ready")
    task = only_task(shared, "tea")
    run = until_run(shared, task["id"], "completed")
    assert run["session"] == shared.session_of("tea")["id"]
    assert shared.op("task.show", id=task["id"])["state"] == "done"
    assert shared.texts("tea") == [said, "the tea is ready"]


def test_the_agent_lists_changes_and_cancels_what_it_scheduled(shared: Exchange) -> None:
    """D.19; C115"""
    shared.join("list")
    shared.join("other")
    shared.say("list", tool("schedule_task", prompt="Water", cron="0 9 * * 1-5", timezone="Asia/Tokyo"))
    shared.wait_text("list", "repeats: 0 9 * * 1-5")
    id = only_task(shared, "list")["id"]
    shared.say("list", tool("list_tasks"))
    assert f"- {id} [active] next: " in shared.wait_text("list", "→ Water")
    shared.say("other", tool("list_tasks"))
    assert shared.wait_text("other", "No tasks") == "No tasks found."
    shared.say("other", tool("cancel_task", task_id=id))
    shared.wait_text("other", "this conversation has no task")
    shared.say("list", tool("update_task", task_id=id, cron="@daily", timezone="UTC"))
    assert "12:00 AM (UTC)" in shared.wait_text("list", "Task updated")
    shared.say("list", tool("pause_task", task_id=id))
    shared.wait_text("list", "Task paused")
    shared.say("list", tool("cancel_task", task_id=id))
    shared.wait_text("list", "No run of it waits any more")
    assert only_task(shared, "list")["state"] == "cancelled"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"cron": "61 * * * *"}, "no cron expression"),
        ({"at": "2020-01-01T00:00"}, "has passed"),
        ({"at": "1h", "timezone": "Mars/Base"}, "no time zone"),
        ({"cron": "* * * * *"}, "300 s is the least"),
        ({}, "has no time"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_scheduled(
    shared: Exchange, wrong: dict[str, str], told: str
) -> None:
    """C109, C203: an expression that is none never lies in wait."""
    chat = f"wrong-{told.replace(' ', '-')}"
    shared.join(chat)
    shared.say(chat, tool("schedule_task", prompt="x", **wrong))
    assert told in shared.wait_text(chat, "Error")
    assert tasks_of(shared, chat) == []


def test_scripts_decide_whether_the_agent_is_needed(shared: Exchange) -> None:
    """messaging.md 6.5"""
    shared.join("scripts")
    yes = add(
        shared, "scripts", "mock: say {text}", at="1s", script='echo \'{"wakeAgent": true, "data": {"mails": 3}}\''
    )
    no = add(shared, "scripts", "mock: say never", at="1s", script="echo '{\"wakeAgent\": false}'")
    broken = add(shared, "scripts", "mock: say never", at="1s", script="exit 3")
    assert "mails" in shared.wait_text("scripts", "mails")
    until_run(shared, yes, "completed")
    until_run(shared, no, "completed")
    assert "code 3" in until_run(shared, broken, "failed")["reason"]
    assert "its script failed" in shared.wait_text("scripts", "failed")
    assert not any("never" in text and "failed" not in text for text in shared.texts("scripts"))


def test_a_script_runs_where_its_agent_runs(shared: Exchange) -> None:
    """Issue 4: in the runner, as it and with no more than it; never in the host."""
    shared.join("where")
    readable = f"[ -r {shared.home.jackfield_toml} ] && r=true || r=false"
    script = f'touch made-by-script; {readable}; echo "{{\\"wakeAgent\\": true, \\"data\\": {{\\"reads\\": $r}}}}"'
    add(shared, "where", "mock: say {text}", at="1s", script=script)
    said = shared.wait_text("where", '"reads"')
    runner = Path(f"/proc/{shared.processes()[shared.session_of('where')['id']]}").stat().st_uid
    made = shared.home.groups / "andy" / "workspace" / "made-by-script"
    assert made.stat().st_uid == runner
    assert runner == os.geteuid() or '"reads": false' in said, "what the host is set up with is not the script's"


def test_a_run_that_fails_is_told_once_and_the_series_goes_on(shared: Exchange) -> None:
    """C117"""
    shared.join("fails")
    id = add(shared, "fails", "mock: fail refusal", cron="0 3 * * *")
    shared.op("task.run", id=id)  # what somebody asked for is told by `task runs` alone
    until_run(shared, id, "failed")
    assert shared.op("task.show", id=id)["state"] == "active"
    once = add(shared, "fails", "mock: fail refusal", at="1s")
    until_run(shared, once, "failed")
    shared.wait_text("fails", "is not tried again")
    assert len(shared.texts("fails")) == 1


def test_a_task_that_kills_its_runner_is_tried_again_and_ends(shared: Exchange) -> None:
    """C088, C117"""
    shared.join("killer")
    id = add(shared, "killer", "mock: crash kill times=1 mock: say survived", at="1s")
    shared.wait_text("killer", "survived")
    assert until_run(shared, id, "completed")["attempts"] == 2


def test_a_task_for_another_chat_runs_only_after_a_yes(shared: Exchange) -> None:
    """C143: the person who asked is nobody special."""
    shared.join("asker")
    shared.join("stage")
    name = next(one["name"] for one in shared.op("group.show", name="andy")["destinations"] if "stage" in one["target"])
    shared.say("asker", tool("schedule_task", prompt="mock: say curtain up", at="1s", to=name))
    shared.wait_text("asker", "nothing is scheduled before")
    assert tasks_of(shared, "stage") == []
    (asked,) = [one for one in shared.op("approval.list") if one["kind"] == "schedule_elsewhere"]
    labels = {one["label"]: one["value"] for one in shared.op("approval.show", id=asked["id"])["fields"]}
    assert labels["Prompt"] == "mock: say curtain up"
    assert "postbox:box:stage" in labels["Conversation"]
    shared.op("approval.decide", id=asked["id"], value="reject")
    shared.say("asker", tool("schedule_task", prompt="mock: say curtain up", cron="0 4 * * *", to=name))
    shared.wait_for(lambda: len(shared.op("approval.list")) == 1, "the second request")
    (again,) = shared.op("approval.list")
    shared.op("approval.decide", id=again["id"], value="approve")
    shared.wait_for(lambda: tasks_of(shared, "stage"), "the task")
    id = only_task(shared, "stage")["id"]
    shared.op("task.run", id=id)
    shared.wait_text("stage", "curtain up")
    shared.say("asker", tool("update_task", task_id=id, prompt="mock: say something else"))
    shared.wait_text("asker", "runs in another conversation")


def test_a_cleared_conversation_keeps_its_tasks(shared: Exchange) -> None:
    shared.join("keeps")
    shared.say("keeps", "mock: say hello")
    shared.wait_text("keeps", "hello")
    id = add(shared, "keeps", "mock: say still here", cron="0 5 * * *")
    before = shared.session_of("keeps")["id"]
    shared.op("session.clear", id=before)
    shared.op("task.run", id=id)
    shared.wait_text("keeps", "still here")
    assert last_run(shared, id)["session"] != before


def test_the_command_line_tells_what_is_scheduled(shared: Exchange, tmp_path: Path) -> None:
    shared.join("cli")
    added = shared.run(
        "task", "add", "andy", "mock: say from the shell", "--chat", "postbox:box:cli", "--cron", "30 7 * * *",
        "--timezone", "Europe/Berlin",
    ).stdout  # fmt: skip
    id = added.split()[0]
    assert re.search(r"T07:30:00\+0[12]:00 \(Europe/Berlin\)", added)
    listed = shared.run("task", "list").stdout
    assert re.search(rf"{id} .*T07:30:00\+0[12]:00 \(Europe/Berlin\) .*postbox:box:cli", listed)
    assert id in listed and "30 7 * * *" in listed and "(Europe/Berlin)" in listed
    assert "30 7 * * *" in shared.run("task", "show", id).stdout
    shared.run("task", "run", id)
    shared.wait_text("cli", "from the shell")
    until_run(shared, id, "completed")
    assert "completed" in shared.run("task", "runs", id).stdout
    assert "is paused" in shared.run("task", "pause", id).stdout
    assert "runs next" in shared.run("task", "resume", id).stdout
    assert "T08:00:00+0" in shared.run("task", "update", id, "--cron", "0 8 * * *").stdout
    refused = shared.run("task", "update", id, "--cron", "never", check=False)
    assert refused.returncode == 2 and "five fields" in refused.stderr
    refused = shared.run("task", "update", id, "--cron", "* * * * *", check=False)
    assert refused.returncode == 2 and "with `--often`" in refused.stderr
    refused = shared.run("task", "add", "andy", "x", check=False)
    assert refused.returncode == 2 and "`--at` to run it once, or with `--cron`" in refused.stderr
    assert shared.op("task.show", id=id)["by"] == "operator"
    assert "left out" in shared.run("group", "export", "andy", str(tmp_path / "andy.tar.gz")).stderr
    assert "is cancelled" in shared.run("task", "cancel", id, "--yes").stdout
    assert shared.run("task", "show", "tsk_none", check=False).returncode == 3


# ---- hosts that come and go


@pytest.mark.parametrize(
    "point", ["host.schedule.after_claim", pytest.param("host.schedule.after_feed", marks=pytest.mark.slow)]
)
def test_a_host_killed_between_a_claim_and_its_end_runs_it_once(make_exchange: Any, point: str) -> None:
    """C113, architecture 10."""
    exchange: Exchange = make_exchange()
    exchange.join("once")
    id = add(exchange, "once", "mock: say exactly once", at="2s")
    exchange.start(JACKFIELD_KILL_AT=point)
    exchange.wait_for(exchange.process_ended, f"the host's death at {point}")
    exchange.start()
    until_run(exchange, id, "completed")
    exchange.wait_text("once", "exactly once")
    assert exchange.texts("once") == ["exactly once"]
    assert len(exchange.op("task.runs", id=id)) == 1


def test_tasks_are_changed_without_a_host_and_caught_up_with_by_the_next(make_exchange: Any) -> None:
    """C115, C119: what fell due while no host ran is run late; what was cancelled meanwhile is not."""
    exchange: Exchange = make_exchange()
    exchange.join("late")
    late = add(exchange, "late", "mock: say late but here", at="1s")
    dropped = add(exchange, "late", "mock: say never", at="1s")
    skipped = add(exchange, "late", "mock: say never", at="1h")
    exchange.op("task.cancel", id=dropped)
    exchange.op("task.pause", id=skipped)
    with pytest.raises(Exception, match="running host"):
        exchange.op("task.run", id=late)
    exchange.run("backup", str(exchange.root / "b.tar.gz"))
    copy = Exchange(root=exchange.root / "copy")
    exchange.run("restore", str(exchange.root / "b.tar.gz"), "--into", str(copy.home.root))
    assert {one["id"] for one in copy.op("task.list")} == {late, skipped}
    time.sleep(1)
    exchange.start()
    exchange.wait_text("late", "late but here")
    until_run(exchange, late, "completed")
    assert exchange.op("task.runs", id=dropped) == []
    assert exchange.op("task.show", id=skipped)["state"] == "paused"
    assert exchange.texts("late") == ["late but here"]
