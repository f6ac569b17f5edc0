"""`jackfield channel doctor`: one channel from its settings to its last errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from jackfield.cli import output
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.state import call, current, emit, say
from jackfield.cli.watchdog import Watchdog
from jackfield.errors import JackfieldError

if TYPE_CHECKING:
    from jackfield.host.diagnosis import Finding

__all__ = ["doctor"]

Json = Any
LONGEST = 60.0
"""Seconds for a diagnosis, in which the platform alone may take 20."""
TELL_AUTHOR = (
    "its plugin waits for something without letting others go on, or ignores being told to stop: tell its author"
)


@click.command(cls=Command)
@click.argument("name")
@click.option("--send", "chat", metavar="CHAT", help="Send a marked message to that chat, and look for it there.")
@json_option
def doctor(name: str, chat: str | None) -> int:
    """Examine one channel: settings, secrets, credentials, state, routes, deliveries, and what it can do.

    With --send it also writes one message to a chat, looks for it where the platform keeps history, and takes it away
    again.  Ends with exit code 1 when something does not work.
    """
    from jackfield.host.diagnosis import finding_from, problem_of

    def last_words() -> int:
        return _tell(_blocked(name), None)

    with Watchdog(last_words) as watchdog:
        watchdog.arm(LONGEST)
        found = call("channel.diagnose", name=name)
    findings = [finding_from(one) for one in found["findings"]]
    trial: Json = None
    if chat is not None:
        check = f"channel:{name}"
        try:
            trial = call("channel.trial", name=name, chat=chat)
        except JackfieldError as problem:
            findings.append(problem_of(check, problem, "see `jackfield channel list`, and the platform's own settings"))
        else:
            findings.append(_judge(check, trial))
    return _tell({**found, "findings": findings}, trial)


def _blocked(name: str) -> Json:
    """What is known of a channel of which nothing came back: as a diagnosis, with one finding."""
    from jackfield.config.load import load
    from jackfield.host.diagnosis import error

    section = load(current().home).channels.get(name)
    text = f"nothing came back within {LONGEST:g} s: it blocks, and can't be ended"
    return {
        "name": name, "type": None if section is None else section.type,
        "enabled": section is not None and section.enabled, "state": None, "detail": None, "pending": None,
        "routes": [],
        "findings": [error(f"channel:{name}", text, TELL_AUTHOR)], "errors": [], "capabilities": None,
    }  # fmt: skip


def _tell(found: Json, trial: Json) -> int:
    """Print a diagnosis, whose findings are no JSON any more; the exit code."""
    from jackfield.cli.doctor import show_findings
    from jackfield.host.diagnosis import Level, worst

    findings: list[Finding] = found["findings"]
    code = 1 if worst(findings) is Level.ERROR else 0
    result = {**found, "ok": code == 0, "findings": [one.as_json() for one in findings], "trial": trial}
    if emit(result):
        return code
    output.facts({key: found[key] for key in ("name", "type", "state", "detail", "pending", "routes")})
    say()
    show_findings(findings)
    if found["errors"]:
        say()
        say("Last errors:", bold=True)
        rows = [{**one, "when": output.ago(one["updated_at"])} for one in found["errors"]]
        columns = {"when": "WHEN", "to": "TO", "reason": "REASON", "error": "ERROR"}
        output.table(rows, columns, empty="", wide="error")
    if found["capabilities"]:
        say()
        say("What it can do:", bold=True)
        output.facts({key: value for key, value in found["capabilities"].items() if value is not None}, indent=2)
    return code


def _judge(check: str, trial: Json) -> Finding:
    """What came of the marked message: a pure function of what the host saw."""
    from jackfield.host.diagnosis import error, ok, warning

    if trial["found"]:
        tidied = ", and was taken away again" if trial["removed"] else ""
        return ok(check, f"a message was sent and found in the chat{tidied}")
    if trial["found"] is False:
        text = "a message was sent, and is not in the chat's history"
        return error(check, text, "see that the account may read that chat, and that it is the right one")
    if not trial["final"]:
        return warning(check, "the platform took a message, and will tell later what came of it", "look into the chat")
    return ok(check, "a message was sent; the platform keeps no history to look for it, so look into the chat")
