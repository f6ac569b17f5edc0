"""What the checks of a runtime stand on, and those of its one-shots (architecture 4; runtime.md 5)."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from jackfield.api import (
    Completed,
    Isolation,
    LaunchSpec,
    LeavesRunners,
    Limits,
    Runtime,
    RuntimeHandle,
    RuntimeHealth,
    RuntimeType,
    SessionPlace,
)
from jackfield.errors import RuntimeFailed
from jackfield.mailbox import SessionFolder
from jackfield.models import RunnerSpec
from jackfield.plugins.kinds import Kind
from jackfield.testing.contracts.checks import check, skip
from jackfield.testing.contracts.plugin import PluginContract
from jackfield.testing.runtimes import BenchContext
from jackfield.testing.sessions import make_session, place_of
from jackfield.testing.waiting import BOUND, soon, until

__all__ = ["RuntimeBench", "RuntimeRuns", "Yard"]

SECRET = "contract-secret-5b1f0c"


@dataclass
class Yard:
    """A home with one session, and a runtime for it."""

    runtime: Runtime
    context: BenchContext
    place: SessionPlace
    spec: RunnerSpec
    handles: list[RuntimeHandle] = field(default_factory=list)

    @property
    def folder(self) -> SessionFolder:
        return SessionFolder(self.place.folder)

    async def launch_spec(
        self, *, epoch: int = 1, secrets: dict[str, str] | None = None, environment: dict[str, str] | None = None
    ) -> LaunchSpec:
        """As the host makes one: `session.json` is written, the image prepared."""
        spec = make_session(
            self.place, paths=self.runtime.paths(self.place), install_id=self.context.install_id, epoch=epoch
        )
        image = await soon(self.runtime.prepare(self.place.group), "prepare", 600)
        return LaunchSpec(
            place=self.place,
            runner=spec,
            image=image,
            limits=Limits(),
            secrets=secrets or {},
            environment=environment or {},
        )

    async def launch(self, *, epoch: int = 1, secrets: dict[str, str] | None = None) -> RuntimeHandle:
        """Start a real runner, and wait for its first heartbeat."""
        spec = await self.launch_spec(epoch=epoch, secrets=secrets)
        os.utime(self.folder.heartbeat, (1, 1))
        handle = await soon(self.runtime.launch(spec), "launch", 120)
        self.handles.append(handle)
        await until(
            lambda: (self.folder.heartbeat_at() or 0) > 1000,
            f"the runner's first heartbeat; it wrote {list(handle.logs())[-3:]}",
            60,
        )
        return handle

    async def run(
        self, *argv: str, stdin: bytes = b"", timeout: float = BOUND, limit: int = 1_048_576, env: str = ""
    ) -> Completed:
        environment = {"CONTRACT_WORD": env} if env else {}
        spec = await self.launch_spec(environment=environment)
        return await soon(self.runtime.run(spec, argv, stdin, timeout, limit), f"run({argv}) to come back", 120)

    async def shell(self, script: str, **more: object) -> Completed:
        """One script of /bin/sh inside the sandbox."""
        return await self.run("sh", "-c", script, **more)  # type: ignore[arg-type]  # what `run` takes by name


class RuntimeBench(PluginContract):
    """A yard for each check."""

    kind: ClassVar[Kind] = Kind.RUNTIME

    def make(self, context: BenchContext) -> Runtime:
        item = self.item()
        assert isinstance(item, RuntimeType), f"register_runtimes gave {item!r}"
        made = item.create(context, self.validated())
        assert isinstance(made, Runtime), f"create gave {made!r}, which is no Runtime"
        return made

    @asynccontextmanager
    async def yard(self, folder: Path) -> AsyncIterator[Yard]:
        """Skips when the runtime says that it can't be used on this machine."""
        context = BenchContext(folder / "home")
        context.home.mkdir(parents=True, exist_ok=True)
        runtime = self.make(context)
        health = await soon(runtime.check(), "check", 120)
        if not health.ok:
            skip(f"the runtime can't be used here: {health.detail}")
        place = place_of(context.home)
        yard = Yard(runtime, context, place, make_session(place))
        try:
            yield yard
        finally:
            for handle in yard.handles:
                await soon(handle.kill(), "kill at the end of the check")
            if isinstance(runtime, LeavesRunners):
                runtime.let_go()
            # A runner that nobody has a handle of ends by itself when its session is gone.
            yard.folder.spec_file.unlink(missing_ok=True)


class RuntimeRuns(RuntimeBench):
    """What a sandbox is, seen through one-shots in it."""

    @check("RUN-01")
    def test_run_01_it_is_named_and_can_be_made(self, tmp_path: Path) -> None:
        """It has the entry point's name and a title, and `create` starts nothing and writes nothing."""
        item = self.item()
        assert isinstance(item, RuntimeType), f"register_runtimes gave {item!r}"
        assert (item.name, bool(item.title.strip())) == (self.plugin, True)
        home = tmp_path / "home"
        home.mkdir()
        self.make(BenchContext(home))
        assert list(home.iterdir()) == [], "create writes into the home"

    @check("RUN-02")
    async def test_run_02_check_says_what_it_proved(self, tmp_path: Path) -> None:
        """`check` gives a level in the words of `Isolation`, says how it was proved, and says the same again."""
        runtime = self.make(BenchContext(tmp_path))
        health = await soon(runtime.check(), "check", 120)
        assert isinstance(health, RuntimeHealth) and isinstance(health.isolation, Isolation), f"check gave {health!r}"
        assert health.detail, "it does not say how the level was proved, or why it could not be"
        assert health.ok or health.fix, "it can't be used, and does not say how to mend that"
        assert await soon(runtime.check(), "a second check") == health

    @check("RUN-03")
    async def test_run_03_the_level_is_honest(self, tmp_path: Path) -> None:
        """Above NOT ISOLATED a sandbox neither reads nor changes the key, another session, or `agent.toml`."""
        async with self.yard(tmp_path) as yard:
            if (await yard.runtime.check()).isolation is Isolation.NONE:
                skip("it claims no isolation")
            key = yard.context.home / "master.key"
            key.write_text(SECRET, encoding="utf-8")
            key.chmod(0o600)
            other = place_of(yard.context.home)
            make_session(other)
            theirs = other.folder / "session.json"
            paths = yard.runtime.paths(yard.place)
            script = "\n".join(
                [
                    *(f"cat '{path}' 2>/dev/null" for path in (key, theirs, yard.place.group.folder / "agent.toml")),
                    *(f"echo broken > '{path}' 2>/dev/null" for path in (key, theirs, f"{paths.session}/inbound.db")),
                    f"echo broken > '{paths.group}/agent.toml' 2>/dev/null",
                    "echo done",
                ]
            )
            before = (yard.folder.inbound_db.read_bytes(), theirs.read_bytes())
            done = await yard.shell(script)
            said = done.stdout.decode("utf-8", "replace")
            assert "done" in said, f"the probe itself failed: {done}"
            assert SECRET not in said, "a sandbox read master.key"
            assert str(other.session_id) not in said, "a sandbox read another session's folder"
            assert key.read_text(encoding="utf-8") == SECRET, "a sandbox changed master.key"
            assert (yard.folder.inbound_db.read_bytes(), theirs.read_bytes()) == before, "a sandbox changed a mailbox"
            assert "broken" not in (yard.place.group.folder / "agent.toml").read_text(encoding="utf-8")

    @check("RUN-04")
    async def test_run_04_it_may_change_what_is_its_own(self, tmp_path: Path) -> None:
        """A sandbox can write to its workspace and memory and to `outbox/`, and the host sees it."""
        async with self.yard(tmp_path) as yard:
            paths = yard.runtime.paths(yard.place)
            places = (f"{paths.workspace}/w", f"{paths.group}/memory/m", f"{paths.session}/outbox/o")
            done = await yard.shell(" && ".join(f"echo hi > '{path}'" for path in places))
            assert done.exit_code == 0, done.stderr.decode("utf-8", "replace")
            for path in (yard.place.group.workspace / "w", yard.place.group.memory / "m", yard.folder.outbox / "o"):
                assert path.read_text(encoding="utf-8") == "hi\n"
                assert stat.S_ISREG(path.lstat().st_mode)

    @check("RUN-05")
    async def test_run_05_input_and_output_are_bytes(self, tmp_path: Path) -> None:
        """Standard input reaches the program whole, its two outputs come back apart and unchanged."""
        async with self.yard(tmp_path) as yard:
            data = bytes(range(256)) * 400
            done = await yard.shell("cat; echo complaint >&2", stdin=data)
            assert (done.exit_code, done.stdout, done.stderr) == (0, data, b"complaint\n")
            assert not done.timed_out

    @check("RUN-06")
    @pytest.mark.parametrize("code", [0, 1, 77, 255])
    async def test_run_06_exit_codes_come_back(self, tmp_path: Path, code: int) -> None:
        """The exit code is the program's own."""
        async with self.yard(tmp_path) as yard:
            assert (await yard.shell(f"exit {code}")).exit_code == code

    @check("RUN-07")
    async def test_run_07_a_signal_is_a_failure(self, tmp_path: Path) -> None:
        """A program that a signal ended has an exit code that is not 0."""
        async with self.yard(tmp_path) as yard:
            assert (await yard.shell("kill -9 $$")).exit_code != 0

    @check("RUN-08")
    async def test_run_08_output_is_cut_at_its_limit(self, tmp_path: Path) -> None:
        """A flood of output neither blocks the program nor comes back whole."""
        async with self.yard(tmp_path) as yard:
            done = await yard.shell("head -c 3000000 /dev/zero; echo end >&2", limit=10_000)
            assert len(done.stdout) <= 11_000, f"{len(done.stdout)} bytes came back"
            assert (done.exit_code, done.stderr) == (0, b"end\n"), f"it ended as {done.exit_code}, {done.stderr!r}"

    @check("RUN-09")
    async def test_run_09_the_time_limit_holds(self, tmp_path: Path) -> None:
        """What takes too long is ended with everything that it started, and `timed_out` says so."""
        async with self.yard(tmp_path) as yard:
            paths = yard.runtime.paths(yard.place)
            beat = yard.place.group.workspace / "beat"
            child = f"while :; do echo x >> '{paths.workspace}/beat'; sleep 0.05; done"
            done = await yard.shell(f"({child}) & while :; do sleep 1; done", timeout=1.0)
            assert done.timed_out, f"it ended by itself: {done}"
            size = beat.stat().st_size if beat.exists() else 0
            await asyncio.sleep(0.3)
            assert (beat.stat().st_size if beat.exists() else 0) == size, "what it had started goes on"

    @check("RUN-10")
    async def test_run_10_a_missing_program_is_told(self, tmp_path: Path) -> None:
        """A program that is not there is a `RuntimeFailed` that names it, or the exit code 126 or 127."""
        async with self.yard(tmp_path) as yard:
            try:
                done = await yard.run("no-such-program-here")
            except RuntimeFailed as problem:
                assert "no-such-program-here" in str(problem)
            else:
                assert done.exit_code in (126, 127), f"it ended as {done}"

    @check("RUN-11")
    async def test_run_11_the_environment_is_clean(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A sandbox gets what the launch adds, and nothing of the host's own environment."""
        monkeypatch.setenv("CONTRACT_TOKEN", SECRET)
        async with self.yard(tmp_path) as yard:
            said = (await yard.shell("env", env="hello")).stdout.decode("utf-8", "replace")
            assert "CONTRACT_WORD=hello" in said, "what the launch adds is not there"
            assert SECRET not in said, "a variable of the host's environment is there"

    @check("RUN-12")
    async def test_run_12_a_shell_has_a_command_line(self, tmp_path: Path) -> None:
        """`shell` gives the command that opens a shell in the sandbox; no secret is in it."""
        async with self.yard(tmp_path) as yard:
            spec = await yard.launch_spec(secrets={"KEY": SECRET})
            argv: Sequence[str] = await soon(yard.runtime.shell(spec), "shell")
            assert argv and all(isinstance(one, str) and one for one in argv), f"shell gave {argv!r}"
            assert SECRET not in " ".join(argv), "a secret is in the command line"
