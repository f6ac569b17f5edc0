"""Real servers for tests: where they are installed, and their life as a child process.

They are looked for below `$JACKFIELD_ENGINES` (this repository's tests set it to `.engines/`, where
`scripts/engines.py` puts them) and on PATH.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

__all__ = ["Engine", "find", "free_port"]

START_SECONDS = 60.0
STOP_SECONDS = 10.0


def find(engine: str, program: str | None = None) -> str:
    """The path of an engine's program (by default of the engine's own name); skips the test where there is none."""
    program = program or engine
    home = os.environ.get("JACKFIELD_ENGINES")
    if home and (found := Path(home) / engine / "bin" / program).exists():
        return str(found)
    if program == engine and (other := shutil.which(engine)) is not None:
        return other
    pytest.skip(f"no {engine} on this machine: run `python scripts/engines.py {engine}` to see why")


def free_port() -> int:
    """A port of 127.0.0.1 that is free now, for servers that can't choose one; use it with `Engine`'s retries."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Engine(ABC):
    """One server in a folder of its own; an async context manager.

    Another program may take the port in the moment between choosing and binding it, so a start that fails is tried
    again with other ports, three times in all.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: asyncio.subprocess.Process | None = None

    @abstractmethod
    def prepare(self) -> Sequence[str]:
        """Choose ports, write the configuration, and give the command."""

    @abstractmethod
    async def ready(self) -> bool:
        """Whether it answers."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def output(self) -> str:
        """What it wrote."""
        return (self.folder / "output.log").read_text(encoding="utf-8", errors="replace")

    async def start(self) -> None:
        """Start and wait until it is ready.

        Raises:
            RuntimeError: it ended or did not answer in time; with its last words.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(3):
            if await self._try():
                return
        raise RuntimeError(f"{type(self).__name__} does not start: {self.output[-2000:]}")

    async def resume(self) -> None:
        """Start it again after `stop`, on the same ports and data."""
        if not await self._launch(self._command):
            raise RuntimeError(f"{type(self).__name__} does not start again: {self.output[-2000:]}")

    async def stop(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill() if kill else process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _try(self) -> bool:
        self._command = await asyncio.to_thread(self.prepare)
        return await self._launch(self._command)

    async def _launch(self, command: Sequence[str]) -> bool:
        with (self.folder / "output.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.returncode is None:
            with contextlib.suppress(OSError):
                if await self.ready():
                    return True
            await asyncio.sleep(0.05)
        await self.stop(kill=True)
        return False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
