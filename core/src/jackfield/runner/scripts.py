"""Pre-check scripts of tasks: whether a task needs the model at all (messaging.md 6.5)."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jackfield.models import InboundRow, TaskContent

__all__ = ["Verdict", "check_script", "check_scripts", "read_verdict"]

_LOG = logging.getLogger(__name__)
_LAST_WORDS = 2.0
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


async def check_scripts(rows: Sequence[InboundRow], cwd: str) -> dict[str, Verdict]:
    """What the scripts of these rows say, by row id, for those that have one.  They run at the same time."""
    scripts = {row.id: row.content.script for row in rows if isinstance(row.content, TaskContent)}
    asked = {id_: script for id_, script in scripts.items() if script}
    verdicts = await asyncio.gather(*(check_script(script, cwd) for script in asked.values()))
    return dict(zip(asked, verdicts, strict=True))


async def check_script(script: str, cwd: str, seconds: float = SECONDS) -> Verdict:
    """Run the script with bash in `cwd`: 30 s, 1 MB of output.  Its process group is gone when this returns."""
    with tempfile.TemporaryDirectory(prefix="jackfield-") as folder:
        # A file, not a pipe: whatever in the script reads standard input must not eat the script.
        path = Path(folder) / "check.sh"
        path.write_bytes(script.encode("utf-8", "replace"))
        process = await asyncio.create_subprocess_exec(
            "bash", str(path),
            cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                printed = await _printed(process)
                code = 0 if printed is None else await process.wait()
        except TimeoutError:
            return Verdict(False, problem=f"the script took longer than {seconds:g} s")
        finally:
            await _end(process)
    if printed is None:
        return Verdict(False, problem=f"the script printed more than {OUTPUT} bytes")
    if code != 0:
        return Verdict(False, problem=f"the script ended with code {code}")
    return read_verdict(printed.decode("utf-8", "replace"))


async def _printed(process: asyncio.subprocess.Process) -> bytes | None:
    if process.stdout is None:
        raise RuntimeError("the script's output is no pipe")
    printed = bytearray()
    while chunk := await process.stdout.read(65536):
        printed += chunk
        if len(printed) > OUTPUT:
            return None
    return bytes(printed)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(_LAST_WORDS):
            await process.communicate()
    except TimeoutError:
        _LOG.warning("something that a task's script began still holds its output")
