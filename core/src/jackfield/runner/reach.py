"""`python -m jackfield.runner.reach <session folder>`: proves from inside a sandbox that a runner could do its work.

Run once by `jackfield doctor` in a session folder made for it, by the same runtime as a runner.  Standard input names
what must be out of reach, as JSON ``{"read": [...], "write": [...], "connect": [...]}``; the last line of standard
output is the report, ``{"<proof>": {"ok": true, "detail": "..."}, ...}``.  Each proof stands alone: whatever one of
them meets, the others are tried, and the report comes.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jackfield.clock import SystemClock
from jackfield.errors import JackfieldError, NoHost
from jackfield.ids import OutboundId, RequestId, new_id
from jackfield.mailbox import SessionFolder
from jackfield.mailbox.doorbell import RunnerBell
from jackfield.mailbox.runner import RunnerMailbox
from jackfield.models import ActionRequest, OutboundKind, OutboundRow, RunnerSpec
from jackfield.runner.environment import add_packages

__all__ = ["ACTION", "main"]

ACTION = "reach"
"""The action that it writes for the host to read; nobody handles it."""
_BELL = 5.0
_ENDPOINT = 10.0
_PROVIDER = 20.0
_SERVER = 20.0
_HELLO = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    b'"clientInfo":{"name":"doctor","version":"1"}}}\n'
)
Proof = dict[str, Any]


class _Unproved(Exception):
    """A proof failed, for the reason that it says."""


async def _report(folder: SessionFolder, forbidden: dict[str, list[str]]) -> dict[str, Proof]:
    spec = folder.read_spec()
    proofs: dict[str, Callable[[], Awaitable[str]]] = {
        "mailbox": lambda: asyncio.to_thread(_mailbox, folder, spec),
        "doorbell": lambda: _doorbell(folder),
        "files": lambda: asyncio.to_thread(_files, folder, spec),
        "forbidden": lambda: asyncio.to_thread(_forbidden, folder, spec, forbidden),
        "tools": _tools,
        "servers": lambda: _servers(spec),
        "engine": lambda: _engine(spec),
    }
    return {name: await _proved(proof) for name, proof in proofs.items()}


async def _proved(proof: Callable[[], Awaitable[str]]) -> Proof:
    try:
        return {"ok": True, "detail": await proof()}
    except _Unproved as problem:
        return {"ok": False, "detail": str(problem)}
    except JackfieldError as problem:
        return {"ok": False, "detail": problem.message, "fix": problem.fix}
    except TimeoutError:
        return {"ok": False, "detail": "it took too long"}
    except Exception as problem:  # noqa: BLE001 - the outermost place of a proof; what it met is the report
        return {"ok": False, "detail": f"{type(problem).__name__}: {problem}"}


def _mailbox(folder: SessionFolder, spec: RunnerSpec) -> str:
    """Read the host's message, answer with an action, touch the heartbeat, put a file into the outbox."""
    now = SystemClock().now()
    box = RunnerMailbox(folder, spec.epoch)
    try:
        rows = box.pending(now)
        if len(rows) != 1:
            raise _Unproved(f"{len(rows)} messages were found in inbound.db, 1 was put there")
        request = ActionRequest(request_id=RequestId(new_id("req")), name=ACTION, arguments=json.dumps(rows[0].id))
        row = OutboundRow(
            id=OutboundId(new_id("out")), kind=OutboundKind.ACTION, content=request, at=now, epoch=spec.epoch
        )
        box.write(messages=[row])
        box.touch_heartbeat()
        source = Path(spec.paths.workspace) / f".reach-{spec.session_id}"
        try:
            source.write_bytes(b"reach")
            box.copy_to_outbox(row.id, source, "reach.txt")
        finally:
            source.unlink(missing_ok=True)
    finally:
        box.close()
    return "inbound.db was read, outbound.db, the heartbeat and the outbox were written"


async def _doorbell(folder: SessionFolder) -> str:
    rang = asyncio.Event()
    bell = RunnerBell(on_ring=rang.set, on_gone=lambda: None)
    try:
        await bell.connect(folder)
    except NoHost as problem:
        raise _Unproved(problem.message) from problem
    try:
        bell.ring()
        async with asyncio.timeout(_BELL):
            await rang.wait()
    finally:
        await bell.close()
    return "it rings both ways"


def _files(folder: SessionFolder, spec: RunnerSpec) -> str:
    for place in (spec.paths.workspace, f"{spec.paths.group}/memory"):
        trial = Path(place) / f".reach-{spec.session_id}"
        try:
            trial.write_bytes(b"reach")
        except OSError as problem:
            raise _Unproved(f"{place} can't be written: {problem.strerror}") from problem
        trial.unlink()
    list(Path(spec.paths.group).iterdir())
    return "the workspace and the memory are writable, the group's folder can be listed"


def _forbidden(folder: SessionFolder, spec: RunnerSpec, told: dict[str, list[str]]) -> str:
    """Nothing is changed where something is not refused: files are opened, and no more."""
    settings = f"{spec.paths.group}/agent.toml"
    could = [f"read {path}" for path in (*told["read"], settings) if _reads(path)]
    writes = (*told["write"], str(folder.inbound_db), str(folder.spec_file), settings)
    could += [f"write {path}" for path in writes if _writes(path)]
    could += [f"connect to {path}" for path in told["connect"] if _connects(path)]
    if could:
        more = f" and {len(could) - 3} things more" if len(could) > 3 else ""
        raise _Unproved(f"it could {', '.join(could[:3])}{more}")
    return "the host's files, the settings and the host's socket are out of reach"


def _reads(path: str) -> bool:
    with suppress(OSError):
        if Path(path).is_dir():
            return bool(os.listdir(path))  # noqa: PTH208 - one call, which is refused or not
        with open(path, "rb") as stream:  # noqa: PTH123
            return bool(stream.read(1))
    return False


def _writes(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return bool(_reads(path))  # an empty mask in the file's place is not the file


def _connects(path: str) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(1.0)
        line.connect(path)
        return True
    return False


async def _servers(spec: RunnerSpec) -> str:
    """Each MCP server of the group starts and lists its tools.  Those that need a secret are left alone: this trial has
    none."""
    if not spec.servers:
        return ""
    from jackfield.models.secret_references import secrets_named
    from jackfield.runner.servers import ServerFailed, try_server

    async def tried(name: str) -> tuple[bool, str]:
        server = spec.servers[name]
        if secrets_named([*server.env.values(), *server.headers.values()]):
            return True, f"{name} needs a secret and was not tried"
        try:
            return True, f"{name} offers {await try_server(name, server, spec, _SERVER)} tools"
        except ServerFailed as problem:
            return False, f"{name} does not work: {problem}"

    add_packages(os.environ, spec.package_folders)
    results = await asyncio.gather(*(tried(name) for name in spec.servers))
    if not all(works for works, _ in results):
        raise _Unproved("; ".join(said for works, said in results if not works))
    return "; ".join(said for _, said in results)


async def _tools() -> str:
    """The endpoint that engines reach their tools by, spoken to as an engine would: over HTTP and by the shim."""
    from jackfield.runner.endpoint import Endpoint

    endpoint = Endpoint([])
    async with asyncio.timeout(_ENDPOINT):
        await endpoint.start()
        try:
            address = endpoint.address
            ways = []
            if address.url is not None:
                await _by_http(address.url, address.headers)
                ways.append("HTTP")
            if address.command:
                await _by_shim(address.command)
                ways.append("the shim")
        finally:
            await endpoint.close()
    if not ways:
        raise _Unproved("it listens nowhere")
    return f"they are reached over {' and '.join(ways)}"


async def _by_http(url: str, headers: dict[str, str]) -> None:
    place, _, path = url.removeprefix("http://").partition("/")
    host, _, port = place.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        told = {
            "Host": place,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(_HELLO)),
            "Connection": "close",
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        writer.write(f"POST /{path} HTTP/1.1\r\n{head}\r\n".encode() + _HELLO)
        status = (await reader.readline()).split(b" ")
    finally:
        writer.close()
    if status[1:2] != [b"200"]:
        raise _Unproved(f"the tools endpoint answered {b' '.join(status).decode('latin-1').strip()!r} over HTTP")


async def _by_shim(command: tuple[str, ...]) -> None:
    shim = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert shim.stdin is not None and shim.stdout is not None and shim.stderr is not None
        shim.stdin.write(_HELLO)
        answer = await shim.stdout.readline()
        if b'"result"' not in answer:
            said = answer or await shim.stderr.read(500)
            raise _Unproved(f"the shim answered {said.decode('utf-8', 'replace').strip()[:200]!r}")
    finally:
        with suppress(ProcessLookupError):
            shim.kill()
        await shim.wait()


async def _engine(spec: RunnerSpec) -> str:
    """The provider's own look at what is installed, where it will have to work; no model is called."""
    from jackfield.runner.loading import load_engine

    async with asyncio.timeout(_PROVIDER):
        engine = await asyncio.to_thread(load_engine, spec)
        probe = await engine.provider.probe()
    name = " ".join(word for word in (probe.engine or spec.provider, probe.version) if word)
    if not probe.ok:
        raise JackfieldError(f"{name}: {probe.detail or 'it is not ready'}", fix=probe.fix)
    return f"{name}{f': {probe.detail}' if probe.detail else ''}"


def main(arguments: list[str]) -> int:
    """Print the report; 0 also when a proof failed."""
    if len(arguments) != 1:
        print("usage: python -m jackfield.runner.reach <session folder>", file=sys.stderr)
        return 2
    told = json.loads(sys.stdin.read() or "{}")
    forbidden = {key: [str(path) for path in told.get(key, ())] for key in ("read", "write", "connect")}
    loop = asyncio.new_event_loop()  # and no `asyncio.run`, which would wait for an engine that hangs in its thread
    try:
        found = loop.run_until_complete(_report(SessionFolder(Path(arguments[0]).absolute()), forbidden))
    except JackfieldError as problem:
        print(f"jackfield reach: {problem.message}", file=sys.stderr)
        return 1
    print(json.dumps(found), flush=True)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
