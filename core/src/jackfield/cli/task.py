"""`jackfield task`: what agents do at a time of its own."""

from __future__ import annotations

from typing import Any, TextIO

import click

from jackfield.cli import output, printable
from jackfield.cli.lazy import Group, MayBeEmpty, json_option
from jackfield.cli.state import Json, call, confirm, emit, say

__all__ = ["task"]

STATES = ("active", "paused", "stopped", "done", "cancelled")
CATCH_UP = click.Choice(["latest", "all", "skip"])


@click.group(cls=Group)
def task() -> None:
    """Tasks: what agents do at a time of its own, once or again and again."""


@task.command("list")
@click.option("--group", help="Only those of one agent group.")
@click.option("--state", type=click.Choice(STATES), help="Only those in one state.")
@click.option("--all", "everything", is_flag=True, help="Also those that are over.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="At most so many.")
@json_option
def list_tasks(group: str | None, state: str | None, everything: bool, limit: int) -> None:
    """List tasks, the newest first, with the local time of their next run."""
    found = call("task.list", group=group, state=state, all=everything, limit=limit)
    if emit(found):
        return
    rows = [{**one, "next": _next(one)} for one in found]
    columns = {"id": "ID", "group": "AGENT", "state": "STATE", "next": "NEXT", "cron": "REPEATS", "chat": "CHAT"}
    columns |= {"failures": "FAILED"} if any(row["failures"] for row in found) else {}
    output.table(rows, {**columns, "prompt": "WHAT"}, empty="Nothing is scheduled.", wide="prompt")


@task.command("show")
@click.argument("task_id", metavar="ID")
@json_option
def show(task_id: str) -> None:
    """Show one task."""
    found = call("task.show", id=task_id)
    if not emit(found):
        _show(found)


@task.command("add")
@click.argument("group")
@click.argument("prompt")
@click.option("--at", help="When: 2027-03-14T09:00 in its time zone, or a time from now on like 1h30m.")
@click.option("--cron", help="Repeat it: five fields, like '0 9 * * 1-5', or @daily.")
@click.option("--timezone", help="IANA zone; by default the agent group's.")
@click.option("--chat", help="Where it runs and answers; by default the agent's own chat in the terminal.")
@click.option("--script", type=click.File("r", encoding="utf-8"), help="File with a bash script that decides first.")
@click.option("--catch-up", type=CATCH_UP, help="What becomes of missed runs; by default latest.")
@click.option("--stop-after", type=click.IntRange(1), help="Stop after so many failures in a row.")
@click.option("--own-session", is_flag=True, help="Run it in a conversation of its own.")
@click.option("--often", is_flag=True, help="Yes, more often than every five minutes.")
@json_option
def add(group: str, prompt: str, script: TextIO | None, **options: Any) -> None:
    """Schedule something for an agent."""
    found = call(
        "task.add", group=group, prompt=prompt, script=None if script is None else script.read(), **_given(options)
    )
    if not emit(found):
        say(f"{found['id']} runs {output.text_of(_next(found))}")


@task.command("update")
@click.argument("task_id", metavar="ID")
@click.option("--prompt", help="What the agent is to do.")
@click.option("--at", help="When: 2027-03-14T09:00 in its time zone, or a time from now on like 1h30m.")
@click.option("--cron", cls=MayBeEmpty, help="Repeat it so; '' for only once more.")
@click.option("--timezone", help="IANA zone.")
@click.option(
    "--script", type=click.File("r", encoding="utf-8"), help="File with another script; an empty one for none."
)
@click.option("--catch-up", type=CATCH_UP, help="What becomes of missed runs.")
@click.option("--stop-after", type=click.IntRange(0), help="Stop after so many failures in a row; 0 for never.")
@click.option("--often", is_flag=True, help="Yes, more often than every five minutes.")
@json_option
def update(task_id: str, script: TextIO | None, **options: Any) -> None:
    """Change a task; what is not given stays."""
    more = _given(options) | ({} if script is None else {"script": script.read()})
    _changed(call("task.update", id=task_id, **more))


@task.command("pause")
@click.argument("task_id", metavar="ID")
@json_option
def pause(task_id: str) -> None:
    """Run it no more until it is resumed."""
    _changed(call("task.pause", id=task_id))


@task.command("resume")
@click.argument("task_id", metavar="ID")
@json_option
def resume(task_id: str) -> None:
    """Go on with a task that was paused or stopped."""
    _changed(call("task.resume", id=task_id))


@task.command("cancel")
@click.argument("task_id", metavar="ID")
@click.option("--yes", "-y", is_flag=True, help="Don't ask.")
@json_option
def cancel(task_id: str, yes: bool) -> None:
    """End a task for good."""
    confirm(f"Cancel {task_id} for good?", yes=yes)
    _changed(call("task.cancel", id=task_id))


@task.command("run")
@click.argument("task_id", metavar="ID")
@json_option
def run(task_id: str) -> None:
    """Run it once now, besides its schedule."""
    result = call("task.run", id=task_id)
    if not emit(result):
        say(f"it runs; `jackfield task runs {result['id']}` tells what came of it")


@task.command("runs")
@click.argument("task_id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most so many.")
@json_option
def runs(task_id: str, limit: int) -> None:
    """List what became of its runs, the newest first."""
    found = call("task.runs", id=task_id, limit=limit)
    if emit(found):
        return
    rows = [{**one, "state": _state(one), "ended": output.ago(one.get("finished_at"))} for one in found]
    columns = {"due_local": "DUE", "state": "STATE", "attempts": "TRIES", "ended": "ENDED", "message": "MESSAGE"}
    columns |= {"reason": "WHY"} if any(row["reason"] for row in rows) else {}
    output.table(rows, columns, empty="It has not run yet.", wide="reason" if "reason" in columns else None)


def _next(one: Json) -> str | None:
    """Its next moment, by ISO 8601 and with the name of its zone."""
    return f"{one['next_local']} ({one['timezone']})" if one["next_local"] else None


def _state(one: Json) -> str:
    """Of an open run, how far the agent is with it."""
    return str(one["message_state"] or one["state"]) if one["finished_at"] is None else str(one["state"])


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _changed(result: Json) -> None:
    if emit(result):
        return
    following = f"; it runs next {_next(result)}" if result["state"] == "active" and result["next_local"] else ""
    say(f"{result['id']} is {output.text_of(result['state'])}{following}")
    if result["begun"]:
        say("a run that had begun goes on to its end")


def _show(found: Json) -> None:
    hidden = {"prompt", "script", "last_run", "next_at", "gated"}
    output.facts(
        {
            key.removesuffix("_at").replace("_local", "").replace("_", " "): (
                output.ago(value) if key.endswith("_at") and value else value
            )
            for key, value in found.items()
            if key not in hidden and value not in (None, False)
        }
    )
    last = found.get("last_run")
    if last is not None:
        output.facts({"last run": f"{last['due_local']}: {_state(last)}"})
    say()
    say(printable.block(str(found["prompt"])))
    if found.get("script"):
        say()
        say("Script:", bold=True)
        say(printable.block(str(found["script"])))
