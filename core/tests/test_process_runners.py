"""Runners of the `process` runtime: starting, awaiting, ending, output, and finding them again.

Real processes; a short script stands for the runner.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.api import Isolation, Limits, Runtime, RuntimeHandle
from jackfield.errors import RuntimeFailed
from jackfield.process import proc
from jackfield.process.output import KEPT_LINES, LineCutter
from jackfield.process.plugin import register_runtimes
from jackfield.process.records import RunnerRecord
from jackfield.process.runtime import ProcessRuntime
from jackfield.process.settings import ProcessSettings
from jackfield.testing.runtimes import BOUND, BenchContext, make_launch
from process_kit import NURSLING, WAITS, Bench


@pytest.fixture(params=["none", "auto", "forked"])
async def bench(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[Bench]:
    forked = request.param == "forked"
    made = Bench(tmp_path / "home", "auto" if forked else request.param, forked=forked)
    if forked:
        monkeypatch.syspath_prepend(NURSLING)
        health = await made.runtime("").check()
        if health.isolation is not Isolation.NAMESPACES:
            pytest.skip(f"nothing isolates here: {health.detail}")
    yield made
    await made.end()
    assert "could not be forked" not in caplog.text


async def ended(handle: RuntimeHandle) -> int:
    async with asyncio.timeout(BOUND):
        return await handle.wait()


def test_the_entry_point_offers_the_process_runtime(tmp_path: Path) -> None:
    (found,) = register_runtimes()
    assert found.name == "process"
    assert isinstance(found.create(BenchContext(tmp_path), None), Runtime)


async def test_a_runner_gets_the_session_folder_and_its_exit_code_comes_back(bench: Bench) -> None:
    handle = await bench.launch("import sys; print(sys.argv[1]); sys.exit(7)")
    assert await ended(handle) == 7
    assert list(handle.logs()) == [str(bench.place.folder)]
    assert bench.context.lines == [(bench.place.session_id, str(bench.place.folder))]


async def test_waiting_twice_gives_the_same_code(bench: Bench) -> None:
    handle = await bench.launch("")
    assert [await ended(handle), await ended(handle)] == [0, 0]


async def test_the_last_lines_of_a_runner_that_dies_early_are_kept(bench: Bench) -> None:
    """C207."""
    handle = await bench.launch("import sys; sys.stderr.write('needs protocol 4\\nno line end'); sys.exit(1)")
    assert await ended(handle) == 1
    assert list(handle.logs()) == ["needs protocol 4", "no line end"]


async def test_a_flood_of_output_neither_blocks_the_runner_nor_is_kept(bench: Bench) -> None:
    handle = await bench.launch("for _ in range(400_000): print('x' * 100)\nprint('last')")
    assert await ended(handle) == 0
    assert handle.logs()[-1] == "last"
    assert len(handle.logs()) == KEPT_LINES


async def test_a_line_without_end_is_cut(bench: Bench) -> None:
    handle = await bench.launch("print('y' * 50_000); print('after')")
    assert await ended(handle) == 0
    long, after = handle.logs()
    assert (len(long), after) == (4097, "after")


async def test_output_is_read_while_the_runner_lives(bench: Bench) -> None:
    await bench.launch(WAITS)
    await bench.context.until_lines("ready")


async def test_a_runner_is_asked_to_end_first(bench: Bench) -> None:
    handle = await bench.launch(
        """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: (print("in order"), sys.exit(3)))
        print("ready", flush=True)
        while True:
            signal.pause()
        """
    )
    await bench.context.until_lines("ready")
    async with asyncio.timeout(BOUND):
        await handle.stop(BOUND)
    assert await ended(handle) == 3
    assert handle.logs()[-1] == "in order"


async def test_a_runner_that_does_not_listen_is_killed(bench: Bench) -> None:
    handle = await bench.launch(
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        while True:
            signal.pause()
        """
    )
    await bench.context.until_lines("ready")
    async with asyncio.timeout(BOUND):
        await handle.stop(0.05)
    assert await ended(handle) == 128 + signal.SIGKILL


async def test_nothing_that_a_runner_started_outlives_it(bench: Bench) -> None:
    """Grandchildren in a session of their own and without our variable, orphaned, end with the runner."""
    handle = await bench.launch(
        """
        import os, signal, subprocess, sys
        code = "import os; os.write(1, b'child\\\\n'); import signal; signal.pause()"
        for environment in (dict(os.environ), {}):
            subprocess.Popen(
                [sys.executable, "-S", "-c", f"import os; os.fork() and os._exit(0); os.setsid(); {code}"],
                env=environment,
            ).wait()
        print("ready", flush=True)
        signal.pause()
        """
    )
    await bench.context.until_lines("ready")
    await bench.context.until_lines("child", 2)
    below = descendants(handle.pid)
    assert len(below) >= 2
    async with asyncio.timeout(BOUND):
        await handle.kill()
    assert [pid for pid in below if alive(pid)] == []


async def test_a_daemon_left_behind_by_a_runner_that_ended_is_killed(bench: Bench) -> None:
    handle = await bench.launch(
        """
        import os, signal
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            print(f"daemon", flush=True)
            os.write(write, b"!")
            signal.pause()
        os.read(read, 1)
        """
    )
    assert await ended(handle) == 0
    assert proc.marked(handle.record.mark) == {}


async def test_the_environment_is_built_and_not_copied(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_TOKEN", "secret")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    script = "import os; print(sorted(os.environ.items()))"
    handle = await bench.launch(script, environment={"JACKFIELD_KILL_AT": "runner.claim.before"})
    assert await ended(handle) == 0
    (line,) = handle.logs()
    found = dict(eval(line))
    assert set(found) - {"TZ", "PYTHONPATH", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "PIP_CERT"} == {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "JACKFIELD_SESSION",
        "JACKFIELD_KILL_AT",
    }  # fmt: skip
    assert found["HOME"] == str(bench.place.group.workspace)
    assert found["JACKFIELD_SESSION"] == f"install-one:{bench.place.session_id}:1"


async def test_a_runner_has_no_descriptor_of_the_host(bench: Bench) -> None:
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        handle = await bench.launch("import os; print(sorted(os.listdir('/proc/self/fd'))); print(os.read(0, 1))")
        assert await ended(handle) == 0
    finally:
        os.close(leaked)
    assert list(handle.logs()) == ["['0', '1', '2', '3']", "b''"]  # 3 is the listing itself


async def test_secrets_come_by_a_descriptor_only(bench: Bench) -> None:
    script = """
        import json, os
        with os.fdopen(int(os.environ["JACKFIELD_SECRETS_FD"])) as stream:
            print(json.load(stream))
        print([name for name in ("environ", "cmdline") if b"s3" + b"cret" in open(f"/proc/self/{name}", "rb").read()])
        """
    handle = await bench.launch(script, secrets={"KEY": "s3cret"})
    assert await ended(handle) == 0
    assert list(handle.logs()) == ["{'KEY': 's3cret'}", "[]"]


async def test_a_program_that_is_not_there_is_an_error_that_names_it(bench: Bench) -> None:
    runtime = ProcessRuntime(
        bench.context, ProcessSettings(isolation=bench.isolation), runner_argv=("/no/such/program",)
    )
    with pytest.raises(RuntimeFailed, match="/no/such/program"):
        await runtime.launch(make_launch(bench.place, bench.context))
    assert list((bench.context.folder / "runners").glob("*.json")) == []


async def test_a_launch_that_is_called_off_leaves_no_runner(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = bench.runtime(WAITS)
    await runtime.check()
    undo, undone = runtime._undo, asyncio.Event()

    def watched(launching: asyncio.Future[RunnerRecord]) -> None:
        undo(launching)
        undone.set()

    monkeypatch.setattr(runtime, "_undo", watched)
    launching = asyncio.create_task(bench.launch_with(runtime))
    await asyncio.sleep(0)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    async with asyncio.timeout(BOUND):
        await undone.wait()
    assert proc.marked(f"install-one:{bench.place.session_id}:1") == {}
    assert (await bench.launch_with(runtime, epoch=2)).epoch == 2


async def test_a_session_has_one_runner(bench: Bench) -> None:
    """C101: a live one is neither replaced nor doubled; a dead one is no hindrance."""
    runtime = bench.runtime(WAITS)
    first = await bench.launch_with(runtime)
    with pytest.raises(RuntimeFailed, match="has a runner already"):
        await bench.launch_with(runtime, epoch=2)
    with pytest.raises(RuntimeFailed, match="has a runner already"):
        await bench.launch_with(bench.runtime(WAITS), epoch=2)  # another host of the same home
    await first.kill()
    second = await bench.launch_with(runtime, epoch=3)
    assert second.epoch == 3


async def test_a_runner_left_behind_is_found_again(bench: Bench) -> None:
    first = bench.runtime(WAITS)
    handle = await bench.launch_with(first)
    await bench.context.until_lines("ready")
    first.let_go()
    bench.started.clear()

    second = bench.runtime(WAITS)
    (found,) = await second.adopt()
    bench.started.append(found)
    assert (found.session_id, found.epoch, found.peer_uid) == (handle.session_id, 1, handle.peer_uid)
    assert list(found.logs()) == ["ready"]
    assert await second.adopt() == []
    async with asyncio.timeout(BOUND):
        await found.stop(0.05)
    assert await ended(found) == -1
    os.waitpid(handle.pid, 0)  # in this test both hosts are one process


HOST = """
    import asyncio, json, sys
    from pathlib import Path
    from jackfield.api import GroupPlace, SessionPlace
    from jackfield.process.runtime import ProcessRuntime
    from jackfield.process.settings import ProcessSettings
    from jackfield.testing.runtimes import BenchContext, make_launch
    isolation, home, group_id, group, session_id, session, argv, environment = sys.argv[1:]
    place = SessionPlace(
        session_id=session_id, folder=Path(session), group=GroupPlace(agent_group_id=group_id, folder=Path(group))
    )
    async def main():
        context = BenchContext(Path(home))
        runtime = ProcessRuntime(context, ProcessSettings(isolation=isolation), runner_argv=json.loads(argv))
        await runtime.launch(make_launch(place, context, epoch=4, environment=json.loads(environment)))
        await context.until_lines("ready")
        print("up", flush=True)
        await asyncio.Event().wait()
    asyncio.run(main())
    """


@pytest.mark.skipif(not proc.HAS_PROC, reason="knows processes again by /proc")
async def test_a_runner_outlives_a_host_that_is_killed_and_goes_on_writing(bench: Bench) -> None:
    place = bench.place
    script = textwrap.dedent(
        """
        import os, signal
        os.mkfifo("go")
        print("ready", flush=True)
        open("go").read()
        for _ in range(50_000):
            print("meanwhile", flush=False)
        print("after", flush=True)
        signal.pause()
        """
    )
    arguments = (bench.isolation, bench.context.home, place.group.agent_group_id, place.group.folder)
    started = (json.dumps(bench.argv(script)), json.dumps(bench.environment(script)))
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(HOST), *map(str, (*arguments, place.session_id, place.folder, *started)),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert host.stdout is not None
    async with asyncio.timeout(BOUND):
        assert await host.stdout.readline() == b"up\n"
        host.kill()
        await host.wait()
        runtime = bench.runtime("")
        (found,) = await runtime.adopt()
        bench.started.append(found)
        await asyncio.to_thread((place.group.workspace / "go").write_bytes, b"!")
    await bench.context.until_lines("after")
    assert (found.session_id, found.epoch) == (place.session_id, 4)
    async with asyncio.timeout(BOUND):
        await found.kill()
    assert await ended(found) == -1


async def test_another_installs_runner_is_never_adopted_nor_ended(bench: Bench, tmp_path: Path) -> None:
    """C099: also when its record lies in our folder, and its session has the same name."""
    handle = await bench.launch(WAITS)
    stranger = BenchContext(bench.context.home, install_id="install-o")
    other = bench.runtime(WAITS, context=stranger)
    assert await other.adopt() == []
    await other.collect_garbage()
    assert alive(handle.pid)


async def test_a_recycled_process_id_is_not_taken_for_the_runner(bench: Bench) -> None:
    """The record's id now belongs to this very process, which must survive."""
    first = bench.runtime(WAITS)
    handle = await bench.launch_with(first)
    path = bench.context.folder / "runners" / f"{handle.session_id}.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace(f'"pid": {handle.pid}', f'"pid": {os.getpid()}'), encoding="utf-8"
    )
    second = bench.runtime(WAITS)
    assert await second.adopt() == []
    await second.collect_garbage()
    assert not path.exists()


async def test_records_and_logs_go_with_the_runner(bench: Bench) -> None:
    runtime = bench.runtime("")
    handle = await bench.launch_with(runtime)
    await ended(handle)
    left = [path for path in bench.context.folder.rglob("*") if handle.session_id in path.name and path.is_file()]
    assert left == []


async def test_a_one_shot_has_input_and_output(bench: Bench) -> None:
    runtime = bench.runtime("")
    script = (
        "import sys; d = sys.stdin.buffer.read(); sys.stdout.buffer.write(d[::-1]); sys.stderr.write('e'); sys.exit(5)"
    )
    done = await runtime.run(make_launch(bench.place, bench.context), [sys.executable, "-c", script], b"abc", BOUND)
    assert (done.exit_code, done.stdout, done.stderr, done.timed_out) == (5, b"cba", b"e", False)


async def test_a_one_shot_is_cut_in_output_and_time(bench: Bench) -> None:
    runtime = bench.runtime("")
    script = "import sys, signal; sys.stdout.write('z' * 500_000); sys.stdout.flush(); signal.pause()"
    spec = make_launch(bench.place, bench.context)
    done = await runtime.run(spec, [sys.executable, "-c", script], b"", 1.0, output_limit=1000)
    assert (done.timed_out, done.stdout) == (True, b"z" * 1000)


async def test_a_one_shots_child_that_keeps_the_pipe_does_not_hang_it(bench: Bench) -> None:
    runtime = bench.runtime("")
    script = "import os, signal\nif os.fork() == 0:\n    os.setsid(); signal.pause()\nprint('done')"
    async with asyncio.timeout(BOUND):
        done = await runtime.run(make_launch(bench.place, bench.context), [sys.executable, "-c", script], b"", BOUND)
    assert (done.exit_code, done.stdout) == (0, b"done\n")


async def test_the_file_size_limit_holds(bench: Bench) -> None:
    runtime = bench.runtime("")
    script = "open('big', 'wb').write(b'0' * 3_000_000)"
    spec = make_launch(bench.place, bench.context, limits=Limits(file_size=2_000_000))
    done = await runtime.run(spec, [sys.executable, "-c", script], b"", BOUND)
    assert done.exit_code == 1
    assert b"File too large" in done.stderr
    assert (bench.place.group.workspace / "big").stat().st_size <= 2_000_000


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors by /proc")
async def test_no_descriptor_is_left_open(bench: Bench) -> None:
    runtime = bench.runtime("print('x')")
    await ended(await bench.launch_with(runtime))
    before = len(os.listdir("/proc/self/fd"))
    for epoch in range(2, 5):
        await ended(await bench.launch_with(runtime, epoch=epoch))
        await runtime.run(make_launch(bench.place, bench.context), ["true"], b"", BOUND)
    with pytest.raises(RuntimeFailed):
        await bench.launch_with(ProcessRuntime(bench.context, ProcessSettings(), runner_argv=("/no",)))
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_line_cutter_takes_bytes_in_any_portions() -> None:
    whole = "a\nnaïve – 你好\r\n\nend".encode()
    for size in range(1, 6):
        cutter = LineCutter()
        lines = [line for at in range(0, len(whole), size) for line in cutter.feed(whole[at : at + size])]
        assert [*lines, *cutter.end()] == ["a", "naïve – 你好", "", "end"]


def test_a_process_name_with_parentheses_is_read_right() -> None:
    line = "12 (a) b (c)) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 0 0"
    found = proc.parse_stat(12, line)
    assert found is not None
    assert (found.parent, found.group, found.session, found.started, found.state) == (1, 12, 12, 777, "S")


def alive(pid: int) -> bool:
    found = proc.entry(pid)
    return found is not None and found.state not in "ZX"


def descendants(pid: int) -> set[int]:
    everything = [found for name in os.listdir("/proc") if name.isdigit() and (found := proc.entry(int(name)))]
    out: set[int] = set()
    grown = {pid}
    while grown:
        grown = {found.pid for found in everything if found.parent in grown} - out
        out |= grown
    return out
