"""Runners that are forked from a nursery: they are what a runner is that was started, and nothing depends on it.

What `test_process_runners.py` says of all runners is tried there for these as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.api import Isolation, Limits
from jackfield.errors import RuntimeFailed
from jackfield.process import environment, nursery, probe, proc
from jackfield.process.handle import ProcessHandle
from jackfield.process.launch import nursery as inside
from jackfield.process.nursery import Nursery, fits
from jackfield.process.runtime import ProcessRuntime
from jackfield.process.settings import ProcessSettings
from jackfield.testing.runtimes import BOUND, make_launch, make_place
from process_kit import ESCAPE, NURSLING, WAITS, Bench, scene

BORN = "print('born', born == __import__('os').getpid(), flush=True)"


@pytest.fixture
def before() -> set[int]:
    """The children that other files' tests have left to this process: a server for all of them, say."""
    gc.collect()  # a nursery that nobody holds any more ends now
    return children()


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: set[int]) -> AsyncIterator[Bench]:
    monkeypatch.syspath_prepend(NURSLING)
    made = Bench(tmp_path / "home", "auto", forked=True)
    health = await made.runtime("").check()
    if health.isolation is not Isolation.NAMESPACES:
        pytest.skip(f"nothing isolates here: {health.detail}")
    yield made
    await made.end()
    assert children() - before == set()


def nursery_of(runtime: ProcessRuntime) -> Nursery:
    assert runtime._nursery is not None
    return runtime._nursery


async def lines(handle: ProcessHandle) -> list[str]:
    async with asyncio.timeout(BOUND):
        assert await handle.wait() == 0, list(handle.logs())
    return list(handle.logs())


async def again(bench: Bench, runtime: ProcessRuntime, epoch: int, **more: Any) -> list[str]:
    return await lines(await bench.launch_with(runtime, epoch=epoch, **more))


FACTS = """
    import asyncio, ctypes, gc, json, locale, os, resource, signal, socket, sys, tempfile, threading, time
    def shown(name):
        with open(f"/proc/self/{name}", "rb") as stream:
            return stream.read().rstrip(b"\\0").decode()
    def mounts():
        return sorted(" ".join(line.split()[4:6]) for line in shown("mountinfo").splitlines())
    status = dict(line.split(":", 1) for line in shown("status").splitlines())
    kept = "Name Umask State Uid Gid Groups NSpid NoNewPrivs Seccomp Seccomp_filters Threads".split()
    facts = {
        "environment": dict(os.environ),
        "seen environment": [one for one in shown("environ").split("\\0") if one.startswith("JACKFIELD_SESSION=")],
        "command line": shown("cmdline").split("\\0"),
        "folder": os.getcwd(),
        "arguments": sys.argv,
        "own arguments": sys.orig_argv,
        "flags": str(sys.flags),
        "path": sys.path,
        "main": sys.modules["__main__"].__spec__.name,
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name},
        "status": {name: value for name, value in status.items() if name in kept or name[:3] in ("Sig", "Cap", "Shd")},
        "handlers": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
        "ids": [os.getpid(), os.getsid(0), os.getpgrp(), os.getppid(), os.getresuid(), os.getresgid(), os.getgroups()],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "outputs": [os.readlink(f"/proc/self/fd/{number}") for number in range(3)],
        "streams": [
            (one.name, one.encoding, one.errors, one.line_buffering, one.write_through, one.isatty())
            for one in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "text": [sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL)],
        "time zone": [time.tzname, time.strftime("%z")],
        "collecting": [gc.isenabled(), gc.get_threshold()],
        "threads": threading.active_count(),
        "loop": asyncio.get_event_loop_policy()._local._loop is None,
        "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
        "dumpable": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0),
        "host name": socket.gethostname(),
        "temporary": tempfile.gettempdir(),
        **{f"mounts {at}": mounts()[at:at + 10] for at in range(0, len(mounts()), 10)},  # a line is bounded
        "root": sorted(os.listdir("/")),
        "nice": os.nice(0),
    }
    for name, found in facts.items():
        print(json.dumps([name, found]))
    """


async def test_a_forked_runner_finds_what_a_started_one_finds(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Identity, rights, limits, files, signals, streams, import path: all that a process has from its start."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    found = []
    for forked in (True, False):
        runtime = bench.runtime("", settings=ProcessSettings(nursery=forked))
        script = bench.environment(FACTS + "print(born == os.getpid())")
        extra = {"SOME_SETTING": "ä"}
        *said, itself = await again(bench, runtime, 1, environment={**script, **extra}, secrets={"KEY": "s3cret"})
        assert itself == str(not forked)
        found.append(dict(map(json.loads, said)))
    forked_facts, started_facts = found
    assert forked_facts == started_facts
    assert forked_facts["environment"]["SOME_SETTING"] == "ä"
    assert forked_facts["time zone"] == [["+0545", "+0545"], "+0545"]
    assert set(forked_facts["status"]["CapEff"].strip()) == {"0"}


async def test_a_forked_runner_can_do_what_the_level_says_and_nothing_else(bench: Bench) -> None:
    """By the same attempts, and the same judgement, as the probe."""
    runtime, home = bench.runtime(""), bench.context.home
    health = await runtime.check()
    same_group, other_group = make_place(home, group=bench.place.group), make_place(home)
    for epoch, other in enumerate((same_group, other_group)):
        with scene(home, bench.place, other, other_group) as where:
            script = f"""
                import runpy, sys
                {BORN}
                sys.argv = ["escape.py", {where!r}]
                runpy.run_path({str(ESCAPE)!r}, run_name="__main__")
                """
            born, said = await again(bench, runtime, epoch, environment=bench.environment(script))
        found = json.loads(said)
        assert born == "born False"
        assert {name for name, could in found.items() if could} == {*probe.NEEDED, "reach_network"}
        assert runtime._proof is not None
        assert probe.judge(runtime._proof.confinement, found, network=True) == []
        assert health.isolation is Isolation.NAMESPACES


async def test_a_forked_runner_sees_nothing_of_the_nursery(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the process, nor a descriptor, nor what an earlier runner's plan said."""
    monkeypatch.setenv("TELEGRAM_TOKEN", "needle-of-the-host")
    runtime = bench.runtime("")
    first = {"NURSLING_SCRIPT": "pass", "OF_THE_FIRST": "needle-in-the-plan"}
    await again(bench, runtime, 1, environment=first, secrets={"KEY": "needle-in-the-pipe"})
    pid = nursery_of(runtime).pid
    script = f"""
        import os
        print([name for name in os.listdir("/proc") if name.isdigit()], os.path.exists("/proc/{pid}"))
        try:
            os.kill({pid}, 0)
        except ProcessLookupError:
            print("no such process")
        """
    added = {**bench.environment(script + BORN + "; " + WAITS), "OF_THE_SECOND": "needle-that-is-there"}
    handle = await bench.launch_with(runtime, epoch=2, environment=added)
    await bench.context.until_lines("ready")
    assert list(handle.logs()) == ["['1', '2'] False", "no such process", "born False", "ready"]
    assert nursery_of(runtime).pid == pid
    (runner,) = (Path(f"/proc/{handle.pid}/task/{handle.pid}/children")).read_text(encoding="ascii").split()
    for one in (handle.pid, int(runner)):
        assert needles_in(one) == {b"needle-that-is-there"}
    assert pid is not None
    assert needles_in(pid) == set()


async def test_a_nursery_has_nothing_to_give_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELEGRAM_TOKEN", "s3cret")
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        runtime = bench.runtime("")
        await again(bench, runtime, 1)
    finally:
        os.close(leaked)
    here = Path(f"/proc/{nursery_of(runtime).pid}")
    assert sorted(path.name for path in (here / "fd").iterdir()) == ["0", "1", "2", "3"]
    assert len(list((here / "task").iterdir())) == 1
    variables = {one.partition(b"=")[0] for one in (here / "environ").read_bytes().split(b"\0") if one}
    assert b"TELEGRAM_TOKEN" not in variables
    assert variables <= {
        name.encode()
        for name in environment.clean_environment(
            os.environ, home=Path("/"), temporary="/tmp", mark="", import_path=["x"]
        )
    }


def test_what_a_nursery_imports_is_no_plugin_and_leaves_nothing_open() -> None:
    """Architecture 3: only its group's provider and tool plugins are ever loaded in a runner, and only inside."""
    script = """
        import os, sys, threading
        before = set(os.listdir("/proc/self/fd"))
        from jackfield.runner import __main__
        __main__.warm()
        print(set(os.listdir("/proc/self/fd")) - before, threading.active_count())
        print(sorted({name.partition(".")[0] for name in sys.modules if name.startswith("jackfield")}))
        print([name for name in ("jackfield.runner.agent", "jackfield.api", "sqlite3") if name not in sys.modules])
        """
    done = subprocess.run(
        [sys.executable, "-s", "-P", "-c", textwrap.dedent(script)],
        capture_output=True,
        encoding="utf-8",
        timeout=BOUND,
    )
    assert done.stdout.splitlines() == ["set() 1", "['jackfield']", "[]"], done.stderr


async def test_two_forked_runners_draw_different_lots(bench: Bench) -> None:
    runtime = bench.runtime("")
    script = bench.environment(
        "import random, uuid, secrets; from jackfield.ids import new_id\n"
        "print(random.random(), uuid.uuid4(), secrets.token_hex(), new_id('x')[-10:])"
    )
    (first,) = await again(bench, runtime, 1, environment=script)
    (second,) = await again(bench, runtime, 2, environment=script)
    assert not set(first.split()) & set(second.split())


async def test_a_runner_ends_as_an_interpreter_ends(bench: Bench) -> None:
    """Its threads are awaited, what was registered is run, what was written is flushed, a problem is shown."""
    runtime = bench.runtime("")
    script = """
        import atexit, sys, threading
        go = threading.Event()
        threading.Thread(target=lambda: (go.wait(), print("thread"))).start()
        atexit.register(print, "registered")
        print("written")
        go.set()
        raise LookupError("nothing there")
        """
    handle = await bench.launch_with(runtime, environment=bench.environment(script))
    async with asyncio.timeout(BOUND):
        assert await handle.wait() == 1
    said = list(handle.logs())
    assert {"written", "thread", "registered", "LookupError: nothing there"} <= set(said)
    assert said.index("thread") < said.index("registered")


async def test_the_launchs_limits_hold_for_a_forked_runner(bench: Bench) -> None:
    runtime = bench.runtime("")
    script = (
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    spec = make_launch(bench.place, bench.context, limits=Limits(open_files=99), environment=bench.environment(script))
    handle = await runtime.launch(spec)
    assert isinstance(handle, ProcessHandle)
    assert await lines(handle) == ["(99, 99) (0, 0)"]


async def test_runners_outlive_a_nursery_that_is_killed_and_the_next_comes_from_another(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = bench.runtime("")
    waiting = await bench.launch_with(runtime, environment=bench.environment(BORN + "; " + WAITS))
    await bench.context.until_lines("ready")
    first = nursery_of(runtime).pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until_gone(first)
    bench.place = make_place(bench.context.home)
    assert await again(bench, runtime, 1, environment=bench.environment(BORN)) == ["born False"]
    assert nursery_of(runtime).pid not in (None, first)
    assert waiting.record.alive()
    async with asyncio.timeout(BOUND):
        await waiting.stop(0.05)
        assert await waiting.wait() == 128 + signal.SIGTERM
    assert "could not be forked" not in caplog.text


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_nursery_that_dies_or_hangs_over_a_request_stops_no_runner_from_starting(
    bench: Bench,
    before: set[int],
    how: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = bench.runtime("")
    await again(bench, runtime, 1, environment=bench.environment(BORN))
    first = nursery_of(runtime).pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    patience = nursery._PATIENCE
    if how is signal.SIGSTOP:
        monkeypatch.setattr(nursery, "_PATIENCE", 0.2)
    asked, send = asyncio.Event(), nursery_of(runtime).send
    loop = asyncio.get_running_loop()

    def sent(*given: Any) -> int:
        try:
            return send(*given)
        finally:
            loop.call_soon_threadsafe(asked.set)

    monkeypatch.setattr(nursery_of(runtime), "send", sent)
    launching = asyncio.create_task(again(bench, runtime, 2, environment=bench.environment(BORN)))
    async with asyncio.timeout(BOUND):
        await asked.wait()
        if how is signal.SIGKILL:
            os.kill(first, signal.SIGKILL)
        assert await launching == ["born True"]
    assert "could not be forked" in caplog.text
    assert proc.entry(first) is None
    monkeypatch.setattr(nursery, "_PATIENCE", patience)
    assert await again(bench, runtime, 3, environment=bench.environment(BORN)) == ["born False"]
    assert children() - before == {nursery_of(runtime).pid}


async def test_many_that_wait_for_one_that_hangs_are_one_failure(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = bench.runtime("")
    await again(bench, runtime, 1)
    first = nursery_of(runtime).pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    patience = nursery._PATIENCE
    monkeypatch.setattr(nursery, "_PATIENCE", 0.5)
    born = bench.environment(BORN)
    launches = [make_launch(make_place(bench.context.home), bench.context, environment=born) for _ in range(4)]
    handles = await asyncio.gather(*(runtime.launch(one) for one in launches))
    monkeypatch.setattr(nursery, "_PATIENCE", patience)
    for handle in handles:
        assert isinstance(handle, ProcessHandle)
        assert (await lines(handle))[0].startswith("born ")
    assert "could not be forked" in caplog.text
    assert nursery_of(runtime)._failures < 2
    assert await again(bench, runtime, 2, environment=born) == ["born False"]


async def test_a_nursery_that_never_works_is_given_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nursery, "_BOOT", "raise SystemExit('broken on purpose')")
    runtime = bench.runtime("")
    for epoch in range(1, 6):
        assert await again(bench, runtime, epoch, environment=bench.environment(BORN)) == ["born True"]
    assert caplog.text.count("could not be forked") == 3
    assert caplog.text.count("this host forks no more") == 1
    assert "broken on purpose" in (bench.context.folder / "nursery.log").read_text(encoding="utf-8")
    assert nursery_of(runtime).pid is None


async def test_a_launch_that_is_wrong_itself_says_so_and_costs_no_nursery(bench: Bench) -> None:
    runtime = bench.runtime("")
    await again(bench, runtime, 1)
    first = nursery_of(runtime).pid
    plan = runtime._plan

    def wrong(*given: Any, **more: Any) -> Any:
        return {**plan(*given, **more), "cwd": "/not/there"}

    runtime._plan = wrong
    for epoch in range(2, 7):
        with pytest.raises(RuntimeFailed, match="/not/there"):
            await bench.launch_with(runtime, epoch=epoch)
    runtime._plan = plan
    assert await again(bench, runtime, 8, environment=bench.environment(BORN)) == ["born False"]
    assert nursery_of(runtime).pid == first


async def test_sixteen_at_once_are_sixteen_runners(bench: Bench, before: set[int]) -> None:
    """Each with its own session, output, secrets and exit code."""
    runtime = bench.runtime("")
    script = bench.environment(
        "import json, os, sys\n"
        "print(os.path.basename(sys.argv[1]), json.load(os.fdopen(6))['KEY'], born == os.getpid())"
    )
    places = [make_place(bench.context.home, group=bench.place.group) for _ in range(16)]
    handles = await asyncio.gather(
        *(
            runtime.launch(make_launch(place, bench.context, secrets={"KEY": str(number)}, environment=script))
            for number, place in enumerate(places)
        )
    )
    for number, (place, handle) in enumerate(zip(places, handles, strict=True)):
        assert isinstance(handle, ProcessHandle)
        assert await lines(handle) == [f"{place.session_id} {number} False"]
    assert children() - before == {nursery_of(runtime).pid}


async def test_two_runtimes_have_a_nursery_each_which_ends_with_them(
    bench: Bench, before: set[int], tmp_path: Path
) -> None:
    other = Bench(tmp_path / "other", "auto", forked=True)
    one, two = bench.runtime(""), other.runtime("")
    assert await again(bench, one, 1, environment=bench.environment(BORN)) == ["born False"]
    assert await again(other, two, 1, environment=other.environment(BORN)) == ["born False"]
    first, second = nursery_of(one).pid, nursery_of(two).pid
    assert children() - before == {first, second}
    one.let_go()
    assert children() - before == {second}
    other.started.clear()  # their ends are told to their runtime
    del two
    gc.collect()
    assert children() - before == set()


async def test_a_nursery_ends_with_a_host_that_is_killed(bench: Bench) -> None:
    host = """
        import sys
        from pathlib import Path
        from jackfield.process.nursery import Nursery
        nursery = Nursery("jackfield_nursling", (sys.executable, "-s", "-P"), Path(sys.argv[1]) / "log")
        nursery._start()
        print(nursery.pid, flush=True)
        sys.stdin.read()
        """
    started = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(host), str(bench.context.home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert started.stdout is not None
    async with asyncio.timeout(BOUND):
        pid = int(await started.stdout.readline())
        assert alive(pid)
        started.kill()
        await started.wait()
        await until_gone(pid)


async def test_what_was_installed_since_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new package may bring a new import path, which only a new interpreter reads."""
    runtime = bench.runtime("")
    await again(bench, runtime, 1)
    first = nursery_of(runtime).pid
    await again(bench, runtime, 2)
    assert nursery_of(runtime).pid == first
    monkeypatch.setattr(environment, "installed_as_of", lambda: (1,))
    assert await again(bench, runtime, 3, environment=bench.environment(BORN)) == ["born False"]
    assert nursery_of(runtime).pid != first


@pytest.mark.parametrize("isolation", ["restricted", "none"])
async def test_other_levels_have_no_nursery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: Any) -> None:
    """There a runner is known again by what its process was started with."""
    monkeypatch.syspath_prepend(NURSLING)
    bench = Bench(tmp_path / "home", isolation, forked=True)
    runtime = bench.runtime("")
    health = await runtime.check()
    if not health.ok:
        pytest.skip(health.detail)
    assert await again(bench, runtime, 1, environment=bench.environment(BORN)) == ["born True"]
    assert nursery_of(runtime).pid is None


async def test_a_runner_of_another_program_has_no_nursery(bench: Bench) -> None:
    runtime = ProcessRuntime(bench.context, ProcessSettings(), runner_argv=(sys.executable, "-c", "print('hello')"))
    assert await again(bench, runtime, 1) == ["hello"]
    assert runtime._nursery is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PYTHONHASHSEED", "1"), ("LD_PRELOAD", "x"), ("LC_ALL", "de_DE"), ("JACKFIELD_KILL_AT", "runner.claim.before")],
)
async def test_what_is_only_read_at_an_interpreters_start_needs_a_start(
    bench: Bench, variable: str, value: str
) -> None:
    runtime = bench.runtime("")
    place = bench.place
    confinement = await runtime._confinement()
    make = runtime._plan
    given = {"limits": Limits(), "mark": "m"}
    assert fits(make(place, ["true"], confinement, added={"ANY": "thing"}, **given))
    assert not fits(make(place, ["true"], confinement, added={variable: value}, **given))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_an_ordinary_users_forked_runner_has_no_capability_either(tmp_path: Path) -> None:
    """In a user namespace a process has them all until it starts a program, which a fork never does."""
    python = "/usr/bin/python3"
    version = "import sys; print(sys.version_info[:2])"
    if not Path(python).exists() or subprocess.check_output([python, "-c", version]) != subprocess.check_output(
        [sys.executable, "-c", version]
    ):
        pytest.skip(f"{python} is no Python of this version")
    tests = Path(__file__).parent
    imports = [
        str(tests), str(NURSLING), str(Path(inside.__file__).parents[3]),
        *(entry for entry in sys.path if "site-packages" in entry),
    ]  # fmt: skip
    home = Path("/var/tmp") / f"jackfield-test-{os.getpid()}-nursery"
    home.mkdir(mode=0o755)
    os.chown(home, 1500, 1500)
    script = """
        import asyncio, sys
        from pathlib import Path
        from process_kit import ESCAPE, Bench, scene
        from jackfield.process import probe
        from jackfield.testing.runtimes import make_place
        async def main():
            bench = Bench(Path(sys.argv[1]), "namespaces", forked=True)
            runtime = bench.runtime("")
            health = await runtime.check()
            print(health.ok, health.detail)
            other = make_place(bench.context.home)
            with scene(bench.context.home, bench.place, other, other) as where:
                script = f"import runpy, sys; print(born); sys.argv = ['', {where!r}]; "
                script += f"runpy.run_path({str(ESCAPE)!r}, run_name='__main__')"
                handle = await bench.launch_with(runtime, environment=bench.environment(script))
                assert await handle.wait() == 0
            born, said = handle.logs()
            print(born == str(runtime._nursery.pid))
            print(probe.judge(runtime._proof.confinement, __import__("json").loads(said), network=True))
        asyncio.run(main())
        """
    try:
        done = subprocess.run(
            [python, "-c", textwrap.dedent(script), str(home / "home")],
            user=1500,
            group=1500,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(imports), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            encoding="utf-8",
            timeout=BOUND * 2,
        )
    finally:
        shutil.rmtree(home)
    if "Permission denied" in done.stderr and not done.stdout:
        pytest.skip("the checkout can't be read by other users")
    if "making namespaces" in done.stdout:
        pytest.skip(f"nothing isolates here: {done.stdout}")
    proved, born, problems = done.stdout.splitlines() or ["", "", done.stderr]
    assert (proved.startswith("True proved"), born, problems) == (True, "True", "[]"), done.stdout + done.stderr


def alive(pid: int) -> bool:
    found = proc.entry(pid)
    return found is not None and found.state not in "ZX"


def needles_in(pid: int) -> set[bytes]:
    """Which words that begin with "needle-" lie in what the process may write to."""
    out: set[bytes] = set()
    with Path(f"/proc/{pid}/maps").open(encoding="utf-8") as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            span, rights = line.split()[:2]
            if rights.startswith("rw"):
                start, end = (int(one, 16) for one in span.split("-"))
                memory.seek(start)
                out |= set(re.findall(rb"needle-[a-z-]+", memory.read(end - start)))
    return out


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(BOUND):
        while alive(pid):
            await asyncio.sleep(0.01)


def children() -> set[int]:
    """This process's own, dead ones that nobody has awaited among them."""
    out: set[int] = set()
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended
            out |= {int(pid) for pid in (task / "children").read_text(encoding="ascii").split()}
    return out
