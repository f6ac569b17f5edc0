"""The contract of runtimes: a runner's life, and what is found and removed afterwards; and the whole of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from jackfield.api import GroupPlace, Runtime, RuntimeHandle, SessionPlace
from jackfield.errors import RuntimeFailed
from jackfield.ids import AgentGroupId, SessionId
from jackfield.plugins.registry import PluginRegistry
from jackfield.process import proc
from jackfield.testing.contracts.checks import check, children, open_descriptors, skip
from jackfield.testing.contracts.runtime import SECRET, RuntimeBench, RuntimeRuns, Yard
from jackfield.testing.runtimes import BenchContext
from jackfield.testing.sessions import make_session
from jackfield.testing.waiting import BOUND, soon, until

__all__ = ["RuntimeContract"]

_HOT_JOURNAL = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA cache_size = 1")
db.execute("CREATE TABLE IF NOT EXISTS padding (x)")
db.execute("BEGIN IMMEDIATE")
for _ in range(200):
    db.execute("INSERT INTO padding VALUES (randomblob(5000))")
os._exit(9)
"""


class RuntimeLife(RuntimeBench):
    """From `launch` to `collect_garbage`."""

    @check("RUN-20")
    async def test_run_20_a_runner_starts(self, tmp_path: Path) -> None:
        """`launch` starts the session's runner: its heartbeat comes, and the handle names session and epoch."""
        async with self.yard(tmp_path) as yard:
            handle = await yard.launch(epoch=3)
            assert isinstance(handle, RuntimeHandle), f"launch gave {handle!r}"
            assert (handle.session_id, handle.epoch) == (yard.place.session_id, 3)
            assert handle.peer_uid is None or handle.peer_uid >= 0

    @check("RUN-21")
    async def test_run_21_stop_lets_it_end_in_order(self, tmp_path: Path) -> None:
        """`stop` asks first: a runner that is well ends with 0, and `wait` says so as often as it is asked."""
        async with self.yard(tmp_path) as yard:
            handle = await yard.launch()
            await soon(handle.stop(BOUND), "stop", 2 * BOUND)
            assert [await soon(handle.wait(), "wait") for _ in range(2)] == [0, 0]
            await soon(handle.stop(1), "stop of one that has ended")

    @check("RUN-22")
    async def test_run_22_kill_ends_everything(self, tmp_path: Path) -> None:
        """`kill` comes back when the runner is gone; it wrote its last heartbeat before."""
        async with self.yard(tmp_path) as yard:
            handle = await yard.launch()
            waiting = asyncio.create_task(handle.wait())
            await soon(handle.kill(), "kill")
            last = yard.folder.heartbeat_at()
            assert await soon(waiting, "wait") != 0, "a killed runner did not end well"
            await asyncio.sleep(0.5)  # heartbeats would come every 0.2 s
            assert yard.folder.heartbeat_at() == last, "something still writes heartbeats"
            await soon(handle.kill(), "kill of one that is gone")

    @check("RUN-23")
    async def test_run_23_last_words_are_kept(self, tmp_path: Path) -> None:
        """What a runner wrote is in `logs` and went to the host's drain, also when it died at once."""
        async with self.yard(tmp_path) as yard:
            spec = await yard.launch_spec()
            yard.folder.spec_file.write_text('{"format": 9999}', encoding="utf-8")
            handle = await soon(yard.runtime.launch(spec), "launch", 120)
            yard.handles.append(handle)
            code = await soon(handle.wait(), "wait")
            assert code == 78, f"a runner that does not fit its host ends with 78, this says {code}; {handle.logs()}"
            words = "\n".join(handle.logs())
            assert "9999" in words, f"the last words are {words!r}"
            assert any("9999" in line for _, line in yard.context.lines), "the host's log drain got nothing"

    @check("RUN-24")
    async def test_run_24_a_session_has_one_runner(self, tmp_path: Path) -> None:
        """A second launch for a live runner's session is refused, and the first one lives on (C101)."""
        async with self.yard(tmp_path) as yard:
            handle = await yard.launch()
            spec = await yard.launch_spec(epoch=1)
            with pytest.raises(RuntimeFailed):
                yard.handles.append(await soon(yard.runtime.launch(spec), "launch", 120))
            await _beats(yard)
            await soon(handle.kill(), "kill")
            assert (await yard.launch(epoch=2)).epoch == 2

    @check("RUN-25")
    async def test_run_25_secrets_are_on_no_command_line(self, tmp_path: Path) -> None:
        """Secrets reach a runner by descriptor or file: no process has them in its arguments or its environment."""
        if not proc.HAS_PROC:
            skip("processes can't be looked at on this system")
        async with self.yard(tmp_path) as yard:
            await yard.launch(secrets={"CONTRACT_KEY": SECRET})
            shown = await asyncio.to_thread(_shown, SECRET.encode())
            assert not shown, f"the secret can be read in {shown}"

    @check("RUN-26")
    async def test_run_26_nothing_is_left_of_a_runner(self, tmp_path: Path) -> None:
        """After `stop` and `collect_garbage` no process, descriptor or file named after the session is left."""
        async with self.yard(tmp_path) as yard:
            await soon((await yard.launch()).stop(BOUND), "stop", 2 * BOUND)  # whatever is made once, is made now
            before, running = open_descriptors(), children()
            handle = await yard.launch(epoch=2)
            await soon(handle.stop(BOUND), "stop", 2 * BOUND)
            await soon(yard.runtime.collect_garbage(), "collect_garbage")
            await until(lambda: not children() - running, "all processes to be gone")
            left = [target for number, target in open_descriptors().items() if number not in before]
            assert not left, f"these stay open: {left}"
            files = [str(path) for path in yard.context.folder.rglob(f"*{yard.place.session_id}*") if path.is_file()]
            assert not files, f"these files stay: {files}"

    @check("RUN-27")
    async def test_run_27_a_broken_mailbox_is_recovered(self, tmp_path: Path) -> None:
        """`recover` rolls a dead runner's half-written transaction back, so that the host can read again (C209)."""
        async with self.yard(tmp_path) as yard:
            await soon((await yard.launch()).stop(BOUND), "stop", 2 * BOUND)
            outbound = yard.folder.outbound_db
            await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", _HOT_JOURNAL, str(outbound)], check=False, timeout=BOUND
            )
            assert yard.folder.outbound_journal.stat().st_size > 0, "the suite could not make a hot journal"
            await soon(yard.runtime.recover(yard.place), "recover", 60)
            try:
                assert _rows(outbound) == 0, "half a transaction is still there"
            except sqlite3.OperationalError as problem:
                raise AssertionError(f"the host still can't read it: {problem}") from None
            await soon(yard.runtime.recover(yard.place), "recover of a sound one", 60)

    @check("RUN-28")
    async def test_run_28_a_dead_host_s_runner_is_adopted(self, tmp_path: Path) -> None:
        """A runner whose host was killed goes on; the next host finds it by session and epoch, and ends it (C099)."""
        async with self.yard(tmp_path) as yard:
            await self._orphan(yard, epoch=4)
            await _beats(yard)
            adopted = await soon(yard.runtime.adopt(), "adopt")
            yard.handles.extend(adopted)
            assert len(adopted) == 1, f"one runner was left behind, {len(adopted)} were adopted"
            found = adopted[0]
            assert (found.session_id, found.epoch) == (yard.place.session_id, 4)
            assert list(await soon(yard.runtime.adopt(), "a second adopt")) == [], "it adopts the same one twice"
            await soon(found.stop(BOUND), "stop", 2 * BOUND)
            await soon(found.wait(), "wait")

    @check("RUN-29")
    async def test_run_29_another_install_is_left_alone(self, tmp_path: Path) -> None:
        """What belongs to another install is neither adopted nor collected (C099)."""
        async with self.yard(tmp_path) as yard:
            await yard.launch()
            stranger = BenchContext(yard.context.home, install_id="install-two")
            other: Runtime = self.make(stranger)
            assert list(await soon(other.adopt(), "adopt")) == [], "it adopted another install's runner"
            await soon(other.collect_garbage(), "collect_garbage")
            await _beats(yard)

    @check("RUN-30")
    async def test_run_30_collecting_is_always_fine(self, tmp_path: Path) -> None:
        """`collect_garbage` spares live runners, may be called twice, and in a home where nothing ever ran."""
        async with self.yard(tmp_path) as yard:
            await soon(yard.runtime.collect_garbage(), "collect_garbage in an empty home")
            await yard.launch()
            for _ in range(2):
                await soon(yard.runtime.collect_garbage(), "collect_garbage")
            await _beats(yard)

    async def _orphan(self, yard: Yard, *, epoch: int) -> None:
        """A runner that another process launched, which is dead now."""
        make_session(yard.place, paths=yard.runtime.paths(yard.place), install_id=yard.context.install_id, epoch=epoch)
        os.utime(yard.folder.heartbeat, (1, 1))
        place = yard.place
        told = {
            "plugin": self.plugin,
            "settings": dict(self.settings),
            "home": str(yard.context.home),
            "install": yard.context.install_id,
            "epoch": epoch,
            "place": [place.session_id, str(place.folder), place.group.agent_group_id, str(place.group.folder)],
            "path": sys.path,
        }
        code = "import sys; from jackfield.testing.contracts.runtime_life import be_a_host; be_a_host(sys.argv[1])"
        host = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, json.dumps(told), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert host.stdout is not None and host.stderr is not None
        line = await soon(host.stdout.readline(), "another host to launch a runner", 120)
        if line != b"up\n":
            host.kill()
            raise AssertionError(f"another host could not launch: {(await host.stderr.read()).decode()[-2000:]}")
        host.send_signal(signal.SIGKILL)
        await host.communicate()


class RuntimeContract(RuntimeLife, RuntimeRuns):
    """For a runtime: `class TestPod(RuntimeContract): plugin = "pod"`.

    Real runners are started; a runtime that says it can't be used on this machine has most checks skipped.
    """


def be_a_host(told: str) -> None:
    """Launch one runner, say so, and wait to be killed."""
    request = json.loads(told)
    sys.path[:] = request["path"]
    session_id, folder, group_id, group = request["place"]
    place = SessionPlace(
        session_id=SessionId(session_id),
        folder=Path(folder),
        group=GroupPlace(agent_group_id=AgentGroupId(group_id), folder=Path(group)),
    )

    async def host() -> None:
        context = BenchContext(Path(request["home"]), install_id=request["install"])
        kind = PluginRegistry(state_file=None, strict=True).runtime_type(request["plugin"])
        settings = kind.settings.model_validate(request["settings"]) if kind.settings else request["settings"]
        runtime = kind.create(context, settings)
        await runtime.check()
        yard = Yard(runtime, context, place, make_session(place))
        await yard.launch(epoch=request["epoch"])
        print("up", flush=True)
        await asyncio.Event().wait()

    asyncio.run(host())


async def _beats(yard: Yard) -> None:
    """Wait for a heartbeat that is newer than now."""
    before = yard.folder.heartbeat_at() or 0
    await until(lambda: (yard.folder.heartbeat_at() or 0) > before, "another heartbeat")


def _rows(path: Path) -> int:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
        return int(db.execute("SELECT count(*) FROM padding").fetchone()[0]) if "padding" in tables else 0
    finally:
        db.close()


def _shown(secret: bytes) -> list[Path]:
    """Where it can be read: arguments and environments of all processes."""
    everywhere = (path for name in ("cmdline", "environ") for path in Path("/proc").glob(f"[0-9]*/{name}"))
    return [path for path in everywhere if secret in _bytes_of(path)]


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
