"""Pre-check scripts of tasks: whether a task needs the model at all (messaging.md 6.5)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import dataclass

__all__ = ["Verdict", "check_script", "read_verdict"]

SECONDS = 30.0
OUTPUT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Verdict:
    """`wake` tells whether the task goes to the model, `output` is the script's data for the prompt, as JSON.

    `problem` is set when the script failed, which is not the same as saying no.
    """

    wake: bool
    output: str | None = None
    problem: str | None = None


def read_verdict(printed: str) -> Verdict:
    """The last line that is not empty must be a JSON object with a boolean `wakeAgent`."""
    line = next((line for line in reversed(printed.splitlines()) if line.strip()), None)
    if line is None:
        return Verdict(False, problem="the script printed nothing")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return Verdict(False, problem=f"the last line is no JSON: {line[:120]!r}")
    if not isinstance(value, dict) or not isinstance(value.get("wakeAgent"), bool):
        return Verdict(False, problem=f"the last line has no boolean wakeAgent: {line[:120]!r}")
    if not value["wakeAgent"]:
        return Verdict(False)
    data = value.get("data")
    return Verdict(True, None if data is None else json.dumps(data, ensure_ascii=False, indent=2))


async def check_script(script: str, cwd: str, seconds: float = SECONDS) -> Verdict:
    """Run the script with bash in `cwd`: 30 s, 1 MB of output.  The whole process group is gone when this returns."""
    process = await asyncio.create_subprocess_exec(
        "bash", "-s",
        cwd=cwd, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            printed = await _talk(process, script)
            code = await process.wait()
    except TimeoutError:
        return Verdict(False, problem=f"the script took longer than {seconds:g} s")
    finally:
        _end(process)
        await process.wait()
    if printed is None:
        return Verdict(False, problem=f"the script printed more than {OUTPUT} bytes")
    if code != 0:
        return Verdict(False, problem=f"the script ended with code {code}")
    return read_verdict(printed.decode("utf-8", "replace"))


async def _talk(process: asyncio.subprocess.Process, script: str) -> bytes | None:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("the script's pipes are missing")
    try:
        process.stdin.write(script.encode("utf-8", "replace"))
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it ended without reading all of itself
    printed = bytearray()
    while chunk := await process.stdout.read(65536):
        printed += chunk
        if len(printed) > OUTPUT:
            return None
    return bytes(printed)


def _end(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
