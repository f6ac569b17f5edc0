"""The checks of channels, and of the HTTP server that platforms reach some of them by."""

from __future__ import annotations

import json
import logging
import socket
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from jackfield.api import Channel, ServesRoutes
from jackfield.config import ChannelSection, IngressSettings
from jackfield.errors import JackfieldError, NotFound, SecretsLocked
from jackfield.host.diagnosis import judging
from jackfield.host.diagnosis.credentials import CheckContext, check_channel, secret_names
from jackfield.host.diagnosis.findings import Finding, error, ok, problem_of, warning
from jackfield.host.diagnosis.threads import in_thread
from jackfield.host.ingress import mount_points
from jackfield.host.secrets.held import variable
from jackfield.host.settings_of import validated
from jackfield.models import ChannelState, ChannelStatus
from jackfield.store import events

if TYPE_CHECKING:
    from jackfield.host.services.context import ServiceContext

__all__ = ["channel", "checked_channel", "ingress"]

log = logging.getLogger(__name__)


def make_channel(context: ServiceContext, section: ChannelSection) -> tuple[Channel, list[str]]:
    """The channel of a section, made and not started, and the names of its secrets.

    Raises:
        NotFound, PluginBroken: its plugin can't be used.
        ConfigError: its settings can't.
    """
    kind = context.hub.plugins.channel_type(section.type)
    settings = validated(kind.settings, section.settings, f"[channels.{section.instance}]")
    return kind.create(section.instance, settings), secret_names(kind, settings)


async def channel(context: ServiceContext, name: str) -> list[Finding]:
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
        made, names = await in_thread(make_channel, context, section)
    except JackfieldError as problem:
        return [problem_of(check, problem, f"see `jackfield plugin info {section.type}`")], None
    except Exception as problem:
        log.exception("channel %s could not be made", name)
        return [error(check, f"it can't be made: {problem!r}", "tell the plugin's author; the log has the rest")], None
    live = context.live.channels.instance(section.type, name) if context.live is not None else None
    if live is not None and live.channel is not None:
        made = live.channel  # it knows what its own connection already proves, and makes no second one
    findings = missing_secrets(context, check, names)
    if not findings:
        outcome = await check_channel(made, check_context(context, section))
        if outcome.ok:
            findings.append(ok(check, outcome.detail or "its check went well"))
        else:
            fix = outcome.fix or f"`jackfield channel setup {section.type} {name}` asks for its settings again"
            findings.append(error(check, outcome.detail or "its check failed", fix))
    if context.live is not None:
        status = live.status if live is not None else ChannelStatus(state=ChannelState.STOPPED)
        findings += judging.channel_state(check, status)
    return findings, made


def missing_secrets(context: ServiceContext, check: str, names: list[str]) -> list[Finding]:
    findings = []
    for name in names:
        try:
            found = context.hub.vault.find(name) is not None
        except SecretsLocked as problem:
            return [problem_of(check, problem)]
        if not found:
            fix = f"`jackfield secret set {name} --kind channel-token`, or set {variable(name)} for the host"
            findings.append(error(check, f"the secret {name!r} is missing", fix))
    return findings


def check_context(context: ServiceContext, section: ChannelSection) -> CheckContext:
    hub = context.hub

    async def secret(name: str) -> str | None:
        return hub.vault.find(name)

    async def cursor(key: str) -> str | None:
        return await hub.store.read(events.get_cursor, section.type, section.instance, key)

    return CheckContext(hub.home, section.instance, secret=secret, cursor=cursor, clock=hub.clock)


async def ingress(context: ServiceContext, subject: str) -> list[Finding]:
    """Whether the outside can reach the routes: with a host by asking its server, else by whether it could listen."""
    settings = context.hub.configuration.ingress
    if context.live is not None and (report := context.live.channels.ingress.report()) is not None:
        at = f"{report['address']}{settings.path_prefix}"
        findings = [await asked("ingress", f"{at}/healthz", f"it listens on {report['address']}", outside=False)]
        if settings.public_url:
            said = f"it is reached at {settings.public_url}"
            findings.append(await asked("ingress", f"{report['url']}/healthz", said, outside=True))
        return findings
    serving = await in_thread(_serving, context)
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
    names: list[str] = []
    for name, section in context.hub.configuration.channels.items():
        if not section.enabled:
            continue
        try:
            made, _ = make_channel(context, section)
            if isinstance(made, ServesRoutes) and mount_points(name, made.http_routes()):
                names.append(name)
        except Exception:  # noqa: BLE001 - told by `channel:<name>`, which meets the same
            continue
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
            "ingress",
            f"nothing could listen on {where}: {said}",
            "free it, or `jackfield config set ingress.port NUMBER`",
        )
    return ok("ingress", f"{where} is free for the HTTP server")


async def asked(check: str, url: str, said: str, *, outside: bool) -> Finding:
    """GET it: whether the host's own server answers there."""
    began = time.monotonic()
    problem = await in_thread(_get, url)
    if problem is None:
        return ok(check, f"{said} ({(time.monotonic() - began) * 1000:.0f} ms)")
    if outside:
        fix = "see the proxy, its certificate and `ingress.public_url`; docs/operators/ingress.md shows how"
        return warning(check, f"{url} can't be reached from here: {problem}", fix)
    return error(check, f"{url} can't be reached: {problem}", "restart the host: `jackfield down`, `jackfield up`")


def _get(url: str) -> str | None:
    """What is wrong with the answer to a GET of a `healthz`; None when it is ours."""
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
