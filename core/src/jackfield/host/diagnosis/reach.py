"""Proving from inside a runner's sandbox that an agent could work, and reach nothing that is not its own.

A session folder is made for it and removed again; `jackfield.runner.reach` runs in it once, by the group's runtime, and
the host looks for what that should have written and listens for its ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.api import Completed, GroupPlace, Isolation, LaunchSpec, Limits, Runtime, SessionPlace
from jackfield.clock import SystemClock
from jackfield.config.home import Home
from jackfield.host.diagnosis.findings import Finding, error, ok, warning
from jackfield.ids import InboundId, SessionId, new_id
from jackfield.mailbox import HostBell, HostMailbox, SessionFolder
from jackfield.models import ActionRequest, InboundKind, InboundRow, NoticeContent, RunnerSpec

__all__ = ["PREFIX", "Reach", "clear_leftovers", "judge", "place_for", "prove_reach"]

PREFIX = "reach-"
"""Begins the name of the folder of such a proof, beside the group's sessions."""
PATIENCE = 60.0
"""Seconds for the one-shot."""
_LEFT = 3600.0
"""Seconds after which a folder is one that a killed proof has left."""
_OUTPUT = 65_536

TITLES = {
    "mailbox": "mailbox",
    "doorbell": "doorbell",
    "files": "workspace",
    "forbidden": "walls",
    "tools": "tools",
    "servers": "MCP servers",
    "engine": "provider",
}
FIXES = {
    "mailbox": "look at the disk and the mount of the home: SQLite must be able to lock and to write there",
    "doorbell": "the agent looks every second instead; a runtime at a better level hears the bell",
    "files": "check who owns the folders of the group, `ls -ln` its folder",
    "forbidden": "set `isolation` in [runtimes.process] no lower than this machine can, or use another runtime",
    "tools": "allow loopback connections or local sockets in the runtime's sandbox",
    "servers": "see `jackfield group mcp list`: is what its command names installed, and its address right?",
    "engine": "see the provider's page in the docs; `jackfield plugin doctor` tries the plugin itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What came of one: the one-shot, what it printed, and what the host saw of it."""

    completed: Completed
    isolation: Isolation
    rang: bool
    answered: bool
    """The row that the one-shot wrote was read from `outbound.db`, and names the message that it had read."""
    seconds: float


async def prove_reach(home: Home, runtime: Runtime, spec: RunnerSpec, place: SessionPlace, limits: Limits) -> Reach:
    """Run it, in the place of a session that there is not; its folder is made and removed.

    Raises:
        RuntimeFailed: the runtime can't start anything.
        MailboxError, OSError: the folder can't be made or used.
    """
    health = await runtime.check()
    folder = SessionFolder(place.folder)
    began = time.monotonic()
    await asyncio.to_thread(folder.create)
    try:
        told = await asyncio.to_thread(_prepare, folder, spec)
        rings: list[None] = []

        def rung() -> None:
            rings.append(None)
            bell.ring()

        bell = HostBell(folder, on_ring=rung, on_gone=lambda: None)
        await bell.open()
        try:
            launch = LaunchSpec(place=place, runner=spec, image=await runtime.prepare(place.group), limits=limits)
            told_to = json.dumps(_forbidden(home)).encode()
            completed = await runtime.run(launch, _command(spec, place), told_to, PATIENCE, _OUTPUT)
        finally:
            await bell.close()
        answered = completed.exit_code == 0 and await asyncio.to_thread(_answered, folder, told)
        return Reach(
            completed=completed,
            isolation=health.isolation,
            rang=len(rings) > 1,  # the first one is its coming
            answered=answered,
            seconds=time.monotonic() - began,
        )
    finally:
        await asyncio.to_thread(shutil.rmtree, place.folder, ignore_errors=True)


def place_for(home: Home, session_id: SessionId, group: GroupPlace) -> SessionPlace:
    """Where a proof for this group happens."""
    folder = home.sessions / group.agent_group_id / f"{PREFIX}{session_id}"
    return SessionPlace(session_id=session_id, folder=folder, group=group)


def clear_leftovers(home: Home) -> None:
    """Remove the folders of proofs that were killed."""
    for folder in home.sessions.glob(f"*/{PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # another doctor's, which is just done
            if time.time() - folder.lstat().st_mtime > _LEFT:
                shutil.rmtree(folder, ignore_errors=True)


def judge(check: str, reach: Reach) -> list[Finding]:
    """What the proofs come to."""
    done = reach.completed
    report = _report_of(done)
    if report is None:
        last = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()[-1:] or ["it said nothing"]
        why = (
            f"was still busy after {PATIENCE:g} s" if done.timed_out else f"ended with code {done.exit_code}: {last[0]}"
        )
        return [
            error(check, f"a trial runner {why}", "see that the runtime can start Python with `jackfield` installed")
        ]
    confined = reach.isolation is not Isolation.NONE
    findings = []
    for name, title in TITLES.items():
        proof = report.get(name, {"ok": False, "detail": "it was not tried"})
        text = f"{title}: {proof.get('detail') or 'no more is known'}"
        if proof.get("ok") is True:
            continue
        fix = proof.get("fix") or FIXES[name]
        if name in ("doorbell", "servers") or (name == "forbidden" and not confined):
            findings.append(warning(check, text, fix))
        else:
            findings.append(error(check, text, fix))
    by_name = {name: report.get(name, {}).get("ok") is True for name in TITLES}
    if by_name["mailbox"] and not reach.answered:
        findings.append(error(check, "mailbox: the host did not find what the trial runner wrote", FIXES["mailbox"]))
    if by_name["doorbell"] and not reach.rang:
        findings.append(warning(check, "doorbell: the host did not hear the trial runner", FIXES["doorbell"]))
    if not findings:
        engine = report.get("engine", {}).get("detail") or "its provider"
        said = f"a trial runner could do all that an agent needs, and nothing else ({reach.isolation}); {engine}"
        servers = report.get("servers", {}).get("detail")
        said += f"; MCP servers: {servers}" if servers else ""
        findings.append(ok(check, f"{said}; {reach.seconds:.1f} s"))
    return findings


def _report_of(done: Completed) -> Mapping[str, Any] | None:
    """What it printed last, as an object of objects; None when it printed something else, or ended badly."""
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    if done.timed_out or done.exit_code != 0 or not lines:
        return None
    try:
        found = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(proof, dict) for proof in found.values()):
        return None
    return {name: _plain(proof) for name, proof in found.items()}


def _plain(proof: Mapping[str, Any]) -> dict[str, Any]:
    """The report comes from where agents work: texts are short lines, and nothing else is believed."""
    texts = {key: " ".join(str(proof[key]).split())[:500] for key in ("detail", "fix") if proof.get(key)}
    return {"ok": proof.get("ok") is True, **texts}


def _prepare(folder: SessionFolder, spec: RunnerSpec) -> str:
    """Write the spec, and a message for the trial runner to read; its id."""
    folder.write_spec(spec)
    content = NoticeContent(text="Is all well?", subject="doctor")
    row = InboundRow(id=InboundId(new_id("in")), kind=InboundKind.NOTICE, content=content, at=SystemClock().now())
    box = HostMailbox(folder)
    try:
        box.enqueue([row])
    finally:
        box.close()
    return row.id


def _answered(folder: SessionFolder, told: str) -> bool:
    """Whether `outbound.db`, the heartbeat and the outbox hold what the trial runner should have written."""
    box = HostMailbox(folder)
    try:
        rows = box.read_outbound().rows
    finally:
        box.close()
    if len(rows) != 1 or not isinstance(rows[0].content, ActionRequest) or folder.heartbeat_at() is None:
        return False
    with folder.open_outbox(rows[0].id, "reach.txt") as file:
        return json.loads(rows[0].content.arguments) == told and file.read(16) == b"reach"


def _command(spec: RunnerSpec, place: SessionPlace) -> Sequence[str]:
    """A runtime that shows the host's own paths uses the host's interpreter, too; any other has its image's."""
    python = sys.executable if spec.paths.session == str(place.folder) else "python3"
    return [python, "-s", "-P", "-m", "jackfield.runner.reach", spec.paths.session]


def _forbidden(home: Home) -> dict[str, list[str]]:
    """Paths as the host has them, that no runner may read, write, or connect to."""
    own = (home.jackfield_toml, home.state_db, home.master_key)
    files = [str(path) for path in own if path.exists()]
    files += [str(path) for path in itertools.islice(home.sessions.glob("*/ses_*/inbound.db"), 1)]
    return {"read": files, "write": files, "connect": [str(home.host_sock)]}
