"""`up`, `down`, `reload`, `status`: the host's life."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jackfield.cli import output, printable
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.state import Json, State, call, current, emit, run_async, say, warn
from jackfield.config.home import Home
from jackfield.errors import HostRunning, JackfieldError, NoHost

if TYPE_CHECKING:
    from jackfield.host.application import HostReport

__all__ = ["down", "reload", "reload_if_running", "show_problems", "status", "up"]

POLL = 0.1


@click.command(cls=Command)
@click.option("--detach", "-d", is_flag=True, help="Start it in the background and return when it answers.")
@click.option(
    "--wait", "patience", default=60.0, show_default=True, help="With --detach: seconds until it must answer."
)
@json_option
def up(detach: bool, patience: float) -> int:
    """Run the host, in the foreground until Ctrl-C."""
    state = current()
    home = state.home.require()
    if detach:
        return _start_detached(state, home, patience)
    from jackfield.cli.logging_setup import host_logging
    from jackfield.config.load import load
    from jackfield.host.application import run_host

    configuration = load(home, strict=state.strict)
    home.logs.mkdir(mode=0o700, exist_ok=True)
    host_logging(
        home,
        level=configuration.host.log_level,
        verbose=state.verbose,
        terminal=not state.json,
        file_bytes=configuration.host.log_bytes,
        files_kept=configuration.host.log_files,
    )
    ready = functools.partial(_say_ready, home, state.json)
    return run_async(run_host(home, safe=state.safe, strict=state.strict, ready=ready))


def _say_ready(home: Home, quiet: bool, report: HostReport) -> None:
    """What is up, in a few lines; the log has the rest."""
    if quiet:
        return
    click.echo(click.style("ready", fg="green") + f"  {home.root}  (process {report.pid}; Ctrl-C stops it)", err=True)
    for name, kind, state in report.channels:
        shown = click.style(state, fg=output.state_colour(state))
        click.echo(f"  channel {output.text_of(name)} ({output.text_of(kind)}): {shown}", err=True)
    for problem in report.problems:
        warn(printable.line(problem))
    if report.unowned:
        warn(f"nobody on {', '.join(map(output.text_of, report.unowned))} is an owner: `jackfield owner claim`")


def _start_detached(state: State, home: Home, patience: float) -> int:
    """Start a host that outlives this command; return when it answers.

    Raises:
        HostRunning: one runs already.
        NoHost: it did not come up in time.
    """
    running = run_async(_ask_if_up(home))
    if running is not None:
        pid = int(running.get("pid") or 0)
        raise HostRunning(f"a host runs here already, as process {pid}", pid=pid, fix="`jackfield down` stops it")
    home.logs.mkdir(mode=0o700, exist_ok=True)
    log = home.logs / "up.log"
    options = [f"--home={home.root}", *(["--safe"] if state.safe else []), *(["--strict"] if state.strict else [])]
    options += ["-v"] * state.verbose
    log.touch(mode=0o600)
    log.chmod(0o600)
    with log.open("wb") as stream:
        child = subprocess.Popen(
            [sys.executable, "-m", "jackfield.cli", *options, "--no-color", "up"],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
            cwd="/",
        )
    until = time.monotonic() + patience
    while time.monotonic() < until:
        code = child.poll()
        if code is not None:
            said = _tail(log)
            raise _Ended(code, said)
        report = run_async(_ask_if_up(home))
        if report is not None and report.get("pid") == child.pid:
            shown = {"pid": child.pid, "log": str(home.logs / "host.jsonl"), "home": str(home.root)}
            if not emit(shown):
                say("the host runs", fg="green")
                output.facts(shown, indent=2)
            return 0
        time.sleep(POLL)
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(10)
    raise NoHost(f"the host did not answer within {patience:g} s and was stopped", fix=f"see {log}")


class _Ended(JackfieldError):
    """The detached host ended at once; its exit code becomes ours."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(
            f"the host ended at once, with exit code {code}:\n{said}".rstrip(), fix="run `jackfield up` to see it all"
        )
        self.exit_code = code if code > 0 else 1  # type: ignore[misc]  # the only class whose codes differ

    @property
    def code(self) -> str:
        return "NoHost"


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:])


async def _ask_if_up(home: Home) -> dict[str, Any] | None:
    from jackfield.host.control import Client

    client = Client(home)
    try:
        report = await client.call("status", {})
    except NoHost:
        return None
    finally:
        await client.close()
    return report if isinstance(report, dict) else {}


async def _call_running(home: Home, op: str) -> Json:
    """An operation that makes sense only with a running host.

    Raises:
        NoHost: none runs.
    """
    from jackfield.host.control import Client

    client = Client(home)
    try:
        return await client.call(op, {})
    finally:
        await client.close()


@click.command(cls=Command)
@click.option("--wait", "patience", default=60.0, show_default=True, help="Seconds until it must have ended.")
@json_option
def down(patience: float) -> None:
    """Stop the host.  What it works on is finished or taken up again by the next one."""
    from jackfield.host.ownership import holder

    home = current().home.require()
    pid = holder(home)
    try:
        run_async(_call_running(home, "host.stop"))
    except NoHost:
        if not emit({"stopped": False, "running": False}):
            say("no host runs here")
        return
    run_async(_gone(home, pid, patience))
    if not emit({"stopped": True, "running": False}):
        say("the host has stopped")


async def _gone(home: Home, pid: int, patience: float) -> None:
    """Wait until that process has let the home go; another one may have it by then.

    Raises:
        JackfieldError: it has not.
    """
    from jackfield.host import ownership

    until = time.monotonic() + patience
    while ownership.holder(home) in (0, pid) and ownership.is_owned(home):
        if time.monotonic() > until:
            raise JackfieldError(
                f"the host still runs after {patience:g} s", fix="see what it waits for: `jackfield status`"
            )
        await asyncio.sleep(POLL)


@click.command(cls=Command)
@json_option
def reload() -> None:
    """Make the host read its configuration again.  A configuration with faults is refused and the old one stays."""
    result = run_async(_call_running(current().home.require(), "host.reload"))
    if emit(result):
        return
    show_problems(_problems_of(result))
    say("the configuration was read again")


def reload_if_running() -> Json:
    """After an edit: the running host's answer to a reload, or None without one.  A refusal is a warning."""
    try:
        return run_async(_call_running(current().home, "host.reload"))
    except NoHost:
        return None
    except JackfieldError as error:
        warn(f"the running host did not take the change: {printable.line(error.message)}")
        return None


def _problems_of(result: Json) -> list[str]:
    found = result.get("problems", []) if isinstance(result, dict) else []
    return [str(problem.get("message", problem) if isinstance(problem, dict) else problem) for problem in found]


def show_problems(problems: list[str]) -> None:
    for problem in problems:
        warn(printable.line(problem))


@click.command(cls=Command)
@json_option
def status() -> None:
    """Show how the host is: channels, runners, messages, troubles."""
    result = call("status")
    if emit(result):
        return
    running = result.get("running", False)
    say("the host runs" if running else "no host runs", fg="green" if running else "yellow")
    names = ("pid", "version", "home", "runner_cap", "runners_waiting")
    output.facts({name.replace("_", " "): result.get(name) for name in names}, indent=2)
    if not running:
        say("  start one with `jackfield up`, or `jackfield up --detach`")
    _section("Channels", result.get("channels"), {"name": "NAME", "type": "TYPE", "state": "STATE", "detail": "DETAIL"})
    if ingress := result.get("ingress"):
        _heading("Ingress")
        output.facts({"listens on": ingress["address"], "called at": ingress["url"]}, indent=2)
        _section("Routes", [{"path": path} for path in ingress["routes"]], {"path": "PATH"})
    runners = [{"session": name, "state": state} for name, state in (result.get("runners") or {}).items()]
    _section("Runners", runners, {"session": "SESSION", "state": "STATE"})
    if result.get("unowned"):
        _heading("Owner")
        say(f"  nobody on {', '.join(map(output.text_of, result['unowned']))} is an owner, who would be asked about")
        say("  strangers and risky things: `jackfield owner claim` makes you one from a chat", fg="yellow")
    for name, counts in (result.get("ledger") or {}).items():
        if counts:
            _heading(name.capitalize())
            output.facts(counts, indent=2)
    _section(
        "Agents that wrote each other too much",
        result.get("stopped_chains"),
        {"agent": "BEGAN WITH", "messages": "MESSAGES", "reason": "STOPPED BY", "chain": "OVER"},
    )
    if result.get("alerts"):
        _heading("An owner has to look")
        for alert in result["alerts"]:
            say(f"  {output.text_of(alert['subject'])} ({output.ago(alert.get('raised_at'))})", fg="yellow")
            for one in printable.block(str(alert["text"])).split("\n"):
                say(f"    {one}" if one.strip() else "")
    broken = [info for info in result.get("plugins") or [] if info.get("reason")]
    _section("Plugins out of use", broken, {"name": "NAME", "kind": "KIND", "state": "STATE", "reason": "REASON"})
    if result.get("problems"):
        _heading("Problems")
        for problem in result["problems"]:
            say(f"  {output.text_of(problem)}")
    if result.get("troubles"):
        _heading("Troubles survived")
        output.facts(result["troubles"], indent=2)


def _heading(title: str) -> None:
    say()
    say(f"{title}:", bold=True)


def _section(title: str, rows: list[dict[str, Any]] | None, columns: dict[str, str]) -> None:
    if rows:
        _heading(title)
        output.table(rows, columns, empty="", wide=list(columns)[-1])
