"""The checks that need the store, the plugins or the runtimes: the same with a running host and without one.

Each is named, like ``store`` or ``reach:andy``; none depends on another having gone well.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jackfield.api import Channel, GroupPlace, Isolation, ServesRoutes
from jackfield.clock import UnixMs
from jackfield.config import AgentSettings, ChannelSection, IngressSettings
from jackfield.config.secrets import find_secret, secret_source, variable
from jackfield.errors import ConfigError, JackfieldError, MailboxError, NotFound, RecoveryNeeded
from jackfield.host.diagnosis import judging, reach
from jackfield.host.diagnosis.credentials import CheckContext, check_channel, secret_names
from jackfield.host.diagnosis.findings import Finding, error, ok, problem_of, warning
from jackfield.host.diagnosis.looking import skew_of
from jackfield.host.ingress import mount_points
from jackfield.host.launching import Launcher
from jackfield.host.settings_of import validated
from jackfield.ids import SessionId, new_id
from jackfield.models import AgentGroup, ChannelState, ChannelStatus, Session, SessionMode, SessionStatus
from jackfield.plugins import Kind
from jackfield.store import events, groups, health, sessions

if TYPE_CHECKING:
    from jackfield.host.services.context import ServiceContext

__all__ = ["check_names", "checked_channel", "run_check"]

Check = Callable[["ServiceContext", str], Awaitable[list[Finding]]]
SECONDS = 30.0
REACH_SECONDS = reach.PATIENCE + 30.0
MAILBOXES = 50
"""How many of the newest sessions are looked into."""
_DAY = 86_400_000


async def check_names(context: ServiceContext) -> list[str]:
    """All checks of this home, in the order in which they are told."""
    found = await context.hub.store.read(groups.agent_groups)
    names = ["store", "clock", "host", "plugins", "messages", "mailboxes", "ingress"]
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
        async with asyncio.timeout(seconds):
            return await check(context, subject)
    except TimeoutError:
        return [error(name, f"it took over {seconds:g} s", "see what is slow: the disk, the network, the runtime")]
    except JackfieldError as problem:
        return [problem_of(name, problem)]
    except (OSError, sqlite3.Error) as problem:
        return [error(name, f"{type(problem).__name__}: {problem}", "see that the home's disk works and has space")]


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

    def look(db: sqlite3.Connection) -> tuple[list[str], int]:
        return health.quick_check(db), health.schema_number(db)

    faults, schema = await hub.store.read(look)
    log = hub.home.state_db.with_name("state.db-wal")
    size = log.stat().st_size if log.exists() else 0
    return judging.store(faults, schema, size, str(hub.store.problem) if hub.store.problem else None)


async def _clock(context: ServiceContext, subject: str) -> list[Finding]:
    newest = await context.hub.store.read(health.newest_moment)
    skew = await asyncio.to_thread(skew_of, context.hub.home)
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
    infos = await asyncio.to_thread(context.hub.plugins.listing)
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
    aside = await asyncio.to_thread(lambda: sorted(hub.home.sessions.glob("*/damaged-*")))
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


# ---- channels


def make_channel(context: ServiceContext, section: ChannelSection) -> tuple[Channel, list[str], Any]:
    """The channel of a section, made and not started; the names of its secrets; its type.

    Raises:
        NotFound, PluginBroken: its plugin can't be used.
        ConfigError: its settings can't.
    """
    kind = context.hub.plugins.channel_type(section.type)
    settings = validated(kind.settings, section.settings, f"[channels.{section.instance}]")
    return kind.create(section.instance, settings), secret_names(kind, settings), kind


async def _channel(context: ServiceContext, name: str) -> list[Finding]:
    return (await checked_channel(context, name))[0]


async def checked_channel(context: ServiceContext, name: str) -> tuple[list[Finding], Channel | None]:
    """All findings on a channel, and the channel where one could be made."""
    check, hub = f"channel:{name}", context.hub
    section = hub.configuration.channels.get(name)
    if section is None:
        raise NotFound(f"there is no channel {name!r}", fix="`jackfield channel list` shows what there is")
    if not section.enabled:
        text = "it is not enabled, or its table can't be used"
        return [warning(check, text, "see `jackfield config check`; `enabled = true` in its table starts it")], None
    try:
        channel, names, _ = await asyncio.to_thread(make_channel, context, section)
    except JackfieldError as problem:
        return [problem_of(check, problem, f"see `jackfield plugin info {section.type}`")], None
    findings = missing_secrets(context, check, names)
    if not findings:
        outcome = await check_channel(channel, check_context(context, section))
        if outcome.ok:
            findings.append(ok(check, outcome.detail or "its check went well"))
        else:
            fix = outcome.fix or f"`jackfield channel setup {section.type} {name}` asks for its settings again"
            findings.append(error(check, outcome.detail or "its check failed", fix))
    if context.live is not None:
        live = context.live.channels.instance(section.type, name)
        status = live.status if live is not None else ChannelStatus(state=ChannelState.STOPPED)
        findings += judging.channel_state(check, status)
        channel = (live.channel if live is not None else None) or channel
    return findings, channel


def missing_secrets(context: ServiceContext, check: str, names: list[str]) -> list[Finding]:
    findings = []
    for name in names:
        try:
            found = secret_source(context.hub.home, name) is not None
        except ConfigError as problem:
            return [problem_of(check, problem)]
        if not found:
            fix = f"put it into {context.hub.home.secrets_toml} (mode 600), or set {variable(name)} for the host"
            findings.append(error(check, f"the secret {name!r} is missing", fix))
    return findings


def check_context(context: ServiceContext, section: ChannelSection) -> CheckContext:
    hub = context.hub

    async def secret(name: str) -> str | None:
        return await asyncio.to_thread(find_secret, hub.home, name)

    async def cursor(key: str) -> str | None:
        return await hub.store.read(events.get_cursor, section.type, section.instance, key)

    return CheckContext(hub.home, section.instance, secret=secret, cursor=cursor, clock=hub.clock)


async def _ingress(context: ServiceContext, subject: str) -> list[Finding]:
    """Whether the outside can reach the routes: with a host by asking its server, else by whether it could listen."""
    settings = context.hub.configuration.ingress
    if context.live is not None and (report := context.live.channels.ingress.report()) is not None:
        at = f"{report['address']}{settings.path_prefix}"
        findings = [await asked("ingress", f"{at}/healthz", f"it listens on {report['address']}", outside=False)]
        if settings.public_url:
            said = f"it is reached at {settings.public_url}"
            findings.append(await asked("ingress", f"{report['url']}/healthz", said, outside=True))
        return findings
    serving = await asyncio.to_thread(_serving, context)
    if not serving:
        return [ok("ingress", "no channel needs an HTTP server")]
    if find_spec("uvicorn") is None or find_spec("starlette") is None:
        text = f"{', '.join(serving)} need an HTTP server, and its packages are not installed"
        return [error("ingress", text, "pip install 'jackfield[ingress]'")]
    if context.live is not None:
        return [error("ingress", f"{', '.join(serving)} need it, and it does not run", "see `jackfield channel list`")]
    return [_can_listen(settings)]


def _serving(context: ServiceContext) -> list[str]:
    """The channels that have routes."""
    names = []
    for name, section in context.hub.configuration.channels.items():
        if not section.enabled:
            continue
        try:
            channel, _, _ = make_channel(context, section)
            if isinstance(channel, ServesRoutes) and mount_points(name, channel.http_routes()):
                names.append(name)
        except JackfieldError:
            continue  # told by `channel:<name>`
    return names


def _can_listen(settings: IngressSettings) -> Finding:
    """Whether the port is free, while no host has it."""
    where = f"{settings.host}:{settings.port}"
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as problem:
        said = problem.strerror or str(problem)
        return error(
            "ingress", f"nothing could listen on {where}: {said}", "free it, or `jackfield config set ingress.port`"
        )
    return ok("ingress", f"{where} is free for the HTTP server")


async def asked(check: str, url: str, said: str, *, outside: bool) -> Finding:
    """GET it: whether the host's own server answers there."""
    began = time.monotonic()
    problem = await asyncio.to_thread(_get, url)
    if problem is None:
        return ok(check, f"{said} ({(time.monotonic() - began) * 1000:.0f} ms)")
    if outside:
        fix = "see the proxy, its certificate and `ingress.public_url`; docs/operators/ingress.md shows how"
        return warning(check, f"{url} can't be reached from here: {problem}", fix)
    return error(check, f"{url} can't be reached: {problem}", "restart the host: `jackfield down`, `jackfield up`")


def _get(url: str) -> str | None:
    """What is wrong with the answer to a GET of a `healthz`; None when it is ours."""
    import json
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body = answer.read(1000)
    except urllib.error.HTTPError as problem:
        with problem:
            return f"status {problem.code}"
    except (OSError, ValueError) as problem:
        return str(getattr(problem, "reason", problem))
    try:
        return None if json.loads(body) == {"status": "ok"} else "something else answers there"
    except ValueError:
        return "something else answers there"


# ---- agents


async def _agent(context: ServiceContext, folder: str) -> list[Finding]:
    check, hub = f"agent:{folder}", context.hub
    group = await context.group(folder)
    agent = hub.agent_settings(group)
    findings = []
    if await hub.changed_by_others(group):
        isolation = (await (await _runtime_of(context, agent.runtime)).check()).isolation
        make = error if isolation is Isolation.NONE else warning
        text = f"groups/{folder}/agent.toml was changed outside of the commands and is not accepted yet"
        findings.append(make(check, text, f"look at it, then `jackfield group accept {folder}`"))
    if (
        not (hub.home.groups / folder / "AGENTS.md").is_file()
        and not (hub.home.groups / folder / "CLAUDE.md").is_file()
    ):
        findings.append(warning(check, "it has no AGENTS.md, so it knows nothing of itself", "write one in its folder"))
    installed = {(info.kind, info.name): info for info in await asyncio.to_thread(hub.plugins.listing)}
    info = installed.get((Kind.PROVIDER, agent.provider))
    if info is None or info.broken is not None:
        return findings  # told by `plugins`
    return findings or [ok(check, f"provider {agent.provider}, runtime {agent.runtime}, settings accepted")]


async def _runtime_of(context: ServiceContext, name: str) -> Any:
    launcher = context.live.launcher if context.live is not None else Launcher(context.hub)
    return await asyncio.to_thread(launcher.runtime, name)


async def _runtime(context: ServiceContext, name: str) -> list[Finding]:
    return judging.runtime(name, await (await _runtime_of(context, name)).check())


async def _reach(context: ServiceContext, folder: str) -> list[Finding]:
    hub = context.hub
    group = await context.group(folder)
    agent: AgentSettings = hub.agent_settings(group)
    launcher = context.live.launcher if context.live is not None else Launcher(hub)
    runtime = await asyncio.to_thread(launcher.runtime, agent.runtime)
    await asyncio.to_thread(reach.clear_leftovers, hub.home)
    now = hub.clock.now()
    session = Session(
        id=SessionId(new_id("ses")),
        agent_group_id=group.id,
        messaging_group_id=None,
        thread_id=None,
        key="doctor",
        mode=SessionMode.SHARED,
        status=SessionStatus.ACTIVE,
        epoch=1,
        parked_until=None,
        parked_reason=None,
        created_at=now,
        last_active_at=now,
    )
    place = reach.place_for(hub.home, session.id, GroupPlace(agent_group_id=group.id, folder=hub.home.groups / folder))
    spec = launcher.spec_of(session, group, agent, runtime, place, 1)
    found = await reach.prove_reach(hub.home, runtime, spec, place, agent.runtime_limits())
    return reach.judge(f"reach:{folder}", found)


_CHECKS: dict[str, Check] = {
    "store": _store,
    "clock": _clock,
    "host": _host,
    "plugins": _plugins,
    "messages": _messages,
    "mailboxes": _mailboxes,
    "ingress": _ingress,
    "channel": _channel,
    "agent": _agent,
    "runtime": _runtime,
    "reach": _reach,
}
