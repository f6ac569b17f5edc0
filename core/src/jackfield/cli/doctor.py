"""`jackfield doctor`: everything that an exchange needs, looked at and proved, with the fix for what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from jackfield.cli import output, printable
from jackfield.cli.lazy import Command, json_option
from jackfield.cli.state import State, current, emit, run_async, say
from jackfield.cli.watchdog import Watchdog
from jackfield.config.home import Home
from jackfield.errors import JackfieldError, MalformedData, NoHost

if TYPE_CHECKING:
    from jackfield.host.diagnosis import Finding
    from jackfield.host.offline import Caller

__all__ = ["doctor", "show_findings"]

LOCAL_SECONDS = 30.0
ANSWER_SECONDS = 120.0
AT_ONCE = 3
ENDING_SECONDS = 5.0
"""Seconds for what was left behind to end, once it was told to."""
BLOCKED = "something blocks and can't be ended; what comes after it was not looked at"
BLOCKED_FIX = "`jackfield channel doctor NAME` finds the channel; tell its plugin's author"
Told = Callable[[str], None]


@click.command(cls=Command)
@click.option("--fix-hints", is_flag=True, help="Print only what to do, a line for each thing that is wrong.")
@click.option("--wait", "patience", default=300.0, show_default=True, help="Seconds for all of it together.")
@json_option
def doctor(fix_hints: bool, patience: float) -> int:
    """Look at everything that an exchange needs, and say how to mend what is wrong.

    The configuration, the home and its disk, the store, the plugins, every channel with its credentials, every runtime;
    and for each agent a trial run from inside its sandbox.  It changes no setting, and works with a running host and
    without one.  Ends with exit code 1 when something does not work.
    """
    from jackfield.host.diagnosis.findings import error

    state = current()
    home = state.home.require()
    findings: list[Finding] = []
    complete = False

    def last_words() -> int:
        blocked = [] if complete else [error("doctor", BLOCKED, BLOCKED_FIX)]
        return _tell(findings + blocked, fix_hints)

    with Watchdog(last_words) as watchdog:
        # As long as a thread can wait at all: a --wait of years is one of these.
        watchdog.arm(min(patience, threading.TIMEOUT_MAX / 2) + ENDING_SECONDS)

        async def look() -> None:
            nonlocal complete
            await _diagnose(home, state, _teller(quiet=state.json), patience, findings)
            complete = True
            watchdog.arm(ENDING_SECONDS)

        run_async(look())
    return _tell(findings, fix_hints)


def _tell(findings: Sequence[Finding], fix_hints: bool) -> int:
    """Print what was found; the exit code."""
    from jackfield.host.diagnosis import Level, worst

    level = worst(findings)
    code = 1 if level is Level.ERROR else 0
    if emit({"ok": code == 0, "level": str(level), "findings": [finding.as_json() for finding in findings]}):
        return code
    if fix_hints:
        for one in findings:
            if one.fix:
                say(f"{printable.line(one.check)}: {printable.line(one.fix)}")
        return code
    show_findings(findings)
    say()
    if level is Level.OK:
        say("All is well.", fg="green")
    else:
        counts = [f"{sum(1 for one in findings if one.level is word)} {word}" for word in reversed(Level)]
        say(", ".join(counts), bold=True)
    return code


def show_findings(findings: Sequence[Finding]) -> None:
    """One line each, and the fix below it."""
    longest = max((printable.width(one.check) for one in findings), default=0)
    marks = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "error": ("ERROR", "red")}
    for one in findings:
        word, colour = marks[one.level]
        name = printable.line(one.check)
        pad = " " * (longest - printable.width(name))
        say(f"{click.style(word.ljust(5), fg=colour)}  {name}{pad}  {output.text_of(one.text)}")
        if one.fix:
            say(f"{' ' * (longest + 9)}fix: {printable.line(one.fix)}")


def _teller(*, quiet: bool) -> Told:
    """Shows on a terminal what is looked at; elsewhere nothing."""
    if quiet or not sys.stderr.isatty():
        return lambda text: None

    def tell(text: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{printable.cut(text, 70)}")
        sys.stderr.flush()

    return tell


# ---- looking


async def _diagnose(home: Home, state: State, tell: Told, patience: float, findings: list[Finding]) -> None:
    """Fill in the findings, those of this process first.  Each look is on its own: whatever one meets is a finding of
    it."""
    from jackfield.host.diagnosis.findings import error, problem_of

    try:
        async with asyncio.timeout(patience):
            for name, look in _local_looks(home, state):
                tell(f"looking at {name} ...")
                findings += await _bounded(name, look)
            try:
                async with _connected(home, state) as call:
                    findings += await _ask(call, tell)
            except JackfieldError as problem:
                findings.append(problem_of("host", problem))
    except TimeoutError:
        findings.append(
            error("doctor", f"not all was looked at within {patience:g} s", "try again with a longer --wait")
        )
    finally:
        tell("")


def _local_looks(home: Home, state: State) -> list[tuple[str, Callable[[], list[Finding]]]]:
    from jackfield.host.diagnosis import looking

    return [
        ("home", lambda: looking.look_at_home(home)),
        ("disk", lambda: [looking.look_at_disk(home)]),
        ("configuration", lambda: _configuration(home, state)),
    ]


def _configuration(home: Home, state: State) -> list[Finding]:
    from jackfield.cli.config import all_problems
    from jackfield.host.diagnosis import judging

    return judging.configuration(*all_problems(home, safe=state.safe))


async def _bounded(name: str, look: Callable[[], list[Finding]]) -> list[Finding]:
    """Run a look that blocks.  One that hangs (a dead network mount, a plugin) is left behind and holds up nothing."""
    from jackfield.host.diagnosis.findings import error, problem_of
    from jackfield.host.diagnosis.threads import in_thread

    try:
        async with asyncio.timeout(LOCAL_SECONDS):
            return await in_thread(look)
    except JackfieldError as problem:
        return [problem_of(name, problem)]
    except TimeoutError:
        return [error(name, f"it took over {LOCAL_SECONDS:g} s", "see what is slow: the disk, a mount, a plugin")]
    except Exception as problem:  # noqa: BLE001 - the outermost place of a look; what it met is the finding
        said = f"{type(problem).__name__}: {problem}"
        return [error(name, said, "see that this user may read the home, and that its disk works")]


@contextlib.asynccontextmanager
async def _connected(home: Home, state: State) -> AsyncIterator[Caller]:
    """Operations by the running host, a connection each; without one, directly under its lock."""
    from jackfield.host.control import Client
    from jackfield.host.offline import offline

    probe = Client(home)
    try:
        await probe.open()
    except NoHost:
        async with offline(home, safe=state.safe, strict=state.strict) as call:
            yield call
        return
    finally:
        await probe.close()

    async def ask(op: str, args: dict[str, Any]) -> Any:
        client = Client(home)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await client.call(op, args)
        except TimeoutError:
            raise NoHost(
                f"the host did not answer within {ANSWER_SECONDS:g} s", fix="see its log; `jackfield down`, then `up`"
            ) from None
        finally:
            await client.close()

    yield ask


async def _ask(call: Caller, tell: Told) -> list[Finding]:
    from jackfield.host.diagnosis import finding_from
    from jackfield.host.diagnosis.findings import problem_of

    names: list[str] = await call("doctor.checks", {})
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> list[Finding]:
        async with turns:
            tell(f"looking at {name} ...")
            try:
                return [finding_from(found) for found in await call("doctor.check", {"name": name})]
            except MalformedData as problem:
                return [problem_of(name, problem, "host and command are of different versions: restart the host")]
            except JackfieldError as problem:
                return [problem_of(name, problem)]

    found = await asyncio.gather(*(one(name) for name in names))
    return [finding for findings in found for finding in findings]
