"""What the tests of the process runtime share: runners that are scripts, started or forked, and what to escape to."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

from jackfield.api import RuntimeHandle, SessionPlace
from jackfield.mailbox.doorbell import short_address
from jackfield.process import environment
from jackfield.process.handle import ProcessHandle
from jackfield.process.launch import escape
from jackfield.process.runtime import ProcessRuntime, python_module
from jackfield.process.settings import IsolationChoice, ProcessSettings
from jackfield.testing.runtimes import BenchContext, make_launch, make_place

NURSLING = Path(__file__).with_name("nursling")
"""On `sys.path`, it makes `jackfield_nursling` a runner whose script is in its environment."""

ESCAPE = Path(escape.__file__)

WAITS = "import signal, sys; print('ready', flush=True); signal.pause()"


class Bench:
    """A home, and runtimes whose runner is a script: by its command line, or `forked` from a nursery."""

    def __init__(self, home: Path, isolation: IsolationChoice, *, forked: bool = False) -> None:
        self.context = BenchContext(home)
        self.isolation = isolation
        self.forked = forked
        self.place = make_place(home)
        self.started: list[RuntimeHandle] = []
        self._scripts: WeakKeyDictionary[ProcessRuntime, str] = WeakKeyDictionary()

    def argv(self, script: str) -> tuple[str, ...]:
        if self.forked:
            return (*python_module(), "jackfield_nursling")
        return (sys.executable, "-s", "-P", "-c", textwrap.dedent(script))

    def environment(self, script: str) -> dict[str, str]:
        return {"NURSLING_SCRIPT": textwrap.dedent(script)} if self.forked else {}

    def runtime(
        self, script: str, *, context: BenchContext | None = None, settings: ProcessSettings | None = None
    ) -> ProcessRuntime:
        settings = settings or ProcessSettings(isolation=self.isolation)
        made = ProcessRuntime(context or self.context, settings, runner_argv=self.argv(script))
        self._scripts[made] = script
        return made

    async def end(self) -> None:
        """All runners, and what their runtimes keep for the next ones."""
        for handle in self.started:
            await handle.kill()
        for runtime in list(self._scripts):
            runtime.let_go()

    async def launch(
        self,
        script: str,
        *,
        secrets: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ProcessHandle:
        return await self.launch_with(self.runtime(script), secrets=secrets, environment=environment)

    async def launch_with(
        self,
        runtime: ProcessRuntime,
        *,
        epoch: int = 1,
        secrets: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ProcessHandle:
        added = {**self.environment(self._scripts.get(runtime, "")), **(environment or {})}
        spec = make_launch(self.place, self.context, epoch=epoch, secrets=secrets, environment=added)
        handle = await runtime.launch(spec)
        assert isinstance(handle, ProcessHandle)
        self.started.append(handle)
        return handle


@contextmanager
def scene(home: Path, place: SessionPlace, other: SessionPlace, other_group: SessionPlace) -> Iterator[str]:
    """A home and its surroundings with what nobody may touch; the argument of `launch/escape.py` that says where."""
    elsewhere = home.parent / "elsewhere"
    elsewhere.mkdir(mode=0o777, exist_ok=True)
    elsewhere.chmod(0o777)
    (elsewhere / "secret").write_text("secret", encoding="utf-8")
    for name in ("state.db", "master.key"):
        (home / name).write_text("secret", encoding="utf-8")
        (home / name).chmod(0o600)
    (home / "host.sock").unlink(missing_ok=True)
    (place.folder / "session.json").write_text("{}", encoding="utf-8")
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.socket(socket.AF_UNIX) as local,
        short_address(home / "host.sock") as address,
    ):
        local.bind(address)
        local.listen()
        yield json.dumps(
            {
                "host": os.getpid(),
                "port": listening.getsockname()[1],
                "home": str(home),
                "abstract": "not-there",
                "session": str(place.folder),
                "group": str(place.group.folder),
                "other_session": str(other.folder),
                "other_group": str(other_group.group.folder),
                "elsewhere": str(elsewhere),
                "code": environment.interpreter_paths(),
            }
        )
