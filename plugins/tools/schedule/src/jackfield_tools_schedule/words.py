"""From what the host answers to what the model reads.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["asked", "changed", "line", "listed", "scheduled"]

_CUT = 80


def scheduled(task: Mapping[str, Any]) -> str:
    """A task that was entered."""
    parts = [f"id: {task['id']}", f"runs at: {task['next_local'] or 'no time'}"]
    if task.get("cron"):
        parts.append(f"repeats: {task['cron']}")
    return f"Task scheduled ({', '.join(parts)})"


def asked(ticket: Mapping[str, Any]) -> str:
    """A task for another conversation, which somebody must allow."""
    if ticket["state"] == "approved":
        return f"That is allowed ({ticket['id']}). A notice tells when the task is scheduled."
    return (
        f"A person is asked whether it may be scheduled there ({ticket['id']}). A notice tells what they decided; "
        "nothing is scheduled before."
    )


def listed(tasks: Sequence[Mapping[str, Any]]) -> str:
    """One line each."""
    return "\n".join(line(task) for task in tasks) or "No tasks found."


def line(task: Mapping[str, Any]) -> str:
    """A task in a list: `- id [state] next: ..., repeats: ... → prompt`."""
    facts = [f"next: {task['next_local']}" if task.get("next_local") else "no next run"]
    if task.get("cron"):
        facts.append(f"repeats: {task['cron']}")
    if task.get("script"):
        facts.append("with a script")
    if task.get("running"):
        facts.append("running now")
    if task.get("failures"):
        facts.append(f"failed {task['failures']} times in a row")
    if task.get("reason"):
        facts.append(f"because {task['reason']}")
    if task.get("elsewhere"):
        facts.append(f"in {task['place']}")
    prompt = " ".join(str(task["prompt"]).split())
    shown = prompt if len(prompt) <= _CUT else prompt[: _CUT - 1] + "…"
    return f"- {task['id']} [{task['state']}] {', '.join(facts)} → {shown}"


def changed(what: str, outcome: Mapping[str, Any]) -> str:
    """What a change came to; `what` is the past participle."""
    task = outcome["task"]
    text = f"Task {what}: {task['id']}."
    if task["state"] == "cancelled":
        text += " No run of it waits any more."
    elif task["state"] == "active" and task.get("next_local"):
        text += f" Next run: {task['next_local']}."
    elif task["state"] != "active":
        text += f" It is {task['state']}."
    if outcome.get("begun"):
        text += " A run that had begun goes on to its end as it was."
    return text
