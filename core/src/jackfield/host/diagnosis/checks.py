"""The checks that need the store, the plugins or the runtimes: the same with a running host and without one.

Each is named, like ``store`` or ``reach:andy``; none depends on another having gone well.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from jackfield.api import GroupPlace, Isolation
from jackfield.clock import UnixMs
from jackfield.config import AgentSettings
from jackfield.errors import ConfigError, JackfieldError, MailboxError, NotFound, RecoveryNeeded
from jackfield.host.diagnosis import channels, judging, reach
from jackfield.host.diagnosis.findings import Finding, error, ok, problem_of, warning
from jackfield.host.diagnosis.looking import skew_of
from jackfield.host.diagnosis.secrets import secrets
from jackfield.host.diagnosis.threads import in_thread, within
from jackfield.host.registration.claiming import unowned
from jackfield.host.unrecorded import made_up_session
from jackfield.models import AgentGroup, SessionStatus, TaskState
from jackfield.plugins import Kind
from jackfield.store import alerts, approval_cards, groups, health, sessions, tasks

if TYPE_CHECKING:
    from jackfield.host.services.context import ServiceContext

__all__ = ["check_names", "run_check"]

log = logging.getLogger(__name__)

Check = Callable[["ServiceContext", str], Coroutine[Any, Any, list[Finding]]]
SECONDS = 30.0
REACH_SECONDS = reach.PATIENCE + 30.0
MAILBOXES = 50
"""How many of the newest sessions are looked into."""
_DAY = 86_400_000


async def check_names(context: ServiceContext) -> list[str]:
    """All checks of this home, in the order in which they are told."""
    found = await context.hub.store.read(groups.agent_groups)
    names = [
        "store",
        "secrets",
        "clock",
        "host",
        "plugins",
        "messages",
        "mailboxes",
        "models",
        "ingress",
        "people",
        "approvals",
    ]
    names.append("tasks")
    names += [f"channel:{name}" for name in context.hub.configuration.channels]
    names += [f"agent:{group.folder}" for group in found]
    names += [f"runtime:{name}" for name in sorted(_runtimes(context, found))]
    names += [f"reach:{group.folder}" for group in found]
    return names


async def run_check(context: ServiceContext, name: str) -> list[Finding]:
    """One of them, within its time.  Whatever goes wrong in it is a finding.

    Raises:
        NotFound: there is no such check.
    """
    word, _, subject = name.partition(":")
    check = _CHECKS.get(word)
    if check is None:
        raise NotFound(f"there is no check {name!r}", fix="`jackfield doctor` runs them all")
    seconds = REACH_SECONDS if word == "reach" else SECONDS
    try:
        return await within(seconds, check(context, subject))
    except TimeoutError:
        return [error(name, f"it took over {seconds:g} s", "see what is slow: the disk, the network, the runtime")]
    except JackfieldError as problem:
        return [problem_of(name, problem)]
    except (OSError, sqlite3.Error) as problem:
        return [error(name, f"{type(problem).__name__}: {problem}", "see that the home's disk works and has space")]
    except Exception as problem:
        log.exception("check %s failed", name)
        return [
            error(
                name, f"it met {problem!r}", "it is a fault of a plugin, or ours: the log has the rest; tell its author"
            )
        ]


def _runtimes(context: ServiceContext, found: list[AgentGroup]) -> set[str]:
    names = set()
    for group in found:
        try:
            names.add(context.hub.agent_settings(group).runtime)
        except ConfigError:
            continue  # told by `agent:<folder>`
    return names


# ---- the host and its store


async def _store(context: ServiceContext, subject: str) -> list[Finding]:
    hub = context.hub

    def look(db: sqlite3.Connection) -> tuple[list[str] | None, int]:
        return health.quick_check(db, SECONDS / 2), health.schema_number(db)

    faults, schema = await hub.store.read(look)
    log = hub.home.state_db.with_name("state.db-wal")
    size = log.stat().st_size if log.exists() else 0
    return judging.store(faults, schema, size, str(hub.store.problem) if hub.store.problem else None)


async def _clock(context: ServiceContext, subject: str) -> list[Finding]:
    newest = await context.hub.store.read(health.newest_moment)
    skew = await in_thread(skew_of, context.hub.home)
    return judging.clock(context.hub.clock.now(), newest, skew)


async def _host(context: ServiceContext, subject: str) -> list[Finding]:
    if context.live is None:
        return [ok("host", "no host runs, and nothing holds its lock")]
    troubles = context.hub.troubles
    if troubles:
        said = ", ".join(f"{what} ({count})" for what, count in sorted(troubles.items()))
        return [warning("host", f"it runs, and has survived: {said}", "`jackfield logs --level warning` tells of each")]
    return [ok("host", "it runs, and answers")]


async def _plugins(context: ServiceContext, subject: str) -> list[Finding]:
    used = [("channel", one.type) for one in context.hub.configuration.channels.values() if one.enabled]
    used += [("extension", name) for name in context.hub.configuration.extensions]
    for group in await context.hub.store.read(groups.agent_groups):
        try:
            agent = context.hub.agent_settings(group)
        except ConfigError:
            continue
        used += [("provider", agent.provider), ("runtime", agent.runtime)]
        used += [("tools", name) for name in agent.tools] + [("pack", name) for name in agent.packs]
    infos = await in_thread(context.hub.plugins.listing)
    return judging.plugins(infos, used, ())


async def _messages(context: ServiceContext, subject: str) -> list[Finding]:
    now = context.hub.clock.now()

    def look(db: sqlite3.Connection) -> tuple[list[health.Waiting], list[tuple[str, str]]]:
        parked = [(f"{scope.scope} {scope.key}", scope.reason) for scope in sessions.parked_scopes(db)]
        return health.waiting(db, UnixMs(now - _DAY)), parked

    rows, parked = await context.hub.store.read(look)
    return judging.ledger(rows, now, parked)


async def _mailboxes(context: ServiceContext, subject: str) -> list[Finding]:
    hub = context.hub
    aside = await in_thread(lambda: sorted(hub.home.sessions.glob("*/damaged-*")))
    findings = []
    if aside:
        many = f"{len(aside)} damaged mailbox{'es were' if len(aside) > 1 else ' was'} set aside, like {aside[-1]}"
        fix = "its `reason.txt` says why; it is removed by itself after `host.keep_days`"
        findings.append(warning("mailboxes", many, fix))
    live = await hub.store.read(sessions.sessions, status=SessionStatus.ACTIVE, limit=MAILBOXES)
    looked = 0
    for session in live:
        folder = hub.folder_of(session)
        if not folder.outbound_db.exists():
            continue
        looked += 1
        try:
            await hub.mailboxes.run(folder, lambda box: box.claims())
        except RecoveryNeeded:
            text = f"session {session.id} was cut off in the middle of a write"
            findings.append(warning("mailboxes", text, "nothing: it is rolled back when the session goes on"))
        except MailboxError as problem:
            findings.append(
                problem_of("mailboxes", problem, f"`jackfield session clear {session.id}` begins a new one")
            )
    return findings or [ok("mailboxes", f"{looked} of the newest sessions looked into, none damaged")]


async def _people(context: ServiceContext, subject: str) -> list[Finding]:
    names = await unowned(context.hub)
    if names:
        text = f"nobody on {', '.join(names)} is an owner, so nobody there is asked about strangers and risky things"
        return [warning("people", text, "`jackfield owner claim`, then send the code to the bot in a chat")]
    return [ok("people", "somebody who can be asked is an owner")]


async def _approvals(context: ServiceContext, subject: str) -> list[Finding]:
    unshown = await context.hub.store.read(approval_cards.unshown)
    findings = []
    if unshown:
        text = f"{len(unshown)} requests wait for a decision, and nobody who may decide could be reached in a chat"
        findings.append(warning("approvals", text, "decide them: `jackfield approval list`, `approve` or `reject`"))
    known = context.live.approvals.kinds.names() if context.live is not None else frozenset()
    for group in await context.hub.store.read(groups.agent_groups) if known else ():
        try:
            named = context.hub.agent_settings(group).permissions
        except ConfigError:
            continue  # told by `agent`
        if odd := sorted(set(named) - known):
            text = f"[permissions] of {group.folder} names {', '.join(odd)}, of which nothing that is in use knows"
            findings.append(warning("approvals", text, f"known are: {', '.join(sorted(known))}"))
    return findings or [ok("approvals", "nothing waits for a decision that nobody was asked for")]


async def _tasks(context: ServiceContext, subject: str) -> list[Finding]:
    stopped = await context.hub.store.read(tasks.tasks, states=(TaskState.STOPPED,), limit=20)
    return [
        warning(
            "tasks", f"task {task.id} was stopped: {task.reason}", f"mend it, then `jackfield task resume {task.id}`"
        )
        for task in stopped
    ] or [ok("tasks", "the host has stopped none")]


# ---- agents


async def _agent(context: ServiceContext, folder: str) -> list[Finding]:
    check, hub = f"agent:{folder}", context.hub
    group = await context.group(folder)
    agent = hub.agent_settings(group)
    findings = []
    if await hub.changed_by_others(group):
        isolation = (await (await context.runtime(agent.runtime)).check()).isolation
        make = error if isolation is Isolation.NONE else warning
        text = f"groups/{folder}/agent.toml was changed outside of the commands and is not accepted yet"
        findings.append(make(check, text, f"look at it, then `jackfield group accept {folder}`"))
    if (
        not (hub.home.groups / folder / "AGENTS.md").is_file()
        and not (hub.home.groups / folder / "CLAUDE.md").is_file()
    ):
        findings.append(warning(check, "it has no AGENTS.md, so it knows nothing of itself", "write one in its folder"))
    _, missing = await context.workshop.packages(group.id)
    if missing.count:
        text = f"recorded packages are not installed: {missing}"
        findings.append(warning(check, text, f"`jackfield group packages rebuild {folder}`"))
    installed = {(info.kind, info.name): info for info in await in_thread(hub.plugins.listing)}
    info = installed.get((Kind.PROVIDER, agent.provider))
    if info is None or info.broken is not None:
        return findings  # told by `plugins`
    return findings or [ok(check, f"provider {agent.provider}, runtime {agent.runtime}, settings accepted")]


async def _models(context: ServiceContext, subject: str) -> list[Finding]:
    def look(db: sqlite3.Connection) -> tuple[list[alerts.Alert], list[sessions.ParkedScope]]:
        return alerts.alerts(db), sessions.parked_scopes(db)

    raised, parked = await context.hub.store.read(look)
    return judging.models(raised, parked, context.hub.clock.now())


async def _runtime(context: ServiceContext, name: str) -> list[Finding]:
    return judging.runtime(name, await (await context.runtime(name)).check())


async def _reach(context: ServiceContext, folder: str) -> list[Finding]:
    hub = context.hub
    group = await context.group(folder)
    agent: AgentSettings = hub.agent_settings(group)
    runtime = await context.runtime(agent.runtime)
    await in_thread(reach.clear_leftovers, hub.home)
    session = made_up_session(group, "doctor", hub.clock.now())
    place = reach.place_for(hub.home, session.id, GroupPlace(agent_group_id=group.id, folder=hub.home.groups / folder))
    spec = context.launcher.spec_of(session, group, agent, runtime, place, 1)
    found = await reach.prove_reach(hub.home, runtime, spec, place, agent.runtime_limits())
    return reach.judge(f"reach:{folder}", found)


_CHECKS: dict[str, Check] = {
    "store": _store,
    "secrets": secrets,
    "clock": _clock,
    "host": _host,
    "plugins": _plugins,
    "messages": _messages,
    "mailboxes": _mailboxes,
    "models": _models,
    "ingress": channels.ingress,
    "people": _people,
    "approvals": _approvals,
    "tasks": _tasks,
    "channel": channels.channel,
    "agent": _agent,
    "runtime": _runtime,
    "reach": _reach,
}
