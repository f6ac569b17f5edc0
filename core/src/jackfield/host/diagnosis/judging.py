"""From facts to findings.  Pure: no file, clock or plugin is touched here."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jackfield.api import Isolation, RuntimeHealth
from jackfield.clock import UnixMs
from jackfield.config import Problem, Severity
from jackfield.host.diagnosis.findings import Finding, error, ok, warning
from jackfield.models import ChannelState, ChannelStatus
from jackfield.plugins.listing import PluginInfo, PluginState
from jackfield.store.alerts import Alert
from jackfield.store.health import Waiting
from jackfield.store.sessions import ParkedScope

__all__ = [
    "Entry",
    "channel_state",
    "clock",
    "configuration",
    "disk",
    "ledger",
    "models",
    "permissions",
    "plugins",
    "runtime",
    "store",
]

MiB = 1024 * 1024
DISK_ERROR, DISK_WARNING = 100 * MiB, 1024 * MiB
WAL_WARNING = 256 * MiB
SKEW = 5.0
"""Seconds by which the file system's clock may differ; heartbeats are read by it."""
MINUTE = 60_000
STUCK = {
    ("out", "pending"): 10 * MINUTE,
    ("out", "sending"): 10 * MINUTE,
    ("out", "retrying"): 30 * MINUTE,
    ("in", "queued"): 30 * MINUTE,
    ("in", "claimed"): 60 * MINUTE,
    ("in", "retrying"): 30 * MINUTE,
}
"""Milliseconds after which an entry in this state is worth a look."""
ENDED_BADLY = ("failed", "blocked")
BUILT = 1_735_689_600_000
"""1 January 2025 in Unix milliseconds: no right clock shows less."""


# ---- the home


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or folder of the home: its mode bits with the type, its owner's uid."""

    path: str
    mode: int
    uid: int
    secret: bool = False
    """Nobody else may read it whatever its folder allows."""


def permissions(entries: Iterable[Entry], uid: int) -> list[Finding]:
    """Others may pass through the home (a runtime may need that), but neither list it nor read what is secret in it."""
    findings = []
    for entry in entries:
        mode = stat.S_IMODE(entry.mode)
        if entry.uid not in (uid, 0):
            text = f"{entry.path} belongs to uid {entry.uid}, and this is uid {uid}"
            findings.append(error("home", text, f"chown -R {uid} {entry.path}, or run as its owner"))
        elif entry.secret and mode & 0o077:
            text = f"{entry.path} has the mode {mode:04o}: others may read it"
            findings.append(error("home", text, f"chmod 600 {entry.path}, and replace what was secret in it"))
        elif stat.S_ISDIR(entry.mode) and mode & 0o066:
            text = f"{entry.path} has the mode {mode:04o}: others may look into it"
            findings.append(warning("home", text, f"chmod 700 {entry.path}"))
    return findings or [ok("home", "the home's folders and secret files are for its owner only")]


def disk(free: int, total: int) -> Finding:
    """Both in bytes."""
    text = f"{free // MiB} MiB of {total // MiB} MiB are free on the home's disk"
    if free < DISK_ERROR:
        return error("disk", text, "free space there; nothing new is taken in when it is full")
    if free < DISK_WARNING:
        return warning("disk", text, "free space there, or move the home to a larger disk")
    return ok("disk", text)


def clock(now: UnixMs, newest: UnixMs, skew: float | None) -> list[Finding]:
    """`newest` is the latest time on record, `skew` how far the file system's clock is off, in seconds."""
    findings = []
    if now < BUILT:
        findings.append(error("clock", "the machine's clock is years behind", "set it, and keep it set (NTP)"))
    elif newest - now > MINUTE:
        behind = (newest - now) // 1000
        text = f"the clock is {behind} s behind what is on record; retries and expiries wait until it is there again"
        findings.append(warning("clock", text, "set the clock, and keep it set (NTP)"))
    if skew is not None and abs(skew) > SKEW:
        text = f"the home's file system dates files {skew:+.0f} s off the machine's clock; live runners would look dead"
        findings.append(error("clock", text, "keep the home on a local disk, or set the file server's clock"))
    return findings or [ok("clock", "the clock agrees with the record and with the file system")]


# ---- configuration and plugins


def configuration(problems: Iterable[Problem], starts: bool) -> list[Finding]:
    findings = []
    for problem in problems:
        fix = f"did you mean {problem.suggestion}?" if problem.suggestion else None
        fix = fix or (f"allowed: {problem.allowed}" if problem.allowed else None)
        if fix is None:
            fix = f"correct {problem.file}" + (f", line {problem.line}" if problem.line else "")
        make = error if problem.severity is Severity.ERROR or not starts else warning
        findings.append(make("configuration", str(problem), fix))
    return findings or [ok("configuration", "jackfield.toml and every agent.toml are in order")]


def plugins(infos: Sequence[PluginInfo], used: Iterable[tuple[str, str]], problems: Sequence[str]) -> list[Finding]:
    """`used` are kind and name of what the configuration names; `problems` what could not be read at all."""
    wanted = set(used)
    findings = [warning("plugins", text, "install that plugin again, or uninstall it") for text in problems]
    for info in infos:
        if info.broken is None:
            continue
        text = f"{info.kind} {info.name} ({info.distribution} {info.version}) is {info.state}: {info.broken.reason}"
        make = error if (str(info.kind), info.name) in wanted else warning
        findings.append(make("plugins", text, info.broken.fix or f"jackfield plugin retry {info.name}"))
    known = {(str(info.kind), info.name) for info in infos}
    for kind, name in sorted(wanted - known):
        findings.append(error("plugins", f"{kind} {name} is used and not installed", f"install a plugin with {name!r}"))
    well = sum(1 for info in infos if info.state in (PluginState.READY, PluginState.UNTRIED))
    return findings or [ok("plugins", f"{well} installed, none broken, none missing")]


# ---- state


def store(faults: Sequence[str] | None, schema: int, wal: int, problem: str | None) -> list[Finding]:
    """`faults` is None where the look took too long, `wal` is the size of the write-ahead log in bytes,
    `problem` what the newest write failed with."""
    findings = []
    if faults is None:
        text = "state.db is too large, or its disk too slow, to be checked while it is in use"
        findings.append(warning("store", text, "check a copy: `jackfield backup`, then `jackfield restore` elsewhere"))
    elif faults:
        text = f"state.db is damaged: {'; '.join(faults[:3])}"
        findings.append(error("store", text, "stop the host, and put back the newest backup: `jackfield restore`"))
    if problem is not None:
        findings.append(error("store", f"the newest write failed: {problem}", "see that its disk has space and works"))
    if wal > WAL_WARNING:
        text = f"the write-ahead log has grown to {wal // MiB} MiB"
        findings.append(warning("store", text, "end other programs that hold state.db open, then restart the host"))
    return findings or [ok("store", f"state.db is sound (schema {schema}, log {wal // 1024} KiB)")]


def ledger(rows: Iterable[Waiting], now: UnixMs, parked: Sequence[tuple[str, str]]) -> list[Finding]:
    """`parked` are names and reasons of what rests as a whole; recent failures are those of the last 24 hours."""
    findings = []
    for row in rows:
        word = "message in" if row.direction == "in" else "delivery"
        many = (
            f"{row.entries} {word}{'' if row.entries == 1 else 's'}"
            if row.direction == "out"
            else f"{row.entries} inbound"
        )
        many = many.replace("deliverys", "deliveries")
        listing = f"`jackfield message list --state {row.state}`"
        limit = STUCK.get((row.direction, row.state))
        if row.state in ENDED_BADLY:
            if row.recent:
                text = (
                    f"{row.recent} {'inbound' if row.direction == 'in' else 'outbound'} ended {row.state} within a day"
                )
                findings.append(warning("messages", text, f"see {listing}, then `jackfield message retry ID`"))
        elif row.state in ("waiting", "parked"):
            text = f"{many} {row.state}, the oldest for {_age(now - row.oldest)}"
            fix = "mend its channel" if row.state == "waiting" else "see why: `jackfield session list`"
            findings.append(warning("messages", text, f"{fix}; {listing} names them"))
        elif limit is not None and now - row.oldest > limit:
            text = f"{many} {row.state}, the oldest for {_age(now - row.oldest)}"
            findings.append(warning("messages", text, f"see {listing}; `jackfield logs` may tell what holds them up"))
    findings += [
        warning("messages", f"{name} is parked: {reason}", "mend the cause, then `jackfield reload` ends the wait")
        for name, reason in parked
    ]
    return findings or [ok("messages", "nothing is stuck, parked or dead")]


def channel_state(check: str, status: ChannelStatus) -> list[Finding]:
    said = f"it is {status.state}{f': {status.detail}' if status.detail else ''}"
    name = check.partition(":")[2]
    match status.state:
        case ChannelState.READY:
            return []
        case ChannelState.STARTING | ChannelState.RECONNECTING | ChannelState.DEGRADED:
            return [warning(check, said, f"wait a moment and look again; then `jackfield logs --channel {name}`")]
        case ChannelState.AUTH_FAILED | ChannelState.NEEDS_LOGIN:
            fix = f"give it new credentials: `jackfield channel setup TYPE {name}`, then `jackfield reload`"
            return [error(check, said, fix)]
        case _:
            return [
                error(check, said, f"mend what it names, then `jackfield reload`; `jackfield logs --channel {name}`")
            ]


def models(alerts: Sequence[Alert], parked: Sequence[ParkedScope], now: UnixMs) -> list[Finding]:
    """What keeps agents from their models."""
    findings = [
        error("models", f"{one.subject}: {' '.join(one.text.split())}", "mend it, then `jackfield reload`")
        for one in alerts
    ]
    told = {f"credential {one.key}" for one in parked} & {one.key for one in alerts}
    for scope in parked:
        if scope.until > now and f"credential {scope.key}" not in told:
            minutes = max(1, round((scope.until - now) / MINUTE))
            text = f"nobody uses {scope.scope} {scope.key} for {minutes} more minutes: {scope.reason}"
            findings.append(warning("models", text, "wait; or `jackfield reload` tries it now"))
    return findings or [ok("models", "nothing is known that keeps agents from their models")]


def runtime(name: str, health: RuntimeHealth) -> list[Finding]:
    check = f"runtime:{name}"
    text = f"{health.isolation} ({health.detail})" if health.detail else str(health.isolation)
    if not health.ok:
        return [error(check, f"it does not work: {health.detail}", health.fix or "choose another runtime")]
    if health.isolation is Isolation.NONE:
        fix = (
            health.fix or "use a runtime that isolates; `allow_unisolated` lets other channels reach such agents anyway"
        )
        return [warning(check, text, fix)]
    return [ok(check, text)]


def _age(ms: int) -> str:
    minutes = max(0, ms) // MINUTE
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"
